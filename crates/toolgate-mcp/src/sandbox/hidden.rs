//! Which files and directories to cover, so that a server does not see those of the gateway.
//!
//! A cover stays with the file on which it was mounted: a key that is replaced while a server runs, as on the
//! rotation of a secret, would be visible. So the directory of a file is covered if it contains nothing else.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::transport::stdio::ChildCommand;

/// Directories that are never covered for the sake of one file, whatever they contain.
const SHARED_DIRECTORIES: [&str; 22] = [
    "/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt",
    "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp",
];
/// Link in a volume of Kubernetes that is replaced when its content changes.
const KUBERNETES_LINK: &str = "..data";
/// Start of the names that Kubernetes uses itself in a volume.
const KUBERNETES_PREFIX: &str = "..";
/// Maximum number of links that are followed, as in the kernel.
const MAX_LINKS: usize = 40;

/// A file or directory to hide. It is held open, so that it is found where a server has moved it by renaming a
/// directory above it.
#[derive(Debug)]
pub(super) struct HiddenLocation {
    path: PathBuf,
    opened: OnceLock<File>,
}

/// What is hidden from one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HiddenPaths {
    /// Paths without symbolic links, none of which is in another one.
    pub(super) paths: Vec<PathBuf>,
    /// Files that are covered without their directory.
    pub(super) replaceable: Vec<PathBuf>,
}

impl HiddenLocation {
    pub(super) fn new(path: PathBuf) -> Self {
        let location = Self {
            path,
            opened: OnceLock::new(),
        };
        location.open();
        location
    }

    /// Returns the path as configured, and the one at which the file or directory is now if that differs.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.open();
        let current = self.opened.get().and_then(current_path);
        let configured = self.path.canonicalize().ok();
        let moved = current.filter(|current| configured.as_ref() != Some(current));
        if let Some(moved) = &moved {
            tracing::warn!(
                path = %self.path.display(),
                now = %moved.display(),
                "a path that is hidden from servers was moved; hiding it at both"
            );
        }
        [self.path.clone()].into_iter().chain(moved).collect()
    }

    /// Opens what the path leads to, once it exists.
    fn open(&self) {
        if self.opened.get().is_none()
            && let Ok(file) = File::open(&self.path)
        {
            // Fails if another thread has opened it meanwhile.
            let _ = self.opened.set(file);
        }
    }
}

/// Returns the path of an open file; `None` if it was deleted, or the system does not tell.
fn current_path(file: &File) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(link).ok()?;
    let (found, opened) = (path.metadata().ok()?, file.metadata().ok()?);
    let is_same = (found.dev(), found.ino()) == (opened.dev(), opened.ino());
    is_same.then_some(path)
}

