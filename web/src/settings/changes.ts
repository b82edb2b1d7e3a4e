/** The settings form, and the patch with what the user changed in it. */

import type { ToolManagerView as ToolManager } from "../api/schema.ts";

export interface SettingsForm {
  depth: string;
  timeout: string;
  inject: boolean;
  level: ToolManager["code_mode_binding_level"];
}

export function toSettingsForm(settings: ToolManager): SettingsForm {
  return {
    depth: String(settings.max_agent_depth),
    timeout: String(settings.tool_execution_timeout),
    inject: !settings.disable_auto_tool_inject,
    level: settings.code_mode_binding_level,
  };
}

export function buildSettingsPatch(
  settings: ToolManager,
  form: SettingsForm,
): Partial<Record<keyof ToolManager, unknown>> {
  const before = toSettingsForm(settings);
  const patch: Partial<Record<keyof ToolManager, unknown>> = {};
  if (form.depth.trim() !== before.depth) {
    patch.max_agent_depth = parseNumber(form.depth.trim());
  }
  if (form.timeout.trim() !== before.timeout) {
    patch.tool_execution_timeout = parseNumber(form.timeout.trim());
  }
  if (form.inject !== before.inject) {
    patch.disable_auto_tool_inject = !form.inject;
  }
  if (form.level !== before.level) {
    patch.code_mode_binding_level = form.level;
  }
  return patch;
}

/** Converts text to a number if possible. Other text is sent unchanged, and the gateway validates it. */
function parseNumber(text: string): number | string {
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}
