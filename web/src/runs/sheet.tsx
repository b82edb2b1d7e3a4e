/** One run, step by step. */

import { ask } from "../api/client.ts";
import { useAction, useReloadOn, useResource } from "../api/hooks.ts";
import { prettyText } from "../api/json.ts";
import type { RunDetail, Step } from "../api/types.ts";
import { hashOf } from "../route.ts";
import { clock, count, ms } from "../ui/format.ts";
import { Badge, Block, Failure, Loading, Status } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { resultText, stepsOf, titleOf, waitsFor } from "./steps.ts";
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
