//! Resource limits of the strict profile, except for memory.

use rustix::process::{Resource, Rlimit, setrlimit};
use toolgate_core::config::ProcessLimits;

use super::{Measure, Mechanism, Outcome};

/// Number of processes in the user namespace that are not the server's.
const SUPERVISORS: u64 = 2;

/// Who shares the kernel's count of processes with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessCount {
    /// Nobody, since the server has a user namespace of its own.
    Own,
    /// The supervisor and the first process of the PID namespace.
    WithSupervisors,
    /// All processes of the gateway's user.
    Shared,
}

/// Passes every limit to `add`, which applies it.
pub(super) fn apply(
    limits: ProcessLimits,
    count: ProcessCount,
    add: &mut impl FnMut(Measure, &dyn Fn() -> Outcome),
) {
    add(Measure::CpuTime, &|| {
        // The kernel sends SIGXCPU at the first limit, which shows what has happened, and SIGKILL at the
        // second one.
        let maximum = limits.cpu_seconds.map(|seconds| seconds.saturating_add(1));
        set_limit(Resource::Cpu, limits.cpu_seconds, maximum)
    });
    add(Measure::Processes, &|| {
        if rustix::process::getuid().is_root() {
            return Err("the kernel does not limit the processes of root".to_owned());
        }
        if count == ProcessCount::Shared {
            return Err(
                "without a user namespace, all processes of the gateway's user would count"
                    .to_owned(),
            );
        }
        let others = if count == ProcessCount::WithSupervisors {
            SUPERVISORS
        } else {
            0
        };
        let limit = limits.processes.map(|limit| limit.saturating_add(others));
        set_limit(Resource::Nproc, limit, limit)
    });
    add(Measure::OpenFiles, &|| {
        set_limit(Resource::Nofile, limits.files, limits.files)
    });
}

fn set_limit(resource: Resource, current: Option<u64>, maximum: Option<u64>) -> Outcome {
    setrlimit(resource, Rlimit { current, maximum })
        .map(|()| Mechanism::ResourceLimit)
        .map_err(|error| error.to_string())
}
