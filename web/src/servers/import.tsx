/** Takes over the servers of another program's settings file. */

import { useState } from "react";

import { ask } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { ImportLine } from "../api/types.ts";
import { Badge, Empty, Failure, Field, type Tone } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";

const TONES: Record<ImportLine["outcome"], Tone> = { created: "good", exists: "quiet", invalid: "bad" };

interface Props {
  onClose: () => void;
  onImported: () => void;
}

export function ImportServers({ onClose, onImported }: Props) {
  const [text, setText] = useState("");
  const [done, setDone] = useState<ImportLine[] | null>(null);
  const action = useAction();
  const take = () =>
    action.run(async () => {
      const answer = await ask<{ servers: ImportLine[] }>("/api/mcp/import", { method: "POST", text });
      setDone(answer.servers);
      onImported();
    });
  const foot = (
    <>
      <Failure error={action.error} />
      <button type="button" onClick={onClose}>
        {done === null ? "Cancel" : "Close"}
      </button>
      {done === null && (
        <button
          type="button"
          className="primary"
          disabled={action.busy || text.trim() === ""}
          onClick={() => void take()}
        >
          Import
        </button>
      )}
    </>
  );
  return (
    <Sheet
      title="Import servers"
      foot={foot}
      loses={text === "" || done !== null ? null : "Nothing is imported yet."}
      onClose={onClose}
    >
      {done === null ? <Source text={text} onChange={setText} /> : <Outcome lines={done} />}
    </Sheet>
  );
}

function Source({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const take = async (file: File | undefined) => {
    if (file) {
      onChange(await file.text());
    }
  };
  return (
    <>
      <Field
        label="A file"
        hint="claude_desktop_config.json, .mcp.json, .cursor/mcp.json or .vscode/mcp.json"
      >
        {(id) => (
          <input
            id={id}
            type="file"
            accept=".json,application/json"
            onChange={(event) => void take(event.target.files?.[0])}
          />
        )}
      </Field>
      <Field label="Or its text">
        {(id) => (
          <textarea
            id={id}
            rows={14}
            value={text}
            spellCheck={false}
            placeholder={
              '{\n  "mcpServers": {\n    "memory": {"command": "npx", "args": ["-y", "…"]}\n  }\n}'
            }
            onChange={(event) => onChange(event.target.value)}
          />
        )}
      </Field>
    </>
  );
}

function Outcome({ lines }: { lines: ImportLine[] }) {
  if (lines.length === 0) {
    return <Empty title="There were no servers in it." />;
  }
  return (
    <ul className="calls">
      {lines.map((line) => (
        <li key={line.name}>
          <strong>{line.name}</strong>
          <Badge tone={TONES[line.outcome]}>{line.outcome}</Badge>
          {line.notes.map((note, index) => (
            <span key={index} className="soft">
              {note}
            </span>
          ))}
        </li>
      ))}
    </ul>
  );
}
