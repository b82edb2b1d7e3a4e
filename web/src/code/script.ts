/** The script in the editor: kept for the tab, and run. */

import { useCallback, useState } from "react";

import { ask } from "../api/client.ts";
import { useAction, useHeard } from "../api/hooks.ts";
import type { CallRecord, ToolMessage } from "../api/types.ts";
import { answerOf, type Answer } from "./answer.ts";

const NAME = "toolgate.script";

export interface Script {
  code: string;
  edit: (code: string) => void;
  run: () => void;
  busy: boolean;
  error: string | null;
  answer: Answer | null;
  /** The calls that this run has made, as they happen. */
  calls: CallRecord[];
  /** What is recorded of the script itself, once it has ended. */
  record: CallRecord | null;
}

export function useScript(key: string): Script {
  const [code, setCode] = useState(() => sessionStorage.getItem(NAME) ?? "");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [records, setRecords] = useState<Map<string, CallRecord>>(new Map());
  const [request, setRequest] = useState("");
  const { run: act, busy, error } = useAction();

  useHeard("call", (record) => {
    if (record.parent_id === request || record.request_id === request) {
      setRecords((known) => new Map(known).set(record.id, record));
    }
  });
  const edit = useCallback((code: string) => {
    sessionStorage.setItem(NAME, code);
    setCode(code);
  }, []);
  const run = () =>
    void act(async () => {
      const id = newId();
      setRequest(id);
      setAnswer(null);
      setRecords(new Map());
      const body = key === "" ? { code } : { code, key };
      const headers = { "x-request-id": id };
      setAnswer(answerOf(await ask<ToolMessage>("/api/code/run", { method: "POST", body, headers })));
    });
  const heard = [...records.values()].sort((a, b) => a.id.localeCompare(b.id));
  return {
    code,
    edit,
    run,
    busy,
    error,
    answer,
    calls: heard.filter((record) => record.parent_id === request),
    record: heard.find((record) => record.request_id === request) ?? null,
  };
}

/** `crypto.randomUUID` is not there where the page came without TLS from another machine. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
