//! Paths of the built binaries, and a check for running processes.

use std::path::{Path, PathBuf};

/// Returns the path of `toolgate-zoo`, next to the running test binary.
///
/// # Panics
/// If it was not built: cargo does not build the binaries of a dependency by default.
#[must_use]
pub fn zoo_path() -> PathBuf {
    binary_path("toolgate-zoo")
}

/// Returns the path of `toolgate-model`, next to the running test binary.
///
/// # Panics
/// If it was not built, see [`zoo_path`].
#[must_use]
pub fn model_path() -> PathBuf {
    binary_path("toolgate-model")
}

/// Returns the path of `toolgate-script-worker`, next to the running test binary.
///
/// # Panics
/// If it was not built, see [`zoo_path`].
#[must_use]
pub fn script_worker_path() -> PathBuf {
    binary_path("toolgate-script-worker")
}

/// Returns whether a process with this id runs. A zombie does not count as running.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
    else {
        return false;
    };
    // The command name may contain `)`, so the state is read after the last one.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn binary_path(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("failed to locate the test binary");
    let mut folder = test.parent().expect("the test binary has no parent folder");
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent().unwrap_or(folder);
    }
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "`{}` is missing: run `cargo build --workspace`",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::is_alive;
    use std::process::Command;

    #[test]
    fn is_alive_tracks_process_exit() {
        assert!(is_alive(std::process::id()));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }
}
