/** What the sheet of a server edits, and the patch that saving it sends: only what was changed. */

import type { ClientConfig } from "../api/types.ts";
import { headerLines, headers, lines } from "./text.ts";
import { same, type ToolLists } from "./tool-list.ts";

export interface Draft {
  enabled: boolean;
  codeMode: boolean;
  command: string;
  args: string;
  envs: string;
  url: string;
  headers: string;
  /** Seconds; empty for the gateway's own setting. */
  timeout: string;
  tools: ToolLists;
}

export type Patch = Record<string, unknown>;

export function draftOf(config: ClientConfig): Draft {
  const stdio = config.stdio_config;
  return {
    enabled: !config.disabled,
    codeMode: config.is_code_mode_client,
    command: stdio?.command ?? "",
    args: (stdio?.args ?? []).join("\n"),
    envs: (stdio?.envs ?? []).join("\n"),
    url: config.connection_string ?? "",
    headers: headerLines(config.headers),
    timeout: config.tool_execution_timeout === undefined ? "" : String(config.tool_execution_timeout),
    tools: { execute: config.tools_to_execute, auto: config.tools_to_auto_execute },
  };
}

export function patchOf(config: ClientConfig, draft: Draft): Patch {
  const before = draftOf(config);
  const patch: Patch = {};
  if (draft.enabled !== before.enabled) {
    patch["disabled"] = !draft.enabled;
  }
  if (draft.codeMode !== before.codeMode) {
    patch["is_code_mode_client"] = draft.codeMode;
  }
  if (config.stdio_config && differ(before, draft, ["command", "args", "envs"])) {
    // The gateway takes this object whole: a secret that was not touched goes back as the mask it
    // came as, which keeps it.
    patch["stdio_config"] = {
      ...config.stdio_config,
      command: draft.command.trim(),
      args: lines(draft.args),
      envs: lines(draft.envs),
    };
  }
  if (draft.url.trim() !== before.url) {
    patch["connection_string"] = draft.url.trim();
  }
  if (differ(before, draft, ["headers"])) {
    patch["headers"] = headers(draft.headers);
  }
  if (draft.timeout.trim() !== before.timeout) {
    patch["tool_execution_timeout"] = draft.timeout.trim() === "" ? null : span(draft.timeout.trim());
  }
  if (!same(draft.tools.execute, before.tools.execute)) {
    patch["tools_to_execute"] = draft.tools.execute;
  }
  if (!same(draft.tools.auto, before.tools.auto)) {
    patch["tools_to_auto_execute"] = draft.tools.auto;
  }
  return patch;
}

export function isEmpty(patch: Patch): boolean {
  return Object.keys(patch).length === 0;
}

function differ(
  before: Draft,
  after: Draft,
  keys: readonly ("command" | "args" | "envs" | "headers")[],
): boolean {
  return keys.some((key) => lines(before[key]).join("\n") !== lines(after[key]).join("\n"));
}

/** Seconds as a number where it is one; anything else is the gateway's to judge. */
function span(text: string): number | string {
  const seconds = Number(text);
  return Number.isFinite(seconds) ? seconds : text;
}
