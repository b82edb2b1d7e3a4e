/**
 * The lists `tools_to_execute` and `tools_to_auto_execute`: `["*"]` is all, also tools that come
 * later; `[]` is none; else exactly the tools that are named.
 */

export type ToolList = readonly string[];

export const ALL: ToolList = ["*"];
export const NONE: ToolList = [];

export function isAll(list: ToolList): boolean {
  return list.includes("*");
}

export function has(list: ToolList, tool: string): boolean {
  return isAll(list) || list.includes(tool);
}

/** The list with one tool turned on or off. Turning one off from "all" names all the others. */
export function turned(list: ToolList, tool: string, to: "on" | "off", offered: readonly string[]): ToolList {
  if (to === "on") {
    return has(list, tool) ? list : [...list, tool];
  }
  const named = isAll(list) ? offered : list;
  return named.filter((name) => name !== tool);
}

/** Whether two lists say the same; their order says nothing. */
export function same(one: ToolList, other: ToolList): boolean {
  if (isAll(one) || isAll(other)) {
    return isAll(one) === isAll(other);
  }
  const [a, b] = [new Set(one), new Set(other)];
  return a.size === b.size && [...a].every((name) => b.has(name));
}

/** Names in a list that the server does not offer now. */
export function missing(list: ToolList, offered: readonly string[]): string[] {
  return isAll(list) ? [] : list.filter((name) => !offered.includes(name));
}

export interface ToolLists {
  execute: ToolList;
  auto: ToolList;
}

/** Enables or disables a tool. One that is disabled does not come back as one that runs unasked. */
export function enable(
  lists: ToolLists,
  tool: string,
  to: "on" | "off",
  offered: readonly string[],
): ToolLists {
  const execute = turned(lists.execute, tool, to, offered);
  const auto = to === "off" && !isAll(lists.auto) ? turned(lists.auto, tool, "off", offered) : lists.auto;
  return { execute, auto };
}

/** Whether a tool runs unasked: `auto` counts only within `execute`. */
export function runsUnasked(lists: ToolLists, tool: string): boolean {
  return has(lists.execute, tool) && has(lists.auto, tool);
}
