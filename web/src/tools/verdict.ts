/** How verdicts are displayed. */

import type { ToolLineVerdict as Verdict } from "../api/schema.ts";
import type { Tone } from "../ui/components.tsx";

interface VerdictDisplay {
  tone: Tone;
  description: string;
}

const VERDICTS: Record<Verdict, VerdictDisplay> = {
  allow: { tone: "good", description: "Runs without approval, including in agent runs" },
  manual: {
    tone: "info",
    description: "Runs when called explicitly; agent runs return the call to the caller",
  },
  ask: { tone: "warn", description: "Requires approval" },
  deny: { tone: "bad", description: "Calls are rejected" },
  hidden: { tone: "neutral", description: "Hidden from all callers" },
};

export function describeVerdict(verdict: Verdict): VerdictDisplay {
  return VERDICTS[verdict] ?? { tone: "neutral", description: verdict };
}
