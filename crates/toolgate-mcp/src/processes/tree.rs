//! The process that the gateway started for a connection, with its descendants.
//!
//! Descendants are found through their parents. One whose parent exits is adopted by a process above the
//! gateway; among the children of those, it is recognized by its process group or by the mount namespace
//! of its sandbox. So few processes of others are read, however many the machine has. A process that
//! leaves all of these behind within moments is not found.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::procfs::{self, ProcessId, ProcessStat};

/// Maximum age of the list in which orphans are searched.
const MAX_ORPHANS_AGE: Duration = Duration::from_millis(200);
/// Maximum number of searches for processes that were started while others were killed.
const MAX_KILL_ROUNDS: usize = 10;

/// The processes of one connection.
#[derive(Debug)]
pub(crate) struct ProcessTree(Mutex<TreeState>);

#[derive(Debug)]
struct TreeState {
    root: u32,
    /// The processes found last.
    members: Vec<ProcessId>,
    /// Mount namespace of the root, if it is not that of the gateway.
    namespace: Option<PathBuf>,
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
    pub(super) fn new(root: u32) -> Self {
        let id = procfs::read_stat(root).map(|stat| stat.id);
        Self(Mutex::new(TreeState {
            root,
            members: id.into_iter().collect(),
            namespace: None,
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
        drop(state);
        let running = found.iter().filter(|process| !process.is_zombie);
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
        let found = self.0.lock().find_members(MAX_ORPHANS_AGE);
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

    /// Kills all processes, including those that have left the process group.
    pub(crate) fn kill(&self) {
        let mut state = self.0.lock();
        let mut killed = HashSet::new();
        for _ in 0..MAX_KILL_ROUNDS {
            let mut found = state.find_members(Duration::ZERO);
            found.retain(|process| !process.is_zombie && !killed.contains(&process.id));
            if found.is_empty() {
                return;
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
        self.update_namespace(&found);
        let mut seen: HashSet<u32> = found.iter().map(|process| process.id.pid).collect();
        let adopted = procfs::read_adopted(max_orphans_age);
        for orphan in self.find_orphans(&adopted, &seen) {
            seen.insert(orphan.id.pid);
            found.push(orphan);
        }
        let mut index = 0;
        while let Some(parent) = found.get(index) {
            for child in read_children(parent) {
                if seen.insert(child.id.pid) {
                    found.push(child);
                }
            }
            index += 1;
        }
        self.members = found.iter().map(|process| process.id).collect();
        found
    }

    /// Notes the namespace, which the root enters after its start.
    fn update_namespace(&mut self, found: &[ProcessStat]) {
        let root = found.iter().find(|process| process.id.pid == self.root);
        let namespace = root.and_then(|root| procfs::read_namespace(root.id.pid));
        if namespace.is_some() && namespace != procfs::read_namespace(std::process::id()) {
            self.namespace = namespace;
        }
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
                let orphan = relations.filter(|relations| self.is_orphan(relations));
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

    fn is_orphan(&self, process: &ProcessStat) -> bool {
        let namespace = self.namespace.as_ref();
        process.group == self.root
            || namespace
                .is_some_and(|own| procfs::read_namespace(process.id.pid).as_ref() == Some(own))
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
