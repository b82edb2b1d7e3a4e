//! Serde types of execution settings: tools, agent runs, code mode, scanner, results and audit log.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::duration::ConfigDuration;
use crate::config::{
    ArgumentCheck, AuditContent, AuditDurability, OnAuditFailure, OnDanger, OnInvalidOutput,
};
use crate::rate::Rate;
use crate::secret::Secret;

/// A single text or a list of texts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Settings of a tool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTable {
    /// Timeout of a call. Default: the server's timeout.
    pub timeout: Option<ConfigDuration>,
    /// Maximum rate of calls, over all callers.
    pub rate_limit: Option<Rate>,
    /// Maximum number of concurrent calls. Up to four times as many are queued. Default: only the server's limit.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// Time for which a result is cached by its arguments, even if the tool is not annotated as read-only.
    pub cache_ttl: Option<ConfigDuration>,
    /// Price of a call in US dollars.
    #[schemars(range(min = 0))]
    pub price: Option<f64>,
    /// How arguments are checked against the input schema: `coerce`, `strict` or `off`. Default: the server's
    /// `argument_check`.
    pub argument_check: Option<ArgumentCheck>,
}

/// Limits for a single agent run. Absent limits do not apply.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentTable {
    /// Maximum number of model responses whose tool calls are run, up to `mcp.tool_manager_config.max_agent_depth`.
    #[schemars(range(min = 1, max = 50))]
    pub max_depth: Option<u32>,
    /// Maximum number of model requests.
    pub max_model_calls: Option<u64>,
    /// Maximum number of tool calls.
    pub max_tool_calls: Option<u64>,
    /// Maximum number of tokens, input and output together.
    pub max_tokens: Option<u64>,
    /// Maximum cost in US dollars.
    #[schemars(range(min = 0))]
    pub max_usd: Option<f64>,
    /// Maximum duration of the run.
    pub max_time: Option<ConfigDuration>,
    /// Number of tool calls of one model response that run at the same time. Default 8.
    #[schemars(range(min = 1, max = 64))]
    pub parallel_tools: Option<u32>,
    /// Continues a run that waits for approvals once all its calls are decided, even if its client has gone; the
    /// result can be read from the run. Default `false`.
    pub resume_on_approval: Option<bool>,
}

/// Limits on what all callers together, and each of them, may use. Callers without a key count as one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacityTable {
    /// Maximum number of sessions of MCP clients. A new one ends the oldest session of the caller that has most.
    /// Default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: Option<u32>,
    /// Maximum number of sessions of one key; a new one ends its oldest. Default 250.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_key: Option<u32>,
    /// Maximum number of connections to servers that belong to a single session, such as the processes of servers
    /// with `per_session`. Default 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_session_connections: Option<u32>,
    /// Maximum number of such connections of one key. Default 16.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_session_connections_per_key: Option<u32>,
    /// Time without messages after which a session ends. Default `30m`.
    pub session_idle_timeout: Option<ConfigDuration>,
    /// Time after which a session's connections to servers close if its client listened for messages and no longer
    /// does. Default `60s`.
    pub session_disconnect_timeout: Option<ConfigDuration>,
    /// Maximum number of concurrent agent runs. Default 2048.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_runs: Option<u32>,
    /// Maximum number of concurrent agent runs of one key. Default 1024.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_runs_per_key: Option<u32>,
    /// Maximum number of tasks of MCP clients that run or whose results are kept. Default 4096.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tasks: Option<u32>,
    /// Maximum number of such tasks of one key. Default 256.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_tasks_per_key: Option<u32>,
    /// Maximum size of the result of a task, in mebibytes; a task with a larger one fails. Default 8.
    #[schemars(range(min = 1, max = 32))]
    pub max_task_result_mb: Option<u32>,
    /// Maximum time from the start of a task until it and its result are deleted. It applies to tasks of which the
    /// client or the server asks for more, or for no limit. Default `24h`.
    pub max_task_ttl: Option<ConfigDuration>,
    /// Maximum number of concurrent scripts of one key; further ones are queued. Default half of
    /// `code_mode.max_workers`.
    #[schemars(range(min = 1, max = 1024))]
    pub max_scripts_per_key: Option<u32>,
    /// Maximum size of a model's response in an agent run, in mebibytes. Default 64.
    #[schemars(range(min = 1, max = 1024))]
    pub max_turn_mb: Option<u32>,
    /// Maximum size of the messages that wait for a stdio server to read them, in mebibytes. Default 64.
    #[schemars(range(min = 1, max = 16_384))]
    pub max_queued_mb: Option<u32>,
    /// Maximum memory held for all callers, in mebibytes: request bodies until their requests have ended, without
    /// the first 64 KiB of each, and messages that clients have not read. Default 512.
    #[schemars(range(min = 16, max = 1_048_576))]
    pub max_bodies_mb: Option<u32>,
    /// Maximum memory held for one key, in mebibytes, as for all callers. Default 256.
    #[schemars(range(min = 16, max = 1_048_576))]
    pub max_bodies_mb_per_key: Option<u32>,
    /// Memory of the gateway, in mebibytes, from which it refuses new sessions, streams, runs and large bodies.
    /// Default 85 % of the memory of the container or machine.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_memory_mb: Option<u32>,
}

