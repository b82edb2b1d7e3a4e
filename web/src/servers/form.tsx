/** The fields of a new server. */

import { APPROVERS_HINT, APPROVERS_OPTIONS } from "../approvals/approvers.ts";
import { Field, SegmentedControl, SelectField, Switch } from "../ui/components.tsx";
import type { NewServer, Transport } from "./entry.ts";

const TRANSPORTS = [
  { value: "stdio", label: "stdio" },
  { value: "http", label: "HTTP" },
  { value: "sse", label: "SSE" },
] as const satisfies readonly { value: Transport; label: string }[];

interface Props {
  server: NewServer;
  onChange: (server: NewServer) => void;
}

export function ServerForm({ server, onChange }: Props) {
  const set = (change: Partial<NewServer>) => onChange({ ...server, ...change });
  return (
    <>
      <Field label="Name" hint="Letters, digits, - and _. Used as a prefix for the server's tools.">
        {(id) => (
          <input
            id={id}
            value={server.name}
            placeholder="github"
            data-autofocus
            required
            spellCheck={false}
            autoCapitalize="off"
            onChange={(event) => set({ name: event.target.value })}
          />
        )}
      </Field>
      <div className="field">
        <span className="label">Transport</span>
        <div>
          <SegmentedControl
            label="Transport"
            value={server.transport}
            options={TRANSPORTS}
            onChange={(transport) => set({ transport })}
          />
        </div>
      </div>
      {server.transport === "stdio" ? (
        <ProcessFields server={server} set={set} />
      ) : (
        <RemoteFields server={server} set={set} />
      )}
      <div className="option">
        <Switch label="Code Mode Client" on={server.codeMode} onChange={(codeMode) => set({ codeMode })} />
        <p className="hint">Models call its tools from scripts instead of one by one.</p>
      </div>
      <SelectField
        label="Approval by"
        hint={APPROVERS_HINT}
        value={server.approvalBy}
        options={APPROVERS_OPTIONS}
        onChange={(approvalBy) => set({ approvalBy })}
      />
    </>
  );
}

interface FieldProps {
  server: NewServer;
  set: (change: Partial<NewServer>) => void;
}

function ProcessFields({ server, set }: FieldProps) {
  return (
    <>
      <Field label="Command" hint="Include arguments. Runs on the gateway's machine, without a shell.">
        {(id) => (
          <input
            id={id}
            className="mono"
            value={server.command}
            placeholder="npx -y @modelcontextprotocol/server-memory"
            required
            spellCheck={false}
            autoCapitalize="off"
            onChange={(event) => set({ command: event.target.value })}
          />
        )}
      </Field>
      <Field
        label="Environment"
        hint={
          <>
            One per line: <code>NAME=value</code> sets a variable, <code>NAME</code> passes the gateway's own
            variable, and <code>NAME=env.OTHER</code> passes it under another name.
          </>
        }
      >
        {(id) => (
          <textarea
            id={id}
            rows={2}
            value={server.envs}
            spellCheck={false}
            onChange={(event) => set({ envs: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}

function RemoteFields({ server, set }: FieldProps) {
  return (
    <>
      <Field label="URL">
        {(id) => (
          <input
            id={id}
            type="url"
            className="mono"
            value={server.url}
            placeholder="https://docs.example.com/mcp"
            required
            spellCheck={false}
            onChange={(event) => set({ url: event.target.value })}
          />
        )}
      </Field>
      <Field
        label="Headers"
        hint={
          <>
            One per line. Use <code>env.NAME</code> for a value from the gateway's environment, such as{" "}
            <code>Authorization: env.DOCS_TOKEN</code>.
          </>
        }
      >
        {(id) => (
          <textarea
            id={id}
            rows={2}
            value={server.headers}
            spellCheck={false}
            onChange={(event) => set({ headers: event.target.value })}
          />
        )}
      </Field>
    </>
  );
}
