//! What the system says about processes: time used, memory held.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Ticks a second in `/proc`, the same on every Linux.
const TICK: Duration = Duration::from_millis(10);
const MIB: f64 = 1024.0;

/// A process, and those that it started but for the mock servers among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    root: u32,
    is_alone: bool,
}

/// Time that all processors of the machine spent, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    busy: u64,
    all: u64,
}

impl Tree {
    pub(crate) fn of(root: u32) -> Self {
        Self {
            root,
            is_alone: false,
        }
    }

    /// One process without those that it started.
    pub(crate) fn only(root: u32) -> Self {
        Self {
            root,
            is_alone: true,
        }
    }

    /// Processor time, of the programs and of the system on their behalf; that of children which
    /// have ended counts too.
    pub(crate) fn cpu(self) -> Duration {
        let ended = match self.is_alone {
            true => 0,
            false => ticks(self.root, 13),
        };
        let now: u32 = self.all().map(|id| ticks(id, 11)).sum();
        TICK * (now + ended)
    }

    /// Resident memory of the process itself, in MiB.
    pub(crate) fn memory(self) -> f64 {
        resident(self.root).unwrap_or_default()
    }

    /// Resident memory of those that it started, in MiB. What they share with it counts again.
    pub(crate) fn memory_of_children(self) -> f64 {
        let children = self.all().filter(|id| *id != self.root);
        children.filter_map(resident).sum()
    }

    fn all(self) -> impl Iterator<Item = u32> {
        let mut tree = vec![self.root];
        if !self.is_alone {
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
            tree.retain(|id| *id == self.root || program(*id) != mock);
        }
        tree.into_iter()
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

/// Two times that stand side by side in `/proc/ID/stat`, in ticks.
fn ticks(id: u32, at: usize) -> u32 {
    let fields = stat(id).unwrap_or_default();
    let times = fields.iter().skip(at).take(2);
    times.filter_map(|time| time.parse::<u32>().ok()).sum()
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
