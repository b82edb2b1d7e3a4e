/** Types of what the API returns that docs/openapi.json does not describe. All others are in schema.ts. */

import type { RunDetail as ApiRunDetail } from "./schema.ts";

/**
 * A step of a run's journal. The API returns it as it was stored, so that steps written by other versions
 * stay readable; which fields it has depends on its kind.
 */
export interface Step {
  kind: string;
  id?: string;
  name?: string;
  text?: string;
  arguments?: string;
  result?: unknown;
  is_error?: boolean;
  ms?: number;
  calls?: { id: string; name: string; arguments: string }[];
  approval_id?: string | null;
  inner?: { tool: string; line?: number; approval_id?: string | null }[] | null;
  by?: string;
  state?: string;
  stop_reason?: string | null;
  input_tokens?: number;
  output_tokens?: number;
}

export interface RunDetail extends Omit<ApiRunDetail, "timeline"> {
  timeline: { at: string; step: Step }[];
}
