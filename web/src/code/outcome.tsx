/** What came of a script: its result, what it printed, the calls it made, or why it stopped. */

import { prettyText } from "../api/json.ts";
import type { CallRecord } from "../api/types.ts";
import { hashOf } from "../route.ts";
import { count, ms } from "../ui/format.ts";
import { Badge, Block, Notice } from "../ui/parts.tsx";
import { toneOf } from "../activity/outcomes.ts";
import type { Answer } from "./answer.ts";
import type { Script } from "./script.ts";

export function Outcome({ script }: { script: Script }) {
  const { answer, calls, record } = script;
  if (answer === null && calls.length === 0) {
    return null;
  }
  return (
    <section className="card stack" aria-label="Outcome" aria-live="polite">
      {answer !== null && <Said answer={answer} onRun={script.run} />}
      {(calls.length > 0 || (answer !== null && answer.calls !== null)) && (
        <Calls calls={calls} line={answer?.calls ?? null} />
      )}
      {answer !== null && answer.printed !== null && (
        <div className="field">
          <h3>Printed</h3>
          <Block text={answer.printed} label="Printed" />
        </div>
      )}
      {record !== null && <Figures record={record} />}
    </section>
  );
}

function Said({ answer, onRun }: { answer: Answer; onRun: () => void }) {
  if (answer.approval !== null) {
    return (
      <div className="stack">
        <Notice tone="warn">{answer.text}</Notice>
        <div className="row">
          <a className="button" href={hashOf("approvals", answer.approval)}>
            Open the approval
          </a>
          <button type="button" onClick={onRun}>
            Go on
          </button>
          <span className="faint">Once it is given, the script goes on where it stopped.</span>
        </div>
      </div>
    );
  }
  if (!answer.ok) {
    return (
      <div className="stack">
        {answer.limit !== null && (
          <span>
            <Badge tone="bad">limit: {answer.limit}</Badge>
          </span>
        )}
        <Notice tone="bad">{answer.text}</Notice>
      </div>
    );
  }
  return answer.text === "" ? null : (
    <div className="field">
      <h3>Result</h3>
      <Block text={prettyText(answer.text)} label="Result" />
    </div>
  );
}

function Calls({ calls, line }: { calls: CallRecord[]; line: string | null }) {
  return (
    <div className="field">
      <h3>Calls</h3>
      {calls.length === 0 && <p className="mono">{line}</p>}
      <ul className="calls">
        {calls.map((call) => (
          <li key={call.id}>
            <span className="mono">{call.server === null ? call.name : `${call.server}.${call.tool}`}</span>
            <span className="mono faint">{JSON.stringify(call.arguments)}</span>
            <span className="aside row">
              <Badge tone={toneOf(call.outcome)}>{call.outcome}</Badge>
              <span className="faint">{ms(call.duration_ms)}</span>
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Figures({ record }: { record: CallRecord }) {
  const saved = record.script?.saved_tokens ?? 0;
  const parts = [
    record.duration_ms === null ? null : `took ${ms(record.duration_ms)}`,
    saved > 0 ? `code mode saves ${count(saved)} tokens a model request` : null,
  ].filter((part) => part !== null);
  return parts.length === 0 ? null : <p className="faint">{parts.join(" · ")}</p>;
}
