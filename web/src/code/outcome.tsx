/** The outcome of a script: its result or error, its calls, and its printed output. */

import { formatIfJson } from "../api/json.ts";
import type { RecordView as CallRecord } from "../api/schema.ts";
import { routeHash } from "../route.ts";
import { formatDuration, formatNumber } from "../ui/format.ts";
import { Badge, CodeBlock, Notice } from "../ui/components.tsx";
import { outcomeTone } from "../activity/kinds.ts";
import type { ScriptOutput } from "./script-output.ts";
import type { Script } from "./script.ts";

export function Outcome({ script }: { script: Script }) {
  const { output, calls, record } = script;
  if (output === null && calls.length === 0) {
    return null;
  }
  return (
    <section className="card stack" aria-label="Outcome" aria-live="polite">
      {output !== null && <ResultOrError output={output} onRun={script.run} />}
      {(calls.length > 0 || (output !== null && output.calls !== null)) && (
        <Calls calls={calls} summary={output?.calls ?? null} />
      )}
      {output !== null && output.printed !== null && (
        <div className="field">
          <h3>Printed output</h3>
          <CodeBlock text={output.printed} label="Printed output" />
        </div>
      )}
      {record !== null && <RunSummary record={record} />}
    </section>
  );
}

function ResultOrError({ output, onRun }: { output: ScriptOutput; onRun: () => void }) {
  if (output.approval !== null) {
    return (
      <div className="stack">
        <Notice tone="warn">{output.text}</Notice>
        <div className="row">
          <a className="button" href={routeHash("approvals", output.approval)}>
            Open approval
          </a>
          <button type="button" onClick={onRun}>
            Continue
          </button>
          <span className="faint">Once approved, the script continues where it stopped.</span>
        </div>
      </div>
    );
  }
  if (!output.ok) {
    return (
      <div className="stack">
        {output.limit !== null && (
          <span>
            <Badge tone="bad">limit: {output.limit}</Badge>
          </span>
        )}
        <Notice tone="bad">{output.text}</Notice>
      </div>
    );
  }
  return output.text === "" ? null : (
    <div className="field">
      <h3>Result</h3>
      <CodeBlock text={formatIfJson(output.text)} label="Result" />
    </div>
  );
}

/** Lists the calls, or shows the script's own summary until their records arrive. */
function Calls({ calls, summary }: { calls: CallRecord[]; summary: string | null }) {
  return (
    <div className="field">
      <h3>Calls</h3>
      {calls.length === 0 && <p className="mono">{summary}</p>}
      <ul className="item-list">
        {calls.map((call) => (
          <li key={call.id}>
            <span className="mono">{call.server === null ? call.name : `${call.server}.${call.tool}`}</span>
            <span className="mono faint">{JSON.stringify(call.arguments)}</span>
            <span className="aside row">
              <Badge tone={outcomeTone(call.outcome)}>{call.outcome}</Badge>
              <span className="faint">{formatDuration(call.duration_ms)}</span>
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function RunSummary({ record }: { record: CallRecord }) {
  const savedTokens = record.script?.saved_tokens ?? 0;
  const parts = [
    record.duration_ms === null ? null : `Took ${formatDuration(record.duration_ms)}`,
    savedTokens > 0 ? `Code mode saves ${formatNumber(savedTokens)} tokens per model request` : null,
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : <p className="faint">{parts.join(" · ")}</p>;
}
