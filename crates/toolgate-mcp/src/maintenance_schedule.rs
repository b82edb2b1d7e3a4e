//! Decides when a connected server needs maintenance: refreshing its lists, checking its health,
//! stopping it when idle. The supervisor performs the tasks.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};
use toolgate_core::catalog::ServerListing;

use crate::supervisor::Intervals;

/// Stand-in for a disabled interval.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Changes announced within this time are fetched together.
const MIN_DEBOUNCE: Duration = Duration::from_millis(50);
/// Upper bound for servers that announce changes continuously.
const MAX_DEBOUNCE: Duration = Duration::from_secs(10);
/// Time without announcements after which the debounce returns to its minimum.
const DEBOUNCE_RESET_AFTER: Duration = Duration::from_secs(30);
/// Delay before a failed list is fetched again.
const FAILED_LIST_RETRY_DELAY: Duration = Duration::from_secs(10);

/// A maintenance task that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaintenanceTask {
    RefreshLists,
    CheckHealth,
    CheckIdle,
}

/// Timers of one connected server.
#[derive(Debug)]
pub(crate) struct MaintenanceSchedule {
    sync: Interval,
    health: Interval,
    idle: Interval,
    /// Time at which to fetch announced changes.
    refresh_at: Option<Instant>,
    debounce: Duration,
    last_change: Option<Instant>,
}

impl MaintenanceSchedule {
    pub(crate) fn new(intervals: &Intervals, idle_stop: Option<Duration>) -> Self {
        let idle = idle_stop.map_or(NEVER, |after| (after / 4).max(Duration::from_millis(20)));
        Self {
            sync: interval_from_now(intervals.sync.unwrap_or(NEVER)),
            health: interval_from_now(intervals.health),
            idle: interval_from_now(idle),
            refresh_at: None,
            debounce: MIN_DEBOUNCE,
            last_change: None,
        }
    }

    /// Records that a list may have changed.
    pub(crate) fn note_change(&mut self) {
        if self.refresh_at.is_some() {
            return;
        }
        let now = Instant::now();
        self.debounce = match self.last_change {
            Some(last) if now.duration_since(last) < DEBOUNCE_RESET_AFTER => {
                (self.debounce * 2).min(MAX_DEBOUNCE)
            }
            _ => MIN_DEBOUNCE,
        };
        self.last_change = Some(now);
        self.refresh_at = Some(now + self.debounce);
    }

    /// Records that the embedding program has changed its tools. It announces only real changes, so
    /// they are not held back.
    pub(crate) fn note_local_change(&mut self) {
        let now = Instant::now();
        self.refresh_at.get_or_insert(now);
    }

    /// Records that the lists were fetched; schedules an early retry if one failed.
    pub(crate) fn note_listing(&mut self, listing: &ServerListing) {
        if !listing.failures.is_empty() {
            self.sync.reset_after(FAILED_LIST_RETRY_DELAY);
        }
    }

    /// Waits for the next task that is due.
    pub(crate) async fn next(&mut self) -> MaintenanceTask {
        let refresh = self.refresh_at;
        let refresh = async {
            match refresh {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = refresh => {
                self.refresh_at = None;
                MaintenanceTask::RefreshLists
            }
            _ = self.sync.tick() => MaintenanceTask::RefreshLists,
            _ = self.health.tick() => MaintenanceTask::CheckHealth,
            _ = self.idle.tick() => MaintenanceTask::CheckIdle,
        }
    }
}

/// Creates an interval whose first tick is one period away.
fn interval_from_now(period: Duration) -> Interval {
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn continuous_change_announcements_are_debounced_increasingly() {
        let intervals = Intervals {
            sync: None,
            health: NEVER,
            drain: NEVER,
        };
        let mut schedule = MaintenanceSchedule::new(&intervals, None);
        let mut delays = Vec::new();
        for _ in 0..10 {
            schedule.note_change();
            schedule.note_change();
            let started = Instant::now();
            assert_eq!(schedule.next().await, MaintenanceTask::RefreshLists);
            delays.push(started.elapsed());
        }
        assert!(
            delays[0] < Duration::from_millis(100) && delays[9] >= Duration::from_secs(9),
            "{delays:?}"
        );
        tokio::time::advance(DEBOUNCE_RESET_AFTER).await;
        schedule.note_change();
        let started = Instant::now();
        schedule.next().await;
        assert!(started.elapsed() < Duration::from_millis(100));
    }
}
