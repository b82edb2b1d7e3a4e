//! The audit trail: every attempt to call a tool leaves exactly one record.
//!
//! An `Attempt` starts before anything is decided and is closed with the outcome; dropping it
//! unclosed records it as cancelled. A dispatched call is recorded as open before it is sent. A
//! single task writes records in batches, so that no call waits for the disk.

mod attempt;
mod record;
mod span;
mod store;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, broadcast};
use toolgate_core::config::AuditSettings as Settings;
use toolgate_core::secret::Masker;
use tracing::Span;

pub(crate) use attempt::Attempt;
pub use record::{AuditPage, AuditQuery, AuditRecord};
pub(crate) use span::start_call_span;
pub(crate) use store::AuditStore;

use crate::call::CallError;
use crate::event_channel::EventChannel;
use crate::store::{BatchWriter, StoreError};

/// Attempts that may be in flight or waiting to be written at once.
const MAX_UNWRITTEN_ATTEMPTS: usize = 10_000;
/// Maximum time a call waits for a slot among them.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// The audit trail. Accepts records, passes them to the writer task and queries those written. Clones
/// share state.
#[derive(Clone, Debug)]
pub struct AuditLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: AuditStore,
    writer: BatchWriter<writer::RecordUpdate>,
    slots: Arc<Semaphore>,
    settings: Arc<ArcSwap<Settings>>,
    events: EventChannel<Arc<AuditRecord>>,
}

impl AuditLog {
    pub(crate) fn start(store: AuditStore, settings: Settings) -> Self {
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let sink = writer::AuditSink {
            store: store.clone(),
            settings: Arc::clone(&settings),
        };
        Self(Arc::new(Inner {
            store,
            writer: sink.start(),
            slots: Arc::new(Semaphore::new(MAX_UNWRITTEN_ATTEMPTS)),
            settings,
            events: EventChannel::new(),
        }))
    }

    /// Returns matching records, newest first.
    pub async fn query(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.0.store.query(query).await
    }

    /// Subscribes to redacted copies of records, published when a call is opened or closed.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<AuditRecord>> {
        self.0.events.subscribe()
    }

    pub(crate) fn apply(&self, settings: Settings) {
        self.0.settings.store(Arc::new(settings));
    }

    /// Returns the age at which records expire; `None` if they are kept forever.
    pub(crate) fn retention(&self) -> Option<Duration> {
        self.0.settings.load().retention
    }

    /// Deletes records of calls that started before a time and returns their number.
    pub(crate) async fn delete(&self, before: i64) -> Result<u64, StoreError> {
        self.0.store.delete(before).await
    }

    /// Starts an attempt once a slot for its record is available.
    pub(crate) async fn begin(
        &self,
        record: Box<AuditRecord>,
        span: Span,
    ) -> Result<Attempt, CallError> {
        let slots = &self.0.slots;
        let slot = match Arc::clone(slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                let slot = Arc::clone(slots).acquire_owned();
                match tokio::time::timeout(SLOT_TIMEOUT, slot).await {
                    Ok(Ok(slot)) => slot,
                    _ => return Err(CallError::Unrecorded),
                }
            }
        };
        Ok(Attempt::new(record, span, self.clone(), slot))
    }

    /// Publishes the redacted copy of a record to event subscribers.
    fn publish(&self, record: &AuditRecord, masker: Option<&Masker>) {
        self.0.events.publish(|| {
            let content = self.0.settings.load().content;
            let mut record = record.clone();
            writer::prepare_record(&mut record, masker, content);
            Arc::new(record)
        });
    }

    /// Queues an update of a record for the writer.
    fn enqueue(&self, update: writer::RecordUpdate) {
        if let Err(lost) = self.0.writer.enqueue(update) {
            tracing::error!(
                request = lost.item.record.request_id,
                reason = %lost.reason,
                dropped = lost.dropped,
                "dropping audit record"
            );
        }
    }

    /// Writes all remaining records and stops the writer.
    pub(crate) async fn stop(&self) {
        self.0.writer.stop().await;
    }
}
