/** Kinds of audit records, their outcomes, and how both are displayed. */

import type { RecordView as AuditRecord } from "../api/schema.ts";
import type { Tone } from "../ui/components.tsx";

interface RecordKind {
  /** Label of the filter. */
  label: string;
  /** Label of one record. */
  singular: string;
  outcomes: readonly string[];
  /** Whether records name a server, and perhaps a tool. */
  hasServer: boolean;
  /** Label of the column that says who it was. */
  caller: string;
}

const CALL_OUTCOMES = [
  "open",
  "ok",
  "tool_error",
  "unknown",
  "bad_arguments",
  "bad_filter",
  "denied",
  "ask",
  "manual",
  "limited",
  "away",
  "busy",
  "timeout",
  "server",
  "cancelled",
  "panicked",
  "no_worker",
  "unauthorized",
  "unrecorded",
  "interrupted",
] as const;
const APPROVAL_OUTCOMES = ["approved", "denied", "expired"] as const;
const AUTH_OUTCOMES = ["signed_in", "unauthorized"] as const;

const CALL = { outcomes: CALL_OUTCOMES, hasServer: true, caller: "Caller" } as const;

/** The kinds by the names that the API uses; `all` stands for records of every kind. */
export const KINDS = {
  tool: { ...CALL, label: "Tool calls", singular: "Tool call" },
  resource: { ...CALL, label: "Resources", singular: "Resource" },
  prompt: { ...CALL, label: "Prompts", singular: "Prompt" },
  completion: { ...CALL, label: "Completions", singular: "Completion" },
  approval: { ...CALL, label: "Approvals", singular: "Approval", outcomes: APPROVAL_OUTCOMES },
  auth: {
    label: "Sign-ins",
    singular: "Sign-in",
    outcomes: AUTH_OUTCOMES,
    hasServer: false,
    caller: "Address",
  },
  admin: { label: "Changes", singular: "Change", outcomes: [], hasServer: false, caller: "By" },
  all: {
    ...CALL,
    label: "All",
    singular: "Event",
    outcomes: [...new Set([...CALL_OUTCOMES, ...APPROVAL_OUTCOMES, ...AUTH_OUTCOMES])],
  },
} as const satisfies Record<string, RecordKind>;

export type KindName = keyof typeof KINDS;
export const DEFAULT_KIND: KindName = "tool";

/** Returns the kind of this name, or the default for an unknown name. */
export function parseKind(name: string | undefined): KindName {
  return name !== undefined && Object.hasOwn(KINDS, name) ? (name as KindName) : DEFAULT_KIND;
}

export function kindOf(name: KindName): RecordKind {
  return KINDS[name];
}

/** Returns the title of a record: the tool of a call, the action of a change. */
export function recordTitle({ server, tool, name }: Pick<AuditRecord, "server" | "tool" | "name">): string {
  return server === null || tool === null ? name : `${server}.${tool}`;
}

export function outcomeTone(outcome: string): Tone {
  switch (outcome) {
    case "ok":
    case "approved":
    case "signed_in":
      return "good";
    case "open":
      return "info";
    case "ask":
    case "manual":
    case "limited":
    case "busy":
    case "cancelled":
    case "expired":
      return "warn";
    default:
      return "bad";
  }
}
