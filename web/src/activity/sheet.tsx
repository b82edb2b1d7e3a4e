/** All that is recorded of one attempt. */

import { Fragment, type ReactNode } from "react";

import { pretty } from "../api/json.ts";
import type { CallRecord } from "../api/types.ts";
import { hashOf } from "../route.ts";
import { clock, count, ms, usd } from "../ui/format.ts";
import { Badge, Block, Notice } from "../ui/parts.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { toneOf } from "./outcomes.ts";

export function RecordSheet({ record, onClose }: { record: CallRecord; onClose: () => void }) {
  const facts = factsOf(record).filter(([, value]) => value !== null && value !== "");
  return (
    <Sheet
      title={record.name}
      says={<Badge tone={toneOf(record.outcome)}>{record.outcome}</Badge>}
      onClose={onClose}
    >
      {record.error !== null && <Notice tone="bad">{record.error}</Notice>}
      {record.warnings.map((warning, index) => (
        <Notice key={index} tone="warn">
          {warning}
        </Notice>
      ))}
      <dl className="facts">
        {facts.map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
      {record.arguments !== null && record.arguments !== undefined && (
        <div className="field">
          <h3>Arguments</h3>
          <Block text={argumentsText(record.arguments)} label="Arguments" />
        </div>
      )}
      {record.result !== null && record.result !== undefined && (
        <div className="field">
          <h3>Result</h3>
          <Block text={pretty(record.result)} label="Result" />
        </div>
      )}
    </Sheet>
  );
}

function factsOf(record: CallRecord): [string, ReactNode][] {
  const { script } = record;
  return [
    ["Server", record.server],
    ["Tool", record.tool],
    ["Instead of", record.instead_of],
    ["Caller", record.caller ?? "without a key"],
    ["Origin", record.origin],
    ["Began", clock(record.started_at)],
    ["Took", record.duration_ms === null ? null : ms(record.duration_ms)],
    ["Verdict", record.verdict === null ? null : `${record.verdict}, by ${record.rule ?? "nothing"}`],
    ["Approval", record.approval && <a href={hashOf("approvals", record.approval)}>{record.approval}</a>],
    ["Run", record.run_id && <a href={hashOf("runs", record.run_id)}>{record.run_id}</a>],
    ["Request", record.request_id],
    ["Called by", record.parent_id],
    ["Bytes", `${count(record.bytes_in)} in, ${count(record.bytes_out)} out`],
    ["Cost", record.cost_usd > 0 ? usd(record.cost_usd) : null],
    ["Reused", record.cached ? "the result of an earlier call" : null],
    ["Script", script ? scriptText(script) : null],
  ];
}

function scriptText({ calls, limit, saved_tokens }: NonNullable<CallRecord["script"]>): string {
  const parts = [
    calls === undefined ? null : `${count(calls)} calls`,
    limit ? `stopped by the limit ${limit}` : null,
    saved_tokens ? `${count(saved_tokens)} tokens saved a request` : null,
  ];
  return parts.filter((part) => part !== null).join(", ");
}

/** A script is shown as its lines. */
function argumentsText(given: unknown): string {
  const code = (given as { code?: unknown } | null)?.code;
  return typeof code === "string" && Object.keys(given as object).length === 1 ? code : pretty(given);
}
