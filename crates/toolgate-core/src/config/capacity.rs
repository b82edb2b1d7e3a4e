//! Checked limits on what all callers together, and each of them, may use of the gateway.

use std::time::Duration;

use super::build::set_if_some;
use super::duration::ConfigDuration;
use super::file::CapacityTable;

/// Limits that keep one caller from starving others. Callers without a key count as one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityLimits {
    pub sessions: Share,
    /// Connections to servers that belong to one session each.
    pub session_connections: Share,
    /// Time without messages after which a session ends.
    pub session_idle_timeout: Duration,
    /// Time after which the connections of a session close if its client no longer listens.
    pub session_disconnect_timeout: Duration,
    /// Concurrent agent runs.
    pub runs: Share,
    /// Tasks of MCP clients.
    pub tasks: TaskLimits,
    /// Concurrent scripts of one caller; `None` stands for half of all workers.
    pub max_scripts_per_key: Option<usize>,
    /// Size of a model's response in a run.
    pub max_turn_bytes: usize,
    /// Size of the messages that wait for a stdio server to read them.
    pub max_queued_bytes: usize,
    /// Size of the request bodies that are held at a time, not counting small ones.
    pub bodies: Share,
    /// Memory of the gateway from which requests are refused; `None` stands for a part of the memory
    /// that the gateway may use.
    pub max_memory_bytes: Option<u64>,
}

/// Limits on tasks, which outlive the requests that start them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLimits {
    /// Tasks that run or whose results are kept.
    pub share: Share,
    /// Size of the result of one task.
    pub max_result_bytes: usize,
    /// Time from the start of a task until it and its result are deleted.
    pub max_ttl: Duration,
}

/// A limit for all callers together, and for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub max: usize,
    pub max_per_key: usize,
}

impl Default for CapacityLimits {
    fn default() -> Self {
        let share = |max, max_per_key| Share { max, max_per_key };
        Self {
            sessions: share(1000, 250),
            session_connections: share(256, 16),
            session_idle_timeout: Duration::from_secs(30 * 60),
            session_disconnect_timeout: Duration::from_secs(60),
            runs: share(2048, 1024),
            tasks: TaskLimits {
                share: share(4096, 256),
                max_result_bytes: 8 * MEBIBYTE,
                max_ttl: Duration::from_secs(24 * 3600),
            },
            max_scripts_per_key: None,
            max_turn_bytes: 64 * MEBIBYTE,
            max_queued_bytes: 64 * MEBIBYTE,
            bodies: share(512 * MEBIBYTE, 256 * MEBIBYTE),
            max_memory_bytes: None,
        }
    }
}

const MEBIBYTE: usize = 1024 * 1024;

impl CapacityLimits {
    /// Overrides these limits with those present in a file.
    pub(super) fn apply(&mut self, table: &CapacityTable) {
        let &CapacityTable {
            max_sessions,
            max_sessions_per_key,
            max_session_connections,
            max_session_connections_per_key,
            session_idle_timeout,
            session_disconnect_timeout,
            max_runs,
            max_runs_per_key,
            max_tasks,
            max_tasks_per_key,
            max_task_result_mb,
            max_task_ttl,
            max_scripts_per_key,
            max_turn_mb,
            max_queued_mb,
            max_bodies_mb,
            max_bodies_mb_per_key,
            max_memory_mb,
        } = table;
        let count = |number: Option<u32>| number.map(|number| number as usize);
        let bytes = |number: Option<u32>| number.map(|number| number as usize * MEBIBYTE);
        set_if_some(&mut self.sessions.max, count(max_sessions));
        set_if_some(&mut self.sessions.max_per_key, count(max_sessions_per_key));
        let connections = &mut self.session_connections;
        set_if_some(&mut connections.max, count(max_session_connections));
        set_if_some(
            &mut connections.max_per_key,
            count(max_session_connections_per_key),
        );
        // A session that ends at once is of no use, so 0 stands for the default, as in `[http]`.
        let time = |given: Option<ConfigDuration>| {
            let time = given.map(|time| time.0);
            time.filter(|time| !time.is_zero())
        };
        set_if_some(&mut self.session_idle_timeout, time(session_idle_timeout));
        set_if_some(
            &mut self.session_disconnect_timeout,
            time(session_disconnect_timeout),
        );
        set_if_some(&mut self.runs.max, count(max_runs));
        set_if_some(&mut self.runs.max_per_key, count(max_runs_per_key));
        let tasks = &mut self.tasks;
        set_if_some(&mut tasks.share.max, count(max_tasks));
        set_if_some(&mut tasks.share.max_per_key, count(max_tasks_per_key));
        set_if_some(&mut tasks.max_result_bytes, bytes(max_task_result_mb));
        set_if_some(&mut tasks.max_ttl, time(max_task_ttl));
        if max_scripts_per_key.is_some() {
            self.max_scripts_per_key = count(max_scripts_per_key);
        }
        set_if_some(&mut self.max_turn_bytes, bytes(max_turn_mb));
        set_if_some(&mut self.max_queued_bytes, bytes(max_queued_mb));
        set_if_some(&mut self.bodies.max, bytes(max_bodies_mb));
        set_if_some(&mut self.bodies.max_per_key, bytes(max_bodies_mb_per_key));
        if let Some(mb) = max_memory_mb {
            self.max_memory_bytes = Some(u64::from(mb) * MEBIBYTE as u64);
        }
    }
}
