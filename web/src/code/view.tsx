/** Code mode tried by hand: what scripts can call, a script, and what came of it. */

import { useState } from "react";

import { all } from "../api/client.ts";
import { useReloadOn, useResource } from "../api/hooks.ts";
import type { Key } from "../api/types.ts";
import { hashOf } from "../route.ts";
import { Block, Empty, Failure, Head, Loading } from "../ui/parts.tsx";
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
      <Head
        title="Code"
        says="Run a script over the servers in code mode, as a model would: the same sandbox, bounds and rules."
      >
        <RunAs value={key} onChange={setKey} />
      </Head>
      <Failure error={files.error} />
      {files.data === null && files.error === null && <Loading />}
      {files.data !== null &&
        (files.data.length === 0 ? <NoFiles /> : <Bench key={key} caller={key} files={files.data} />)}
    </>
  );
}

function NoFiles() {
  return (
    <Empty title="No server is in code mode">
      <p>
        Open a server and switch on <strong>Code Mode Client</strong>: its tools are then shown to scripts
        instead of each to the model.
      </p>
      <a className="button" href={hashOf("servers")}>
        Go to the servers
      </a>
    </Empty>
  );
}

function Bench({ files, caller }: { files: string[]; caller: string }) {
  const [chosen, setOpen] = useState<string | null>(null);
  // The one that was chosen may be gone since.
  const open = files.find((file) => file === chosen) ?? files[0] ?? null;
  const script = useScript(caller);
  return (
    <div className="bench">
      <nav className="files" aria-label="Files that models read">
        <h2>What scripts can call</h2>
        {files.map((file) => (
          <button key={file} type="button" aria-pressed={file === open} onClick={() => setOpen(file)}>
            {file}
          </button>
        ))}
      </nav>
      <div className="stack">
        {open !== null && <StubFile path={open} caller={caller} />}
        <Editor
          value={script.code}
          wrong={script.answer?.line ?? null}
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
        <Failure error={script.error} />
        <Outcome script={script} />
      </div>
    </div>
  );
}

function StubFile({ path, caller }: { path: string; caller: string }) {
  const file = useResource(path, (signal) => readFile(path, caller, signal));
  return (
    <>
      <Failure error={file.error} />
      {file.data !== null ? <Block text={file.data} label={path} low /> : file.error === null && <Loading />}
    </>
  );
}

/** On whose behalf scripts run, which is who may see what. Without keys there is nobody to choose. */
function RunAs({ value, onChange }: { value: string; onChange: (key: string) => void }) {
  const keys = useResource("keys", (signal) => all<Key>("/api/keys", "keys", signal));
  if (!keys.data || keys.data.length === 0) {
    return null;
  }
  return (
    <label className="row">
      <span className="soft">As</span>
      <select className="narrow" value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">a caller without a key</option>
        {keys.data.map((key) => (
          <option key={key.name} value={key.name}>
            {key.name}
          </option>
        ))}
      </select>
    </label>
  );
}
