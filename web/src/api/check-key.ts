/** Checks an admin key without storing it. */

import { GatewayUnreachableError, toApiError } from "./client.ts";

/** Returns `null` if the gateway accepts the key, otherwise the error message. */
export async function checkKey(key: string | null): Promise<string | null> {
  const headers: Record<string, string> = key === null ? {} : { authorization: `Bearer ${key}` };
  let response: Response;
  try {
    response = await fetch("api/settings/mcp/tool-manager-config", { headers, credentials: "omit" });
  } catch {
    return new GatewayUnreachableError().message;
  }
  return response.ok ? null : toApiError(response.status, await response.text()).message;
}
