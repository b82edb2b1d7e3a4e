/** Lists that may be long: the first items, and more when asked for. */

import { useEffect, useRef, useState } from "react";

import { ask } from "./client.ts";
import { useResource } from "./hooks.ts";

const STEP = 100;
const MOST = 1000;

export interface List<T> {
  items: T[] | null;
  error: string | null;
  reload: () => void;
  /** Shows more; none if these are all. */
  more: (() => void) | null;
  /** Whether there is more than is ever shown. */
  cut: boolean;
}

/** `path` with its query, without `limit`. */
export function useList<T>(path: string, noun: string): List<T> {
  const [limit, setLimit] = useState(STEP);
  const resource = useResource(path, (signal) =>
    ask<Record<string, unknown>>(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}`, { signal }),
  );
  const { data, error, reload } = resource;
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) {
      reload();
    }
    first.current = false;
  }, [limit, reload]);
  const items = data === null ? null : (data[noun] as T[]);
  const goesOn = data !== null && data["next_cursor"] !== null;
  return {
    items,
    error,
    reload,
    more: goesOn && limit < MOST ? () => setLimit(Math.min(MOST, limit * 2)) : null,
    cut: goesOn && limit >= MOST,
  };
}

const SETTLE = 200;

/** A value once it has not changed for a moment, for searches that are typed. */
export function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** A query out of what is set. */
export function query(given: Record<string, string>): string {
  const set = Object.entries(given).filter(([, value]) => value.trim() !== "");
  return set.length === 0 ? "" : `?${new URLSearchParams(set).toString()}`;
}
