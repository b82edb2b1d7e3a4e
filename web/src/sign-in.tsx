/** The sign-in form, which asks for the admin key. */

import { useEffect, useState, type FormEvent } from "react";

import { checkKey } from "./api/check-key.ts";
import { useAction } from "./api/hooks.ts";
import * as session from "./api/session.ts";
import { Field, Notice } from "./ui/components.tsx";
import { Logo } from "./ui/icons.tsx";

export function SignIn({ keyError }: { keyError: string }) {
  const [key, setKey] = useState("");
  const [remember, setRemember] = useState(false);
  // Show the error immediately only if a stored key or one from a link was rejected.
  const [error, setError] = useState<string | null>(session.getKey() === null ? null : keyError);
  const action = useAction();

  useEffect(() => {
    // A gateway without an admin key accepts requests without a key, but rejects unknown keys.
    if (session.getKey() !== null) {
      void checkKey(null).then((error) => error === null && session.clearKey());
    }
  }, []);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    void action.run(async () => {
      const error = await checkKey(key.trim());
      setError(error);
      if (error === null) {
        session.storeKey(key.trim(), remember ? "device" : "tab");
      }
    });
  };

  return (
    <main className="sign-in">
      <form onSubmit={submit}>
        <Logo />
        <h1>Sign in to Toolgate</h1>
        <Field
          label="Admin key"
          hint={
            <>
              Unless you have set one, the key is in <code>admin.key</code> in the data directory, and the
              gateway prints a link that signs in when it starts in a terminal.
            </>
          }
        >
          {(id) => (
            <input
              id={id}
              type="password"
              autoComplete="current-password"
              autoFocus
              required
              value={key}
              onChange={(event) => setKey(event.target.value)}
            />
          )}
        </Field>
        <label className="checkbox">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.target.checked)} />
          Remember on this device
        </label>
        {error !== null && <Notice tone="bad">{error}</Notice>}
        <button type="submit" className="primary" disabled={action.busy || key.trim() === ""}>
          Sign in
        </button>
      </form>
    </main>
  );
}
