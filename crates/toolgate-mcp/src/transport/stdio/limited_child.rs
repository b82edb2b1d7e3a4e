//! A child process whose memory may be limited, and whose processes are accounted for.

use super::child::{ChildProcess, ShutdownCause};
use crate::processes::RunningProcesses;
use crate::sandbox::{MemoryExceeded, MemoryLimit};

#[derive(Debug)]
pub(super) struct LimitedChild {
    pub(super) child: ChildProcess,
    pub(super) memory: Option<MemoryLimit>,
    /// `None` only if the child exited before it could be looked at.
    pub(super) processes: Option<RunningProcesses>,
}

impl LimitedChild {
    /// Waits until the child has exited, or was killed because it exceeded its limit.
    pub(super) async fn wait_end(&mut self) -> Option<MemoryExceeded> {
        let Self {
            child,
            memory,
            processes,
        } = self;
        let exceeded = async {
            match (&*memory, &*processes) {
                (Some(memory), Some(processes)) => memory.wait_exceeded(&processes.tree).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = child.wait_exit() => None,
            exceeded = exceeded => {
                // Without asking it to exit first: it would go on allocating.
                if let Some(processes) = processes {
                    processes.tree.kill();
                }
                Some(exceeded)
            }
        }
    }

    /// Shuts the child down and describes its end to callers.
    pub(super) async fn shut_down(
        self,
        cause: ShutdownCause,
        exceeded: Option<MemoryExceeded>,
    ) -> String {
        let Self {
            child,
            memory,
            processes,
        } = self;
        if let Some(processes) = &processes {
            processes.sample_last();
        }
        let tree = processes.as_ref().map(|processes| &*processes.tree);
        let status = child.shut_down(cause, tree).await;
        let enforced = match (&memory, &processes) {
            (Some(memory), Some(processes)) => memory.finish(&processes.tree).await,
            _ => None,
        };
        let (Some(exceeded), Some(processes)) = (exceeded.or(enforced), &processes) else {
            return format!("server process exited ({status})");
        };
        let owner = processes.owner();
        owner.count_memory_limit_exceeded();
        tracing::warn!(
            server = %owner.server(),
            memory_mb = exceeded.mebibytes,
            used_mb = exceeded.used_mebibytes(),
            setting = "sandbox.memory_mb",
            "stopped a server that exceeded its memory limit"
        );
        exceeded.to_string()
    }
}
