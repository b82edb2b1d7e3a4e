/** What verdicts mean to people. */

import type { Verdict } from "../api/types.ts";
import type { Tone } from "../ui/parts.tsx";

const VERDICTS: Record<Verdict, { tone: Tone; says: string }> = {
  allow: { tone: "good", says: "runs unasked, in an agent too" },
  manual: { tone: "info", says: "runs when it is called; an agent hands it back" },
  ask: { tone: "warn", says: "somebody must approve it" },
  deny: { tone: "bad", says: "is refused" },
  hidden: { tone: "quiet", says: "no caller can see it" },
};

export function verdictOf(verdict: Verdict): { tone: Tone; says: string } {
  return VERDICTS[verdict] ?? { tone: "quiet", says: verdict };
}
