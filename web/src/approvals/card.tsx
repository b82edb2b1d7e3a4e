/** One approval: the call, who requested it, and the decision. */

import { useState } from "react";

import { request } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import { formatJson } from "../api/json.ts";
import type { ApprovalState, ApprovalView as Approval } from "../api/schema.ts";
import { formatDateTime, formatRelativeTime } from "../ui/format.ts";
import { Badge, CodeBlock, ErrorNotice, type Tone } from "../ui/components.tsx";
import { buildDecisionBody, type ApprovalScope, type Decision } from "./decision.ts";

const STATE_TONES: Record<ApprovalState, Tone> = {
  pending: "warn",
  approved: "good",
  executing: "info",
  done: "good",
  denied: "bad",
  expired: "neutral",
  unknown: "bad",
};

interface Props {
  approval: Approval;
  onDecided: () => void;
}

export function ApprovalCard({ approval, onDecided }: Props) {
  return (
    <article className="card stack" aria-label={`${approval.alias}, ${approval.state}`}>
      <div className="row spread">
        <h2 className="mono">
          {approval.server}.{approval.tool}
        </h2>
        <Badge tone={STATE_TONES[approval.state]}>{approval.state}</Badge>
      </div>
      <p className="soft">
        Requested by {approval.caller === null ? "a caller without a key" : `key ${approval.caller}`} (
        {approval.origin}) {formatRelativeTime(approval.created_at)}. Rule: <code>{approval.rule}</code>.
        {approval.state === "pending" && <> Expires {formatRelativeTime(approval.expires_at)}.</>}
      </p>
      {approval.state !== "pending" && <DecidedApproval approval={approval} />}
      {approval.state === "pending" &&
        (approval.approvers.includes("admin") ? (
          <PendingApproval approval={approval} onDecided={onDecided} />
        ) : (
          <ClientApproval approval={approval} />
        ))}
      {approval.conversation && (
        <details>
          <summary>Show conversation</summary>
          <CodeBlock text={formatJson(approval.conversation)} label="Conversation" />
        </details>
      )}
    </article>
  );
}

function DecidedApproval({ approval }: { approval: Approval }) {
  const by = approval.decided_by === null ? "" : ` by ${approval.decided_by}`;
  return (
    <>
      <CodeBlock text={formatJson(approval.edited_arguments ?? approval.arguments)} label="Arguments" />
      {approval.edited_arguments !== undefined && (
        <p className="faint">The arguments were edited before approval.</p>
      )}
      {approval.decided_at !== null && (
        <p className="soft">
          Decided{by} on {formatDateTime(approval.decided_at)}
          {approval.scope !== null && approval.state !== "denied" && ` (scope: ${approval.scope})`}
          {approval.reason !== null && `. Reason: ${approval.reason}`}
        </p>
      )}
    </>
  );
}

function ClientApproval({ approval }: { approval: Approval }) {
  return (
    <>
      <CodeBlock text={formatJson(approval.arguments)} label="Arguments" />
      <p className="soft">
        Only the user of the client that made the call can decide (<code>approval_by</code>).
      </p>
    </>
  );
}

function PendingApproval({ approval, onDecided }: Props) {
  const original = formatJson(approval.arguments);
  const [edited, setEdited] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const action = useAction();
  const decide = (decision: Decision) =>
    void action.run(async () => {
      const path = `/api/approvals/${encodeURIComponent(approval.id)}`;
      // Sent as text to preserve large numbers in edited arguments.
      await request(path, { method: "POST", text: buildDecisionBody(decision) });
      onDecided();
    });
  const approve = (scope: ApprovalScope) =>
    decide({ verb: "approve", scope, edited: edited === original ? null : edited });
  return (
    <>
      {edited === null ? (
        <CodeBlock text={original} label="Arguments" />
      ) : (
        <textarea
          aria-label="Edited arguments"
          rows={Math.min(16, edited.split("\n").length + 1)}
          value={edited}
          spellCheck={false}
          onChange={(event) => setEdited(event.target.value)}
        />
      )}
      <ErrorNotice error={action.error} />
      <div className="row">
        <button type="button" className="primary" disabled={action.busy} onClick={() => approve("once")}>
          Approve once
        </button>
        <button
          type="button"
          disabled={action.busy || approval.session === null}
          title={approval.session === null ? "The caller has no session" : undefined}
          onClick={() => approve("session")}
        >
          Approve for session
        </button>
        <button type="button" disabled={action.busy} onClick={() => approve("always")}>
          Always approve
        </button>
        <button type="button" className="plain" onClick={() => setEdited(edited === null ? original : null)}>
          {edited === null ? "Edit arguments" : "Discard edits"}
        </button>
      </div>
      <div className="row deny">
        <input
          aria-label="Reason for denying"
          placeholder="Reason (sent to the caller)"
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
        <button
          type="button"
          className="danger"
          disabled={action.busy}
          onClick={() => decide({ verb: "deny", reason: reason.trim() })}
        >
          Deny
        </button>
      </div>
    </>
  );
}
