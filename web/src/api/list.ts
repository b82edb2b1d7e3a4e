/** Lists of records that start short and grow on request, and the queries that filter them. */

import { useEffect, useRef, useState } from "react";

import { request } from "./client.ts";
import { useResource } from "./hooks.ts";

const INITIAL_ITEMS = 100;
const MAX_ITEMS = 1000;

export interface List<T> {
  items: T[] | null;
  error: string | null;
  reload: () => void;
  /** Loads more items; `null` if there are none or the maximum is reached. */
  showMore: (() => void) | null;
  /** Whether items beyond the maximum are left out. */
  truncated: boolean;
}

/** Loads a list. `path` may have a query, but no `limit`; `field` names the array in the response. */
export function useList<T>(path: string, field: string): List<T> {
  const [limit, setLimit] = useState(INITIAL_ITEMS);
  const resource = useResource(path, (signal) =>
    request<Record<string, unknown>>(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}`, { signal }),
  );
  const { data, error, reload } = resource;
  const isFirstRender = useRef(true);
  useEffect(() => {
    if (!isFirstRender.current) {
      reload();
    }
    isFirstRender.current = false;
  }, [limit, reload]);
  const items = data === null ? null : (data[field] as T[]);
  const hasMore = data !== null && data["next_cursor"] !== null;
  return {
    items,
    error,
    reload,
    showMore: hasMore && limit < MAX_ITEMS ? () => setLimit(Math.min(MAX_ITEMS, limit * 2)) : null,
    truncated: hasMore && limit >= MAX_ITEMS,
  };
}

const DEBOUNCE_MS = 200;

/** Returns a value once it has stopped changing, so that typing does not send a request per keystroke. */
export function useDebounced<T>(value: T): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), DEBOUNCE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return debounced;
}

/** Builds a query string from the parameters that are not blank, starting with `?`; empty if all are. */
export function buildQuery(params: Record<string, string>): string {
  const present = Object.entries(params).filter(([, value]) => value.trim() !== "");
  return present.length === 0 ? "" : `?${new URLSearchParams(present).toString()}`;
}
