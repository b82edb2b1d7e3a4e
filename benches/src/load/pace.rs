//! Start times of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc};

/// Hands out start times; clones share them.
#[derive(Clone, Debug)]
pub(super) enum StartTimes {
    Immediate {
        next: Arc<AtomicU64>,
        max_requests: u64,
        until: Instant,
    },
    AtRate(Arc<Mutex<mpsc::UnboundedReceiver<(u64, Instant)>>>),
}

impl StartTimes {
    pub(super) fn immediate(max_requests: u64, until: Instant) -> Self {
        Self::Immediate {
            next: Arc::default(),
            max_requests,
            until,
        }
    }

    /// Starts requests at a fixed rate. A thread keeps the pace, since the runtime's timers have only
    /// millisecond resolution.
    pub(super) fn at_rate(rate: u32, max_requests: u64, until: Instant) -> Self {
        let (sender, starts) = mpsc::unbounded_channel();
        let started = Instant::now() + Duration::from_millis(5);
        thread::spawn(move || {
            for number in 0..max_requests {
                let intended =
                    started + Duration::from_secs(1) * u32::try_from(number).unwrap_or(0) / rate;
                if intended > until {
                    return;
                }
                thread::sleep(intended.saturating_duration_since(Instant::now()));
                if sender.send((number, intended)).is_err() {
                    return;
                }
            }
        });
        Self::AtRate(Arc::new(Mutex::new(starts)))
    }

    /// Returns the number and intended start of the next request; `None` at the end.
    pub(super) async fn next(&self) -> Option<(u64, Instant)> {
        match self {
            Self::Immediate {
                next,
                max_requests,
                until,
            } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let now = Instant::now();
                (number < *max_requests && now < *until).then_some((number, now))
            }
            Self::AtRate(starts) => starts.lock().await.recv().await,
        }
    }
}
