//! When a connected server is to be looked after: its lists, its health, its idleness.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};
use toolgate_core::catalog::Offer;

use crate::supervisor::Rhythm;

const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Changes that are announced together are fetched together.
const SETTLE: Duration = Duration::from_millis(50);
/// A server that announces without end is listened to this seldom.
const SETTLE_LONGEST: Duration = Duration::from_secs(10);
/// After so long without news, the next ones are fetched quickly again.
const CALM: Duration = Duration::from_secs(30);
/// Before a list that failed is asked for again.
const RETRY: Duration = Duration::from_secs(10);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Lists,
    Health,
    Idle,
}

#[derive(Debug)]
pub(crate) struct Agenda {
    sync: Interval,
    health: Interval,
    idle: Interval,
    /// When to fetch what was announced.
    news_at: Option<Instant>,
    settle: Duration,
    last_news: Option<Instant>,
}

impl Agenda {
    pub(crate) fn new(rhythm: &Rhythm, idle_stop: Option<Duration>) -> Self {
        let idle = idle_stop.map_or(NEVER, |after| (after / 4).max(Duration::from_millis(20)));
        Self {
            sync: ticks(rhythm.sync.unwrap_or(NEVER)),
            health: ticks(rhythm.health),
            idle: ticks(idle),
            news_at: None,
            settle: SETTLE,
            last_news: None,
        }
    }

    /// Something may have changed.
    pub(crate) fn hear(&mut self) {
        if self.news_at.is_some() {
            return;
        }
        let now = Instant::now();
        self.settle = match self.last_news {
            Some(last) if now.duration_since(last) < CALM => (self.settle * 2).min(SETTLE_LONGEST),
            _ => SETTLE,
        };
        self.last_news = Some(now);
        self.news_at = Some(now + self.settle);
    }

    /// The lists were fetched.
    pub(crate) fn listed(&mut self, offer: &Offer) {
        if !offer.failed.is_empty() {
            self.sync.reset_after(RETRY);
        }
    }

    /// Waits for what is due next.
    pub(crate) async fn next(&mut self) -> Due {
        let news = self.news_at;
        let news = async {
            match news {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = news => {
                self.news_at = None;
                Due::Lists
            }
            _ = self.sync.tick() => Due::Lists,
            _ = self.health.tick() => Due::Health,
            _ = self.idle.tick() => Due::Idle,
        }
    }
}

/// Ticks of which the first is one period away.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn endless_news_is_fetched_ever_more_seldom() {
        let rhythm = Rhythm {
            sync: None,
            health: NEVER,
            drain: NEVER,
        };
        let mut agenda = Agenda::new(&rhythm, None);
        let mut waits = Vec::new();
        for _ in 0..10 {
            agenda.hear();
            agenda.hear();
            let began = Instant::now();
            assert_eq!(agenda.next().await, Due::Lists);
            waits.push(began.elapsed());
        }
        assert!(
            waits[0] < Duration::from_millis(100) && waits[9] >= Duration::from_secs(9),
            "{waits:?}"
        );
        tokio::time::advance(CALM).await;
        agenda.hear();
        let began = Instant::now();
        agenda.next().await;
        assert!(began.elapsed() < Duration::from_millis(100));
    }
}
