/** A server that is about to be added: what the form holds, and what it sends. */

import { headers, lines, words } from "./text.ts";

export type Transport = "stdio" | "http" | "sse";

export interface NewServer {
  name: string;
  transport: Transport;
  /** The command and its arguments, as one would type them. */
  command: string;
  envs: string;
  url: string;
  headers: string;
  codeMode: boolean;
}

export const BLANK: NewServer = {
  name: "",
  transport: "stdio",
  command: "",
  envs: "",
  url: "",
  headers: "",
  codeMode: false,
};

/** An entry of `mcp.client_configs`: every tool exists, none runs unasked. */
export function entryOf(server: NewServer): Record<string, unknown> {
  const entry: Record<string, unknown> = {
    name: server.name.trim(),
    connection_type: server.transport,
    tools_to_execute: ["*"],
    tools_to_auto_execute: [],
    is_code_mode_client: server.codeMode,
  };
  if (server.transport === "stdio") {
    const [command = "", ...args] = words(server.command);
    entry["stdio_config"] = { command, args, envs: lines(server.envs) };
    return entry;
  }
  entry["connection_string"] = server.url.trim();
  if (lines(server.headers).length > 0) {
    entry["headers"] = headers(server.headers);
  }
  return entry;
}
