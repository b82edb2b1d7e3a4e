/** Outcomes of calls and how they are displayed. */

import type { Tone } from "../ui/components.tsx";

export const OUTCOMES = [
  "open",
  "ok",
  "tool_error",
  "unknown",
  "bad_arguments",
  "bad_filter",
  "denied",
  "ask",
  "manual",
  "limited",
  "away",
  "busy",
  "timeout",
  "server",
  "cancelled",
  "panicked",
  "no_worker",
  "unauthorized",
  "unrecorded",
  "interrupted",
] as const;

export function outcomeTone(outcome: string): Tone {
  switch (outcome) {
    case "ok":
      return "good";
    case "open":
      return "info";
    case "ask":
    case "manual":
    case "limited":
    case "busy":
    case "cancelled":
      return "warn";
    default:
      return "bad";
  }
}
