/** The files that models read in code mode, as `listToolFiles` names them. */

import { ask } from "../api/client.ts";
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

/** Empty if no server is in code mode: then there is no such tool either. */
export async function listFiles(signal: AbortSignal): Promise<string[]> {
  const said = await call("listToolFiles", {}, signal);
  return said.is_error ? [] : pathsIn(textOf(said));
}

export async function readFile(path: string, signal: AbortSignal): Promise<string> {
  return textOf(await call("readToolFile", { fileName: path }, signal));
}

export function textOf(message: ToolMessage): string {
  return typeof message.content === "string" ? message.content : JSON.stringify(message.content, null, 2);
}

function call(name: string, given: object, signal: AbortSignal): Promise<ToolMessage> {
  const body = { id: "page", type: "function", function: { name, arguments: JSON.stringify(given) } };
  return ask<ToolMessage>("/v1/mcp/tool/execute", { method: "POST", body, signal });
}
