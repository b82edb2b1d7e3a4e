//! Reads what the kernel tells about processes in `/proc`. Other systems than Linux have none of it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Identifies a process even after its number was given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProcessId {
    pub(super) pid: u32,
    /// Start time in clock ticks since boot.
    started_at: u64,
}

/// One process at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) id: ProcessId,
    pub(super) parent: u32,
    /// Number of the process that leads the process group.
    pub(super) group: u32,
    /// Has exited, but its parent has not asked for its status yet.
    pub(super) is_zombie: bool,
    threads: u64,
    /// CPU time of the process, and of the descendants that exited and whose status was asked for.
    pub(super) cpu_time: Duration,
    pub(super) resident_bytes: u64,
}

/// Length of a clock tick in `/proc`, the same on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Returns whether this system tells which processes belong to a server.
pub(super) fn is_supported() -> bool {
    let own = std::process::id();
    // Some kernels are built without this file.
    fs::read(format!("/proc/{own}/task/{own}/children")).is_ok()
}

/// Reads a process without its memory; `None` if there is none with this number.
pub(super) fn read_relations(pid: u32) -> Option<ProcessStat> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &String::from_utf8_lossy(&bytes))
}

/// Reads a process; `None` if there is none with this number.
pub(super) fn read_stat(pid: u32) -> Option<ProcessStat> {
    let stat = read_relations(pid)?;
    Some(ProcessStat {
        resident_bytes: read_resident_bytes(pid).unwrap_or(0),
        ..stat
    })
}

/// Returns the resident memory of a process; `None` if it has exited.
fn read_resident_bytes(pid: u32) -> Option<u64> {
    // Unlike `stat`, this file does not depend on the size of a page.
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the process numbers of the children of a process.
pub(super) fn read_children(process: &ProcessStat) -> Vec<u32> {
    let pid = process.id.pid;
    let threads = if process.threads == 1 {
        vec![pid]
    } else {
        // Each thread lists only the children that it started.
        let entries = fs::read_dir(format!("/proc/{pid}/task"));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    };
    let lists = threads.into_iter().filter_map(|thread| {
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()
    });
    let parse = |list: String| {
        let numbers = list.split_ascii_whitespace();
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    lists.flat_map::<Vec<u32>, _>(parse).collect()
}

/// Returns the children of all processes that can become the parent of an orphan, which are this one and
/// those above it. Lists that are at most `max_age` old are shared, because every server needs the same.
pub(super) fn read_adopted(max_age: Duration) -> Arc<HashSet<u32>> {
    static LATEST: Mutex<Option<(Instant, Arc<HashSet<u32>>)>> = Mutex::new(None);
    let mut latest = LATEST.lock();
    if let Some((_, adopted)) = latest.as_ref().filter(|(at, _)| at.elapsed() < max_age) {
        return Arc::clone(adopted);
    }
    let own = read_relations(std::process::id());
    let above = |process: &ProcessStat| read_relations(process.parent);
    let adopters: Vec<ProcessStat> = std::iter::successors(own, above).collect();
    let adopted: HashSet<u32> = adopters.iter().flat_map(read_children).collect();
    let adopted = Arc::new(adopted);
    *latest = Some((Instant::now(), Arc::clone(&adopted)));
    adopted
}

/// Returns the resident memory of a process, of which pages that several processes share count in
/// proportion. The kernel has to visit every page, so this is much slower than [`read_stat`].
pub(super) fn read_proportional_bytes(pid: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Counts the files that a process has open.
pub(super) fn count_open_files(pid: u32) -> io::Result<u64> {
    let path = format!("/proc/{pid}/fd");
    // Since Linux 6.2, the size of the directory is the number of files.
    match fs::metadata(&path)?.len() {
        0 => Ok(fs::read_dir(&path)?.count() as u64),
        count => Ok(count),
    }
}

/// Parses what `stat` says, without the resident memory.
fn parse_stat(pid: u32, text: &str) -> Option<ProcessStat> {
    // The name of the program is in parentheses and may contain anything, also parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // The first of these fields is number 3 in the manual, proc_pid_stat(5).
    let number = |index: usize| fields.get(index - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)? + number(16)? + number(17)?;
    Some(ProcessStat {
        id: ProcessId {
            pid,
            started_at: number(22)?,
        },
        parent: number(4)?.try_into().ok()?,
        group: number(5)?.try_into().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
        threads: number(20)?,
        cpu_time: TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)),
        resident_bytes: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_program_with_an_unusual_name_is_parsed() {
        let text = "7 (a) R (b c) S 5 6 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 3 0 999 1000 25 18446744073709551615";
        let stat = parse_stat(7, text).unwrap();
        let expected = ProcessStat {
            id: ProcessId {
                pid: 7,
                started_at: 999,
            },
            parent: 5,
            group: 6,
            is_zombie: false,
            threads: 3,
            cpu_time: Duration::from_secs(1),
            resident_bytes: 0,
        };
        assert_eq!(stat, expected);
        assert_eq!(parse_stat(7, "7 (a) S 5"), None);
        assert!(read_stat(std::process::id()).unwrap().resident_bytes > 0);
    }
}
