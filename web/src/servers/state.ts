/** How servers and their states are displayed. */

import { useEffect, useState } from "react";

import type { ClientEntry as Client, ServerState } from "../api/schema.ts";
import type { Tone } from "../ui/components.tsx";
import { formatRelativeTime } from "../ui/format.ts";

interface StateDisplay {
  label: string;
  tone: Tone;
}

const STATES: Record<ServerState, StateDisplay> = {
  connecting: { label: "Connecting", tone: "info" },
  healthy: { label: "Healthy", tone: "good" },
  degraded: { label: "Degraded", tone: "warn" },
  unavailable: { label: "Unavailable", tone: "bad" },
  asleep: { label: "Asleep", tone: "neutral" },
  needs_auth: { label: "Sign-in required", tone: "warn" },
  disabled: { label: "Disabled", tone: "neutral" },
  error: { label: "Error", tone: "bad" },
};

export function describeState(state: ServerState): StateDisplay {
  return STATES[state] ?? { label: state, tone: "neutral" };
}

/** Describes why a server is not healthy and when the gateway retries. */
export function describeProblem({ state, reason, last_error, next_try_at }: Client): string | null {
  if (state === "healthy" || state === "disabled") {
    return null;
  }
  const cause = reason ?? last_error;
  const retry = next_try_at === null ? null : describeRetry(next_try_at);
  return [cause, retry].filter((part) => part !== null).join(" · ") || null;
}

function describeRetry(at: string): string {
  // Less than a second away would read "next retry just now".
  return Date.parse(at) - Date.now() >= 1000 ? `next retry ${formatRelativeTime(at)}` : "retrying now";
}

/** Delay between a scheduled retry and the reload. */
const RELOAD_AFTER_RETRY_MS = 500;

/**
 * Renders every second while a retry is scheduled, to count down, and calls `reload` after it, because
 * a retry that fails the same way sends no event.
 */
export function useRetryTimer(clients: readonly Client[] | null, reload: () => void): void {
  const retries = (clients ?? []).flatMap(({ next_try_at }) =>
    next_try_at === null ? [] : [Date.parse(next_try_at)],
  );
  const next = retries.length === 0 ? null : Math.min(...retries);
  const [, tick] = useState(0);
  useEffect(() => {
    if (next === null) {
      return;
    }
    const timer = setInterval(
      () => (Date.now() > next + RELOAD_AFTER_RETRY_MS ? reload() : tick((ticks) => ticks + 1)),
      1000,
    );
    return () => clearInterval(timer);
  }, [next, reload]);
}

const USAGE_POLL_INTERVAL_MS = 5000;

/** Returns the interval at which to load what processes use, of which changes send no events. */
export function usagePollInterval(clients: readonly Client[]): number | null {
  return clients.some(({ process_usage }) => process_usage !== null) ? USAGE_POLL_INTERVAL_MS : null;
}

/** Returns the command or URL of a server on one line. */
export function describeEndpoint({ config }: Client): string {
  const stdio = config.stdio_config;
  return stdio ? [stdio.command, ...stdio.args].join(" ") : (config.connection_string ?? "built in");
}
