/** The state of the audit trail in one line: its size, how long records are kept, its last seal, problems. */

import { request } from "../api/client.ts";
import { usePolling, useResource } from "../api/hooks.ts";
import type { AuditStatus } from "../api/schema.ts";
import { formatBytes, formatRelativeTime, pluralize } from "../ui/format.ts";
import { Status } from "../ui/components.tsx";

/** Long, because the gateway adds up the sizes of all parts of the trail. */
const POLL_INTERVAL_MS = 30_000;

export function TrailStatus() {
  const { data, reload } = useResource("audit-status", (signal) =>
    request<AuditStatus>("/api/audit/status", { signal }),
  );
  usePolling(POLL_INTERVAL_MS, reload);
  return data === null ? null : <TrailStatusLine status={data} />;
}

export function TrailStatusLine({ status }: { status: AuditStatus }) {
  const problems = [
    status.store_problem === null ? null : `Store: ${status.store_problem}`,
    status.sink_problem === null ? null : `Second sink: ${status.sink_problem}`,
  ].filter((problem) => problem !== null);
  return (
    <p className="trail-status faint" aria-label="Audit trail">
      <Status tone={problems.length === 0 ? "good" : "bad"}>Audit trail</Status>
      {[...problems, ...describeTrail(status)].map((part) => (
        <span key={part}>{part}</span>
      ))}
    </p>
  );
}

function describeTrail({ bytes, max_bytes, retention_days, sealed_at }: AuditStatus): string[] {
  return [
    max_bytes === null ? formatBytes(bytes) : `${formatBytes(bytes)} of ${formatBytes(max_bytes)}`,
    retention_days === null ? "kept forever" : `kept for ${pluralize(retention_days, "day")}`,
    sealed_at === null ? "not sealed yet" : `sealed ${formatRelativeTime(sealed_at)}`,
  ];
}
