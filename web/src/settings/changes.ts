/** The tool manager's settings as a form holds them, and what changed in it. */

import type { ToolManager } from "../api/types.ts";

export interface ManagerForm {
  depth: string;
  timeout: string;
  inject: boolean;
  level: ToolManager["code_mode_binding_level"];
}

export function formOf(settings: ToolManager): ManagerForm {
  return {
    depth: String(settings.max_agent_depth),
    timeout: String(settings.tool_execution_timeout),
    inject: !settings.disable_auto_tool_inject,
    level: settings.code_mode_binding_level,
  };
}

export function changesOf(
  settings: ToolManager,
  form: ManagerForm,
): Partial<Record<keyof ToolManager, unknown>> {
  const before = formOf(settings);
  const patch: Partial<Record<keyof ToolManager, unknown>> = {};
  if (form.depth.trim() !== before.depth) {
    patch.max_agent_depth = numberOr(form.depth.trim());
  }
  if (form.timeout.trim() !== before.timeout) {
    patch.tool_execution_timeout = numberOr(form.timeout.trim());
  }
  if (form.inject !== before.inject) {
    patch.disable_auto_tool_inject = !form.inject;
  }
  if (form.level !== before.level) {
    patch.code_mode_binding_level = form.level;
  }
  return patch;
}

/** What is no number goes as it is, for the gateway to say what is wrong with it. */
function numberOr(text: string): number | string {
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}
