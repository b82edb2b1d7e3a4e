//! When requests are to start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc};

/// Gives out starts; clones share them.
#[derive(Clone, Debug)]
pub(super) enum Starts {
    AtOnce {
        next: Arc<AtomicU64>,
        most: u64,
        until: Instant,
    },
    AtRate(Arc<Mutex<mpsc::UnboundedReceiver<(u64, Instant)>>>),
}

impl Starts {
    pub(super) fn at_once(most: u64, until: Instant) -> Self {
        Self::AtOnce {
            next: Arc::default(),
            most,
            until,
        }
    }

    /// A thread keeps the pace, since the runtime's timers are no finer than a millisecond.
    pub(super) fn at_rate(rate: u32, most: u64, until: Instant) -> Self {
        let (sender, starts) = mpsc::unbounded_channel();
        let began = Instant::now() + Duration::from_millis(5);
        thread::spawn(move || {
            for number in 0..most {
                let meant =
                    began + Duration::from_secs(1) * u32::try_from(number).unwrap_or(0) / rate;
                if meant > until {
                    return;
                }
                thread::sleep(meant.saturating_duration_since(Instant::now()));
                if sender.send((number, meant)).is_err() {
                    return;
                }
            }
        });
        Self::AtRate(Arc::new(Mutex::new(starts)))
    }

    /// The number of the next request and when it is meant to start; none at the end.
    pub(super) async fn next(&self) -> Option<(u64, Instant)> {
        match self {
            Self::AtOnce { next, most, until } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let now = Instant::now();
                (number < *most && now < *until).then_some((number, now))
            }
            Self::AtRate(starts) => starts.lock().await.recv().await,
        }
    }
}
