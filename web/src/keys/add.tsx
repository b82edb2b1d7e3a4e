/** The form to create a key. */

import { useId, useState, type FormEvent } from "react";

import { request } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { NewKey } from "../api/schema.ts";
import { APPROVERS_HINT, APPROVERS_OPTIONS } from "../approvals/approvers.ts";
import { ErrorNotice, Field, SelectField } from "../ui/components.tsx";
import { discardWarning, Sheet } from "../ui/sheet.tsx";
import { EMPTY_KEY_FORM, toKeyEntry, type KeyForm, type ProviderToolsChoice } from "./entry.ts";

interface Props {
  onClose: () => void;
  onCreated: (key: NewKey) => void;
}

/** The fields that are plain text. */
type TextField = Exclude<keyof KeyForm, "providerTools" | "approvalBy">;

interface FormField {
  field: TextField;
  label: string;
  hint?: string;
  type?: string;
  placeholder?: string;
}

const FIELDS: readonly FormField[] = [
  { field: "name", label: "Name", placeholder: "ci" },
  { field: "description", label: "Description" },
  {
    field: "tools",
    label: "Tools",
    placeholder: "github.get_*, *.search",
    hint: "Names and patterns of allowed tools. Leave empty for all tools.",
  },
  {
    field: "roles",
    label: "Roles",
    hint: "Roles from the configuration, or approver to allow decisions on approvals.",
  },
  { field: "rate", label: "Rate limit", placeholder: "60/min" },
  { field: "expires", label: "Expires", type: "datetime-local" },
];

const PROVIDER_TOOLS = [
  { value: "default", label: "Default" },
  { value: "allowed", label: "Allowed" },
  { value: "refused", label: "Refused" },
] as const satisfies readonly { value: ProviderToolsChoice; label: string }[];

export function AddKey({ onClose, onCreated }: Props) {
  const [form, setForm] = useState<KeyForm>(EMPTY_KEY_FORM);
  const action = useAction();
  const formId = useId();
  const add = (event: FormEvent) => {
    event.preventDefault();
    void action.run(async () =>
      onCreated(await request<NewKey>("/api/keys", { method: "POST", body: toKeyEntry(form) })),
    );
  };
  const footer = (
    <>
      <ErrorNotice error={action.error} />
      <button type="button" onClick={onClose}>
        Cancel
      </button>
      <button type="submit" form={formId} className="primary" disabled={action.busy}>
        Add key
      </button>
    </>
  );
  return (
    <Sheet
      title="Add key"
      footer={footer}
      closeWarning={form === EMPTY_KEY_FORM ? null : discardWarning("The key has not been added yet.")}
      onClose={onClose}
    >
      <form id={formId} className="stack" onSubmit={add}>
        {FIELDS.map(({ field, label, hint, type = "text", placeholder }) => (
          <Field key={field} label={label} hint={hint}>
            {(id) => (
              <input
                id={id}
                type={type}
                placeholder={placeholder}
                required={field === "name"}
                data-autofocus={field === "name" ? "" : undefined}
                spellCheck={false}
                value={form[field]}
                onChange={(event) => setForm({ ...form, [field]: event.target.value })}
              />
            )}
          </Field>
        ))}
        <SelectField
          label="Provider tools"
          hint="Tools that a model's provider runs, such as web search. By default, a key with all tools may use them, unless permissions deny by default."
          value={form.providerTools}
          options={PROVIDER_TOOLS}
          onChange={(providerTools) => setForm({ ...form, providerTools })}
        />
        <SelectField
          label="Approval by"
          hint={APPROVERS_HINT}
          value={form.approvalBy}
          options={APPROVERS_OPTIONS}
          onChange={(approvalBy) => setForm({ ...form, approvalBy })}
        />
      </form>
    </Sheet>
  );
}
