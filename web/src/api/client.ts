/** Client for the gateway's API. Errors carry the gateway's own message. */

import { parseJson } from "./json.ts";
import * as session from "./session.ts";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** No response: the gateway is down or the network failed. */
export class GatewayUnreachableError extends Error {
  constructor() {
    super("Cannot reach the gateway. Is it running?");
  }
}

export interface RequestOptions {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  /** A body that is already serialized. */
  text?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request and parses the JSON response. Throws an `ApiError` unless the status is 2xx. */
export async function request<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const response = await sendRequest(path, options);
  const text = await response.text();
  if (!response.ok) {
    throw toApiError(response.status, text);
  }
  return (text === "" ? undefined : parseJson(text)) as T;
}

/** Sends a request and returns the raw response. Call it directly only for streams. */
export async function sendRequest(path: string, options: RequestOptions = {}): Promise<Response> {
  const key = session.getKey();
  const headers: Record<string, string> = { ...options.headers };
  if (key !== null) {
    headers["authorization"] = `Bearer ${key}`;
  }
  const body = options.text ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  const method = options.method ?? "GET";
  if (method !== "GET") {
    // Also without a body: the gateway accepts nothing else from browsers.
    headers["content-type"] = "application/json";
  }
  const init: RequestInit = {
    method,
    headers,
    cache: "no-store",
    credentials: "omit",
  };
  if (body !== undefined) {
    init.body = body;
  }
  if (options.signal) {
    init.signal = options.signal;
  }
  let response: Response;
  try {
    // Relative, because a proxy may serve the page below a path.
    response = await fetch(path.replace(/^\//, ""), init);
  } catch (error) {
    throw options.signal?.aborted ? error : new GatewayUnreachableError();
  }
  if (path.startsWith("/api/")) {
    await checkAuthorization(response, key);
  }
  return response;
}

/** Ends the session if the gateway rejected the key in use. */
async function checkAuthorization(response: Response, usedKey: string | null): Promise<void> {
  if (response.status !== 401 && response.status !== 403) {
    return;
  }
  // If the key has been replaced since, this response says nothing about the current one.
  if (usedKey === session.getKey()) {
    const { message, code } = toApiError(response.status, await response.clone().text());
    if (response.status === 401 || code === "forbidden") {
      session.rejectKey(message);
    }
  }
}

export function toApiError(status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text) as { error?: { message?: string; code?: string } };
    if (error?.message) {
      return new ApiError(status, error.code ?? "", error.message);
    }
  } catch {
    // Not from the gateway; for example an error page from a proxy.
  }
  return new ApiError(
    status,
    "",
    `Unexpected response: HTTP ${status}${text ? `: ${text.slice(0, 200)}` : ""}`,
  );
}

/** Returns the message to show for anything that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Fetches all pages of a list. `field` names the array in each page. */
export async function fetchAll<T>(path: string, field: string, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const query: string = `limit=1000${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
    const page: Record<string, unknown> = await request(
      `${path}${path.includes("?") ? "&" : "?"}${query}`,
      signal ? { signal } : {},
    );
    items.push(...(page[field] as T[]));
    cursor = page["next_cursor"] as string | null;
  } while (cursor !== null);
  return items;
}
