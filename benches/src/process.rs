//! What the system says about processes: time used, memory held.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Ticks a second in `/proc`, the same on every Linux.
const TICK: Duration = Duration::from_millis(10);
const MIB: f64 = 1024.0;

/// A process and those that it started, but for the mock servers among them.
#[derive(Clone, Debug)]
pub(crate) struct Tree(Vec<u32>);

/// Time that all processors of the machine spent, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    busy: u64,
    all: u64,
}

impl Tree {
    pub(crate) fn of(root: u32) -> Self {
        let mock = std::env::current_exe().unwrap_or_default();
        let others: Vec<(u32, u32)> = processes()
            .filter_map(|id| Some((id, parent(id)?)))
            .collect();
        let mut tree = vec![root];
        let mut at = 0;
        while let Some(&of) = tree.get(at) {
            let children = others.iter().filter(|(_, parent)| *parent == of);
            tree.extend(children.map(|(id, _)| *id));
            at += 1;
        }
        tree.retain(|id| *id == root || program(*id) != mock);
        Self(tree)
    }

    /// One process alone.
    pub(crate) fn only(id: u32) -> Self {
        Self(vec![id])
    }

    /// Processor time, of the program and of the system on its behalf.
    pub(crate) fn cpu(&self) -> Duration {
        let ticks = |id: &u32| {
            let fields = stat(*id)?;
            let at = |index: usize| fields.get(index)?.parse::<u32>().ok();
            Some(at(11)? + at(12)?)
        };
        TICK * self.0.iter().filter_map(ticks).sum()
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> f64 {
        self.0.iter().filter_map(|id| resident(*id)).sum()
    }
}

impl Machine {
    pub(crate) fn now() -> Self {
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

    /// The share of the machine that others than these took since then.
    #[allow(clippy::cast_precision_loss, reason = "it is a share")]
    pub(crate) fn foreign(self, before: Self, own: Duration) -> f64 {
        let own = own.as_secs_f64() / TICK.as_secs_f64();
        let busy = (self.busy - before.busy) as f64 - own;
        (busy / ((self.all - before.all) as f64).max(1.0)).max(0.0)
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The fields of `/proc/ID/stat` from the third on.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn parent(id: u32) -> Option<u32> {
    stat(id)?.get(1)?.parse().ok()
}

fn program(id: u32) -> PathBuf {
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
    fn this_process_has_used_memory_and_is_one() {
        let tree = Tree::of(std::process::id());
        assert!(tree.memory() > 1.0);
        let before = Machine::now();
        assert!(Machine::now().foreign(before, Duration::ZERO) <= 1.0);
    }
}
