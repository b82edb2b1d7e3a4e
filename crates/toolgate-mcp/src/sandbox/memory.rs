//! Limit on the memory of all processes of a server together.
//!
//! A control group enforces it where the gateway may create one. Otherwise the gateway itself looks at
//! the processes at a short interval, so that a server can exceed it for a moment.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::cgroup::{ControlGroup, DelegatedGroup};
use super::{Mechanism, NotEnforceable};
use crate::processes::{self, ProcessTree};

const MEBIBYTE: u64 = 1024 * 1024;
/// Interval at which the gateway looks at the memory of a server.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Finds out once how memory can be limited.
#[derive(Debug, Default)]
pub(super) struct MemoryLimiter(OnceLock<Result<Option<DelegatedGroup>, String>>);

/// Limit on the memory of the processes of one connection.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLimit {
    pub(crate) mebibytes: u64,
    /// The group that enforces it; without one, the gateway does.
    group: Option<Arc<ControlGroup>>,
}

/// Error of a server that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "server process was stopped because it exceeded its memory limit of {mebibytes} MiB (`sandbox.memory_mb`)"
)]
pub(crate) struct MemoryExceeded {
    pub(crate) mebibytes: u64,
    /// Memory in use, if the gateway measured it.
    pub(crate) used_bytes: Option<u64>,
}

impl MemoryExceeded {
    /// Returns the memory in use, rounded up, so that it is never the limit itself.
    pub(crate) fn used_mebibytes(self) -> Option<u64> {
        self.used_bytes.map(|bytes| bytes.div_ceil(MEBIBYTE))
    }
}

impl MemoryLimiter {
    /// Returns what enforces limits, or why nothing does.
    pub(super) fn mechanism(&self) -> Result<Mechanism, String> {
        let group = self.group()?;
        Ok(if group.is_some() {
            Mechanism::Cgroup
        } else {
            Mechanism::Watchdog
        })
    }

    /// Prepares the limit of a connection that is about to be opened.
    pub(super) fn prepare(&self, mebibytes: u64) -> Result<MemoryLimit, NotEnforceable> {
        let group = self.group().map_err(NotEnforceable)?;
        let bytes = mebibytes.saturating_mul(MEBIBYTE);
        let group = group.map(|group| group.create(bytes)).transpose();
        let group = group.map_err(|error| {
            NotEnforceable(format!(
                "`memory`: no control group can be created: {error}"
            ))
        })?;
        Ok(MemoryLimit {
            mebibytes,
            group: group.map(Arc::new),
        })
    }

    fn group(&self) -> Result<Option<&DelegatedGroup>, String> {
        let found = self.0.get_or_init(|| match DelegatedGroup::find() {
            Ok(group) => Ok(Some(group)),
            Err(reason) if processes::is_supported() => {
                tracing::info!(reason, "the gateway itself watches the memory of servers");
                Ok(None)
            }
            Err(reason) => Err(format!(
                "{reason}, and there is no list of child processes in `/proc`"
            )),
        });
        found.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }
}

impl MemoryLimit {
    /// Returns the path of the control group, if there is one.
    pub(super) fn group_path(&self) -> Option<PathBuf> {
        let group = self.group.as_ref()?;
        Some(group.path().to_owned())
    }

    /// Waits until the processes exceed the limit. Never returns if a control group enforces it.
    pub(crate) async fn wait_exceeded(&self, tree: &Arc<ProcessTree>) -> MemoryExceeded {
        if self.group.is_some() {
            return std::future::pending().await;
        }
        let limit = self.mebibytes.saturating_mul(MEBIBYTE);
        // Not at once, when the process is still the launcher.
        let start = tokio::time::Instant::now() + WATCH_INTERVAL;
        let mut interval = tokio::time::interval_at(start, WATCH_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let tree = Arc::clone(tree);
            let measure = tokio::task::spawn_blocking(move || tree.memory_above(limit));
            // Fails only if it panics, or while the runtime stops.
            if let Ok(Some(used)) = measure.await {
                return MemoryExceeded {
                    mebibytes: self.mebibytes,
                    used_bytes: Some(used),
                };
            }
        }
    }

    /// Ends what is left of the processes. Returns whether the kernel has enforced the limit.
    pub(crate) async fn finish(&self, tree: &ProcessTree) -> Option<MemoryExceeded> {
        tree.kill();
        let group = self.group.as_ref()?;
        let has_exceeded = group.has_exceeded_limit();
        group.remove().await;
        has_exceeded.then_some(MemoryExceeded {
            mebibytes: self.mebibytes,
            used_bytes: None,
        })
    }
}
