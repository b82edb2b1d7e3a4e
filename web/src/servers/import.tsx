/** Imports servers from the settings of another MCP client. */

import { useState } from "react";

import { request } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import type { ImportLine } from "../api/schema.ts";
import { Badge, EmptyState, ErrorNotice, Field, type Tone } from "../ui/components.tsx";
import { discardWarning, Sheet } from "../ui/sheet.tsx";

const OUTCOME_TONES: Record<ImportLine["outcome"], Tone> = {
  created: "good",
  exists: "neutral",
  invalid: "bad",
};

interface Props {
  onClose: () => void;
  onImported: () => void;
}

export function ImportServers({ onClose, onImported }: Props) {
  const [text, setText] = useState("");
  const [results, setResults] = useState<ImportLine[] | null>(null);
  const action = useAction();
  const importServers = () =>
    action.run(async () => {
      const response = await request<{ servers: ImportLine[] }>("/api/mcp/import", { method: "POST", text });
      setResults(response.servers);
      onImported();
    });
  const footer = (
    <>
      <ErrorNotice error={action.error} />
      <button type="button" onClick={onClose}>
        {results === null ? "Cancel" : "Close"}
      </button>
      {results === null && (
        <button
          type="button"
          className="primary"
          disabled={action.busy || text.trim() === ""}
          onClick={() => void importServers()}
        >
          Import
        </button>
      )}
    </>
  );
  return (
    <Sheet
      title="Import servers"
      footer={footer}
      closeWarning={text === "" || results !== null ? null : discardWarning("Nothing has been imported yet.")}
      onClose={onClose}
    >
      {results === null ? <Source text={text} onChange={setText} /> : <Results lines={results} />}
    </Sheet>
  );
}

function Source({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const loadFile = async (file: File | undefined) => {
    if (file) {
      onChange(await file.text());
    }
  };
  return (
    <>
      <Field label="File" hint="claude_desktop_config.json, .mcp.json, .cursor/mcp.json or .vscode/mcp.json">
        {(id) => (
          <input
            id={id}
            type="file"
            accept=".json,application/json"
            onChange={(event) => void loadFile(event.target.files?.[0])}
          />
        )}
      </Field>
      <Field label="Or paste its contents">
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

function Results({ lines }: { lines: ImportLine[] }) {
  if (lines.length === 0) {
    return <EmptyState title="No servers found" />;
  }
  return (
    <ul className="item-list">
      {lines.map((line) => (
        <li key={line.name}>
          <strong>{line.name}</strong>
          <Badge tone={OUTCOME_TONES[line.outcome]}>{line.outcome}</Badge>
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
