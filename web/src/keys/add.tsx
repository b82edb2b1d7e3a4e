/** Makes a key. */

import { useId, useState, type FormEvent } from "react";

import { ask } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { NewKey } from "../api/types.ts";
import { Failure, Field } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { BLANK, keyEntry, type KeyForm } from "./entry.ts";

interface Props {
  onClose: () => void;
  onMade: (key: NewKey) => void;
}

interface Line {
  field: keyof KeyForm;
  label: string;
  hint?: string;
  type?: string;
  placeholder?: string;
}

const LINES: readonly Line[] = [
  { field: "name", label: "Name", placeholder: "ci" },
  { field: "description", label: "Description" },
  {
    field: "tools",
    label: "Tools",
    placeholder: "github.get_*, *.search",
    hint: "Names and patterns that it may use; empty for no restriction.",
  },
  {
    field: "roles",
    label: "Roles",
    hint: "approver may decide about approvals; others are those of the configuration.",
  },
  { field: "rate", label: "Rate limit", placeholder: "60/min" },
  { field: "expires", label: "Expires", type: "datetime-local" },
];

export function AddKey({ onClose, onMade }: Props) {
  const [form, setForm] = useState<KeyForm>(BLANK);
  const action = useAction();
  const id = useId();
  const add = (event: FormEvent) => {
    event.preventDefault();
    void action.run(async () =>
      onMade(await ask<NewKey>("/api/keys", { method: "POST", body: keyEntry(form) })),
    );
  };
  const foot = (
    <>
      <Failure error={action.error} />
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="submit" form={id} className="primary" disabled={action.busy}>
        Add key
      </button>
    </>
  );
  return (
    <Sheet
      title="Add key"
      foot={foot}
      loses={form === BLANK ? null : "The key is not made yet."}
      onClose={onClose}
    >
      <form id={id} className="stack" onSubmit={add}>
        {LINES.map(({ field, label, hint, type = "text", placeholder }) => (
          <Field key={field} label={label} hint={hint}>
            {(input) => (
              <input
                id={input}
                type={type}
                placeholder={placeholder}
                required={field === "name"}
                data-first={field === "name" ? "" : undefined}
                spellCheck={false}
                value={form[field]}
                onChange={(event) => setForm({ ...form, [field]: event.target.value })}
              />
            )}
          </Field>
        ))}
      </form>
    </Sheet>
  );
}
