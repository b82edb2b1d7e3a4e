//! Landlock: every measure is a layer of its own, so that a missing one does not affect the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};
use toolgate_core::config::StrictSandbox;

use super::proc_mounts::other_proc_mounts;
use super::{Mechanism, Outcome, work_places};

/// Version of Landlock with all rights that are needed here. Without those of version 2, files could
/// not be moved between directories, which breaks package managers.
const FILE_RIGHTS: ABI = ABI::V3;

/// Directories of the system that a strict server may read and execute.
const SYSTEM_DIRECTORIES: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys",
];
/// Devices that any program may use.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Starts a domain. A process in a domain cannot inspect processes outside of it, whoever runs them.
pub(super) fn isolate_processes() -> Outcome {
    let restricted = || -> Result<(), LandlockError> {
        // A domain needs something to restrict. No server creates block devices.
        let rules = required(AccessFs::MakeBlock | AccessFs::Refer)?.create()?;
        // Otherwise files could not be moved between directories.
        let root = PathBeneath::new(PathFd::new("/")?, AccessFs::Refer);
        restrict(rules.add_rule(root)?)
    };
    outcome(restricted())
}

/// Keeps this process from signalling processes outside of the domain.
pub(super) fn block_signals() -> Outcome {
    let restricted = || -> Result<(), LandlockError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal)?
            .create()?;
        restrict(rules)
    };
    outcome(restricted())
}

/// Makes `/proc` read-only, so that settings of other processes cannot be changed. Those of the server's own
/// cannot either: rules apply to directories that exist now, but its further processes will have others.
pub(super) fn protect_process_settings() -> Outcome {
    let restricted = || -> Result<(), LandlockError> {
        let writing = AccessFs::WriteFile | AccessFs::Truncate;
        let refer = PathBeneath::new(PathFd::new("/")?, AccessFs::Refer);
        let proc_mounts: Vec<PathBuf> = [PathBuf::from("/proc")]
            .into_iter()
            .chain(other_proc_mounts())
            .collect();
        let rules = required(writing | AccessFs::Refer)?
            .create()?
            .add_rule(refer)?
            .add_rules(path_beneath_rules(paths_beside(&proc_mounts), writing))?;
        restrict(rules)
    };
    outcome(restricted())
}

/// Hides files and directories by granting access to everything beside them.
pub(super) fn hide_paths(hidden: &[PathBuf]) -> Outcome {
    // What is created later in a directory above a hidden one stays inaccessible, which a server would
    // notice where it works. The root is the working directory of many services that do not write there.
    let is_above_hidden = |place: &PathBuf| {
        place != Path::new("/") && hidden.iter().any(|path| path.starts_with(place))
    };
    let mut places = work_places().into_iter().chain(["/tmp".into()]);
    if let Some(place) = places.find(is_above_hidden) {
        return Err(format!(
            "Landlock cannot hide a part of `{}`, where the server works",
            place.display()
        ));
    }
    let restricted = || -> Result<(), LandlockError> {
        let everything = AccessFs::from_all(FILE_RIGHTS);
        let names = PathBeneath::new(PathFd::new("/")?, AccessFs::ReadDir | AccessFs::Refer);
        let rules = required(everything)?
            .create()?
            .add_rule(names)?
            .add_rules(path_beneath_rules(paths_beside(hidden), everything))?;
        restrict(rules)
    };
    outcome(restricted())
}

/// Grants access to the system and the listed paths only.
pub(super) fn restrict_paths(strict: &StrictSandbox) -> Outcome {
    let mut listed = strict.read.iter().chain(&strict.write);
    if let Some(path) = listed.find(|path| !path.exists()) {
        return Err(format!("`{}` does not exist", path.display()));
    }
    let restricted = || -> Result<(), LandlockError> {
        let everything = AccessFs::from_all(FILE_RIGHTS);
        let reading = AccessFs::from_read(FILE_RIGHTS);
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
        let rules = required(everything)?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM_DIRECTORIES, reading))?
            .add_rules(path_beneath_rules(DEVICES, device))?
            .add_rules(path_beneath_rules(&strict.read, reading))?
            .add_rules(path_beneath_rules(&strict.write, everything))?;
        restrict(rules)?;
        let abstract_sockets = Ruleset::default()
            .scope(Scope::AbstractUnixSocket)?
            .create()?;
        // Kernels before 6.12 lack this; the network namespace, if any, has the same effect.
        abstract_sockets.restrict_self()?;
        Ok(())
    };
    outcome(restricted())
}

/// Returns a set of rules that fails if the kernel does not know all of the rights.
fn required(rights: BitFlags<AccessFs>) -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(rights)
}

fn outcome(restricted: Result<(), LandlockError>) -> Outcome {
    restricted
        .map(|()| Mechanism::Landlock)
        .map_err(|error| error.to_string())
}

fn restrict(rules: RulesetCreated) -> Result<(), LandlockError> {
    match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err(LandlockError::Missing),
    }
}

/// Returns the entries of every directory above a hidden path, except for those that lead to one.
fn paths_beside(hidden: &[PathBuf]) -> BTreeSet<PathBuf> {
    let leads_to_hidden = |path: &Path| hidden.iter().any(|hidden| hidden.starts_with(path));
    let above: BTreeSet<&Path> = hidden
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .collect();
    let entries = above
        .into_iter()
        .filter(|directory| !hidden.iter().any(|hidden| directory.starts_with(hidden)))
        .filter_map(|directory| directory.read_dir().ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    entries.filter(|path| !leads_to_hidden(path)).collect()
}

#[derive(Debug, thiserror::Error)]
enum LandlockError {
    #[error("the kernel lacks Landlock, or has a version of it that is too old")]
    Missing,
    #[error(transparent)]
    Rules(#[from] RulesetError),
    #[error(transparent)]
    Path(#[from] landlock::PathFdError),
}
