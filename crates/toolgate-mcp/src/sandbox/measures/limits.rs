//! Resource limits of the strict profile.

use rustix::process::{Resource, Rlimit, setrlimit};
use toolgate_core::config::ProcessLimits;

use super::{Measure, Mechanism, Outcome};

const MEBIBYTE: u64 = 1024 * 1024;

/// Passes every limit to `add`, which applies it.
pub(super) fn apply(limits: ProcessLimits, add: &mut impl FnMut(Measure, &dyn Fn() -> Outcome)) {
    // Counts what is allocated. A limit of the address space would stop Node, which reserves far more
    // than it uses.
    add(Measure::Memory, &|| {
        let bytes = limits.memory_mb.map(|size| size.saturating_mul(MEBIBYTE));
        set_limit(Resource::Data, bytes)
    });
    add(Measure::CpuTime, &|| {
        set_limit(Resource::Cpu, limits.cpu_seconds)
    });
    add(Measure::Processes, &|| {
        if rustix::process::getuid().is_root() {
            return Err("the kernel does not limit the processes of root".to_owned());
        }
        set_limit(Resource::Nproc, limits.processes)
    });
    add(Measure::OpenFiles, &|| {
        set_limit(Resource::Nofile, limits.files)
    });
}

fn set_limit(resource: Resource, limit: Option<u64>) -> Outcome {
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(resource, limit)
        .map(|()| Mechanism::ResourceLimit)
        .map_err(|error| error.to_string())
}
