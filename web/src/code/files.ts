/** The files that models read in code mode, as `listToolFiles` names them. */

import { ask } from "../api/client.ts";
import { query } from "../api/list.ts";
import type { ToolMessage } from "../api/types.ts";

/** Paths out of an indented tree: folders end with `/`, what follows `#` is a remark. */
export function pathsIn(tree: string): string[] {
  const folders: string[] = [];
  const paths: string[] = [];
  for (const line of tree.split("\n")) {
    const name = line.replace(/\s+#.*$/, "").trim();
    if (name === "" || !(name.endsWith("/") || name.endsWith(".pyi"))) {
      continue;
    }
    const depth = (line.length - line.trimStart().length) / 2;
    folders.length = Math.min(depth, folders.length);
    if (name.endsWith("/")) {
      folders.push(name);
    } else {
      paths.push(folders.join("") + name);
    }
  }
  return paths;
}

/** What the caller with this key can script; empty if nothing, for then there is no such tool either. */
export async function listFiles(key: string, signal: AbortSignal): Promise<string[]> {
  const said = await ask<ToolMessage>(`/api/code/files${query({ key })}`, { signal });
  return said.is_error ? [] : pathsIn(textOf(said));
}

export async function readFile(name: string, key: string, signal: AbortSignal): Promise<string> {
  return textOf(await ask<ToolMessage>(`/api/code/files${query({ name, key })}`, { signal }));
}

export function textOf(message: ToolMessage): string {
  return typeof message.content === "string" ? message.content : JSON.stringify(message.content, null, 2);
}
