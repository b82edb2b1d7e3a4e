/** One run and its steps. */

import { request } from "../api/client.ts";
import { useAction, useReloadOn, useResource } from "../api/hooks.ts";
import { formatIfJson } from "../api/json.ts";
import type { RunDetail, Step } from "../api/types.ts";
import { routeHash } from "../route.ts";
import { formatDateTime, formatDuration, formatNumber } from "../ui/format.ts";
import { Badge, CodeBlock, ErrorNotice, Loading, Status } from "../ui/components.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { approvalIds, formatResult, stepTitle, visibleSteps } from "./steps.ts";
import { RUN_TONES } from "./view.tsx";

interface Props {
  id: string;
  onClose: () => void;
  onChanged: () => void;
}

export function RunSheet({ id, onClose, onChanged }: Props) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const run = useResource(id, (signal) => request<RunDetail>(path, { signal }));
  useReloadOn(["call", "approval"], run.reload);
  const action = useAction();
  const cancel = () =>
    void action.run(async () => {
      await request(`${path}/cancel`, { method: "POST" });
      run.reload();
      onChanged();
    });
  const footer = run.data?.state === "running" && (
    <>
      <ErrorNotice error={action.error} />
      <button type="button" className="danger" disabled={action.busy} onClick={cancel}>
        Cancel run
      </button>
    </>
  );
  return (
    <Sheet
      title={run.data?.model ?? "Run"}
      subtitle={run.data && <Status tone={RUN_TONES[run.data.state]}>{run.data.state}</Status>}
      footer={footer || undefined}
      onClose={onClose}
    >
      <ErrorNotice error={run.error} />
      {run.data === null && run.error === null && <Loading />}
      {run.data !== null && <Timeline run={run.data} />}
    </Sheet>
  );
}

function Timeline({ run }: { run: RunDetail }) {
  const steps = visibleSteps(run);
  return (
    <>
      <dl className="properties">
        <dt>Run</dt>
        <dd className="mono">{run.id}</dd>
        <dt>Started</dt>
        <dd>{formatDateTime(run.started_at)}</dd>
        <dt>Caller</dt>
        <dd>{run.caller ?? "No key"}</dd>
        <dt>Tokens</dt>
        <dd>{`${formatNumber(run.input_tokens)} in, ${formatNumber(run.output_tokens)} out`}</dd>
        <dt>Calls</dt>
        <dd>
          <a href={routeHash("activity", `run_id=${run.id}`)}>Show in Activity</a>
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
        <strong>{stepTitle(step)}</strong>
        {step.is_error && <Badge tone="bad">failed</Badge>}
        {step.ms !== undefined && <span className="faint">{formatDuration(step.ms)}</span>}
        <span className="faint aside">{formatDateTime(at)}</span>
      </div>
      {step.text && <p className="prewrap">{step.text}</p>}
      {step.kind !== "turn" && step.arguments !== undefined && (
        <CodeBlock text={formatIfJson(step.arguments)} label="Arguments" />
      )}
      {step.result !== undefined && <CodeBlock text={formatResult(step.result)} label="Result" />}
      {approvalIds(step).map((approval) => (
        <a key={approval} href={routeHash("approvals", approval)}>
          Open approval
        </a>
      ))}
    </>
  );
}
