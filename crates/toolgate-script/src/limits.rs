//! What a script may use.

use std::time::Duration;

/// Bounds on one script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of its source.
    pub source: usize,
    /// Time of its own, not counting the time that tools take.
    pub own_time: Duration,
    /// Time of one tool call.
    pub call_time: Duration,
    /// Time in all.
    pub time: Duration,
    /// Bytes of memory beyond what an idle worker has.
    pub memory: u64,
    /// Tool calls.
    pub calls: u32,
    /// Tool calls at once.
    pub at_once: usize,
    /// Bytes of its result as JSON.
    pub result: usize,
    /// Bytes that it prints.
    pub printed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source: 64 * 1024,
            own_time: Duration::from_secs(5),
            call_time: Duration::from_secs(30),
            time: Duration::from_secs(120),
            memory: 128 * 1024 * 1024,
            calls: 100,
            at_once: 8,
            result: 1024 * 1024,
            printed: 256 * 1024,
        }
    }
}
