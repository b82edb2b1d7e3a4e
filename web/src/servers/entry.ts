/** The form for a new server, and the request body built from it. */

import { toApprovers, type ApproversChoice } from "../approvals/approvers.ts";
import { parseHeaders, splitCommandLine, splitLines } from "./text.ts";

export type Transport = "stdio" | "http" | "sse";

export interface NewServer {
  name: string;
  transport: Transport;
  /** The command with its arguments, quoted as in a shell. */
  command: string;
  envs: string;
  url: string;
  headers: string;
  codeMode: boolean;
  approvalBy: ApproversChoice;
}

export const EMPTY_SERVER: NewServer = {
  name: "",
  transport: "stdio",
  command: "",
  envs: "",
  url: "",
  headers: "",
  codeMode: false,
  approvalBy: "default",
};

/** Builds an entry of `mcp.client_configs`. All tools are enabled, and none is automatically executed. */
export function toClientConfig(server: NewServer): Record<string, unknown> {
  const config: Record<string, unknown> = {
    name: server.name.trim(),
    connection_type: server.transport,
    tools_to_execute: ["*"],
    tools_to_auto_execute: [],
    is_code_mode_client: server.codeMode,
  };
  const approvers = toApprovers(server.approvalBy);
  if (approvers !== null) {
    config["approval_by"] = approvers;
  }
  if (server.transport === "stdio") {
    const [command = "", ...args] = splitCommandLine(server.command);
    config["stdio_config"] = { command, args, envs: splitLines(server.envs) };
    return config;
  }
  config["connection_string"] = server.url.trim();
  if (splitLines(server.headers).length > 0) {
    config["headers"] = parseHeaders(server.headers);
  }
  return config;
}
