//! CPU time and memory of processes, from `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Length of a clock tick in `/proc`, the same on every Linux.
const TICK: Duration = Duration::from_millis(10);
const MIB: f64 = 1024.0;

/// A process and its descendants, except mock servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessTree {
    root: u32,
    is_single: bool,
}

/// CPU time of the whole machine, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    busy: u64,
    all: u64,
}

impl ProcessTree {
    pub(crate) fn with_children(root: u32) -> Self {
        Self {
            root,
            is_single: false,
        }
    }

    /// Creates a tree of one process without its descendants.
    pub(crate) fn single(root: u32) -> Self {
        Self {
            root,
            is_single: true,
        }
    }

    /// Returns the user and system CPU time, including that of children that have exited.
    pub(crate) fn cpu(self) -> Duration {
        let ended = if self.is_single {
            0
        } else {
            ticks(self.root, 13)
        };
        let now: u32 = self.pids().map(|id| ticks(id, 11)).sum();
        TICK * (now + ended)
    }

    /// Returns the resident memory of the root process, in MiB.
    pub(crate) fn memory(self) -> f64 {
        resident(self.root).unwrap_or(0.0)
    }

    /// Returns the resident memory of the descendants, in MiB; memory shared with the root counts
    /// again.
    pub(crate) fn memory_of_children(self) -> f64 {
        let children = self.pids().filter(|id| *id != self.root);
        children.filter_map(resident).sum()
    }

    fn pids(self) -> impl Iterator<Item = u32> {
        let mut tree = vec![self.root];
        if !self.is_single {
            let mock = std::env::current_exe().unwrap_or_default();
            let others: Vec<(u32, u32)> = processes()
                .filter_map(|id| Some((id, parent(id)?)))
                .collect();
            let mut at = 0;
            while let Some(&of) = tree.get(at) {
                let children = others.iter().filter(|(_, parent)| *parent == of);
                tree.extend(children.map(|(id, _)| *id));
                at += 1;
            }
            tree.retain(|id| *id == self.root || executable(*id) != mock);
        }
        tree.into_iter()
    }
}

impl CpuTimes {
    pub(crate) fn now() -> Self {
        // Zeros if unreadable: the share of others is only a hint in the report.
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let times: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|time| time.parse().ok())
            .collect();
        let all: u64 = times.iter().sum();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        Self {
            busy: all - idle,
            all,
        }
    }

    /// Returns the share of CPU time since `before` that was used by other processes.
    #[allow(clippy::cast_precision_loss, reason = "only a ratio is needed")]
    pub(crate) fn share_of_others(self, before: Self, own: Duration) -> f64 {
        let own = own.as_secs_f64() / TICK.as_secs_f64();
        let busy = (self.busy - before.busy) as f64 - own;
        (busy / ((self.all - before.all) as f64).max(1.0)).max(0.0)
    }
}

/// Returns the processes that a process has started.
pub(crate) fn children(of: u32) -> impl Iterator<Item = u32> {
    processes().filter(move |id| parent(*id) == Some(of))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the fields of `/proc/ID/stat` from the third on.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

/// Returns the sum of two adjacent times in `/proc/ID/stat`, in ticks.
fn ticks(id: u32, at: usize) -> u32 {
    // A process that has exited uses no more time.
    let fields = stat(id).unwrap_or_default();
    let times = fields.iter().skip(at).take(2);
    times.filter_map(|time| time.parse::<u32>().ok()).sum()
}

fn parent(id: u32) -> Option<u32> {
    stat(id)?.get(1)?.parse().ok()
}

fn executable(id: u32) -> PathBuf {
    fs::read_link(format!("/proc/{id}/exe")).unwrap_or_default()
}

fn resident(id: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_memory_and_share_is_bounded() {
        let tree = ProcessTree::with_children(std::process::id());
        assert!(tree.memory() > 1.0);
        let before = CpuTimes::now();
        assert!(CpuTimes::now().share_of_others(before, Duration::ZERO) <= 1.0);
    }
}
