//! The audit trail: every attempt to call a tool leaves exactly one record, and so do resource reads,
//! prompts, decisions on approvals, failed authentication and administrative changes.
//!
//! An `Attempt` starts before anything is decided about a call and is closed with the outcome; dropping
//! it unclosed records it as cancelled. Before a call is sent, its record is opened in the intent log,
//! which survives a crash. A single task writes complete records in batches and extends the hash chain.
//! Refusals that come fast are counted instead of recorded one by one.

mod admin_action;
mod attempt;
mod chain;
mod columns;
mod events;
mod intent_log;
mod record;
mod recovery;
mod refusals;
mod sink;
mod span;
mod store;
mod trail;
mod verify;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{AuditDurability, AuditSettings as Settings, OnAuditFailure};
use toolgate_core::secret::Masker;
use toolgate_mcp::Environment;
use tracing::Span;

pub use admin_action::AdminAction;
pub(crate) use attempt::Attempt;
pub(crate) use chain::{EntryDraft, EntryKind, SealKey};
pub(crate) use columns::{Column, ColumnValue, ReferencedTable, bind_values, digest_values};
use intent_log::{AppendedLine, IntentLog};
use parking_lot::Mutex;
pub use record::{AuditKind, AuditPage, AuditQuery, AuditRecord};
pub use recovery::AuditStartError;
use refusals::RefusalCounter;
use sink::SecondSink;
pub(crate) use span::start_call_span;
pub(crate) use store::{AuditEntry, AuditStore};
pub use trail::TrailReader;
pub use verify::{AuditVerifier, ChainProblem, VerifiedTrail};
use writer::RecordUpdate;

use crate::call::CallError;
use crate::event_channel::EventChannel;
use crate::store::{BatchWriter, Store, StoreError};

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
    /// Other tables whose rows have entries in the chain.
    tables: Vec<ReferencedTable>,
    writer: BatchWriter<RecordUpdate>,
    /// `None` for a store in memory.
    intents: Option<IntentLog>,
    sink: Option<SecondSink>,
    slots: Arc<Semaphore>,
    settings: Arc<ArcSwap<Settings>>,
    refusals: RefusalCounter,
    /// Calls that went on without a record since the last log line about them.
    unrecorded: AtomicU64,
    events: EventChannel<Arc<AuditRecord>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// How much of the trail is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditUsage {
    /// Approximate size of all records.
    pub bytes: u64,
    /// Number of the seal from which the chain starts.
    pub first_entry: Option<i64>,
    /// Number of the last entry.
    pub last_entry: Option<i64>,
    /// Time of the oldest seal, in milliseconds since the Unix epoch.
    pub oldest_at: Option<i64>,
    /// Time of the last seal.
    pub sealed_at: Option<i64>,
}

