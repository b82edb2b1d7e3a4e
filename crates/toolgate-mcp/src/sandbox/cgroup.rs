//! Control groups (version 2), in which the kernel limits the memory of all processes of a server.
//!
//! Groups belong to the program that manages them, usually systemd. The gateway creates some only in a
//! group that systemd has delegated to it, with `Delegate=yes` of its unit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the group into which the gateway moves itself, because a group that limits others in it has no
/// processes of its own.
const GATEWAY_GROUP: &str = "toolgate";
/// Maximum number of further attempts to empty the gateway's group.
const MAX_MOVE_ATTEMPTS: u32 = 10;
/// Interval and maximum number of attempts to remove a group whose processes were killed.
const REMOVE_INTERVAL: Duration = Duration::from_millis(20);
const MAX_REMOVE_ATTEMPTS: u32 = 50;

/// The group in which the gateway creates others.
#[derive(Debug)]
pub(super) struct DelegatedGroup {
    path: PathBuf,
    created: AtomicU64,
}

/// A group with the processes of one connection.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    path: PathBuf,
}

impl DelegatedGroup {
    /// Finds the group that was delegated to the gateway, and makes it limit the memory of others in it.
    pub(super) fn find() -> Result<Self, String> {
        let own = own_group()?;
        // With `DelegateSubgroup=`, systemd has started the gateway in a group within the delegated one.
        let outer = own.parent().filter(|outer| is_marked(outer));
        if let Some(path) = outer.filter(|outer| limits_memory_within(outer)) {
            return Self::new(path.to_owned());
        }
        if !is_marked(&own) {
            return Err("no control group is delegated to the gateway".to_owned());
        }
        if !limits_memory_within(&own) {
            prepare(&own).map_err(|error| {
                format!("the gateway's control group cannot limit memory: {error}")
            })?;
        }
        Self::new(own)
    }

    fn new(path: PathBuf) -> Result<Self, String> {
        let delegated = Self {
            path,
            created: AtomicU64::new(0),
        };
        // Only an attempt shows whether it works.
        let attempt = delegated
            .create(1024 * 1024)
            .and_then(|group| fs::remove_dir(&group.path));
        attempt.map_err(|error| format!("no control group can be created: {error}"))?;
        Ok(delegated)
    }

    /// Creates a group whose processes are killed together if they use more memory.
    pub(super) fn create(&self, memory_bytes: u64) -> io::Result<ControlGroup> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let name = format!("{GATEWAY_GROUP}-server-{}-{number}", std::process::id());
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        let group = ControlGroup { path };
        group.write("memory.max", &memory_bytes.to_string())?;
        group.write("memory.oom.group", "1")?;
        // Absent without swap.
        match group.write("memory.swap.max", "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(group),
        }
    }
}

impl ControlGroup {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the kernel killed processes because of the limit.
    pub(crate) fn has_exceeded_limit(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events"));
        let kills = events.as_deref().ok().and_then(|events| {
            let count = events
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "));
            count?.parse::<u64>().ok()
        });
        kills.is_some_and(|kills| kills > 0)
    }

    /// Kills all processes of the group and removes it.
    pub(crate) async fn remove(&self) {
        // Without this file (before Linux 5.14), only the process group has been killed.
        let _ = self.write("cgroup.kill", "1");
        for _ in 0..MAX_REMOVE_ATTEMPTS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    tokio::time::sleep(REMOVE_INTERVAL).await;
                }
                _ => return,
            }
        }
        tracing::warn!(path = %self.path.display(), "failed to remove the control group of a server");
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        write(&self.path, file, value)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Of a server that was not started; otherwise it is already gone.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Moves this process into a group.
pub(super) fn join(group: &Path) -> io::Result<()> {
    write(group, "cgroup.procs", "0")
}

/// Moves the gateway, and servers that it has already started, to a group within its own, and lets its own
/// limit the memory of such groups.
fn prepare(own: &Path) -> io::Result<()> {
    let inner = own.join(GATEWAY_GROUP);
    match fs::create_dir(&inner) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut attempts = 0;
    loop {
        move_processes(own, &inner)?;
        match write(own, "cgroup.subtree_control", "+memory") {
            // A process was started in the meantime.
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && attempts < MAX_MOVE_ATTEMPTS =>
            {
                attempts += 1;
            }
            Err(error) => {
                move_processes(&inner, own)?;
                let _best_effort = fs::remove_dir(&inner);
                return Err(error);
            }
            Ok(()) => return Ok(()),
        }
    }
}

fn move_processes(from: &Path, to: &Path) -> io::Result<()> {
    for pid in fs::read_to_string(from.join("cgroup.procs"))?.lines() {
        match write(to, "cgroup.procs", pid) {
            // It has exited.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            moved => moved?,
        }
    }
    Ok(())
}

fn write(group: &Path, file: &str, value: &str) -> io::Result<()> {
    // Creates nothing: in a directory that is not of the kernel, the file is missing.
    let file = fs::OpenOptions::new().write(true).open(group.join(file));
    io::Write::write_all(&mut file?, value.as_bytes())
}

/// Returns the directory of the group that this process is in.
fn own_group() -> Result<PathBuf, String> {
    let missing = || "the system has no control groups of version 2".to_owned();
    let groups = fs::read_to_string("/proc/self/cgroup").map_err(|_| missing())?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|_| missing())?;
    find_directory(own.ok_or_else(missing)?, &mounts).ok_or_else(missing)
}

/// Returns the directory of a group, of which the path is relative to the root of all groups.
fn find_directory(group: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        source.strip_prefix("cgroup2 ")?;
        let mut fields = mount.split(' ').skip(3);
        let root = fields.next()?.strip_prefix('/')?;
        let point = fields.next()?;
        let within = Path::new(group).strip_prefix(root).ok()?;
        // A group above the namespace's root is not visible.
        let is_visible = !within.starts_with("..");
        is_visible.then(|| {
            Path::new(point)
                .components()
                .chain(within.components())
                .collect()
        })
    })
}

/// Returns whether systemd has marked a group as delegated.
#[cfg(target_os = "linux")]
fn is_marked(group: &Path) -> bool {
    // The second one is the mark of older versions, which only root can read.
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::getxattr(group, *name, &mut value).is_ok_and(|_| value == *b"1")
    })
}

#[cfg(not(target_os = "linux"))]
fn is_marked(_group: &Path) -> bool {
    false
}

fn limits_memory_within(group: &Path) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.subtree_control"));
    controllers.is_ok_and(|names| names.split_ascii_whitespace().any(|name| name == "memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_group_is_found_below_its_mount() {
        let mount = |root: &str, point: &str| {
            format!(
                "30 23 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
            )
        };
        let other = "25 23 0:5 / /dev rw shared:2 - devtmpfs udev rw\n";
        for (group, mounts, expected) in [
            (
                "a/b.service",
                mount("/", "/sys/fs/cgroup"),
                Some("/sys/fs/cgroup/a/b.service"),
            ),
            ("", mount("/", "/sys/fs/cgroup"), Some("/sys/fs/cgroup")),
            ("", other.to_owned() + &mount("/", "/c"), Some("/c")),
            ("a/b", mount("/a", "/c"), Some("/c/b")),
            ("a/b", mount("/x", "/c"), None),
            ("../x", mount("/", "/c"), None),
            ("a", other.to_owned(), None),
        ] {
            let found = find_directory(group, &mounts);
            assert_eq!(
                found.as_deref(),
                expected.map(Path::new),
                "{group} {mounts}"
            );
        }
    }
}
