/**
 * Parses the text that `executeToolCode` returns for a script. A successful script has its result on
 * the first line, its calls on the second, then everything it printed. A failed one has the error,
 * hints, calls and printed output.
 */

import type { ToolMessage } from "../api/schema.ts";
import { messageText } from "./files.ts";

export interface ScriptOutput {
  ok: boolean;
  /** The result, or the error with its hints. */
  text: string;
  calls: string | null;
  printed: string | null;
  /** The line that failed. */
  line: number | null;
  /** The limit that stopped the script, such as `time`. */
  limit: string | null;
  /** ID of the approval that the script is waiting for. */
  approval: string | null;
}

export function parseScriptOutput(message: ToolMessage): ScriptOutput {
  const ok = message.is_error !== true;
  const { text, calls, printed } = splitSections(messageText(message));
  const line = /^[^\n]*? at line (\d+)/.exec(text);
  const limit = /^the script was stopped \((.+?)\)/.exec(text);
  return {
    ok,
    text,
    calls,
    printed,
    line: ok || !line ? null : Number(line[1]),
    limit: ok || !limit ? null : (limit[1] ?? null),
    approval: message.is_error ? (message.approval?.id ?? null) : null,
  };
}

function splitSections(text: string): { text: string; calls: string | null; printed: string | null } {
  const lines = text.split("\n");
  const printedAt = lines.findIndex((line) => line === "printed:");
  const printed = printedAt < 0 ? null : lines.slice(printedAt + 1).join("\n");
  const rest = printedAt < 0 ? lines : lines.slice(0, printedAt);
  const last = rest[rest.length - 1];
  const hasCalls = last?.startsWith("calls: ") ?? false;
  return {
    text: (hasCalls ? rest.slice(0, -1) : rest).join("\n").trimEnd(),
    calls: hasCalls ? (last ?? "").slice("calls: ".length) : null,
    printed,
  };
}