/// Limits and workers for code mode scripts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodeModeTable {
    /// Maximum size of a script's source, in bytes. Default 65536.
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub max_source_bytes: Option<u32>,
    /// Maximum run time of a script, excluding tool calls. Default `5s`.
    pub max_own_time: Option<ConfigDuration>,
    /// Maximum run time of a script, including tool calls. Default `120s`.
    pub max_time: Option<ConfigDuration>,
    /// Maximum memory of a script, in mebibytes. Default 128.
    #[schemars(range(min = 16, max = 4096))]
    pub max_memory_mb: Option<u32>,
    /// Maximum number of tool calls of a script. Default 100.
    #[schemars(range(max = 100_000))]
    pub max_calls: Option<u32>,
    /// Maximum number of concurrent tool calls of a script. Default 8.
    #[schemars(range(min = 1, max = 64))]
    pub max_parallel_calls: Option<u32>,
    /// Maximum size of a script's result as JSON, in bytes. Default 1048576.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_result_bytes: Option<u32>,
    /// Maximum size of a script's printed output, in bytes. Default 65536.
    #[schemars(range(max = 16_777_216))]
    pub max_print_bytes: Option<u32>,
    /// Maximum number of concurrent scripts. Further scripts are queued. Default 32.
    #[schemars(range(min = 1, max = 1024))]
    pub max_workers: Option<u32>,
    /// Program that runs scripts, with its arguments. Needed only if the gateway is embedded in another program.
    pub worker_command: Option<Vec<String>>,
}

/// Actions for arguments that look dangerous: `off`, `warn`, `ask` or `deny`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScannerTable {
    /// `..` segments in path arguments. Default `warn`.
    pub path_traversal: Option<OnDanger>,
    /// Shell operators in command arguments. Default `warn`.
    pub shell: Option<OnDanger>,
    /// Private and loopback addresses in URL and host arguments. Default `warn`.
    pub private_address: Option<OnDanger>,
    /// Values that look like API keys or tokens. Default `warn`.
    pub secret: Option<OnDanger>,
}

/// Processing of tool results before they reach a model.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResultsTable {
    /// Maximum size of a result that a model receives, in bytes of text. The full result stays available under a handle. Default 65536.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_bytes: Option<u32>,
    /// Time for which the full text of a large result is kept. Default `15m`.
    pub keep: Option<ConfigDuration>,
    /// Redacts values that look like API keys or tokens from results. Default `false`.
    pub redact_secrets: Option<bool>,
    /// What happens to a result that does not match the tool's output schema: `off`, `warn` (default: a warning in the log and the audit record) or `refuse` (the caller gets an error that says so; the tool has run).
    pub output_schema: Option<OnInvalidOutput>,
}

/// Log of the gateway. Faults and the ends of agent runs are logged in any case.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogTable {
    /// Whether each tool call is logged with its caller, outcome and duration. Default `false`.
    pub calls: Option<bool>,
}

/// Audit log of tool calls.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditTable {
    /// Recording of arguments and results: `redacted` (default; values that look like secrets are removed), `full` or `off`.
    pub content: Option<AuditContent>,
    /// Number of days to keep records. Default 30; `0` keeps them forever.
    #[schemars(range(max = 36500))]
    pub retention_days: Option<u32>,
    /// Maximum size of all records, in mebibytes; the oldest are deleted first. Default 4096; `0` sets no limit.
    pub max_size_mb: Option<u32>,
    /// What the record of a call that is about to be sent survives: `process` (default; a crash of the gateway), `disk` (a power failure too) or `batch` (neither, for up to 50 ms).
    pub durability: Option<AuditDurability>,
    /// What happens to calls that cannot be recorded: `refuse` (default) or `continue`.
    pub on_failure: Option<OnAuditFailure>,
    /// Key that seals the records against changes, as text or `env.NAME`. Default: a key derived from that of the store.
    pub seal_key: Option<Secret>,
    /// Second place for records, which must accept the record of a call before it is sent.
    pub sink: Option<AuditSinkTable>,
}

/// Second place for audit records: a file or a URL.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSinkTable {
    /// File to which records are appended as JSON lines.
    pub file: Option<PathBuf>,
    /// URL to which records are sent in POST requests, as JSON lines.
    pub url: Option<String>,
    /// Headers of these requests; values may be `env.NAME`.
    pub headers: BTreeMap<String, Secret>,
}

impl OneOrMany {
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Many(texts) if texts.is_empty())
    }

    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}
