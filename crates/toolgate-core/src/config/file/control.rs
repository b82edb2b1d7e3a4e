//! Settings of execution: single tools, the scanner, results and the audit trail.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::duration::Span;
use crate::config::{AuditContent, OnDanger};
use crate::rate::Rate;

/// One text or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Settings of one tool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTable {
    /// Bound on one call; the server's where absent.
    pub timeout: Option<Span>,
    /// Calls in a period, over all callers.
    pub rate_limit: Option<Rate>,
    /// Calls that may be under way at once; up to four times as many wait. Default no bound of its own.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_in_flight: Option<u32>,
    /// How long a result is reused for the same arguments, whatever the tool is marked as.
    pub cache_ttl: Option<Span>,
    /// What a call costs in US dollars.
    #[schemars(range(min = 0))]
    pub price: Option<f64>,
}

/// Bounds on one run of an agent; absent ones do not bound it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentTable {
    /// Model answers whose tools are run; at most `mcp.tool_manager_config.max_agent_depth`.
    #[schemars(range(min = 1, max = 50))]
    pub max_depth: Option<u32>,
    /// Requests to models.
    pub max_model_calls: Option<u64>,
    /// Tool calls.
    pub max_tool_calls: Option<u64>,
    /// Tokens of prompts and answers together.
    pub max_tokens: Option<u64>,
    /// US dollars.
    #[schemars(range(min = 0))]
    pub max_usd: Option<f64>,
    /// From its beginning to its end.
    pub max_time: Option<Span>,
}

/// What scripts of code mode may use, and how they are run.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodeModeTable {
    /// Bytes of a script's source. Default 65536.
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub max_source_bytes: Option<u32>,
    /// Time of a script's own, not counting the time that tools take. Default `5s`.
    pub max_own_time: Option<Span>,
    /// Time in all. Default `120s`.
    pub max_time: Option<Span>,
    /// Mebibytes of memory. Default 128.
    #[schemars(range(min = 16, max = 4096))]
    pub max_memory_mb: Option<u32>,
    /// Tool calls that a script may make. Default 100.
    #[schemars(range(max = 100_000))]
    pub max_calls: Option<u32>,
    /// Tool calls of a script that run side by side. Default 8.
    #[schemars(range(min = 1, max = 64))]
    pub max_parallel_calls: Option<u32>,
    /// Bytes of a script's result as JSON. Default 1048576.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_result_bytes: Option<u32>,
    /// Bytes that a script may print. Default 65536.
    #[schemars(range(max = 16_777_216))]
    pub max_print_bytes: Option<u32>,
    /// Scripts at once; more wait for their turn. Default 32.
    #[schemars(range(min = 1, max = 1024))]
    pub max_workers: Option<u32>,
    /// The program that runs scripts, with its arguments, where the gateway is embedded in another program.
    pub worker_command: Option<Vec<String>>,
}

/// What to do with arguments that look dangerous: `off`, `warn`, `ask` or `deny`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScannerTable {
    /// `..` in arguments that are paths. Default `warn`.
    pub path_traversal: Option<OnDanger>,
    /// Shell operators in arguments that are commands. Default `warn`.
    pub shell: Option<OnDanger>,
    /// Private and loopback addresses in arguments that are URLs or hosts. Default `warn`.
    pub private_address: Option<OnDanger>,
    /// Texts in the shape of keys and tokens. Default `warn`.
    pub secret: Option<OnDanger>,
}

/// What happens to results on their way to a model.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResultsTable {
    /// Bytes of text that a model gets of one result; the rest is kept under a handle. Default 65536.
    #[schemars(range(min = 1024, max = 16_777_216))]
    pub max_bytes: Option<u32>,
    /// How long the whole of a large result is kept. Default `15m`.
    pub keep: Option<Span>,
    /// Takes texts in the shape of keys and tokens out of results. Default `false`.
    pub redact_secrets: Option<bool>,
}

/// What is kept of each call.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditTable {
    /// Arguments and results: `redacted` (default) without texts in the shape of secrets, `full`, or `off`.
    pub content: Option<AuditContent>,
    /// Days that records are kept. Default 30; `0` for ever.
    #[schemars(range(max = 36500))]
    pub retention_days: Option<u32>,
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
