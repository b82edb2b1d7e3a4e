//! The built binaries, and whether a process still lives.

use std::path::{Path, PathBuf};

/// Where `toolgate-zoo` was built, beside the test that asks.
///
/// # Panics
/// If it was not built: cargo builds the binaries of a dependency only when told to.
#[must_use]
pub fn zoo_path() -> PathBuf {
    built("toolgate-zoo")
}

/// Where `toolgate-model` was built, beside the test that asks.
///
/// # Panics
/// If it was not built, as with [`zoo_path`].
#[must_use]
pub fn model_path() -> PathBuf {
    built("toolgate-model")
}

/// Whether a process of this id runs; one that ended and waits to be reaped does not.
#[must_use]
pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
    else {
        return false;
    };
    // The command may hold anything, a `)` too, so the state is read behind the last one.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let mut folder = test.parent().expect("a file has a folder");
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent().unwrap_or(folder);
    }
    let path = folder.join(name);
    assert!(
        path.is_file(),
        "`{}` is missing: run `cargo build -p toolgate-testkit`",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::alive;
    use std::process::Command;

    #[test]
    fn a_process_lives_until_it_ends_even_unreaped() {
        assert!(alive(std::process::id()));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(alive(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!alive(child.id()));
    }
}
