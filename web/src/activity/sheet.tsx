/** One record of the audit log, with everything in it. */

import { Fragment, type ReactNode } from "react";

import { formatJson } from "../api/json.ts";
import type { RecordView as AuditRecord } from "../api/schema.ts";
import { routeHash } from "../route.ts";
import { formatDateTime, formatDuration, formatNumber, formatUsd, pluralize } from "../ui/format.ts";
import { Badge, CodeBlock, Notice } from "../ui/components.tsx";
import { Sheet } from "../ui/sheet.tsx";
import { RecordChange } from "./change.tsx";
import { kindOf, outcomeTone, parseKind } from "./kinds.ts";
import { detailProperties } from "./record-detail.ts";

export function RecordSheet({ record, onClose }: { record: AuditRecord; onClose: () => void }) {
  const properties = recordProperties(record).filter(([, value]) => value !== null && value !== "");
  return (
    <Sheet
      title={record.name}
      subtitle={<Badge tone={outcomeTone(record.outcome)}>{record.outcome}</Badge>}
      onClose={onClose}
    >
      {record.error !== null && <Notice tone="bad">{record.error}</Notice>}
      {record.warnings.map((warning, index) => (
        <Notice key={index} tone="warn">
          {warning}
        </Notice>
      ))}
      <dl className="properties">
        {properties.map(([name, value], index) => (
          <Fragment key={index}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
      <RecordChange detail={record.detail} />
      {record.arguments !== null && record.arguments !== undefined && (
        <div className="field">
          <h3>Arguments</h3>
          <CodeBlock text={formatArguments(record.arguments)} label="Arguments" />
        </div>
      )}
      {record.result !== null && record.result !== undefined && (
        <div className="field">
          <h3>Result</h3>
          <CodeBlock text={formatJson(record.result)} label="Result" />
        </div>
      )}
    </Sheet>
  );
}

function recordProperties(record: AuditRecord): [string, ReactNode][] {
  const { script } = record;
  const kind = kindOf(parseKind(record.kind));
  return [
    ["Kind", kind.singular],
    ["Server", record.server],
    ["Tool", record.tool],
    ["Fallback for", record.instead_of],
    [kind.caller, record.caller ?? "No key"],
    ["Origin", record.origin],
    ["Started", formatDateTime(record.started_at)],
    ["Duration", record.duration_ms === null ? null : formatDuration(record.duration_ms)],
    ["Verdict", record.verdict === null ? null : formatVerdict(record.verdict, record.rule)],
    ["Approval", record.approval && <a href={routeHash("approvals", record.approval)}>{record.approval}</a>],
    ["Run", record.run_id && <a href={routeHash("runs", record.run_id)}>{record.run_id}</a>],
    ["Request", record.request_id],
    ["Parent call", record.parent_id],
    ["Like events", record.occurrences > 1 ? formatNumber(record.occurrences) : null],
    ["Bytes", kind.hasServer ? formatBytesMoved(record) : null],
    ["Cost", record.cost_usd > 0 ? formatUsd(record.cost_usd) : null],
    ["Cache", record.cached ? "Result of an earlier call" : null],
    ["Script", script ? describeScript(script) : null],
    ...detailProperties(record.detail),
  ];
}

function formatBytesMoved({ bytes_in, bytes_out }: AuditRecord): string {
  return `${formatNumber(bytes_in)} in, ${formatNumber(bytes_out)} out`;
}

function formatVerdict(verdict: string, rule: string | null): string {
  return rule === null ? verdict : `${verdict} (${rule})`;
}

function describeScript({ calls, limit, saved_tokens }: NonNullable<AuditRecord["script"]>): string {
  const parts = [
    calls === undefined ? null : pluralize(calls, "call"),
    limit ? `stopped by limit: ${limit}` : null,
    saved_tokens ? `${formatNumber(saved_tokens)} tokens saved per request` : null,
  ];
  return parts.filter((part) => part !== null).join(", ");
}

/** Formats arguments as JSON, except that a script is shown as source code. */
function formatArguments(args: unknown): string {
  const code = (args as { code?: unknown } | null)?.code;
  return typeof code === "string" && Object.keys(args as object).length === 1 ? code : formatJson(args);
}
