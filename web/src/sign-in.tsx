/** Asks for the admin key. */

import { useEffect, useState, type FormEvent } from "react";

import { knock } from "./api/door.ts";
import { useAction } from "./api/hooks.ts";
import * as session from "./api/session.ts";
import { Field, Notice } from "./ui/parts.tsx";
import { Mark } from "./ui/icons.tsx";

export function SignIn({ refusal }: { refusal: string }) {
  const [key, setKey] = useState("");
  const [remember, setRemember] = useState(false);
  // A key that was kept, or came by link, and does not open: that is said at once.
  const [error, setError] = useState<string | null>(session.key() === null ? null : refusal);
  const action = useAction();

  useEffect(() => {
    // A gateway without an admin key refuses those who show one that it does not know.
    if (session.key() !== null) {
      void knock(null).then((said) => said === null && session.goWithout());
    }
  }, []);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    void action.run(async () => {
      const said = await knock(key.trim());
      setError(said);
      if (said === null) {
        session.keep(key.trim(), remember ? "device" : "tab");
      }
    });
  };

  return (
    <main className="sign-in">
      <form onSubmit={submit}>
        <Mark />
        <h1>Sign in to Toolgate</h1>
        <Field
          label="Admin key"
          hint={
            <>
              With <code>admin_key = "auto"</code> the gateway keeps it in <code>admin.key</code> in its data
              directory, and prints a login link when it starts.
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
        <label className="check">
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
