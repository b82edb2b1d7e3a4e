//! The audit trail: every attempt to call a tool leaves exactly one record.
//!
//! An `Attempt` starts before anything is decided and is closed with the outcome; dropping it
//! unclosed records it as cancelled. A dispatched call is recorded as open before it is sent. A
//! single task writes records in batches, so that no call waits for the disk.

mod attempt;
mod record;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::AuditSettings as Settings;
use toolgate_core::secret::Masker;
use tracing::Span;

pub(crate) use attempt::Attempt;
pub use record::{AuditPage, AuditQuery, AuditRecord};

use crate::call::CallError;
use crate::event::EventBus;
use crate::store::Store;

/// Attempts that may be in flight or waiting to be written at once.
const MAX_UNWRITTEN_ATTEMPTS: usize = 10_000;
/// Maximum time a call waits for a slot among them.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts records and passes them to the writer task. Clones share state.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    queue: mpsc::UnboundedSender<writer::RecordUpdate>,
    slots: Arc<Semaphore>,
    settings: Arc<ArcSwap<Settings>>,
    events: EventBus,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl AuditLog {
    pub(crate) fn start(store: Store, settings: Settings, events: EventBus) -> Self {
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
            slots: Arc::new(Semaphore::new(MAX_UNWRITTEN_ATTEMPTS)),
            settings,
            events,
            tasks,
            stop,
        }
    }

    pub(crate) fn apply(&self, settings: Settings) {
        self.settings.store(Arc::new(settings));
    }

    /// Starts an attempt once a slot for its record is available.
    pub(crate) async fn begin(
        &self,
        record: Box<AuditRecord>,
        span: Span,
    ) -> Result<Attempt, CallError> {
        let slots = Arc::clone(&self.slots);
        let slot = match slots.try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                let slot = Arc::clone(&self.slots).acquire_owned();
                match tokio::time::timeout(SLOT_TIMEOUT, slot).await {
                    Ok(Ok(slot)) => slot,
                    _ => return Err(CallError::Unrecorded),
                }
            }
        };
        Ok(Attempt::new(record, span, self.clone(), slot))
    }

    /// Returns the redacted copy of a record for event subscribers.
    fn to_event_record(&self, record: &AuditRecord, masker: Option<&Masker>) -> Arc<AuditRecord> {
        let content = self.settings.load().content;
        let mut record = record.clone();
        writer::prepare_record(&mut record, masker, content);
        Arc::new(record)
    }

    /// Writes all remaining records and stops the writer.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}
