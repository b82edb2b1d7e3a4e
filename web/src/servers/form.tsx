/** The form of a server that is about to be added. */

import { Choices, Field, Switch } from "../ui/parts.tsx";
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
      <Field label="Name" hint="Letters, digits, - and _. It stands before the names of the server's tools.">
        {(id) => (
          <input
            id={id}
            value={server.name}
            placeholder="github"
            data-first
            required
            spellCheck={false}
            autoCapitalize="off"
            onChange={(event) => set({ name: event.target.value })}
          />
        )}
      </Field>
      <div className="field">
        <span className="label">How it is reached</span>
        <div>
          <Choices
            label="How it is reached"
            value={server.transport}
            choices={TRANSPORTS}
            onChange={(transport) => set({ transport })}
          />
        </div>
      </div>
      {server.transport === "stdio" ? (
        <Process server={server} set={set} />
      ) : (
        <Remote server={server} set={set} />
      )}
      <div className="option">
        <Switch label="Code Mode Client" on={server.codeMode} onChange={(codeMode) => set({ codeMode })} />
        <p className="hint">Show its tools to scripts instead of each to the model.</p>
      </div>
    </>
  );
}

interface PartProps {
  server: NewServer;
  set: (change: Partial<NewServer>) => void;
}

function Process({ server, set }: PartProps) {
  return (
    <>
      <Field
        label="Command"
        hint="With its arguments. It is started on the gateway's machine, not through a shell."
      >
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
            One a line: <code>NAME=value</code> sets it, <code>NAME</code> passes the gateway's own, and{" "}
            <code>NAME=env.OTHER</code> takes another one of the gateway's.
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

function Remote({ server, set }: PartProps) {
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
            One a line, such as <code>Authorization: env.DOCS_TOKEN</code>, which takes the value from the
            gateway's environment.
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
