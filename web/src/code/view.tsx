/** A playground for code mode: the files that models read, an editor, and the outcome of the script. */

import { useState } from "react";

import { fetchAll } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { KeyView as Key } from "../api/schema.ts";
import { routeHash } from "../route.ts";
import { CodeBlock, EmptyState, ErrorNotice, Loading, PageHeader } from "../ui/components.tsx";
import { Editor } from "./editor.tsx";
import { listFiles, readFile } from "./files.ts";
import { Outcome } from "./outcome.tsx";
import { useScript } from "./script.ts";

export function CodeView() {
  const [key, setKey] = useState("");
  const files = useResource(`files ${key}`, (signal) => listFiles(key, signal));
  useReloadOn(["server"], files.reload);
  return (
    <>
      <PageHeader
        title="Code"
        description="Run a script as a model would, with the same sandbox, limits and rules."
      >
        <CallerSelect value={key} onChange={setKey} />
      </PageHeader>
      <ErrorNotice error={files.error} />
      {files.data === null && files.error === null && <Loading />}
      {files.data !== null &&
        (files.data.length === 0 ? <NoFiles /> : <Playground key={key} caller={key} files={files.data} />)}
    </>
  );
}

function NoFiles() {
  return (
    <EmptyState title="No servers in code mode">
      <p>
        Open a server and turn on <strong>Code Mode Client</strong>. Models then call its tools from scripts
        instead of one by one.
      </p>
      <a className="button" href={routeHash("servers")}>
        Go to Servers
      </a>
    </EmptyState>
  );
}

function Playground({ files, caller }: { files: string[]; caller: string }) {
  const [selected, setSelected] = useState<string | null>(null);
  // The selected file may no longer exist.
  const open = files.find((file) => file === selected) ?? files[0] ?? null;
  const script = useScript(caller);
  return (
    <div className="playground">
      <nav className="files" aria-label="Tool files">
        <h2>Tool files</h2>
        {files.map((file) => (
          <button key={file} type="button" aria-pressed={file === open} onClick={() => setSelected(file)}>
            {file}
          </button>
        ))}
      </nav>
      <div className="stack">
        {open !== null && <ToolFile path={open} caller={caller} />}
        <Editor
          value={script.code}
          errorLine={script.output?.line ?? null}
          onChange={script.edit}
          onRun={script.run}
        />
        <div className="row">
          <button
            type="button"
            className="primary"
            disabled={script.busy || script.code.trim() === ""}
            onClick={script.run}
          >
            {script.busy ? "Running…" : "Run"}
          </button>
          <span className="faint">
            <kbd>Ctrl</kbd> <kbd>Enter</kbd>
          </span>
        </div>
        <ErrorNotice error={script.error} />
        <Outcome script={script} />
      </div>
    </div>
  );
}

function ToolFile({ path, caller }: { path: string; caller: string }) {
  const file = useResource(path, (signal) => readFile(path, caller, signal));
  return (
    <>
      <ErrorNotice error={file.error} />
      {file.data !== null ? (
        <CodeBlock text={file.data} label={path} compact />
      ) : (
        file.error === null && <Loading />
      )}
    </>
  );
}

/** Selects the key whose permissions apply to the script. Hidden if there are no keys. */
function CallerSelect({ value, onChange }: { value: string; onChange: (key: string) => void }) {
  const keys = useResource("keys", (signal) => fetchAll<Key>("/api/keys", "keys", signal));
  if (!keys.data || keys.data.length === 0) {
    return null;
  }
  return (
    <label className="row">
      <span className="soft">Run as</span>
      <select className="narrow" value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">No key</option>
        {keys.data.map((key) => (
          <option key={key.name} value={key.name}>
            {key.name}
          </option>
        ))}
      </select>
    </label>
  );
}
