//! Isolation of stdio servers: from the gateway's data and memory, and from each other.
//!
//! The gateway starts the [`launcher`], which restricts itself and then executes the server's command.
//! What a kernel permits differs, so the gateway first probes a profile: a launcher that executes
//! nothing applies every measure and reports which ones worked. A server is then launched with exactly
//! those and does not start if one of them fails, so that the report is always true.

mod cgroup;
mod denial;
mod hidden;
pub mod launcher;
mod measures;
mod memory;
mod report;
mod supervisor;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolgate_core::config::{
    NetworkAccess, Sandbox, ServerConfig, ServerConnection, StdioConnection, StrictSandbox,
};

use crate::processes::Supervisors;
use crate::transport::stdio::{ChildCommand, LauncherCall};
pub(crate) use denial::DenialHints;
use hidden::{HiddenLocation, HiddenPaths};
use memory::MemoryLimiter;
pub(crate) use memory::{MemoryExceeded, MemoryLimit};
pub use report::{Measure, MeasureReport, Mechanism, SandboxReport};

/// Variable that keeps the launcher from starting the allocator's background thread, because a process
/// with threads cannot enter a user namespace. The launcher removes it.
const ALLOCATOR_SETTINGS: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false");

/// Starts stdio servers in their sandbox. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerLauncher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: PathBuf,
    /// Files and directories of the gateway that servers do not see.
    hidden: Vec<HiddenLocation>,
    memory: MemoryLimiter,
    /// Reports by probed command.
    reports: Mutex<HashMap<String, Arc<SandboxReport>>>,
}

/// How to start a command in its sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreparedSandbox {
    /// `None` for a server without a sandbox, or if nothing can be enforced.
    pub(crate) launcher: Option<LauncherCall>,
    pub(crate) memory: Option<MemoryLimit>,
}

/// What a launcher is to do, as it receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    measures: BTreeSet<Measure>,
    /// Whether to try namespaces.
    namespaces: bool,
    /// Whether these include one of processes.
    pid_namespace: bool,
    /// Process number of the gateway, with which the server ends.
    gateway: u32,
    hidden: Vec<PathBuf>,
    strict: Option<StrictSandbox>,
    /// Control group of the server's processes.
    group: Option<PathBuf>,
}

/// Error returned when a strict sandbox cannot be enforced.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the strict sandbox cannot be enforced: {0}; change `sandbox` of the server")]
pub struct NotEnforceable(String);

impl ServerLauncher {
    /// Uses the current program, whose `main` must start by calling [`launcher::main`] if
    /// [`launcher::is_launcher_process`] returns true. Servers do not see the `hidden` files and
    /// directories.
    pub fn current_exe(hidden: Vec<PathBuf>) -> std::io::Result<Self> {
        let program = if cfg!(target_os = "linux") {
            // Stays valid if the file on disk is replaced by another version.
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe()?
        };
        Ok(Self::new(program, hidden))
    }

    /// Uses another program as the launcher.
    pub fn new(program: PathBuf, hidden: Vec<PathBuf>) -> Self {
        Self(Arc::new(Inner {
            program,
            hidden: hidden.into_iter().map(HiddenLocation::new).collect(),
            memory: MemoryLimiter::default(),
            reports: Mutex::default(),
        }))
    }

