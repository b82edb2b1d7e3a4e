/**
 * Live events from the gateway: one stream for the whole page, reopened when it breaks. `EventSource`
 * cannot send a key, so the stream is read with `fetch`.
 */

import { sendRequest } from "./client.ts";
import { parseJson } from "./json.ts";
import { SseParser } from "./sse.ts";
import type { ApprovalView as Approval, RecordView as CallRecord, ServerState } from "./schema.ts";

/** Payload of each kind of event. */
export interface FeedEvents {
  server: { server: string; state: ServerState; reason: string | null };
  approval: Approval;
  call: CallRecord;
  /** Events were lost, so everything needs a reload. */
  missed: null;
}

export type FeedEventKind = keyof FeedEvents;
type FeedListener = (kind: FeedEventKind, payload: unknown) => void;

const INITIAL_RETRY_DELAY_MS = 500;
const MAX_RETRY_DELAY_MS = 10_000;
/** The gateway sends a comment every 15 s, so a stream that is silent for longer is dead. */
const IDLE_TIMEOUT_MS = 40_000;

export class Feed {
  private eventListeners = new Set<FeedListener>();
  private statusListeners = new Set<() => void>();
  private abort: AbortController | null = null;
  /** Whether the stream is open. */
  live = false;

  /** Calls `listener` for every event. Returns a function that unsubscribes. */
  subscribe(listener: FeedListener): () => void {
    this.eventListeners.add(listener);
    return () => this.eventListeners.delete(listener);
  }

  /** Calls `listener` when `live` changes. Returns a function that unsubscribes. */
  subscribeToStatus(listener: () => void): () => void {
    this.statusListeners.add(listener);
    return () => this.statusListeners.delete(listener);
  }

  start(): void {
    this.stop();
    this.abort = new AbortController();
    void this.run(this.abort.signal);
  }

  stop(): void {
    this.abort?.abort();
    this.abort = null;
    this.setLive(false);
  }

  private async run(signal: AbortSignal): Promise<void> {
    let delay = INITIAL_RETRY_DELAY_MS;
    while (!signal.aborted) {
      try {
        await this.readStream(signal, () => {
          delay = INITIAL_RETRY_DELAY_MS;
        });
      } catch {
        // The stream broke or could not be opened. Retry in both cases.
      }
      if (signal.aborted) {
        return;
      }
      this.setLive(false);
      await sleep(delay, signal);
      delay = Math.min(delay * 2, MAX_RETRY_DELAY_MS);
    }
  }

  private async readStream(signal: AbortSignal, onOpen: () => void): Promise<void> {
    const idle = new AbortController();
    const stopOrIdle = AbortSignal.any([signal, idle.signal]);
    const response = await sendRequest("/api/events", { signal: stopOrIdle });
    if (!response.ok || !response.body) {
      return;
    }
    onOpen();
    this.setLive(true);
    // Events from before the stream opened are lost.
    this.dispatch("missed", null);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new SseParser();
    for (;;) {
      const timer = setTimeout(() => idle.abort(), IDLE_TIMEOUT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) {
        return;
      }
      for (const { event, data } of parser.push(value)) {
        this.dispatch(event as FeedEventKind, event === "missed" ? null : parseJson(data));
      }
    }
  }

  private dispatch(kind: FeedEventKind, payload: unknown): void {
    this.eventListeners.forEach((listener) => listener(kind, payload));
  }

  private setLive(live: boolean): void {
    if (this.live !== live) {
      this.live = live;
      this.statusListeners.forEach((listener) => listener());
    }
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

export const feed = new Feed();
