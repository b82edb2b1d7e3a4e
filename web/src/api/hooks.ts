/** What views ask the gateway for, and when they ask again. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import type { RefObject } from "react";

import { words } from "./client.ts";
import { feed, type Heard, type Kind } from "./feed.ts";
import * as session from "./session.ts";

export interface Resource<T> {
  data: T | null;
  error: string | null;
  /** Asks again; what is shown stays until the answer is there. */
  reload: () => void;
  /** Puts in what an answer to a change has shown. */
  set: (data: T) => void;
}

/** Asks when `name` changes, and whenever told to. */
export function useResource<T>(name: string, read: (signal: AbortSignal) => Promise<T>): Resource<T> {
  const [data, setData] = useState<T | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const latest = useLatest(read);
  const shown = useRef(name);
  const asking = useRef<AbortController | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    asking.current = abort;
    if (shown.current !== name) {
      shown.current = name;
      setData(null);
      setError(null);
    }
    latest.current(abort.signal).then(
      (answer) => {
        if (!abort.signal.aborted) {
          setData(answer);
          setError(null);
        }
      },
      (failed: unknown) => {
        if (!abort.signal.aborted) {
          setError(words(failed));
        }
      },
    );
    return () => abort.abort();
  }, [name, turn, latest]);
  const reload = useCallback(() => setTurn((turn) => turn + 1), []);
  const set = useCallback((data: T) => {
    // An answer that is on its way is older than what was just set.
    asking.current?.abort();
    setData(data);
    setError(null);
  }, []);
  return { data, error, reload, set };
}

/** How long what happens is gathered before it is looked at. Calls come by the thousand. */
const GATHER = 250;
const GATHER_CALLS = 1000;
const POLL = 5000;

/**
 * Calls `reload` soon after one of these things happened, many at once counting as one; every few
 * seconds where there is no stream of events.
 */
export function useReloadOn(kinds: readonly Kind[], reload: () => void): void {
  const live = useLive();
  const wanted = kinds.join();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let due = Infinity;
    const stop = feed.listen((kind) => {
      const at = Date.now() + (kind === "call" ? GATHER_CALLS : GATHER);
      if ((kind !== "missed" && !wanted.split(",").includes(kind)) || at >= due) {
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
      stop();
      clearTimeout(timer);
    };
  }, [wanted, reload]);
  useEffect(() => {
    if (live) {
      return;
    }
    const timer = setInterval(reload, POLL);
    return () => clearInterval(timer);
  }, [live, reload]);
  useEffect(() => {
    // Not every change is an event: somebody who comes back to the page sees what is.
    const look = () => document.visibilityState === "visible" && reload();
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [reload]);
}

/** Hears of every event of a kind. */
export function useHeard<K extends Kind>(kind: K, hear: (value: Heard[K]) => void): void {
  const latest = useLatest(hear);
  useEffect(
    () =>
      feed.listen((heard, value) => {
        if (heard === kind) {
          latest.current(value as Heard[K]);
        }
      }),
    [kind, latest],
  );
}

/** A ref to the value of the last render, for callbacks that outlive it. */
function useLatest<T>(value: T): RefObject<T> {
  const latest = useRef(value);
  // A layout effect runs before any other effect can read the ref.
  useLayoutEffect(() => {
    latest.current = value;
  });
  return latest;
}

export function useLive(): boolean {
  return useSyncExternalStore(
    (told) => feed.watch(told),
    () => feed.live,
  );
}

export function useRefusal(): string | null {
  return useSyncExternalStore(session.watch, session.refusal);
}

export function useKey(): string | null {
  return useSyncExternalStore(session.watch, session.key);
}

export interface Action {
  busy: boolean;
  error: string | null;
  run: (work: () => Promise<void>) => Promise<void>;
  clear: () => void;
}

/** Something that a person started: whether it is under way, and what went wrong with it. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const run = useCallback(async (work: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (failed) {
      setError(words(failed));
    } finally {
      setBusy(false);
    }
  }, []);
  const clear = useCallback(() => setError(null), []);
  return { busy, error, run, clear };
}
