//! The process that the gateway started for a connection, with its descendants.
//!
//! Descendants are found through their parents. With a supervisor, one whose parent exits stays a descendant.
//! Without, it is adopted by a process above the gateway; among the children of those, it is recognized by
//! its process group. So few processes of others are read, however many the machine has. A process that
//! leaves both behind within moments is not found.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::procfs::{self, ProcessId, ProcessStat};

/// Maximum age of the list in which orphans are searched.
const MAX_ORPHANS_AGE: Duration = Duration::from_millis(200);
/// Maximum number of searches for processes that were started while others were killed.
const MAX_KILL_ROUNDS: usize = 10;

/// Which processes of a tree are not the server's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Supervisors {
    #[default]
    None,
    Root,
    /// The root, and its first child, which holds the PID namespace.
    RootAndFirstChild,
}

/// The processes of one connection.
#[derive(Debug)]
pub(crate) struct ProcessTree(Mutex<TreeState>);

#[derive(Debug)]
struct TreeState {
    root: u32,
    supervisors: Supervisors,
    /// The process that holds the PID namespace, once it was found.
    holder: Option<u32>,
    /// The processes found last.
    members: Vec<ProcessId>,
    /// Processes with an adopter as parent that do not belong to the tree.
    others: HashSet<u32>,
    /// Sum of the CPU times of the processes found last.
    current_cpu_time: Duration,
    /// CPU time since the start, including that of processes which are gone.
    total_cpu_time: Duration,
}

/// What the processes of a tree use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeSample {
    pub(super) resident_bytes: u64,
    pub(super) processes: u64,
    /// `None` if the gateway may not see the files of one of the processes.
    pub(super) open_files: Option<u64>,
}

impl ProcessTree {
    /// Starts with a process that leads a process group and has not been waited for.
    pub(super) fn new(root: u32, supervisors: Supervisors) -> Self {
        let id = procfs::read_stat(root).map(|stat| stat.id);
        Self(Mutex::new(TreeState {
            root,
            supervisors,
            holder: None,
            members: id.into_iter().collect(),
            others: HashSet::new(),
            current_cpu_time: Duration::ZERO,
            total_cpu_time: Duration::ZERO,
        }))
    }

    /// Measures what the processes use now.
    pub(super) fn sample(&self) -> TreeSample {
        let mut state = self.0.lock();
        let found = state.find_members(MAX_ORPHANS_AGE);
        let cpu_time: Duration = found.iter().map(|process| process.cpu_time).sum();
        // The sum stays the same when a process exits that its parent waits for. It decreases if nobody
        // or another process does.
        let used = cpu_time.saturating_sub(state.current_cpu_time);
        state.total_cpu_time += used;
        state.current_cpu_time = cpu_time;
        let mut running = state.without_supervisors(found);
        drop(state);
        running.retain(|process| !process.is_zombie);
        let mut sample = TreeSample {
            open_files: Some(0),
            ..TreeSample::default()
        };
        for process in running {
            sample.resident_bytes += process.resident_bytes;
            sample.processes += 1;
            sample.open_files = match procfs::count_open_files(process.id.pid) {
                Ok(files) => sample.open_files.map(|sum| sum + files),
                // It exited in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => sample.open_files,
                Err(_) => None,
            };
        }
        sample
    }

    /// Returns the CPU time since the start of the tree, up to the last sample.
    pub(super) fn cpu_time(&self) -> Duration {
        self.0.lock().total_cpu_time
    }

    /// Returns the resident memory if it exceeds a limit. What processes share is counted once.
    pub(crate) fn memory_above(&self, limit: u64) -> Option<u64> {
        let mut state = self.0.lock();
        let found = state.find_members(MAX_ORPHANS_AGE);
        let found = state.without_supervisors(found);
        drop(state);
        let resident: u64 = found.iter().map(|process| process.resident_bytes).sum();
        if resident <= limit {
            return None;
        }
        let exact = found.iter().map(|process| {
            let proportional = procfs::read_proportional_bytes(process.id.pid);
            proportional.unwrap_or(process.resident_bytes)
        });
        Some(exact.sum()).filter(|bytes| *bytes > limit)
    }

    /// Kills all processes, including those that have left the process group. The root is killed last, because
    /// a supervisor keeps orphans in the tree.
    pub(crate) fn kill(&self) {
        let mut state = self.0.lock();
        let mut killed = HashSet::new();
        for _ in 0..MAX_KILL_ROUNDS {
            let mut found = state.find_members(Duration::ZERO);
            found.retain(|process| !process.is_zombie && !killed.contains(&process.id));
            if found.is_empty() {
                return;
            }
            if found.iter().any(|process| process.id.pid != state.root) {
                found.retain(|process| process.id.pid != state.root);
            }
            for ProcessStat { id, .. } in found {
                if let Some(pid) = Pid::from_raw(id.pid.cast_signed()) {
                    // An error means that it has exited.
                    let _ = kill_process(pid, Signal::KILL);
                }
                killed.insert(id);
            }
        }
    }
}

impl TreeState {
    /// Finds the members that still exist, orphans, and the descendants of all of them.
    fn find_members(&mut self, max_orphans_age: Duration) -> Vec<ProcessStat> {
        let known = self.members.iter();
        let mut found: Vec<ProcessStat> = known
            .filter_map(|id| procfs::read_stat(id.pid).filter(|now| now.id == *id))
            .collect();
        let mut seen: HashSet<u32> = found.iter().map(|process| process.id.pid).collect();
        let adopted = procfs::read_adopted(max_orphans_age);
        for orphan in self.find_orphans(&adopted, &seen) {
            seen.insert(orphan.id.pid);
            found.push(orphan);
        }
        let mut index = 0;
        while let Some(parent) = found.get(index) {
            let children = read_children(parent);
            if parent.id.pid == self.root && self.supervisors == Supervisors::RootAndFirstChild {
                // The kernel lists the oldest child first.
                let first = children.first().map(|child| child.id.pid);
                self.holder = self.holder.or(first);
            }
            for child in children {
                if seen.insert(child.id.pid) {
                    found.push(child);
                }
            }
            index += 1;
        }
        self.members = found.iter().map(|process| process.id).collect();
        found
    }

    /// Returns the processes of the server itself.
    fn without_supervisors(&self, mut found: Vec<ProcessStat>) -> Vec<ProcessStat> {
        if self.supervisors != Supervisors::None {
            found.retain(|process| {
                process.id.pid != self.root && Some(process.id.pid) != self.holder
            });
        }
        found
    }

    /// Finds processes of the tree that were adopted by a process above it.
    fn find_orphans(&mut self, adopted: &HashSet<u32>, seen: &HashSet<u32>) -> Vec<ProcessStat> {
        let mut others = HashSet::new();
        let mut orphans = Vec::new();
        for &pid in adopted.difference(seen) {
            // What once was a process of somebody else is not looked at again.
            let stat = if self.others.contains(&pid) {
                None
            } else {
                let relations = procfs::read_relations(pid);
                let orphan = relations.filter(|relations| relations.group == self.root);
                orphan.and_then(|_| procfs::read_stat(pid))
            };
            match stat {
                Some(orphan) => orphans.push(orphan),
                None => {
                    others.insert(pid);
                }
            }
        }
        self.others = others;
        orphans
    }
}

/// Reads the children of a process.
fn read_children(parent: &ProcessStat) -> Vec<ProcessStat> {
    let children = procfs::read_children(parent).into_iter();
    let children = children.filter_map(procfs::read_stat);
    // The number of a child that exited may already belong to a process of somebody else.
    children
        .filter(|child| child.parent == parent.id.pid)
        .collect()
}
