/** Selects the steps of a run to show, and formats them. */

import { formatIfJson, formatJson } from "../api/json.ts";
import type { RunDetail, Step } from "../api/types.ts";

/** Shows each call once: where it ended or started to wait, together with its arguments. */
export function visibleSteps({ timeline }: Pick<RunDetail, "timeline">): RunDetail["timeline"] {
  const settledCalls = new Set(
    timeline
      .filter(({ step }) => ["call_closed", "call_waits"].includes(step.kind))
      .map(({ step }) => step.id),
  );
  const argumentsById = new Map(
    timeline.flatMap(({ step }) => (step.calls ?? []).map((call) => [call.id, call.arguments])),
  );
  const shown = timeline.filter(
    ({ step }) => step.kind !== "answered" && !(step.kind === "call_opened" && settledCalls.has(step.id)),
  );
  return shown.map(({ at, step }) => {
    const args = step.arguments ?? argumentsById.get(step.id ?? "");
    return { at, step: args === undefined ? step : { ...step, arguments: args } };
  });
}

export function stepTitle(step: Step): string {
  switch (step.kind) {
    case "turn":
      return step.calls && step.calls.length > 0
        ? `Model called ${step.calls.map((call) => call.name).join(", ")}`
        : "Model responded";
    case "call_opened":
      return `${step.name} (running)`;
    case "call_closed":
      return `${step.name}`;
    case "call_waits":
      return `${step.name} (waiting)`;
    case "resumed":
      return `Resumed by ${step.by}`;
    case "ended":
      return step.stop_reason && step.stop_reason !== step.state
        ? `Run ${step.state} (${step.stop_reason})`
        : `Run ${step.state}`;
    default:
      return step.kind;
  }
}

/** Joins a result that consists only of text; formats any other as JSON. */
export function formatResult(result: unknown): string {
  const parts = Array.isArray(result) ? (result as { text?: unknown }[]) : [];
  const texts = parts.map((part) => part.text).filter((text) => typeof text === "string");
  return texts.length === parts.length && texts.length > 0
    ? texts.map(formatIfJson).join("\n")
    : formatJson(result);
}

/** Returns the approvals that a step waits for, including those of calls inside a script. */
export function approvalIds(step: Step): string[] {
  const ids = [step.approval_id, ...(step.inner ?? []).map((call) => call.approval_id)];
  return [...new Set(ids.filter((id) => typeof id === "string"))];
}
