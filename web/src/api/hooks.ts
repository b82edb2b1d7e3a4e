/** Hooks that load data from the gateway and keep it up to date. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import type { RefObject } from "react";

import { errorMessage } from "./client.ts";
import { feed, type FeedEventKind, type FeedEvents } from "./feed.ts";
import { readiness } from "./readiness.ts";
import * as session from "./session.ts";

export interface Resource<T> {
  data: T | null;
  error: string | null;
  /** Loads again; the current data stays until the response arrives. */
  reload: () => void;
  /** Replaces the data, for example with the response to a change. */
  set: (data: T) => void;
}

/** Loads data with `load`, and again whenever `name` changes. */
export function useResource<T>(name: string, load: (signal: AbortSignal) => Promise<T>): Resource<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [reloads, setReloads] = useState(0);
  const latestLoad = useLatest(load);
  const loadedName = useRef(name);
  const pendingLoad = useRef<AbortController | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    pendingLoad.current = abort;
    if (loadedName.current !== name) {
      loadedName.current = name;
      setData(null);
      setError(null);
    }
    latestLoad.current(abort.signal).then(
      (loaded) => {
        if (!abort.signal.aborted) {
          setData(loaded);
          setError(null);
        }
      },
      (failure: unknown) => {
        if (!abort.signal.aborted) {
          setError(errorMessage(failure));
        }
      },
    );
    return () => abort.abort();
  }, [name, reloads, latestLoad]);
  const reload = useCallback(() => setReloads((reloads) => reloads + 1), []);
  const set = useCallback((data: T) => {
    // A response still in flight is older than this data.
    pendingLoad.current?.abort();
    setData(data);
    setError(null);
  }, []);
  return { data, error, reload, set };
}

/** Delay between an event and the reload it triggers, so that a burst of events triggers one reload. */
const RELOAD_DELAY_MS = 250;
/** Longer, because calls can arrive by the thousand. */
const CALL_RELOAD_DELAY_MS = 1000;
const POLL_INTERVAL_MS = 5000;

/**
 * Calls `reload` shortly after an event of one of these kinds, once for a burst of events. Polls while
 * the event stream is down.
 */
export function useReloadOn(kinds: readonly FeedEventKind[], reload: () => void): void {
  const live = useIsLive();
  // An array literal is new on every render; a string compares by value.
  const joinedKinds = kinds.join();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let due = Infinity;
    const unsubscribe = feed.subscribe((kind) => {
      const at = Date.now() + (kind === "call" ? CALL_RELOAD_DELAY_MS : RELOAD_DELAY_MS);
      if ((kind !== "missed" && !joinedKinds.split(",").includes(kind)) || at >= due) {
        return;
      }
      clearTimeout(timer);
      due = at;
      timer = setTimeout(() => {
        due = Infinity;
        reload();
      }, at - Date.now());
    });
    return () => {
      unsubscribe();
      clearTimeout(timer);
    };
  }, [joinedKinds, reload]);
  useEffect(() => {
    if (live) {
      return;
    }
    const timer = setInterval(reload, POLL_INTERVAL_MS);
    return () => clearInterval(timer);
  }, [live, reload]);
  useEffect(() => {
    // Not every change sends an event, so reload when the user returns to the tab.
    const reloadIfVisible = () => document.visibilityState === "visible" && reload();
    document.addEventListener("visibilitychange", reloadIfVisible);
    return () => document.removeEventListener("visibilitychange", reloadIfVisible);
  }, [reload]);
}

/** Calls `reload` at an interval while the tab is visible, for data whose changes send no events. */
export function usePolling(intervalMs: number | null, reload: () => void): void {
  useEffect(() => {
    if (intervalMs === null) {
      return;
    }
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs, reload]);
}

/** Calls `handler` for every event of one kind. */
export function useFeedEvent<K extends FeedEventKind>(
  kind: K,
  handler: (payload: FeedEvents[K]) => void,
): void {
  const latestHandler = useLatest(handler);
  useEffect(
    () =>
      feed.subscribe((eventKind, payload) => {
        if (eventKind === kind) {
          latestHandler.current(payload as FeedEvents[K]);
        }
      }),
    [kind, latestHandler],
  );
}

/** Returns a ref to the value from the last render, for callbacks that outlive it. */
function useLatest<T>(value: T): RefObject<T> {
  const latest = useRef(value);
  // A layout effect runs before any other effect can read the ref.
  useLayoutEffect(() => {
    latest.current = value;
  });
  return latest;
}

/** Whether the event stream is open. */
export function useIsLive(): boolean {
  return useSyncExternalStore(
    (listener) => feed.subscribeToStatus(listener),
    () => feed.live,
  );
}

/** Why the gateway cannot record, or `null` if it can. */
export function useRecordingProblem(): string | null {
  return useSyncExternalStore(
    (listener) => readiness.subscribe(listener),
    () => readiness.problem,
  );
}

/** Why the gateway rejected the session's key, or `null` if it did not. */
export function useKeyError(): string | null {
  return useSyncExternalStore(session.subscribe, session.getKeyError);
}

export function useKey(): string | null {
  return useSyncExternalStore(session.subscribe, session.getKey);
}

export interface Action {
  busy: boolean;
  error: string | null;
  run: (work: () => Promise<void>) => Promise<void>;
  clear: () => void;
}

/** Runs an action started by the user, and tracks its progress and error. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const run = useCallback(async (work: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (failure) {
      setError(errorMessage(failure));
    } finally {
      setBusy(false);
    }
  }, []);
  const clear = useCallback(() => setError(null), []);
  return { busy, error, run, clear };
}
