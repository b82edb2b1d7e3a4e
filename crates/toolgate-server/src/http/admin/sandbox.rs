//! Isolation of a server's process, as `/api/mcp/clients` shows it.

use serde::{Deserialize, Serialize};
use toolgate::registry::{MeasureReport, SandboxReport};
use utoipa::ToSchema;

/// Isolation of a server's process on this machine.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct SandboxView {
    /// `default`, `off` or `strict`.
    pub(crate) profile: String,
    pub(crate) measures: Vec<MeasureView>,
}

/// A restriction of a server's process.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MeasureView {
    /// `data_hidden`, `processes_isolated`, `signals_blocked`, `limits_isolated`, `settings_isolated`, `no_new_privileges`,
    /// `capabilities_dropped`, `descendants_stopped`; with the strict profile also `paths`, `network`, `system_calls`, `user`, `memory`, `cpu_time`, `processes`, `open_files`.
    pub(crate) measure: String,
    pub(crate) in_force: bool,
    /// What enforces it: a feature of the kernel, or the gateway (`watchdog`).
    #[schema(required)]
    pub(crate) mechanism: Option<String>,
    /// Why it is not in force.
    #[schema(required)]
    pub(crate) reason: Option<String>,
    /// What the mechanism does not achieve.
    #[serde(default)]
    #[schema(required)]
    pub(crate) note: Option<String>,
}

impl SandboxView {
    pub(crate) fn new(report: &SandboxReport) -> Self {
        Self {
            profile: report.profile.to_owned(),
            measures: report.measures.iter().map(MeasureView::new).collect(),
        }
    }
}

impl MeasureView {
    fn new(report: &MeasureReport) -> Self {
        let outcome = report.outcome.as_ref();
        Self {
            measure: report.measure.as_str().to_owned(),
            in_force: outcome.is_ok(),
            mechanism: outcome.ok().map(|mechanism| mechanism.as_str().to_owned()),
            reason: outcome.err().cloned(),
            note: report.note.clone(),
        }
    }
}
