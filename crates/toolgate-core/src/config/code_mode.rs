//! What scripts of code mode may use, and how they are run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::set;
use super::file::CodeModeTable;

/// How scripts are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMode {
    pub limits: ScriptLimits,
    /// Scripts at once; more wait for their turn.
    pub workers: usize,
    /// The program that runs scripts, with its arguments; this one itself where absent.
    pub worker_command: Option<Vec<String>>,
}

/// Bounds on one script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Bytes of its source.
    pub source: usize,
    /// Time of its own, not counting the time that tools take.
    pub own_time: Duration,
    /// Time in all.
    pub time: Duration,
    /// Bytes of memory beyond what an idle worker has.
    pub memory: u64,
    /// Tool calls.
    pub calls: u32,
    /// Tool calls at once.
    pub at_once: usize,
    /// Bytes of its result as JSON.
    pub result: usize,
    /// Bytes that it prints.
    pub printed: usize,
}

/// How stubs are laid out in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BindingLevel {
    /// One file for each server.
    #[default]
    Server,
    /// One file for each tool.
    Tool,
}

impl Default for CodeMode {
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
            source: 64 * 1024,
            own_time: Duration::from_secs(5),
            time: Duration::from_secs(120),
            memory: 128 * 1024 * 1024,
            calls: 100,
            at_once: 8,
            result: 1024 * 1024,
            printed: 64 * 1024,
        }
    }
}

impl CodeMode {
    /// The same with what a file says otherwise.
    pub(super) fn set(&mut self, table: CodeModeTable) {
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
        set(&mut limits.source, count(max_source_bytes));
        set(&mut limits.own_time, max_own_time.map(|span| span.0));
        set(&mut limits.time, max_time.map(|span| span.0));
        let memory = max_memory_mb.map(|mb| u64::from(mb) * 1024 * 1024);
        set(&mut limits.memory, memory);
        set(&mut limits.calls, max_calls);
        set(&mut limits.at_once, count(max_parallel_calls));
        set(&mut limits.result, count(max_result_bytes));
        set(&mut limits.printed, count(max_print_bytes));
        set(&mut self.workers, count(max_workers));
        if worker_command.is_some() {
            self.worker_command = worker_command;
        }
    }
}

impl BindingLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Tool => "tool",
        }
    }
}
