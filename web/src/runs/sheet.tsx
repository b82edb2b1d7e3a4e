/** One run, step by step. */

import { ask } from "../api/client.ts";
import { useAction, useReloadOn, useResource } from "../api/hooks.ts";
import { pretty, prettyText } from "../api/json.ts";
import type { RunDetail, Step } from "../api/types.ts";
import { hashOf } from "../route.ts";
import { clock, count, ms } from "../ui/format.ts";
import { Badge, Block, Failure, Loading, Status } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { RUN_TONES } from "./view.tsx";

interface Props {
  id: string;
  onClose: () => void;
  onChanged: () => void;
}

export function RunSheet({ id, onClose, onChanged }: Props) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const run = useResource(id, (signal) => ask<RunDetail>(path, { signal }));
  useReloadOn(["call", "approval"], run.reload);
  const action = useAction();
  const cancel = () =>
    void action.run(async () => {
      await ask(`${path}/cancel`, { method: "POST" });
      run.reload();
      onChanged();
    });
  const foot = run.data?.state === "running" && (
    <>
      <Failure error={action.error} />
      <button type="button" className="danger" disabled={action.busy} onClick={cancel}>
        Cancel run
      </button>
    </>
  );
  return (
    <Sheet
      title={run.data?.model ?? "Run"}
      says={run.data && <Status tone={RUN_TONES[run.data.state]}>{run.data.state}</Status>}
      foot={foot || undefined}
      onClose={onClose}
    >
      <Failure error={run.error} />
      {run.data === null && run.error === null && <Loading />}
      {run.data !== null && <Timeline run={run.data} />}
    </Sheet>
  );
}

function Timeline({ run }: { run: RunDetail }) {
  const steps = stepsOf(run);
  return (
    <>
      <dl className="facts">
        <dt>Run</dt>
        <dd className="mono">{run.id}</dd>
        <dt>Started</dt>
        <dd>{clock(run.started_at)}</dd>
        <dt>Caller</dt>
        <dd>{run.caller ?? "without a key"}</dd>
        <dt>Tokens</dt>
        <dd>{`${count(run.input_tokens)} in, ${count(run.output_tokens)} out`}</dd>
        <dt>Calls</dt>
        <dd>
          <a href={hashOf("activity", `run_id=${run.id}`)}>in the activity</a>
        </dd>
      </dl>
      <ol className="timeline">
        {steps.map(({ at, step }, index) => (
          <li key={`${index} ${at}`}>
            <StepView at={at} step={step} />
          </li>
        ))}
      </ol>
    </>
  );
}

/** Without what another step tells too: a call is shown where it ended or came to wait. */
function stepsOf({ timeline }: RunDetail): RunDetail["timeline"] {
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

function StepView({ at, step }: { at: string; step: Step }) {
  return (
    <>
      <div className="row">
        <strong>{titleOf(step)}</strong>
        {step.is_error && <Badge tone="bad">failed</Badge>}
        {step.ms !== undefined && <span className="faint">{ms(step.ms)}</span>}
        <span className="faint aside">{clock(at)}</span>
      </div>
      {step.text && <p className="said">{step.text}</p>}
      {step.kind !== "turn" && step.arguments !== undefined && (
        <Block text={prettyText(step.arguments)} label="Arguments" />
      )}
      {step.result !== undefined && <Block text={resultText(step.result)} label="Result" />}
      {waitsFor(step).map((approval) => (
        <a key={approval} href={hashOf("approvals", approval)}>
          Open the approval
        </a>
      ))}
    </>
  );
}

function titleOf(step: Step): string {
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

function resultText(result: unknown): string {
  const parts = Array.isArray(result) ? (result as { text?: unknown }[]) : [];
  const texts = parts.map((part) => part.text).filter((text) => typeof text === "string");
  return texts.length === parts.length && texts.length > 0
    ? texts.map(prettyText).join("\n")
    : pretty(result);
}

function waitsFor(step: Step): string[] {
  const ids = [step.approval_id, ...(step.inner ?? []).map((call) => call.approval_id)];
  return [...new Set(ids.filter((id) => typeof id === "string"))];
}
