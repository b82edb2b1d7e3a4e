/**
 * The lists `tools_to_execute` and `tools_to_auto_execute`. `["*"]` means all tools, including ones
 * that the server adds later; `[]` means none; otherwise exactly the listed tools.
 */

export type ToolList = readonly string[];

export const ALL: ToolList = ["*"];
export const NONE: ToolList = [];

export function isAll(list: ToolList): boolean {
  return list.includes("*");
}

export function includesTool(list: ToolList, tool: string): boolean {
  return isAll(list) || list.includes(tool);
}

/** Adds a tool to a list or removes it. Removing one from "all" lists all the others by name. */
export function setTool(
  list: ToolList,
  tool: string,
  to: "on" | "off",
  offered: readonly string[],
): ToolList {
  if (to === "on") {
    return includesTool(list, tool) ? list : [...list, tool];
  }
  const names = isAll(list) ? offered : list;
  return names.filter((name) => name !== tool);
}

/** Whether two lists mean the same. Their order does not matter. */
export function isSameList(one: ToolList, other: ToolList): boolean {
  if (isAll(one) || isAll(other)) {
    return isAll(one) === isAll(other);
  }
  const [a, b] = [new Set(one), new Set(other)];
  return a.size === b.size && [...a].every((name) => b.has(name));
}

/** Returns the names in a list that the server does not offer at the moment. */
export function findMissing(list: ToolList, offered: readonly string[]): string[] {
  return isAll(list) ? [] : list.filter((name) => !offered.includes(name));
}

export interface ToolLists {
  execute: ToolList;
  auto: ToolList;
}

/** Enables or disables a tool. Disabling it also turns off automatic execution. */
export function setEnabled(
  lists: ToolLists,
  tool: string,
  to: "on" | "off",
  offered: readonly string[],
): ToolLists {
  const execute = setTool(lists.execute, tool, to, offered);
  const auto = to === "off" && !isAll(lists.auto) ? setTool(lists.auto, tool, "off", offered) : lists.auto;
  return { execute, auto };
}

/** Whether a tool is automatically executed, which requires that it is enabled. */
export function isAutoExecuted(lists: ToolLists, tool: string): boolean {
  return includesTool(lists.execute, tool) && includesTool(lists.auto, tool);
}
