/** One call that waits, or waited: who wants it, with what, and what was decided. */

import { useState } from "react";

import { ask } from "../api/client.ts";
import { useAction } from "../api/hooks.ts";
import { pretty } from "../api/json.ts";
import type { Approval, ApprovalState } from "../api/types.ts";
import { clock, when } from "../ui/format.ts";
import { Badge, Block, Failure, type Tone } from "../ui/parts.tsx";
import { decisionOf, type Decision, type Scope } from "./decision.ts";

const TONES: Record<ApprovalState, Tone> = {
  pending: "warn",
  approved: "good",
  executing: "info",
  done: "good",
  denied: "bad",
  expired: "quiet",
  unknown: "bad",
};

interface Props {
  approval: Approval;
  onDecided: () => void;
}

export function ApprovalCard({ approval, onDecided }: Props) {
  return (
    <article className="card stack" aria-label={`${approval.alias}, ${approval.state}`}>
      <div className="row apart">
        <h2 className="mono">
          {approval.server}.{approval.tool}
        </h2>
        <Badge tone={TONES[approval.state]}>{approval.state}</Badge>
      </div>
      <p className="soft">
        {approval.caller === null ? "A caller without a key" : `The key ${approval.caller}`} (
        {approval.origin}) asked {when(approval.created_at)}, because of <code>{approval.rule}</code>
        {approval.state === "pending" && <>; it expires {when(approval.expires_at)}</>}
      </p>
      {approval.state === "pending" ? (
        <Pending approval={approval} onDecided={onDecided} />
      ) : (
        <Decided approval={approval} />
      )}
      {approval.conversation && (
        <details>
          <summary>The conversation so far</summary>
          <Block text={pretty(approval.conversation)} label="Conversation" />
        </details>
      )}
    </article>
  );
}

function Decided({ approval }: Props | { approval: Approval }) {
  const by = approval.decided_by === null ? "" : ` by ${approval.decided_by}`;
  return (
    <>
      <Block text={pretty(approval.edited_arguments ?? approval.arguments)} label="Arguments" />
      {approval.edited_arguments !== undefined && (
        <p className="faint">The arguments were edited before it ran.</p>
      )}
      {approval.decided_at !== null && (
        <p className="soft">
          Decided{by}, {clock(approval.decided_at)}
          {approval.scope !== null && approval.state !== "denied" && `, for ${approval.scope}`}
          {approval.reason !== null && `: ${approval.reason}`}
        </p>
      )}
    </>
  );
}

function Pending({ approval, onDecided }: Props) {
  const given = pretty(approval.arguments);
  const [text, setText] = useState<string | null>(null);
  const [reason, setReason] = useState("");
  const action = useAction();
  const decide = (decision: Decision) =>
    void action.run(async () => {
      const path = `/api/approvals/${encodeURIComponent(approval.id)}`;
      // Text, so that numbers in edited arguments stay what was typed.
      await ask(path, { method: "POST", text: decisionOf(decision) });
      onDecided();
    });
  const approve = (scope: Scope) => decide({ verb: "approve", scope, edited: text === given ? null : text });
  return (
    <>
      {text === null ? (
        <Block text={given} label="Arguments" />
      ) : (
        <textarea
          aria-label="Edited arguments"
          rows={Math.min(16, text.split("\n").length + 1)}
          value={text}
          spellCheck={false}
          onChange={(event) => setText(event.target.value)}
        />
      )}
      <Failure error={action.error} />
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
          For this session
        </button>
        <button type="button" disabled={action.busy} onClick={() => approve("always")}>
          Always
        </button>
        <button type="button" className="plain" onClick={() => setText(text === null ? given : null)}>
          {text === null ? "Edit arguments" : "Discard edits"}
        </button>
      </div>
      <div className="row deny">
        <input
          aria-label="Reason for denying"
          placeholder="Reason, which the caller is told"
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
