/** Builds the request body for a decision on an approval. */

import { errorMessage } from "../api/client.ts";

export type ApprovalScope = "once" | "session" | "always";

export type Decision =
  { verb: "approve"; scope: ApprovalScope; edited: string | null } | { verb: "deny"; reason: string };

/** Builds the body as text. Edited arguments must be JSON and are inserted exactly as typed. */
export function buildDecisionBody(decision: Decision): string {
  if (decision.verb === "deny") {
    const { reason } = decision;
    return JSON.stringify(reason === "" ? { decision: "deny" } : { decision: "deny", reason });
  }
  const body = JSON.stringify({ decision: "approve", scope: decision.scope });
  if (decision.edited === null) {
    return body;
  }
  try {
    JSON.parse(decision.edited);
  } catch (error) {
    throw new Error(`The arguments are not valid JSON: ${errorMessage(error)}`);
  }
  return `${body.slice(0, -1)},"arguments":${decision.edited}}`;
}
