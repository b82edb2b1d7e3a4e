/** The one way to the gateway's API. Its errors keep the gateway's own words. */

import { parse } from "./json.ts";
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

/** Nothing came back: the gateway is away, or the network is. */
export class Unreachable extends Error {
  constructor() {
    super("the gateway does not answer; is it running?");
  }
}

export interface Ask {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  body?: unknown;
  /** A body that is text already. */
  text?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

export async function ask<T>(path: string, how: Ask = {}): Promise<T> {
  const response = await send(path, how);
  const text = await response.text();
  if (!response.ok) {
    throw failure(response.status, text);
  }
  return (text === "" ? undefined : parse(text)) as T;
}

/** Sends a request and gives the answer as it comes; used alone for streams. */
export async function send(path: string, how: Ask = {}): Promise<Response> {
  const key = session.key();
  const headers: Record<string, string> = { ...how.headers };
  if (key !== null) {
    headers["authorization"] = `Bearer ${key}`;
  }
  const body = how.text ?? (how.body === undefined ? undefined : JSON.stringify(how.body));
  if (body !== undefined) {
    headers["content-type"] = "application/json";
  }
  const init: RequestInit = { method: how.method ?? "GET", headers, cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    init.body = body;
  }
  if (how.signal) {
    init.signal = how.signal;
  }
  let response: Response;
  try {
    // Relative: the page may stand below a path of a proxy.
    response = await fetch(path.replace(/^\//, ""), init);
  } catch (error) {
    throw how.signal?.aborted ? error : new Unreachable();
  }
  if (path.startsWith("/api/")) {
    await watchDoor(response, key);
  }
  return response;
}

async function watchDoor(response: Response, used: string | null): Promise<void> {
  if (response.status !== 401 && response.status !== 403) {
    return;
  }
  // An answer to a key that has been replaced since says nothing about the one in use.
  if (used === session.key()) {
    const { message, code } = failure(response.status, await response.clone().text());
    if (response.status === 401 || code === "forbidden") {
      session.refuse(message);
    }
  }
}

export function failure(status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text) as { error?: { message?: string; code?: string } };
    if (error?.message) {
      return new ApiError(status, error.code ?? "", error.message);
    }
  } catch {
    // Not from the gateway: a proxy's page, perhaps.
  }
  return new ApiError(status, "", `the answer was ${status}${text ? `: ${text.slice(0, 200)}` : ""}`);
}

/** What to tell a person about anything that was thrown. */
export function words(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Every item of a list that comes in pages. */
export async function all<T>(path: string, noun: string, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null = null;
  do {
    const query: string = `limit=1000${cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`}`;
    const page: Record<string, unknown> = await ask(
      `${path}${path.includes("?") ? "&" : "?"}${query}`,
      signal ? { signal } : {},
    );
    items.push(...(page[noun] as T[]));
    cursor = page["next_cursor"] as string | null;
  } while (cursor !== null);
  return items;
}
