//! The audit trail: every attempt to call a tool leaves exactly one record.
//!
//! An `Attempt` is begun before anything is decided and closed with what came of it; dropping it
//! unclosed closes it as cancelled. A call that is dispatched is recorded as open before it is
//! sent. Records are written by one task in batches, so that no call waits for the disk.

mod attempt;
mod record;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::Audit as Settings;
use toolgate_core::secret::Masker;
use tracing::Span;

pub(crate) use attempt::Attempt;
pub use record::{Page, Query, Record};

use crate::call::CallError;
use crate::event::Events;
use crate::store::Store;

/// Attempts whose records may be unwritten at once.
const OUTSTANDING: usize = 10_000;
/// How long a call waits for a place among them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes records and has them written; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    queue: mpsc::UnboundedSender<writer::Note>,
    places: Arc<Semaphore>,
    settings: Arc<ArcSwap<Settings>>,
    events: Events,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Audit {
    pub(crate) fn start(store: Store, settings: Settings, events: Events) -> Self {
        let (queue, inbox) = mpsc::unbounded_channel();
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let writer = writer::Writer {
            store,
            settings: Arc::clone(&settings),
        };
        tasks.spawn(writer.run(inbox, stop.clone()));
        tasks.close();
        Self {
            queue,
            places: Arc::new(Semaphore::new(OUTSTANDING)),
            settings,
            events,
            tasks,
            stop,
        }
    }

    pub(crate) fn apply(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }

    /// Begins an attempt, once its record is sure to find a place.
    pub(crate) async fn begin(
        &self,
        record: Box<Record>,
        span: Span,
    ) -> Result<Attempt, CallError> {
        let place = Arc::clone(&self.places);
        let place = match place.try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let place = Arc::clone(&self.places).acquire_owned();
                match tokio::time::timeout(PATIENCE, place).await {
                    Ok(Ok(place)) => place,
                    _ => return Err(CallError::Unrecorded),
                }
            }
        };
        Ok(Attempt::new(record, span, self.clone(), place))
    }

    /// A record as those see it who watch.
    fn shown(&self, record: &Record, masker: Option<&Masker>) -> Arc<Record> {
        let content = self.settings.load().content;
        let mut record = record.clone();
        writer::fit(&mut record, masker, content);
        Arc::new(record)
    }

    /// Writes what is outstanding.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}
