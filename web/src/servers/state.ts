/** What the states of servers mean to people. */

import { useEffect, useState } from "react";

import type { Client, ServerState } from "../api/types.ts";
import type { Tone } from "../ui/parts.tsx";
import { when } from "../ui/format.ts";

const STATES: Record<ServerState, { label: string; tone: Tone }> = {
  connecting: { label: "Connecting", tone: "info" },
  healthy: { label: "Healthy", tone: "good" },
  degraded: { label: "Degraded", tone: "warn" },
  unavailable: { label: "Unavailable", tone: "bad" },
  asleep: { label: "Asleep", tone: "quiet" },
  needs_auth: { label: "Needs sign-in", tone: "warn" },
  disabled: { label: "Disabled", tone: "quiet" },
  error: { label: "Error", tone: "bad" },
};

export function stateOf(state: ServerState): { label: string; tone: Tone } {
  return STATES[state] ?? { label: state, tone: "quiet" };
}

/** Why a server is not healthy, and when it is tried again. */
export function troubleOf({ state, reason, last_error, next_try_at }: Client): string | null {
  if (state === "healthy" || state === "disabled") {
    return null;
  }
  const why = reason ?? last_error;
  const again = next_try_at === null ? null : nextTry(next_try_at);
  return [why, again].filter((part) => part !== null).join(" · ") || null;
}

function nextTry(at: string): string {
  return Date.parse(at) > Date.now() ? `next try ${when(at)}` : "being tried";
}

const SOON_AFTER = 500;

/** Looks again once a server has been tried, which leaves no event if nothing comes of it; shows the seconds until then. */
export function useRetries(clients: readonly Client[] | null, reload: () => void): void {
  const tries = (clients ?? []).flatMap(({ next_try_at }) =>
    next_try_at === null ? [] : [Date.parse(next_try_at)],
  );
  const next = tries.length === 0 ? null : Math.min(...tries);
  const [, tick] = useState(0);
  useEffect(() => {
    if (next === null) {
      return;
    }
    const timer = setInterval(
      () => (Date.now() > next + SOON_AFTER ? reload() : tick((count) => count + 1)),
      1000,
    );
    return () => clearInterval(timer);
  }, [next, reload]);
}

/** How a server is reached, in one line. */
export function reachOf({ config }: Client): string {
  const stdio = config.stdio_config;
  return stdio ? [stdio.command, ...stdio.args].join(" ") : (config.connection_string ?? "in this program");
}
