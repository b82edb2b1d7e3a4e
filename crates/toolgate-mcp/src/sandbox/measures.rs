//! Applies the measures of a profile to this process. Other systems than Linux have none of them.

#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod domain;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod namespace;
#[cfg(target_os = "linux")]
mod proc_mounts;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(target_os = "linux")]
mod user;

use std::path::PathBuf;

#[cfg(target_os = "linux")]
use limits::ProcessCount;

#[cfg(target_os = "linux")]
pub(super) use namespace::enter_pid_namespace;

use super::supervisor::Supervision;
use super::{Measure, MeasureReport, Mechanism, Profile};

/// Outcome of a measure: what enforces it, or why nothing does.
type Outcome = Result<Mechanism, String>;

/// Applies every measure of the profile, in an order in which none prevents the next.
pub(super) fn apply_measures(profile: &Profile, supervision: &Supervision) -> Vec<MeasureReport> {
    let outcomes = apply(profile, supervision);
    let mut reports: Vec<MeasureReport> = outcomes
        .into_iter()
        .map(|(measure, outcome)| MeasureReport {
            measure,
            outcome,
            note: None,
        })
        .collect();
    reports.sort_by_key(|report| report.measure);
    reports
}

#[cfg(not(target_os = "linux"))]
fn apply(profile: &Profile, _supervision: &Supervision) -> Vec<(Measure, Outcome)> {
    let missing = |measure: &Measure| (*measure, Err("needs Linux".to_owned()));
    profile.measures.iter().map(missing).collect()
}

#[cfg(target_os = "linux")]
fn apply(profile: &Profile, supervision: &Supervision) -> Vec<(Measure, Outcome)> {
    // First, because looking up a user may need files, sockets or the network.
    let user = profile
        .strict
        .as_ref()
        .and_then(|strict| strict.user.as_ref());
    let user = user.map(user::find);
    let gateway_namespace = user_namespace();
    let mut outcomes = namespace::apply(profile, supervision);
    let process_count = if supervision.owns_user_namespace {
        ProcessCount::WithSupervisors
    } else if user_namespace() == gateway_namespace {
        ProcessCount::Shared
    } else {
        ProcessCount::Own
    };
    let mut add = |measure, outcome: &dyn Fn() -> Outcome| {
        // A measure may have been applied by the namespaces already.
        let is_done = |(done, outcome): &(Measure, Outcome)| *done == measure && outcome.is_ok();
        if profile.measures.contains(&measure) && !outcomes.iter().any(is_done) {
            let earlier = outcomes.iter().position(|(done, _)| *done == measure);
            let earlier = earlier.map(|index| outcomes.swap_remove(index));
            let outcome = match (outcome(), earlier) {
                (Err(reason), Some((_, Err(earlier)))) => Err(format!("{earlier}; {reason}")),
                (outcome, _) => outcome,
            };
            outcomes.push((measure, outcome));
        }
    };
    add(Measure::NoNewPrivileges, &|| {
        let set = rustix::thread::set_no_new_privs(true);
        set.map(|()| Mechanism::NoNewPrivs)
            .map_err(|error| error.to_string())
    });
    add(Measure::CapabilitiesDropped, &capabilities::drop_dangerous);
    // Landlock is applied after everything that it would prevent.
    add(Measure::DataHidden, &|| domain::hide_paths(&profile.hidden));
    add(Measure::ProcessesIsolated, &domain::isolate_processes);
    add(Measure::SignalsBlocked, &domain::block_signals);
    add(Measure::SettingsIsolated, &|| {
        // Browsers isolate their pages with files in `/proc`, as users other than root. The gateway's own
        // settings belong to root there, so that only other servers are at stake.
        if profile.strict.is_some() || rustix::process::getuid().is_root() {
            domain::protect_process_settings()
        } else {
            Err("needs a PID namespace, because browsers write to `/proc`".to_owned())
        }
    });
    add(Measure::LimitsIsolated, &system_calls::protect_limits);
    // Whether a PID namespace does it is known only after `/proc` was mounted for it.
    if !supervision.has_pid_namespace() {
        add(Measure::DescendantsStopped, &|| supervision.outcome.clone());
    }
    if let Some(strict) = &profile.strict {
        add(Measure::Paths, &|| domain::restrict_paths(strict));
        add(Measure::Network, &|| {
            Err("without namespaces, the network cannot be taken away".to_owned())
        });
        // After what needs root, and before the limit of processes, which does not apply to root.
        add(Measure::User, &|| match &user {
            Some(user) => user.clone().and_then(user::switch),
            None => Err("no user is set".to_owned()),
        });
        limits::apply(strict.limits, process_count, &mut add);
        // Last, because it stops what other measures do.
        add(Measure::SystemCalls, &system_calls::block);
    }
    outcomes
}

/// Identifies the user namespace of this process.
#[cfg(target_os = "linux")]
fn user_namespace() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/ns/user").ok()
}

/// Returns the directories in which a server works and may create files.
#[cfg(target_os = "linux")]
fn work_places() -> Vec<PathBuf> {
    let variables = ["HOME", "TMPDIR"].into_iter().filter_map(std::env::var_os);
    let places = variables.map(PathBuf::from).chain(std::env::current_dir());
    places
        .filter_map(|place| place.canonicalize().ok())
        .collect()
}
