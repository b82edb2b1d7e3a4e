/** The journal of a run as a story: which steps are told, and in what words. */

import { pretty, prettyText } from "../api/json.ts";
import type { RunDetail, Step } from "../api/types.ts";

/** Without what another step tells too: a call is shown where it ended or came to wait. */
export function stepsOf({ timeline }: Pick<RunDetail, "timeline">): RunDetail["timeline"] {
  const settled = new Set(
    timeline
      .filter(({ step }) => ["call_closed", "call_waits"].includes(step.kind))
      .map(({ step }) => step.id),
  );
  const given = new Map(
    timeline.flatMap(({ step }) => (step.calls ?? []).map((call) => [call.id, call.arguments])),
  );
  const shown = timeline.filter(
    ({ step }) => step.kind !== "answered" && !(step.kind === "call_opened" && settled.has(step.id)),
  );
  return shown.map(({ at, step }) => {
    const known = step.arguments ?? given.get(step.id ?? "");
    return { at, step: known === undefined ? step : { ...step, arguments: known } };
  });
}

export function titleOf(step: Step): string {
  switch (step.kind) {
    case "turn":
      return step.calls && step.calls.length > 0
        ? `The model calls ${step.calls.map((call) => call.name).join(", ")}`
        : "The model answers";
    case "call_opened":
      return `${step.name} runs`;
    case "call_closed":
      return `${step.name}`;
    case "call_waits":
      return `${step.name} waits`;
    case "resumed":
      return `Resumed by ${step.by}`;
    case "ended":
      return `Ended: ${step.state}${step.stop_reason ? ` (${step.stop_reason})` : ""}`;
    default:
      return step.kind;
  }
}

export function resultText(result: unknown): string {
  const parts = Array.isArray(result) ? (result as { text?: unknown }[]) : [];
  const texts = parts.map((part) => part.text).filter((text) => typeof text === "string");
  return texts.length === parts.length && texts.length > 0
    ? texts.map(prettyText).join("\n")
    : pretty(result);
}

export function waitsFor(step: Step): string[] {
  const ids = [step.approval_id, ...(step.inner ?? []).map((call) => call.approval_id)];
  return [...new Set(ids.filter((id) => typeof id === "string"))];
}
