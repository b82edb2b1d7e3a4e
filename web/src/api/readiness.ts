/**
 * Whether the gateway can record. While it cannot, it refuses calls and changes, so the page asks its
 * readiness probe all the time. The probe needs no key.
 */

import type { Ready } from "./schema.ts";

const READY_POLL_INTERVAL_MS = 5000;
/** Shorter, so that the banner disappears soon after the gateway has recovered. */
const NOT_READY_POLL_INTERVAL_MS = 1000;
const UNNAMED_PROBLEM = "its data cannot be written";

/** Returns why the gateway cannot record, `null` if it can, and `undefined` if the response does not say. */
export function parseReadiness(text: string): string | null | undefined {
  let ready: Partial<Ready> | null;
  try {
    ready = JSON.parse(text) as Partial<Ready> | null;
  } catch {
    // Not from the gateway; for example an error page from a proxy.
    return undefined;
  }
  if (typeof ready?.status !== "string") {
    return undefined;
  }
  return ready.status === "not_writable" ? (ready.reason ?? UNNAMED_PROBLEM) : null;
}

export class ReadinessMonitor {
  private listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort: AbortController | null = null;
  /** Why the gateway cannot record, or `null` if it can. */
  problem: string | null = null;

  /** Calls `listener` when `problem` changes. Returns a function that unsubscribes. */
  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start(): void {
    document.addEventListener("visibilitychange", this.restart);
    this.restart();
  }

  stop(): void {
    document.removeEventListener("visibilitychange", this.restart);
    this.pause();
  }

  /** Polls from now on, unless the tab is hidden. */
  private restart = (): void => {
    this.pause();
    if (document.visibilityState === "visible") {
      this.abort = new AbortController();
      void this.poll(this.abort.signal);
    }
  };

  private pause(): void {
    this.abort?.abort();
    clearTimeout(this.timer);
  }

  private async poll(signal: AbortSignal): Promise<void> {
    try {
      const response = await fetch("ready", { signal, cache: "no-store", credentials: "omit" });
      const problem = parseReadiness(await response.text());
      // A response that does not say is no sign of recovery.
      if (problem !== undefined && !signal.aborted) {
        this.setProblem(problem);
      }
    } catch {
      // The gateway is unreachable, which views report themselves.
    }
    if (!signal.aborted) {
      const interval = this.problem === null ? READY_POLL_INTERVAL_MS : NOT_READY_POLL_INTERVAL_MS;
      this.timer = setTimeout(() => void this.poll(signal), interval);
    }
  }

  private setProblem(problem: string | null): void {
    if (this.problem !== problem) {
      this.problem = problem;
      this.listeners.forEach((listener) => listener());
    }
  }
}

export const readiness = new ReadinessMonitor();
