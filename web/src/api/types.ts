/** What the API answers with, as docs/openapi.json describes it. Only what the page uses. */

export type ServerState =
  "connecting" | "healthy" | "degraded" | "unavailable" | "asleep" | "needs_auth" | "disabled" | "error";

export type Verdict = "allow" | "manual" | "ask" | "deny" | "hidden";

export type ConnectionType = "stdio" | "http" | "sse" | "inprocess";

export interface StdioConfig {
  command: string;
  args: string[];
  envs: string[];
  cwd?: string;
}

export interface ClientConfig {
  name: string;
  client_id: string;
  connection_type: ConnectionType;
  connection_string?: string;
  stdio_config?: StdioConfig;
  headers?: Record<string, string>;
  tools_to_execute: string[];
  tools_to_auto_execute: string[];
  tool_execution_timeout?: number;
  disabled: boolean;
  is_code_mode_client: boolean;
}

export interface Figures {
  calls: number;
  errors: number;
  bytes_sent: number;
  bytes_received: number;
  p50_ms: number;
  p90_ms: number;
  p99_ms: number;
}

export interface ToolLine {
  name: string;
  alias: string;
  verdict: Verdict;
}

export interface Problem {
  kind: string;
  item: string;
  reason: string;
}

export interface Client {
  config: ClientConfig;
  state: ServerState;
  reason: string | null;
  since: string;
  next_try_at: string | null;
  last_error: string | null;
  stderr_tail: string | null;
  protocol_version: string | null;
  server_info: { name?: string; version?: string } | null;
  instructions: string | null;
  tools: ToolLine[];
  resources: string[];
  prompts: string[];
  problems: Problem[];
  source: "file" | "api" | "file+api" | null;
  in_flight: number;
  figures: Figures;
}

export interface TestResult {
  ok: boolean;
  error: string | null;
  protocol_version: string | null;
  tools: string[];
}

export interface ImportLine {
  name: string;
  outcome: "created" | "exists" | "invalid";
  notes: string[];
}

export interface ToolManager {
  max_agent_depth: number;
  tool_execution_timeout: number;
  disable_auto_tool_inject: boolean;
  code_mode_binding_level: "server" | "tool";
}

export interface Tokens {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
}

export interface ModelStats {
  provider: string;
  model: string;
  requests: number;
  errors: number;
  tokens: Tokens;
  cost_usd: number;
}

export interface Stats {
  servers: { server: string; figures: Figures }[];
  tools: { server: string; tool: string; figures: Figures }[];
  models: ModelStats[];
  saved_tokens: number;
}

export interface Tool {
  alias: string;
  server: string;
  name: string;
  title?: string;
  description?: string;
  input_schema: unknown;
  output_schema?: unknown;
  annotations?: unknown;
  hash: string;
  verdict: Verdict;
  because: string;
}

export interface Explanation {
  alias: string | null;
  visible: boolean;
  verdict: Verdict | null;
  hidden_by: string | null;
  steps: { key: string; passes: boolean; says: string }[];
}

export interface ToolMessage {
  content: string | unknown[];
  is_error?: boolean;
  approval?: { id: string; expires_at?: string };
}

export type ApprovalState = "pending" | "approved" | "denied" | "expired" | "executing" | "done" | "unknown";

export interface Approval {
  id: string;
  state: ApprovalState;
  server: string;
  tool: string;
  alias: string;
  arguments: unknown;
  edited_arguments?: unknown;
  rule: string;
  caller: string | null;
  session: string | null;
  origin: string;
  request_id: string;
  run_id: string | null;
  conversation?: unknown[];
  created_at: string;
  expires_at: string;
  decided_at: string | null;
  decided_by: string | null;
  scope: string | null;
  reason: string | null;
}

export interface Run {
  id: string;
  state: "running" | "done" | "waiting" | "failed" | "cancelled" | "interrupted";
  stop_reason: string | null;
  caller: string | null;
  request_id: string;
  model: string;
  dialect: string;
  stream: boolean;
  iterations: number;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number;
  started_at: string;
  ended_at: string | null;
}

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

export interface RunDetail extends Run {
  timeline: { at: string; step: Step }[];
}

export interface CallRecord {
  id: string;
  request_id: string;
  parent_id: string | null;
  run_id: string | null;
  caller: string | null;
  origin: string;
  name: string;
  server: string | null;
  tool: string | null;
  instead_of: string | null;
  arguments: unknown;
  verdict: Verdict | null;
  rule: string | null;
  approval: string | null;
  warnings: string[];
  outcome: string;
  error: string | null;
  result: unknown;
  bytes_in: number;
  bytes_out: number;
  started_at: string;
  duration_ms: number | null;
  cost_usd: number;
  cached: boolean;
  script?: { calls?: number; limit?: string | null; saved_tokens?: number };
}

export interface Key {
  name: string;
  description: string | null;
  enabled: boolean;
  expires_at: string | null;
  expired: boolean;
  roles: string[];
  tools: string[] | null;
  rate_limit: string | null;
  max_in_flight: number | null;
  budget: { calls?: number; usd?: number; per?: string } | null;
  source: string;
}

export interface NewKey {
  key: string;
  entry: Key;
}
