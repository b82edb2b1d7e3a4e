/** The script in the editor: its text, stored for the tab, and its last run. */

import { useCallback, useState } from "react";

import { request } from "../api/client.ts";
import { useAction, useFeedEvent } from "../api/hooks.ts";
import type { RecordView as CallRecord, ToolMessage } from "../api/schema.ts";
import { parseScriptOutput, type ScriptOutput } from "./script-output.ts";

const STORAGE_KEY = "toolgate.script";

export interface Script {
  code: string;
  edit: (code: string) => void;
  run: () => void;
  busy: boolean;
  error: string | null;
  output: ScriptOutput | null;
  /** Calls made by this run so far. */
  calls: CallRecord[];
  /** Audit record of the script itself, once it has ended. */
  record: CallRecord | null;
}

export function useScript(key: string): Script {
  const [code, setCode] = useState(() => sessionStorage.getItem(STORAGE_KEY) ?? "");
  const [output, setOutput] = useState<ScriptOutput | null>(null);
  const [records, setRecords] = useState<Map<string, CallRecord>>(new Map());
  const [requestId, setRequestId] = useState("");
  const { run: runAction, busy, error } = useAction();

  useFeedEvent("call", (record) => {
    if (record.parent_id === requestId || record.request_id === requestId) {
      setRecords((records) => new Map(records).set(record.id, record));
    }
  });
  const edit = useCallback((code: string) => {
    sessionStorage.setItem(STORAGE_KEY, code);
    setCode(code);
  }, []);
  const run = () =>
    void runAction(async () => {
      const id = generateRequestId();
      setRequestId(id);
      setOutput(null);
      setRecords(new Map());
      const body = key === "" ? { code } : { code, key };
      const headers = { "x-request-id": id };
      const message = await request<ToolMessage>("/api/code/run", { method: "POST", body, headers });
      setOutput(parseScriptOutput(message));
    });
  const sorted = [...records.values()].sort((a, b) => a.id.localeCompare(b.id));
  return {
    code,
    edit,
    run,
    busy,
    error,
    output,
    calls: sorted.filter((record) => record.parent_id === requestId),
    record: sorted.find((record) => record.request_id === requestId) ?? null,
  };
}

/** Generates a random ID. `crypto.randomUUID` is missing if another host serves the page without TLS. */
function generateRequestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
