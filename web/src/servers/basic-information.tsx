/** Basic Information: whether a server is enabled, its connection, code mode, and who approves its calls. */

import type { ClientEntry as Client } from "../api/schema.ts";
import { APPROVERS_HINT, APPROVERS_OPTIONS } from "../approvals/approvers.ts";
import { Field, SelectField, Switch } from "../ui/components.tsx";
import type { Draft } from "./draft.ts";

interface Props {
  client: Client;
  draft: Draft;
  onEdit: (change: Partial<Draft>) => void;
}

export function BasicInformation({ client, draft, onEdit }: Props) {
  const { config } = client;
  return (
    <section className="section" aria-label="Basic Information">
      <h2>Basic Information</h2>
      <div className="option">
        <Switch label="Enabled" on={draft.enabled} onChange={(enabled) => onEdit({ enabled })} />
        <p className="hint">A disabled server is not connected, and its tools are unavailable.</p>
      </div>
      <div className="option">
        <Switch label="Code Mode Client" on={draft.codeMode} onChange={(codeMode) => onEdit({ codeMode })} />
        <p className="hint">
          When on, models do not see its tools directly. They find them with <code>listToolFiles</code> and{" "}
          <code>readToolFile</code> and call them from scripts with <code>executeToolCode</code>.
        </p>
      </div>
      {config.stdio_config && <ProcessFields draft={draft} onEdit={onEdit} />}
      {config.connection_string !== undefined && <RemoteFields draft={draft} onEdit={onEdit} />}
      <Field
        label="Tool timeout"
        hint="Maximum time per call: seconds, or a duration such as 45s. Leave empty to use the gateway's setting."
      >
        {(id) => (
          <input
            id={id}
            value={draft.timeout}
            onChange={(event) => onEdit({ timeout: event.target.value })}
          />
        )}
      </Field>
      <SelectField
        label="Approval by"
        hint={APPROVERS_HINT}
        value={draft.approvalBy}
        options={APPROVERS_OPTIONS}
        onChange={(approvalBy) => onEdit({ approvalBy })}
      />
    </section>
  );
}

const ENVIRONMENT_HINT =
  "One per line. Values are hidden: leave *** to keep one, or enter NAME=value to replace it.";

type FieldProps = Omit<Props, "client">;

function ProcessFields({ draft, onEdit }: FieldProps) {
  return (
    <>
      <Field label="Command">
        {(id) => (
          <input
            id={id}
            className="mono"
            spellCheck={false}
            value={draft.command}
            onChange={(event) => onEdit({ command: event.target.value })}
          />
        )}
      </Field>
      <Field label="Arguments" hint="One per line.">
        {(id) => (
          <textarea
            id={id}
            rows={textareaRows(draft.args)}
            spellCheck={false}
            value={draft.args}
            onChange={(event) => onEdit({ args: event.target.value })}
          />
        )}
      </Field>
      <Field label="Environment" hint={ENVIRONMENT_HINT}>
        {(id) => (
          <textarea
            id={id}
            rows={textareaRows(draft.envs)}
            spellCheck={false}
            value={draft.envs}
            onChange={(event) => onEdit({ envs: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}

function RemoteFields({ draft, onEdit }: FieldProps) {
  return (
    <>
      <Field label="URL">
        {(id) => (
          <input
            id={id}
            className="mono"
            spellCheck={false}
            value={draft.url}
            onChange={(event) => onEdit({ url: event.target.value })}
          />
        )}
      </Field>
      <Field label="Headers" hint="One per line. Secrets are hidden: leave *** to keep one.">
        {(id) => (
          <textarea
            id={id}
            rows={textareaRows(draft.headers)}
            spellCheck={false}
            value={draft.headers}
            onChange={(event) => onEdit({ headers: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}

function textareaRows(text: string): number {
  return Math.min(8, text.split("\n").length + 1);
}
