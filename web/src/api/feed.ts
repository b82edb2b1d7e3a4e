/**
 * What happens in the gateway, as it happens: one stream for the whole page, opened anew when it
 * breaks. EventSource cannot send a key, so the stream is read from a fetch.
 */

import { send } from "./client.ts";
import { parse } from "./json.ts";
import { SseReader } from "./sse.ts";
import type { Approval, CallRecord, ServerState } from "./types.ts";

export interface Heard {
  server: { server: string; state: ServerState; reason: string | null };
  approval: Approval;
  call: CallRecord;
  /** Something was missed: look at everything again. */
  missed: null;
}

export type Kind = keyof Heard;
type Listener = (kind: Kind, value: unknown) => void;

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
/** The gateway writes a comment every 15 s; a stream that is silent for longer is dead. */
const SILENCE = 40_000;

export class Feed {
  private listeners = new Set<Listener>();
  private watchers = new Set<() => void>();
  private abort: AbortController | null = null;
  live = false;

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Is told when the stream comes or goes. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  start(): void {
    this.stop();
    this.abort = new AbortController();
    void this.run(this.abort.signal);
  }

  stop(): void {
    this.abort?.abort();
    this.abort = null;
    this.set(false);
  }

  private async run(signal: AbortSignal): Promise<void> {
    let wait = FIRST_WAIT;
    while (!signal.aborted) {
      try {
        await this.read(signal, () => {
          wait = FIRST_WAIT;
        });
      } catch {
        // It broke, or could not be opened: the same either way.
      }
      if (signal.aborted) {
        return;
      }
      this.set(false);
      await pause(wait, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  private async read(signal: AbortSignal, opened: () => void): Promise<void> {
    const silence = new AbortController();
    const both = AbortSignal.any([signal, silence.signal]);
    const response = await send("/api/events", { signal: both });
    if (!response.ok || !response.body) {
      return;
    }
    opened();
    this.set(true);
    // Whatever happened before the stream was open is unknown.
    this.tell("missed", null);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new SseReader();
    for (;;) {
      const timer = setTimeout(() => silence.abort(), SILENCE);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) {
        return;
      }
      for (const { event, data } of events.push(value)) {
        this.tell(event as Kind, event === "missed" ? null : parse(data));
      }
    }
  }

  private tell(kind: Kind, value: unknown): void {
    this.listeners.forEach((listener) => listener(kind, value));
  }

  private set(live: boolean): void {
    if (this.live !== live) {
      this.live = live;
      this.watchers.forEach((watcher) => watcher());
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

export const feed = new Feed();
