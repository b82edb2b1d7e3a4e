//! Measures of a sandbox, and which of them are in force.

use serde::{Deserialize, Serialize};
use toolgate_core::config::Sandbox;

use super::hidden::HiddenPaths;
use super::wanted_measures;

/// One restriction of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The gateway's data directory, its trusted projects and its key files are not visible.
    DataHidden,
    /// Memory, environment and open files of other processes cannot be read.
    ProcessesIsolated,
    /// Signals reach only the server's own processes.
    SignalsBlocked,
    /// Limits of other processes cannot be changed.
    LimitsIsolated,
    /// Settings of other processes in `/proc`, such as their OOM score, cannot be changed.
    SettingsIsolated,
    /// Programs such as `sudo` do not give more privileges.
    NoNewPrivileges,
    /// Privileges of root that circumvent the other measures are gone.
    CapabilitiesDropped,
    /// All processes that the server has started end with it, and with the gateway.
    DescendantsStopped,
    /// Only the system and the listed files and directories can be used.
    Paths,
    /// The network is off, or limited to a loopback interface.
    Network,
    /// System calls that servers do not need fail.
    SystemCalls,
    /// Another user than that of the gateway runs the server.
    User,
    /// Memory of all processes together.
    Memory,
    /// CPU time of each process.
    CpuTime,
    /// Processes and threads.
    Processes,
    /// Open files of each process.
    OpenFiles,
}

/// Feature of the kernel that enforces a measure, or the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    MountNamespace,
    NetworkNamespace,
    PidNamespace,
    Landlock,
    Seccomp,
    UserId,
    NoNewPrivs,
    Capabilities,
    ResourceLimit,
    /// A process that adopts the orphans of the server and kills them.
    Subreaper,
    /// A control group.
    Cgroup,
    /// The gateway watches the processes.
    Watchdog,
}

/// Whether a measure is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureReport {
    pub measure: Measure,
    /// The mechanism that enforces it, or the reason why nothing does.
    pub outcome: Result<Mechanism, String>,
    /// What the mechanism does not achieve.
    #[serde(default)]
    pub note: Option<String>,
}

/// The measures of a server's sandbox on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxReport {
    /// `default`, `off` or `strict`.
    pub profile: &'static str,
    pub measures: Vec<MeasureReport>,
}

impl Measure {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DataHidden => "data_hidden",
            Self::ProcessesIsolated => "processes_isolated",
            Self::SignalsBlocked => "signals_blocked",
            Self::LimitsIsolated => "limits_isolated",
            Self::SettingsIsolated => "settings_isolated",
            Self::NoNewPrivileges => "no_new_privileges",
            Self::CapabilitiesDropped => "capabilities_dropped",
            Self::DescendantsStopped => "descendants_stopped",
            Self::Paths => "paths",
            Self::Network => "network",
            Self::SystemCalls => "system_calls",
            Self::User => "user",
            Self::Memory => "memory",
            Self::CpuTime => "cpu_time",
            Self::Processes => "processes",
            Self::OpenFiles => "open_files",
        }
    }
}

impl Mechanism {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MountNamespace => "mount_namespace",
            Self::NetworkNamespace => "network_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::UserId => "user_id",
            Self::NoNewPrivs => "no_new_privs",
            Self::Capabilities => "capabilities",
            Self::ResourceLimit => "resource_limit",
            Self::Subreaper => "subreaper",
            Self::Cgroup => "cgroup",
            Self::Watchdog => "watchdog",
        }
    }

    pub(super) fn is_namespace(self) -> bool {
        matches!(
            self,
            Self::MountNamespace | Self::NetworkNamespace | Self::PidNamespace
        )
    }
}

impl MeasureReport {
    /// Describes why the measure is not in force, if it is not.
    pub(super) fn problem(&self) -> Option<String> {
        let reason = self.outcome.as_ref().err()?;
        Some(format!("`{}`: {reason}", self.measure.as_str()))
    }

    /// Notes which files of the gateway appear when they are replaced. With Landlock, none does.
    pub(super) fn add_note(&mut self, hidden: &HiddenPaths) {
        let is_affected =
            self.measure == Measure::DataHidden && self.outcome == Ok(Mechanism::MountNamespace);
        self.note = if is_affected { hidden.note() } else { None };
    }
}

impl SandboxReport {
    /// Returns a report in which every measure is missing for the same reason.
    pub(crate) fn not_in_force(sandbox: &Sandbox, reason: &str) -> Self {
        let measures = wanted_measures(sandbox).into_iter();
        Self {
            profile: sandbox.as_str(),
            measures: measures
                .map(|measure| MeasureReport {
                    measure,
                    outcome: Err(reason.to_owned()),
                    note: None,
                })
                .collect(),
        }
    }

    /// Describes the measures that are not in force.
    pub fn problems(&self) -> Option<String> {
        let problems = self.measures.iter().filter_map(MeasureReport::problem);
        let texts: Vec<String> = problems.collect();
        Some(texts.join("; ")).filter(|text| !text.is_empty())
    }
}