    /// Returns which measures are in force for servers with this command and sandbox.
    pub(crate) async fn report(
        &self,
        command: &ChildCommand,
        sandbox: &Sandbox,
    ) -> Arc<SandboxReport> {
        let hidden = self.hidden_paths(command);
        let profile = self.profile(sandbox, &hidden);
        // Besides the profile, only these decide what can be enforced.
        let place = |name| command.env.iter().find(|(variable, _)| variable == name);
        let key = format!(
            "{:?}",
            (&profile, &command.cwd, place("HOME"), place("TMPDIR"))
        );
        if let Some(report) = self.0.reports.lock().get(&key) {
            return Arc::clone(report);
        }
        let report = match self.probe_namespaces(&profile, command).await {
            Ok(mut measures) => {
                measures.extend(self.memory_report(sandbox));
                for report in &mut measures {
                    report.add_note(&hidden);
                }
                measures.sort_by_key(|report| report.measure);
                SandboxReport {
                    profile: sandbox.as_str(),
                    measures,
                }
            }
            // Not remembered: the next attempt may succeed.
            Err(reason) => {
                tracing::warn!(
                    reason,
                    "failed to find out what the sandbox of servers can enforce"
                );
                return Arc::new(SandboxReport::not_in_force(sandbox, &reason));
            }
        };
        let report = Arc::new(report);
        if let Some(problems) = report.problems() {
            tracing::warn!(
                profile = report.profile,
                problems,
                "a part of the sandbox of servers is not in force"
            );
        }
        self.0.reports.lock().insert(key, Arc::clone(&report));
        report
    }

    /// Reports on the limit that the launcher does not apply itself.
    fn memory_report(&self, sandbox: &Sandbox) -> Option<MeasureReport> {
        sandbox.limits().memory_mb.map(|_| MeasureReport {
            measure: Measure::Memory,
            outcome: self.0.memory.mechanism(),
            note: None,
        })
    }

    /// Returns how to launch a command in its sandbox.
    pub(crate) async fn prepare(
        &self,
        command: &ChildCommand,
        sandbox: &Sandbox,
    ) -> Result<PreparedSandbox, NotEnforceable> {
        if *sandbox == Sandbox::Off {
            return Ok(PreparedSandbox::default());
        }
        let report = self.report(command, sandbox).await;
        if let (Sandbox::Strict(_), Some(problems)) = (sandbox, report.problems()) {
            return Err(NotEnforceable(problems));
        }
        let in_force = |report: &MeasureReport| {
            let mechanism = report.outcome.as_ref().ok()?;
            Some((report.measure, *mechanism))
        };
        let in_force: Vec<_> = report.measures.iter().filter_map(in_force).collect();
        if in_force.is_empty() {
            return Ok(PreparedSandbox::default());
        }
        let memory_mb = sandbox.limits().memory_mb;
        let memory = memory_mb.map(|size| self.0.memory.prepare(size));
        let memory = memory.transpose()?;
        let measures = in_force.iter().map(|(measure, _)| *measure);
        let profile = Profile {
            measures: measures
                .filter(|measure| *measure != Measure::Memory)
                .collect(),
            group: memory.as_ref().and_then(MemoryLimit::group_path),
            // One that turned out to be useless could only do harm.
            namespaces: in_force
                .iter()
                .any(|(_, mechanism)| mechanism.is_namespace()),
            pid_namespace: in_force
                .iter()
                .any(|(_, mechanism)| *mechanism == Mechanism::PidNamespace),
            ..self.profile(sandbox, &self.hidden_paths(command))
        };
        let supervisors = if profile.pid_namespace {
            Supervisors::RootAndFirstChild
        } else {
            Supervisors::Root
        };
        Ok(PreparedSandbox {
            launcher: Some(LauncherCall {
                supervisors,
                ..self.call(launcher::LAUNCH_FLAG, &profile)
            }),
            memory,
        })
    }

    /// Returns what explains denied accesses of a server; `None` for one that is not strict.
    pub(crate) fn denial_hints(&self, server: &ServerConfig) -> Option<DenialHints> {
        match &server.connection {
            ServerConnection::Stdio(StdioConnection {
                sandbox: Sandbox::Strict(strict),
                ..
            }) => Some(DenialHints::new(&server.name, strict, &self.locations())),
            _ => None,
        }
    }

    fn locations(&self) -> Vec<PathBuf> {
        let locations = self.0.hidden.iter();
        locations.flat_map(HiddenLocation::paths).collect()
    }

    fn hidden_paths(&self, command: &ChildCommand) -> HiddenPaths {
        HiddenPaths::new(&self.locations(), command)
    }

