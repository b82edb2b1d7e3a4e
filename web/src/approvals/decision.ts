/** What is sent when somebody decides. */

export type Scope = "once" | "session" | "always";

export type Decision =
  { verb: "approve"; scope: Scope; edited: string | null } | { verb: "deny"; reason: string };

/** The request's body. Edited arguments go in as they were typed; they must be JSON. */
export function decisionOf(decision: Decision): string {
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
    throw new Error(`the arguments are not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  return `${body.slice(0, -1)},"arguments":${decision.edited}}`;
}
