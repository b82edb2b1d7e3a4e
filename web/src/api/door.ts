/** Whether a key opens the gateway's API. */

import { failure, Unreachable } from "./client.ts";

/** Nothing if it opens; else what the gateway said. */
export async function knock(key: string | null): Promise<string | null> {
  const headers: Record<string, string> = key === null ? {} : { authorization: `Bearer ${key}` };
  let response: Response;
  try {
    response = await fetch("api/settings/mcp/tool-manager-config", { headers, credentials: "omit" });
  } catch {
    return new Unreachable().message;
  }
  return response.ok ? null : failure(response.status, await response.text()).message;
}
