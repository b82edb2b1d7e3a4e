/** The files that describe tools to models in code mode. */

import { request } from "../api/client.ts";
import { buildQuery } from "../api/list.ts";
import type { ToolMessage } from "../api/schema.ts";

/** Parses the indented tree that `listToolFiles` returns: folders end with `/`, comments start with `#`. */
export function parseFileTree(tree: string): string[] {
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

/** Lists the files that a caller with this key can read. */
export async function listFiles(key: string, signal: AbortSignal): Promise<string[]> {
  const message = await request<ToolMessage>(`/api/code/files${buildQuery({ key })}`, { signal });
  // Without files, `listToolFiles` does not exist and the call fails.
  return message.is_error ? [] : parseFileTree(messageText(message));
}

export async function readFile(name: string, key: string, signal: AbortSignal): Promise<string> {
  return messageText(await request<ToolMessage>(`/api/code/files${buildQuery({ name, key })}`, { signal }));
}

export function messageText(message: ToolMessage): string {
  return typeof message.content === "string" ? message.content : JSON.stringify(message.content, null, 2);
}