impl AuditLog {
    /// Completes the trail of an earlier process, then starts the writer.
    pub(crate) async fn start(
        store: Store,
        settings: Settings,
        environment: &Environment,
        tables: Vec<ReferencedTable>,
    ) -> Result<Self, AuditStartError> {
        let resolve = |name: &str| environment.get(name);
        let key = match &settings.seal_key {
            Some(secret) => SealKey::new(secret.resolve(&resolve)?.as_bytes()),
            None => SealKey::of_store(&store),
        };
        let store = AuditStore::new(store, key);
        let intents = recovery::recover(&store).await?;
        let sink = match &settings.sink {
            Some(sink) => Some(SecondSink::start(sink, &settings, &resolve)?),
            None => None,
        };
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let writer = writer::AuditSink {
            store: store.clone(),
            settings: Arc::clone(&settings),
            intents: intents.clone(),
            sink: sink.clone(),
            last_logged_seal: Mutex::default(),
        };
        let log = Self(Arc::new(Inner {
            store,
            tables,
            writer: writer.start(),
            intents,
            sink,
            slots: Arc::new(Semaphore::new(MAX_UNWRITTEN_ATTEMPTS)),
            settings,
            refusals: RefusalCounter::default(),
            unrecorded: AtomicU64::new(0),
            events: EventChannel::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }));
        // The task holds only what it needs, so that dropping the log ends it.
        let (weak, stop) = (Arc::downgrade(&log.0), log.0.stop.clone());
        log.0.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(refusals::INTERVAL) => {}
                }
                let Some(inner) = weak.upgrade() else { return };
                let log = Self(inner);
                log.enqueue_counted(log.0.refusals.take_counted(Instant::now()));
                log.log_unrecorded();
            }
        });
        log.0.tasks.close();
        Ok(log)
    }

    /// Returns matching records, newest first.
    pub async fn query(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.0.store.query(query).await
    }

    /// Returns how much of the trail is stored.
    pub async fn usage(&self) -> Result<AuditUsage, StoreError> {
        self.0.store.usage().await
    }

    /// Returns why the second sink does not accept records, if it does not.
    pub fn sink_problem(&self) -> Option<Arc<str>> {
        self.0.sink.as_ref()?.problem()
    }

    /// Verifies the stored trail.
    pub async fn verify(&self) -> Result<VerifiedTrail, StoreError> {
        let AuditStore { store, key, .. } = &self.0.store;
        let verifier = AuditVerifier::new(self.0.tables.clone()).with_seal_key(key.clone());
        verifier.verify(store).await
    }

    /// Reads the trail with its hash chain, for export.
    pub async fn export(&self) -> Result<TrailReader, StoreError> {
        let verifier = AuditVerifier::new(self.0.tables.clone());
        verifier.export(&self.0.store.store).await
    }

    /// Subscribes to redacted copies of records, published when a call is opened or closed.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<AuditRecord>> {
        self.0.events.subscribe()
    }

    pub(crate) fn store(&self) -> &AuditStore {
        &self.0.store
    }

    pub(crate) fn apply(&self, settings: Settings) {
        let before = self.0.settings.load();
        if before.seal_key != settings.seal_key || before.sink != settings.sink {
            tracing::warn!(
                "changes to `audit.seal_key` and `audit.sink` take effect after a restart"
            );
        }
        self.0.settings.store(Arc::new(settings));
    }

    /// Returns the age at which records expire; `None` if they are kept forever.
    pub(crate) fn retention(&self) -> Option<Duration> {
        self.0.settings.load().retention
    }

    /// Deletes records of calls that ended before a time. Returns their number.
    pub(crate) async fn delete_expired(&self, before: i64) -> Result<u64, StoreError> {
        self.0.store.delete(before).await
    }

    /// Deletes the oldest records beyond the maximum size. Returns their number; `None` if the size is
    /// not exceeded.
    pub(crate) async fn enforce_max_size(&self) -> Result<Option<u64>, StoreError> {
        let max_size = self.0.settings.load().max_size;
        match max_size {
            Some(max_size) => self.0.store.shrink(max_size).await,
            None => Ok(None),
        }
    }

    /// Returns an error if nothing can be recorded, unless calls go on regardless.
    pub(crate) fn check_writable(&self) -> Result<(), CallError> {
        if self.continues_on_failure() {
            return Ok(());
        }
        match self.0.store.store.write_problem() {
            Some(_) => Err(CallError::Unrecorded),
            None => Ok(()),
        }
    }

    fn continues_on_failure(&self) -> bool {
        self.0.settings.load().on_failure == OnAuditFailure::Continue
    }

    /// Starts an attempt once a slot for its record is available.
    pub(crate) async fn begin(
        &self,
        record: Box<AuditRecord>,
        span: Span,
    ) -> Result<Attempt, CallError> {
        self.check_writable()?;
        let slots = &self.0.slots;
        let slot = match Arc::clone(slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                let slot = Arc::clone(slots).acquire_owned();
                match tokio::time::timeout(self.slot_timeout(), slot).await {
                    Ok(Ok(slot)) => slot,
                    _ if self.continues_on_failure() => {
                        return Ok(Attempt::new(record, span, self.clone(), None));
                    }
                    _ => return Err(CallError::Unrecorded),
                }
            }
        };
        Ok(Attempt::new(record, span, self.clone(), Some(slot)))
    }

    /// Returns how long a call waits for a slot: not at all if it can go on without one anyway.
    fn slot_timeout(&self) -> Duration {
        if self.continues_on_failure() && self.0.store.store.write_problem().is_some() {
            Duration::ZERO
        } else {
            SLOT_TIMEOUT
        }
    }

    /// Counts a call that went on without a record.
    fn count_unrecorded(&self) {
        self.0.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    fn log_unrecorded(&self) {
        let calls = self.0.unrecorded.swap(0, Ordering::Relaxed);
        if calls > 0 {
            tracing::error!(
                calls,
                "calls went on without records, as `audit.on_failure` says"
            );
        }
    }

    /// Returns the intent log if calls are recorded there first.
    fn intents(&self) -> Option<&IntentLog> {
        let is_batched = self.0.settings.load().durability == AuditDurability::Batch;
        self.0.intents.as_ref().filter(|_| !is_batched)
    }

    /// Records that a call is about to be sent. Clears `intents` if the log has no opening of it.
    async fn open(
        &self,
        update: RecordUpdate,
        intents: &mut Option<IntentLog>,
    ) -> Result<(), CallError> {
        self.publish(&update.record, update.masker.as_ref());
        let settings = self.0.settings.load_full();
        let sink = self.0.sink.as_ref();
        let sent = sink.map(|sink| sink.open(&self.redact(&update)));
        let logged = match intents {
            None => {
                self.enqueue(update);
                Ok(())
            }
            Some(log) => {
                let appended = log.append_opening(update, |update| self.enqueue(update));
                let must_sync = settings.durability == AuditDurability::Disk;
                match appended {
                    Ok(line) => log.write(line, must_sync).await,
                    Err(error) => {
                        *intents = None;
                        Err(error)
                    }
                }
            }
        };
        let accepted = match sent {
            Some(sent) => sent.await,
            None => true,
        };
        if let Err(error) = &logged {
            tracing::error!(%error, "failed to write to the intent log");
            self.0.store.store.report_write_failure(error);
        }
        if (logged.is_ok() && accepted) || settings.on_failure == OnAuditFailure::Continue {
            Ok(())
        } else {
            Err(CallError::Unrecorded)
        }
    }

    /// Records the end of a call that was opened. It may be told to the caller once it is written.
    fn close(
        &self,
        update: RecordUpdate,
        intents: Option<&IntentLog>,
    ) -> Option<io::Result<AppendedLine>> {
        self.publish(&update.record, update.masker.as_ref());
        match intents {
            Some(intents) => Some(intents.append_ending(update, |update| self.enqueue(update))),
            None => {
                self.enqueue(update);
                None
            }
        }
    }

    fn report_unwritten_end(&self, error: &io::Error) {
        tracing::error!(%error, "failed to write the end of a call to the intent log");
        self.0.store.store.report_write_failure(error);
    }

    /// Records a call that was not sent. Its arguments are left out, since anybody can make such calls.
    fn refuse(&self, mut update: RecordUpdate) {
        self.publish(&update.record, update.masker.as_ref());
        if update.record.outcome != CallError::ASK {
            update.record.arguments = None;
        }
        let record = std::mem::take(&mut update.record);
        if let Some(record) = self.0.refusals.admit(record, Instant::now()) {
            self.enqueue(RecordUpdate { record, ..update });
        }
    }

    fn enqueue_counted(&self, records: Vec<AuditRecord>) {
        for record in records {
            let kind = match record.kind {
                AuditKind::Auth => EntryKind::Event,
                _ => EntryKind::Refused,
            };
            self.enqueue(RecordUpdate::event(kind, record));
        }
    }

    /// Returns the record of an update as it may be shown.
    fn redact(&self, update: &RecordUpdate) -> AuditRecord {
        let mut record = (*update.record).clone();
        let content = self.0.settings.load().content;
        writer::prepare_record(&mut record, update.masker.as_ref(), content);
        record
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
    fn enqueue(&self, update: RecordUpdate) {
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
        self.0.stop.cancel();
        self.0.tasks.wait().await;
        self.enqueue_counted(self.0.refusals.take_all());
        self.log_unrecorded();
        self.0.writer.stop().await;
        if let Some(sink) = &self.0.sink {
            sink.stop().await;
        }
    }
}