    fn profile(&self, sandbox: &Sandbox, hidden: &HiddenPaths) -> Profile {
        let strict = match sandbox {
            Sandbox::Strict(strict) => Some(strict.clone()),
            Sandbox::Default | Sandbox::Off => None,
        };
        let mut measures = wanted_measures(sandbox);
        measures.remove(&Measure::Memory);
        Profile {
            measures,
            namespaces: true,
            pid_namespace: true,
            gateway: std::process::id(),
            hidden: hidden.paths.clone(),
            strict,
            group: None,
        }
    }

    fn call(&self, flag: &'static str, profile: &Profile) -> LauncherCall {
        LauncherCall {
            program: self.0.program.clone(),
            // A profile consists of paths and numbers, which are always valid JSON text.
            args: [
                flag.to_owned(),
                serde_json::to_string(profile).unwrap_or_default(),
            ],
            variable: ALLOCATOR_SETTINGS,
            supervisors: Supervisors::None,
        }
    }

    /// Probes a profile with a PID namespace, and without one if that does not work.
    async fn probe_namespaces(
        &self,
        profile: &Profile,
        command: &ChildCommand,
    ) -> Result<Vec<MeasureReport>, String> {
        let measures = self.probe(profile, command).await?;
        let stops = |report: &&MeasureReport| report.measure == Measure::DescendantsStopped;
        let stops = measures.iter().find(stops).map(|report| &report.outcome);
        let Some(Err(reason)) = stops else {
            return Ok(measures);
        };
        tracing::info!(reason, "servers have no PID namespace");
        let profile = Profile {
            pid_namespace: false,
            ..profile.clone()
        };
        self.probe(&profile, command).await
    }

    /// Runs a launcher that applies all measures and executes nothing. Returns what it reported.
    async fn probe(
        &self,
        profile: &Profile,
        command: &ChildCommand,
    ) -> Result<Vec<MeasureReport>, String> {
        let call = self.call(launcher::PROBE_FLAG, profile);
        let mut process = tokio::process::Command::new(&call.program);
        process
            .args(&call.args)
            .env_clear()
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .env(call.variable.0, call.variable.1)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(cwd) = command.cwd.as_ref().filter(|cwd| cwd.is_dir()) {
            process.current_dir(cwd);
        }
        let output = process.output().await;
        let output = output.map_err(|error| format!("the launcher did not start: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("the launcher failed ({}): {stderr}", output.status)
        })
    }
}

/// Returns the measures that a sandbox consists of.
fn wanted_measures(sandbox: &Sandbox) -> BTreeSet<Measure> {
    let mut measures = BTreeSet::from([
        Measure::DataHidden,
        Measure::ProcessesIsolated,
        Measure::SignalsBlocked,
        Measure::LimitsIsolated,
        Measure::SettingsIsolated,
        Measure::NoNewPrivileges,
        Measure::CapabilitiesDropped,
        Measure::DescendantsStopped,
    ]);
    match sandbox {
        Sandbox::Off => measures.clear(),
        Sandbox::Default => {}
        Sandbox::Strict(strict) => {
            let limits = strict.limits;
            let optional = [
                (Measure::Network, strict.network != NetworkAccess::On),
                (Measure::User, strict.user.is_some()),
                (Measure::Memory, limits.memory_mb.is_some()),
                (Measure::CpuTime, limits.cpu_seconds.is_some()),
                (Measure::Processes, limits.processes.is_some()),
                (Measure::OpenFiles, limits.files.is_some()),
            ];
            let chosen = optional.into_iter().filter(|(_, is_wanted)| *is_wanted);
            measures.extend(chosen.map(|(measure, _)| measure));
            measures.extend([Measure::Paths, Measure::SystemCalls]);
            let proc = Path::new("/proc");
            let opens_proc = |path: &PathBuf| path.starts_with(proc) || proc.starts_with(path);
            if strict.write.iter().any(opens_proc) {
                measures.remove(&Measure::SettingsIsolated);
            }
        }
    }
    measures
}
