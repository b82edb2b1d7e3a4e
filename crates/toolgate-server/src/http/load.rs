//! Measures the load of the gateway: the memory of the process, and how many connections are busy.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolgate::metrics::{Bound, resident_memory};
use toolgate::{Gateway, Load, LoadLevel};

use super::connections::Connections;

/// Interval between two measurements.
const INTERVAL: Duration = Duration::from_millis(500);
/// Part of the memory of the container or machine from which the load is high, in percent.
const DEFAULT_MEMORY_PERCENT: u64 = 85;
/// Part of the maximum from which the load is critical, in percent.
const CRITICAL_PERCENT: u64 = 110;
/// Part of the maximum below which the load is normal again, in percent.
const NORMAL_PERCENT: u64 = 95;
/// Part of the connections that must be busy for the load to be high, in percent.
const BUSY_PERCENT: usize = 90;

/// One measurement, and the maximum of each value.
#[derive(Clone, Copy, Debug, Default)]
struct Measurement {
    memory: u64,
    max_memory: u64,
    busy: usize,
    max_busy: usize,
}

/// Measures the load until stopped.
pub(super) async fn run_monitor(
    gateway: &Gateway,
    connections: &Connections,
    stop: CancellationToken,
) {
    let available = available_memory(Path::new("/"));
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        let configured = gateway.capacity().max_memory_bytes;
        let default = available.map(|bytes| bytes / 100 * DEFAULT_MEMORY_PERCENT);
        let (busy, max_busy) = connections.busy();
        let measurement = Measurement {
            memory: resident_memory().unwrap_or(0),
            max_memory: configured.or(default).unwrap_or(u64::MAX),
            busy,
            max_busy,
        };
        gateway.set_load(measurement.load(gateway.load_level()));
    }
}

impl Measurement {
    /// Returns the load; `before` is the level of the previous one.
    fn load(&self, before: LoadLevel) -> Load {
        let Self {
            memory,
            max_memory,
            busy,
            max_busy,
        } = *self;
        let percent = u128::from(memory) * 100 / u128::from(max_memory.max(1));
        let level = match percent {
            _ if percent >= u128::from(CRITICAL_PERCENT) => LoadLevel::Critical,
            _ if percent >= 100 => LoadLevel::High,
            // Does not change back and forth.
            _ if percent >= u128::from(NORMAL_PERCENT) && before > LoadLevel::Normal => {
                LoadLevel::High
            }
            _ => LoadLevel::Normal,
        };
        if level > LoadLevel::Normal {
            let megabytes = |bytes: u64| bytes / (1024 * 1024);
            let reason = format!(
                "the gateway uses {} MiB of memory; the maximum is {} MiB (`capacity.max_memory_mb`)",
                megabytes(memory),
                megabytes(max_memory),
            );
            return Load {
                level,
                reason,
                bound: Bound::Memory,
            };
        }
        if busy * 100 >= max_busy.max(1) * BUSY_PERCENT {
            let reason =
                format!("{busy} of {max_busy} connections are busy (`http.max_connections`)");
            return Load {
                level: LoadLevel::High,
                reason,
                bound: Bound::Load,
            };
        }
        Load::default()
    }
}

/// Returns the memory that the process may use: that of its container, or of the machine.
fn available_memory(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| kilobytes(&text, "MemTotal:"));
    let number = |path: &str| read(path).and_then(|text| text.trim().parse::<u64>().ok());
    let cgroups = read("proc/self/cgroup").unwrap_or_default();
    let group = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    // The limits of all enclosing groups apply.
    let groups = Path::new(group.unwrap_or("")).ancestors();
    let unified = groups.filter_map(|group| {
        let path = Path::new("sys/fs/cgroup").join(group).join("memory.max");
        number(path.to_str()?)
    });
    let legacy = number("sys/fs/cgroup/memory/memory.limit_in_bytes");
    unified.chain(legacy).chain(machine).min()
}

/// Returns the value of a line such as `MemTotal:   1234 kB` in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_follows_memory_and_connections() {
        let level = |memory, busy, before| {
            let measurement = Measurement {
                memory,
                max_memory: 1000,
                busy,
                max_busy: 100,
            };
            measurement.load(before).level
        };
        assert_eq!(level(999, 89, LoadLevel::Normal), LoadLevel::Normal);
        assert_eq!(level(1000, 0, LoadLevel::Normal), LoadLevel::High);
        assert_eq!(level(1100, 0, LoadLevel::Normal), LoadLevel::Critical);
        assert_eq!(level(960, 0, LoadLevel::High), LoadLevel::High);
        assert_eq!(level(949, 0, LoadLevel::High), LoadLevel::Normal);
        assert_eq!(level(0, 90, LoadLevel::Normal), LoadLevel::High);
    }

    #[test]
    fn memory_of_the_smallest_enclosing_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(available_memory(root.path()), None);
        write("proc/meminfo", "MemFree: 1 kB\nMemTotal:     8 kB\n");
        assert_eq!(available_memory(root.path()), Some(8192));
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/memory.max", "4096\n");
        assert_eq!(available_memory(root.path()), Some(4096));
        assert!(resident_memory().unwrap() > 0);
    }
}
