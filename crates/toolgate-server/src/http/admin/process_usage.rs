//! What the processes of a server use, as `/api/mcp/clients` shows it.

use serde::{Deserialize, Serialize};
use toolgate::registry::ProcessUsage;
use utoipa::ToSchema;

/// What the processes of a stdio server use: those that the gateway started for its connections, and their
/// descendants. Fields are null if the system does not tell.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProcessUsageView {
    /// CPU time since the gateway's start, including that of processes which have ended.
    #[schema(required)]
    pub(crate) cpu_seconds: Option<f64>,
    /// Recent use of CPU in percent of one core.
    #[schema(required)]
    pub(crate) cpu_percent: Option<f64>,
    /// Sum of the resident memory of the processes.
    #[schema(required)]
    pub(crate) memory_bytes: Option<u64>,
    #[schema(required)]
    pub(crate) processes: Option<u64>,
    #[schema(required)]
    pub(crate) open_files: Option<u64>,
    /// Number of times that the server was started again after it had failed.
    pub(crate) restarts: u64,
    /// Number of times that the server was stopped because it exceeded its memory limit.
    pub(crate) memory_limit_exceeded: u64,
}

impl From<ProcessUsage> for ProcessUsageView {
    fn from(usage: ProcessUsage) -> Self {
        Self {
            cpu_seconds: usage.cpu_time.map(|time| time.as_secs_f64()),
            cpu_percent: usage
                .cpu_percent
                .map(|percent| (percent * 10.0).round() / 10.0),
            memory_bytes: usage.memory_bytes,
            processes: usage.processes,
            open_files: usage.open_files,
            restarts: usage.restarts,
            memory_limit_exceeded: usage.memory_limit_exceeded,
        }
    }
}
