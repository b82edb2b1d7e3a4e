//! Checked settings of code mode scripts.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::set_if_some;
use super::file::CodeModeTable;

/// Limits and workers for code mode scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeModeSettings {
    pub limits: ScriptLimits,
    /// Maximum number of concurrent scripts; further ones are queued.
    pub workers: usize,
    /// Program that runs scripts, with its arguments; `None` uses the current executable.
    pub worker_command: Option<Vec<String>>,
}

/// Limits for a single script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Size of the source.
    pub max_source_bytes: usize,
    /// Run time excluding tool calls.
    pub max_own_time: Duration,
    /// Run time including tool calls.
    pub max_time: Duration,
    /// Memory beyond that of an idle worker.
    pub max_memory_bytes: u64,
    /// Total tool calls.
    pub max_calls: u32,
    /// Concurrent tool calls.
    pub max_parallel_calls: usize,
    /// Size of the result as JSON.
    pub max_result_bytes: usize,
    /// Size of the printed output.
    pub max_print_bytes: usize,
}

/// Layout of stub files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BindingLevel {
    /// One file per server.
    #[default]
    Server,
    /// One file per tool.
    Tool,
}

impl Default for CodeModeSettings {
    fn default() -> Self {
        Self {
            limits: ScriptLimits::default(),
            workers: 32,
            worker_command: None,
        }
    }
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            max_source_bytes: 64 * 1024,
            max_own_time: Duration::from_secs(5),
            max_time: Duration::from_secs(120),
            max_memory_bytes: 128 * 1024 * 1024,
            max_calls: 100,
            max_parallel_calls: 8,
            max_result_bytes: 1024 * 1024,
            max_print_bytes: 64 * 1024,
        }
    }
}

impl CodeModeSettings {
    /// Overrides these settings with those present in a file.
    pub(super) fn apply(&mut self, table: CodeModeTable) {
        let CodeModeTable {
            max_source_bytes,
            max_own_time,
            max_time,
            max_memory_mb,
            max_calls,
            max_parallel_calls,
            max_result_bytes,
            max_print_bytes,
            max_workers,
            worker_command,
        } = table;
        let limits = &mut self.limits;
        let count = |number: Option<u32>| number.map(|number| number as usize);
        set_if_some(&mut limits.max_source_bytes, count(max_source_bytes));
        set_if_some(&mut limits.max_own_time, max_own_time.map(|span| span.0));
        set_if_some(&mut limits.max_time, max_time.map(|span| span.0));
        let memory = max_memory_mb.map(|mb| u64::from(mb) * 1024 * 1024);
        set_if_some(&mut limits.max_memory_bytes, memory);
        set_if_some(&mut limits.max_calls, max_calls);
        set_if_some(&mut limits.max_parallel_calls, count(max_parallel_calls));
        set_if_some(&mut limits.max_result_bytes, count(max_result_bytes));
        set_if_some(&mut limits.max_print_bytes, count(max_print_bytes));
        set_if_some(&mut self.workers, count(max_workers));
        if worker_command.is_some() {
            self.worker_command = worker_command;
        }
    }
}

impl BindingLevel {
    pub const ALL: [Self; 2] = [Self::Server, Self::Tool];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Tool => "tool",
        }
    }
}
