/** The editable settings of a server, and the patch with what the user changed. */

import type { ClientView as ClientConfig } from "../api/schema.ts";
import { toApprovers, toApproversChoice, type ApproversChoice } from "../approvals/approvers.ts";
import { formatHeaders, parseHeaders, splitLines } from "./text.ts";
import { isSameList, type ToolLists } from "./tool-list.ts";

export interface Draft {
  enabled: boolean;
  codeMode: boolean;
  command: string;
  args: string;
  envs: string;
  url: string;
  headers: string;
  /** Seconds; empty to use the gateway's setting. */
  timeout: string;
  approvalBy: ApproversChoice;
  tools: ToolLists;
}

export type Patch = Record<string, unknown>;

export function toDraft(config: ClientConfig): Draft {
  const stdio = config.stdio_config;
  return {
    enabled: !config.disabled,
    codeMode: config.is_code_mode_client,
    command: stdio?.command ?? "",
    args: (stdio?.args ?? []).join("\n"),
    envs: (stdio?.envs ?? []).join("\n"),
    url: config.connection_string ?? "",
    headers: formatHeaders(config.headers),
    timeout: config.tool_execution_timeout === undefined ? "" : String(config.tool_execution_timeout),
    approvalBy: toApproversChoice(config.approval_by),
    tools: { execute: config.tools_to_execute, auto: config.tools_to_auto_execute },
  };
}

export function buildServerPatch(config: ClientConfig, draft: Draft): Patch {
  const before = toDraft(config);
  const patch: Patch = {};
  if (draft.enabled !== before.enabled) {
    patch["disabled"] = !draft.enabled;
  }
  if (draft.codeMode !== before.codeMode) {
    patch["is_code_mode_client"] = draft.codeMode;
  }
  if (config.stdio_config && isChanged(before, draft, ["command", "args", "envs"])) {
    // The gateway replaces this object as a whole. A masked secret that is sent back unchanged is kept.
    patch["stdio_config"] = {
      ...config.stdio_config,
      command: draft.command.trim(),
      args: splitLines(draft.args),
      envs: splitLines(draft.envs),
    };
  }
  if (draft.url.trim() !== before.url) {
    patch["connection_string"] = draft.url.trim();
  }
  if (isChanged(before, draft, ["headers"])) {
    patch["headers"] = parseHeaders(draft.headers);
  }
  if (draft.timeout.trim() !== before.timeout) {
    patch["tool_execution_timeout"] = draft.timeout.trim() === "" ? null : parseTimeout(draft.timeout.trim());
  }
  if (draft.approvalBy !== before.approvalBy) {
    patch["approval_by"] = toApprovers(draft.approvalBy);
  }
  if (!isSameList(draft.tools.execute, before.tools.execute)) {
    patch["tools_to_execute"] = draft.tools.execute;
  }
  if (!isSameList(draft.tools.auto, before.tools.auto)) {
    patch["tools_to_auto_execute"] = draft.tools.auto;
  }
  return patch;
}

export function isEmpty(patch: Patch): boolean {
  return Object.keys(patch).length === 0;
}

function isChanged(
  before: Draft,
  after: Draft,
  keys: readonly ("command" | "args" | "envs" | "headers")[],
): boolean {
  return keys.some((key) => splitLines(before[key]).join("\n") !== splitLines(after[key]).join("\n"));
}

/** Converts seconds to a number. Other text is sent unchanged, and the gateway validates it. */
function parseTimeout(text: string): number | string {
  const seconds = Number(text);
  return Number.isFinite(seconds) ? seconds : text;
}
