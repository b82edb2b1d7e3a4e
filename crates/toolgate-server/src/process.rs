//! Protection of this process, whose memory contains secrets.

use anyhow::Context as _;

/// Keeps other processes of the same user from reading the memory and the environment of this one, and
/// the system from writing them to a core dump.
pub(crate) fn protect_memory() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none).context("cannot turn off core dumps")?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("cannot protect the memory of the gateway")?;
    Ok(())
}
