/** Basic Information: whether a server is used, how it is reached, whether it is scripted. */

import type { Client } from "../api/types.ts";
import { Field, Switch } from "../ui/parts.tsx";
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
        <p className="hint">A server that is not enabled is not connected, and its tools do not exist.</p>
      </div>
      <div className="option">
        <Switch label="Code Mode Client" on={draft.codeMode} onChange={(codeMode) => onEdit({ codeMode })} />
        <p className="hint">
          Its tools leave the list that models see. Models find them with <code>listToolFiles</code> and{" "}
          <code>readToolFile</code>, and call them from scripts with <code>executeToolCode</code>.
        </p>
      </div>
      {config.stdio_config && <Process draft={draft} onEdit={onEdit} />}
      {config.connection_string !== undefined && <Remote draft={draft} onEdit={onEdit} />}
      <Field label="Tool timeout" hint="Seconds that one call may take; empty for the gateway's setting.">
        {(id) => (
          <input
            id={id}
            inputMode="decimal"
            value={draft.timeout}
            onChange={(event) => onEdit({ timeout: event.target.value })}
          />
        )}
      </Field>
    </section>
  );
}

const MASKED = "Values are never shown: *** stays what it is. Write NAME=value to set one anew.";

type PartProps = Omit<Props, "client">;

function Process({ draft, onEdit }: PartProps) {
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
      <Field label="Arguments" hint="One a line.">
        {(id) => (
          <textarea
            id={id}
            rows={rowsOf(draft.args)}
            spellCheck={false}
            value={draft.args}
            onChange={(event) => onEdit({ args: event.target.value })}
          />
        )}
      </Field>
      <Field label="Environment" hint={MASKED}>
        {(id) => (
          <textarea
            id={id}
            rows={rowsOf(draft.envs)}
            spellCheck={false}
            value={draft.envs}
            onChange={(event) => onEdit({ envs: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}

function Remote({ draft, onEdit }: PartProps) {
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
      <Field label="Headers" hint="One a line. Secrets are never shown: *** stays what it is.">
        {(id) => (
          <textarea
            id={id}
            rows={rowsOf(draft.headers)}
            spellCheck={false}
            value={draft.headers}
            onChange={(event) => onEdit({ headers: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}

function rowsOf(text: string): number {
  return Math.min(8, text.split("\n").length + 1);
}