impl HiddenPaths {
    /// Chooses what to cover for a server with this command, of the paths that exist.
    pub(super) fn new(configured: &[PathBuf], command: &ChildCommand) -> Self {
        let (directories, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
            configured.iter().partition(|path| path.is_dir());
        let mut paths: BTreeSet<PathBuf> = directories
            .into_iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        let names = |file: &&PathBuf| file.exists().then(|| names_of(file));
        let files: Vec<Vec<PathBuf>> = files.iter().filter_map(names).collect();
        let all_names: BTreeSet<&Path> = files.iter().flatten().map(PathBuf::as_path).collect();
        let mut replaceable = BTreeSet::new();
        for name in &all_names {
            if let Some(directory) = own_directory(name, &all_names, command) {
                paths.insert(directory);
            } else if let Ok(target) = name.canonicalize() {
                paths.insert(target);
                replaceable.insert(name.to_path_buf());
            }
        }
        let paths = outermost(&paths);
        let is_covered = |file: &PathBuf| {
            let mut above = file.ancestors().skip(1);
            above.any(|directory| paths.iter().any(|path| path == directory))
        };
        replaceable.retain(|file| !is_covered(file));
        Self {
            replaceable: replaceable.into_iter().collect(),
            paths,
        }
    }

    /// Describes what a mount over each path does not achieve.
    pub(super) fn note(&self) -> Option<String> {
        let files = self.replaceable.iter();
        let files: Vec<String> = files.map(|file| format!("`{}`", file.display())).collect();
        (!files.is_empty()).then(|| {
            format!(
                "if {} is replaced, running servers see the new file until they are restarted; keep it in a directory of its own",
                files.join(", ")
            )
        })
    }
}

/// Returns the names that lead to a file: its own one, and those of the symbolic links to it.
fn names_of(file: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut next = Some(file.to_owned());
    while let Some(path) = next.take().filter(|_| names.len() < MAX_LINKS) {
        let Ok(path) = std::path::absolute(path) else {
            break;
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            break;
        };
        let Ok(parent) = parent.canonicalize() else {
            break;
        };
        let name = parent.join(name);
        next = name.read_link().ok().map(|target| parent.join(target));
        names.push(name);
    }
    names
}

/// Returns the directory of a file if it can be covered as a whole.
fn own_directory(
    name: &Path,
    all_names: &BTreeSet<&Path>,
    command: &ChildCommand,
) -> Option<PathBuf> {
    // Within a volume of Kubernetes, each version of the content has a directory of its own.
    let is_version = |directory: &&Path| {
        let name = directory.file_name();
        name.is_some_and(|name| {
            name.as_encoded_bytes()
                .starts_with(KUBERNETES_PREFIX.as_bytes())
        })
    };
    let directory = name.ancestors().skip(1).find(|above| !is_version(above))?;
    let is_shared = SHARED_DIRECTORIES
        .iter()
        .any(|shared| directory == Path::new(shared));
    let is_volume = directory.join(KUBERNETES_LINK).is_symlink();
    let is_own = !is_shared
        && (is_volume || contains_only(directory, all_names))
        && !is_needed(directory, command);
    is_own.then(|| directory.to_owned())
}

fn contains_only(directory: &Path, names: &BTreeSet<&Path>) -> bool {
    let Ok(mut entries) = directory.read_dir() else {
        return false;
    };
    entries.all(|entry| entry.is_ok_and(|entry| names.contains(entry.path().as_path())))
}

/// Returns whether a server works in a directory, or its settings name something in it.
fn is_needed(directory: &Path, command: &ChildCommand) -> bool {
    let text = directory.to_string_lossy();
    let settings = command
        .args
        .iter()
        .chain([&command.program])
        .chain(command.env.iter().map(|(_, value)| value));
    let mut settings = settings.filter(|setting| !setting.is_empty());
    let is_named = |setting: &String| {
        let is_below = |path: PathBuf| path.starts_with(directory);
        setting.contains(&*text) || Path::new(setting).canonicalize().is_ok_and(is_below)
    };
    let cwd = command
        .cwd
        .clone()
        .or_else(|| std::env::current_dir().ok())
        .and_then(|cwd| cwd.canonicalize().ok());
    settings.any(is_named) || cwd.is_some_and(|cwd| cwd.starts_with(directory))
}

/// Returns the paths that are not in another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let is_inner = |path: &&PathBuf| {
        let mut above = path.ancestors().skip(1);
        above.any(|ancestor| paths.contains(ancestor))
    };
    let outer = paths.iter().filter(|path| !is_inner(path));
    outer.cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn command(args: &[&str], cwd: &Path) -> ChildCommand {
        ChildCommand {
            program: "server".to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            cwd: Some(cwd.to_owned()),
            launcher: None,
            memory: None,
        }
    }

    #[test]
    fn moved_directory_is_found_although_another_one_has_its_name() {
        let (_folder, path) = folder();
        let keys = path.join("keys");
        let location = HiddenLocation::new(keys.clone());
        assert_eq!(location.paths(), std::slice::from_ref(&keys));
        fs::rename(&keys, path.join("moved")).unwrap();
        fs::create_dir(&keys).unwrap();
        assert_eq!(location.paths(), [keys.clone(), path.join("moved")]);
        fs::remove_dir_all(path.join("moved")).unwrap();
        assert_eq!(location.paths(), [keys]);
    }

    /// A folder with directories `keys`, which contains the file `key`, and `work`.
    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        for directory in ["keys", "work"] {
            fs::create_dir(path.join(directory)).unwrap();
        }
        fs::write(path.join("keys/key"), "key").unwrap();
        (folder, path)
    }

    #[test]
    fn directory_is_covered_unless_something_else_needs_it() {
        let (_folder, path) = folder();
        let (keys, key, work) = (path.join("keys"), path.join("keys/key"), path.join("work"));
        let hide = |args: &[&str], cwd: &Path| {
            HiddenPaths::new(std::slice::from_ref(&key), &command(args, cwd))
        };
        let own = HiddenPaths {
            paths: vec![keys.clone()],
            replaceable: Vec::new(),
        };
        let file = HiddenPaths {
            paths: vec![key.clone()],
            replaceable: vec![key.clone()],
        };
        assert_eq!(hide(&[], &work), own);
        assert!(own.note().is_none());
        assert_eq!(hide(&[], &keys), file);
        assert_eq!(
            hide(&[&format!("--token-file={}/token", keys.display())], &work),
            file
        );
        fs::write(keys.join("other"), "").unwrap();
        assert_eq!(hide(&[], &work), file);
        assert!(file.note().unwrap().contains("keys/key` is replaced"));
        // Another file of the gateway is not in the way.
        let both = [key.clone(), keys.join("other")];
        assert_eq!(HiddenPaths::new(&both, &command(&[], &work)), own);
        // In a directory that is hidden anyway, nothing is replaceable.
        let above = [key.clone(), path.join("work"), path.clone()];
        let hidden = HiddenPaths::new(&above, &command(&[], Path::new("/")));
        assert_eq!(hidden.paths, [path]);
        assert_eq!(hidden.note(), None);
    }

    #[test]
    fn directories_of_links_are_covered_too() {
        let (_folder, path) = folder();
        let (link, work) = (path.join("links/key"), path.join("work"));
        fs::create_dir(path.join("links")).unwrap();
        symlink("../keys/key", &link).unwrap();
        let hidden = HiddenPaths::new(&[link], &command(&[], &work));
        assert_eq!(hidden.paths, [path.join("keys"), path.join("links")]);
        let missing = HiddenPaths::new(&[path.join("missing")], &command(&[], &work));
        assert_eq!(missing, HiddenPaths::default());
    }

    #[test]
    fn volume_of_kubernetes_is_covered_with_all_its_versions() {
        let (_folder, path) = folder();
        let (keys, work) = (path.join("keys"), path.join("work"));
        fs::remove_file(keys.join("key")).unwrap();
        fs::create_dir(keys.join("..2026_01")).unwrap();
        fs::write(keys.join("..2026_01/key"), "key").unwrap();
        symlink("..2026_01", keys.join("..data")).unwrap();
        for name in ["key", "token"] {
            symlink(format!("..data/{name}"), keys.join(name)).unwrap();
        }
        for key in [keys.join("key"), keys.join("..data/key")] {
            let hidden = HiddenPaths::new(&[key], &command(&[], &work));
            assert_eq!(hidden.paths, std::slice::from_ref(&keys));
            assert_eq!(hidden.note(), None);
        }
    }
}
