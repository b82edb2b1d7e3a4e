/**
 * What `executeToolCode` says of a script: its result on a line of its own, the calls on the next,
 * then what was printed, which nothing follows. Of one that failed: the error, hints, calls, prints.
 */

import type { ToolMessage } from "../api/types.ts";
import { textOf } from "./files.ts";

export interface Answer {
  ok: boolean;
  /** The result, or the error with its hints. */
  text: string;
  calls: string | null;
  printed: string | null;
  /** Where it failed. */
  line: number | null;
  /** The bound that stopped it, such as `time`. */
  limit: string | null;
  /** The approval that it waits for. */
  approval: string | null;
}

export function answerOf(message: ToolMessage): Answer {
  const ok = message.is_error !== true;
  const { text, calls, printed } = parts(textOf(message));
  const place = /^[^\n]*? at line (\d+)/.exec(text);
  const stopped = /^the script was stopped \((.+?)\)/.exec(text);
  return {
    ok,
    text,
    calls,
    printed,
    line: ok || !place ? null : Number(place[1]),
    limit: ok || !stopped ? null : (stopped[1] ?? null),
    approval: message.is_error ? (message.approval?.id ?? null) : null,
  };
}

function parts(said: string): { text: string; calls: string | null; printed: string | null } {
  const lines = said.split("\n");
  const from = lines.findIndex((line) => line === "printed:");
  const printed = from < 0 ? null : lines.slice(from + 1).join("\n");
  const rest = from < 0 ? lines : lines.slice(0, from);
  const last = rest[rest.length - 1];
  const hasCalls = last?.startsWith("calls: ") ?? false;
  return {
    text: (hasCalls ? rest.slice(0, -1) : rest).join("\n").trimEnd(),
    calls: hasCalls ? (last ?? "").slice("calls: ".length) : null,
    printed,
  };
}
