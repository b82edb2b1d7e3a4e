//! Preparation of audit records for storage: redaction and truncation. Records are written in batches;
//! of several updates to a record in a batch, only the last is written.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolgate_core::config::{AuditContent, AuditDurability, AuditSettings as Settings};
use toolgate_core::secret::Masker;
use toolgate_core::secret::patterns;

use super::chain::{ChainHead, EntryKind};
use super::intent_log::IntentLog;
use super::sink::SecondSink;
use super::{AuditEntry, AuditRecord, AuditStore};
use crate::store::{BATCH_DELAY, BatchSettings, BatchSink, BatchWriter, StoreError, WriteAttempt};

const MAX_BATCH_UPDATES: usize = 2048;
/// Delay before a record is written if the intent log has it already. Most calls are opened and closed
/// meanwhile, and so are written once.
const LOGGED_BATCH_DELAY: Duration = Duration::from_millis(200);
/// Bytes stored of the arguments and of the result.
const MAX_CONTENT_BYTES: usize = 16 * 1024;
/// Bytes kept in memory beyond [`MAX_CONTENT_BYTES`] until secrets have been redacted.
const REDACTION_SLACK_BYTES: usize = 8 * 1024;

/// Bytes stored of an error, which may come from a server.
const MAX_ERROR_BYTES: usize = 2 * 1024;
/// Bytes stored of a name, an id or a rule.
const MAX_NAME_BYTES: usize = 512;
const MAX_WARNINGS: usize = 20;
/// Bytes stored of the details of an event.
const MAX_DETAIL_BYTES: usize = 32 * 1024;
/// Interval at which the end of the chain is logged, for comparison by `toolgate audit verify`.
const SEAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A new version of a record.
#[derive(Debug)]
pub(super) struct RecordUpdate {
    pub(super) kind: EntryKind,
    pub(super) record: Box<AuditRecord>,
    pub(super) masker: Option<Masker>,
    /// With the final update of an attempt: its slot, released once the record is written.
    pub(super) slot: Option<OwnedSemaphorePermit>,
    /// Number of the line of the intent log that announced the update.
    pub(super) intent: Option<u64>,
}

impl RecordUpdate {
    /// Returns the record of an event that was not announced in the intent log.
    pub(super) fn event(kind: EntryKind, record: AuditRecord) -> Self {
        Self {
            kind,
            record: Box::new(record),
            masker: None,
            slot: None,
            intent: None,
        }
    }
}

/// Writes records to the store.
pub(super) struct AuditSink {
    pub(super) store: AuditStore,
    pub(super) settings: Arc<ArcSwap<Settings>>,
    pub(super) intents: Option<IntentLog>,
    pub(super) sink: Option<SecondSink>,
    pub(super) last_logged_seal: Mutex<Option<Instant>>,
}

/// Records ready to be written.
pub(super) struct AuditBatch {
    entries: Vec<AuditEntry>,
    /// Number of the last line of the intent log that the batch covers.
    intents: Option<u64>,
    /// The end of the chain with the batch, once a transaction was prepared.
    head: Mutex<Option<ChainHead>>,
    /// Released once the records are written.
    _slots: Vec<Option<OwnedSemaphorePermit>>,
}

impl AuditSink {
    /// Starts the task.
    pub(super) fn start(self) -> BatchWriter<RecordUpdate> {
        let settings = BatchSettings {
            kind: "audit",
            // Attempts wait for a slot instead, so that no update is dropped.
            max_queued: Semaphore::MAX_PERMITS,
            max_batch: MAX_BATCH_UPDATES,
        };
        BatchWriter::start(self, settings)
    }

    /// Writes a batch in a transaction.
    async fn put(&self, batch: &AuditBatch) -> Result<(), StoreError> {
        let mut transaction = self.store.store.begin().await?;
        let head = self.store.append(&mut transaction, &batch.entries).await?;
        *batch.head.lock() = head;
        if let Some(intents) = batch.intents {
            self.store
                .set_stored_intents(&mut transaction, intents)
                .await?;
        }
        transaction.commit().await?;
        if let Some(head) = head {
            self.log_seal(head);
        }
        if let Some(sink) = &self.sink {
            // The sink has the opening of a call already.
            let entries = batch.entries.iter();
            let rest = entries.filter(|entry| entry.kind != EntryKind::Opened);
            sink.forward(rest, head);
        }
        Ok(())
    }

    /// Logs the end of the chain now and then. Entries removed at the end of the stored chain leave no
    /// gap; they are found by comparison with a log that is kept elsewhere.
    fn log_seal(&self, head: ChainHead) {
        let mut last = self.last_logged_seal.lock();
        if last.is_none_or(|last| last.elapsed() >= SEAL_LOG_INTERVAL) {
            *last = Some(Instant::now());
            tracing::info!(seq = head.seq, hash = %head.hash_text(), "sealed the audit trail");
        }
    }
}

impl BatchSink for AuditSink {
    type Item = RecordUpdate;
    type Batch = AuditBatch;

    fn delay(&self) -> Duration {
        let is_logged = self.settings.load().durability != AuditDurability::Batch;
        if self.intents.is_some() && is_logged {
            LOGGED_BATCH_DELAY
        } else {
            BATCH_DELAY
        }
    }

    fn prepare(&self, updates: Vec<RecordUpdate>) -> AuditBatch {
        let content = self.settings.load().content;
        let intents = updates.iter().filter_map(|update| update.intent).max();
        let prepared = latest_updates(updates).map(|mut update| {
            prepare_record(&mut update.record, update.masker.as_ref(), content);
            let entry = AuditEntry {
                kind: update.kind,
                record: update.record,
            };
            (entry, update.slot)
        });
        let (entries, slots) = prepared.unzip();
        AuditBatch {
            entries,
            intents,
            head: Mutex::default(),
            _slots: slots,
        }
    }

    async fn write(&self, batch: &AuditBatch, attempt: WriteAttempt) -> Result<(), StoreError> {
        let head = *batch.head.lock();
        let is_stored = match head {
            Some(head) if attempt == WriteAttempt::Retry => self.store.contains(&head).await?,
            _ => false,
        };
        if !is_stored {
            self.put(batch).await?;
        }
        if let (Some(intents), Some(n)) = (&self.intents, batch.intents) {
            intents.set_stored(n);
        }
        Ok(())
    }
}

/// Keeps only the last update of each record, so that an attempt opened and closed within a batch
/// is written once.
fn latest_updates(updates: Vec<RecordUpdate>) -> impl Iterator<Item = RecordUpdate> {
    let mut seen = std::collections::HashSet::new();
    let newest_first = updates.iter().rev();
    let is_last = newest_first.map(|update| seen.insert(update.record.id.as_str()));
    let mut is_last: Vec<bool> = is_last.collect();
    is_last.reverse();
    let updates = updates.into_iter().zip(is_last);
    updates.filter_map(|(update, is_last)| is_last.then_some(update))
}

/// Redacts and truncates a record for storage and display. Content that needs no change is not
/// copied.
pub(super) fn prepare_record(
    record: &mut AuditRecord,
    masker: Option<&Masker>,
    content: AuditContent,
) {
    let hide = |text: &mut String| {
        if let Some(redacted) = redact(text, masker, content) {
            *text = redacted;
        }
    };
    hide(&mut record.name);
    record.warnings.truncate(MAX_WARNINGS);
    record.warnings.iter_mut().for_each(hide);
    if let Some(detail) = &mut record.detail {
        prepare_detail(detail, masker, content);
    }
    if content == AuditContent::Off {
        (record.arguments, record.result, record.error) = (None, None, None);
    }
    if let Some(error) = &mut record.error {
        // A secret at the cut is still recognized, since the text is cut again below.
        cut_text(error, MAX_ERROR_BYTES + REDACTION_SLACK_BYTES);
        hide(error);
        cut_text(error, MAX_ERROR_BYTES);
    }
    bound_names(record);
    for part in [&mut record.arguments, &mut record.result] {
        let Some(raw) = part else { continue };
        let unescaped = unescape_json(raw.get());
        let text = match (redact(&unescaped, masker, content), unescaped) {
            (Some(text), _) => text,
            (None, Cow::Borrowed(same)) if same.len() <= MAX_CONTENT_BYTES => continue,
            (None, unescaped) => unescaped.into_owned(),
        };
        *part = Some(truncate_content(text));
    }
}

/// Bounds all texts that come from clients, servers or the configuration.
fn bound_names(record: &mut AuditRecord) {
    let AuditRecord {
        request_id,
        parent_id,
        run_id,
        caller,
        name,
        server,
        tool,
        instead_of,
        rule,
        approval,
        warnings,
        ..
    } = record;
    let optional = [
        parent_id, run_id, caller, server, tool, instead_of, rule, approval,
    ];
    let texts = optional.into_iter().flatten().chain([request_id, name]);
    for text in texts.chain(warnings) {
        cut_text(text, MAX_NAME_BYTES);
    }
}

/// Redacts and bounds the details of an event.
fn prepare_detail(detail: &mut Value, masker: Option<&Masker>, content: AuditContent) {
    let text = detail.to_string();
    let redacted = redact(&text, masker, content);
    let text = match redacted {
        Some(redacted) => redacted,
        None if text.len() <= MAX_DETAIL_BYTES => return,
        None => text,
    };
    let parsed = serde_json::from_str(&text).ok();
    *detail = match parsed.filter(|_| text.len() <= MAX_DETAIL_BYTES) {
        Some(parsed) => parsed,
        None => {
            let cut = text.floor_char_boundary(MAX_DETAIL_BYTES);
            Value::from(format!("{}… [{} bytes in total]", &text[..cut], text.len()))
        }
    };
}

fn cut_text(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes - '…'.len_utf8()));
        text.push('…');
    }
}

/// Redacts the secrets in a text; `None` if it contains none.
fn redact(text: &str, masker: Option<&Masker>, content: AuditContent) -> Option<String> {
    let masked = masker.map_or(Cow::Borrowed(text), |masker| masker.mask_cow(text));
    if content != AuditContent::Full
        && let Cow::Owned(redacted) = patterns::redact(&masked)
    {
        return Some(redacted);
    }
    match masked {
        Cow::Owned(masked) => Some(masked),
        Cow::Borrowed(_) => None,
    }
}

/// Removes unnecessary escapes from JSON, since they could hide a secret.
fn unescape_json(json: &str) -> Cow<'_, str> {
    if !json.contains('\\') {
        return Cow::Borrowed(json);
    }
    match serde_json::from_str::<Value>(json) {
        Ok(value) => Cow::Owned(value.to_string()),
        Err(_) => Cow::Borrowed(json),
    }
}

/// Bounds the content held in memory until it is written. The bound exceeds the stored size, so
/// that a secret at the cut is still recognized before it is truncated.
pub(super) fn trim_content(part: &mut Option<Box<RawValue>>) {
    if let Some(raw) = part
        && raw.get().len() > MAX_CONTENT_BYTES + REDACTION_SLACK_BYTES
    {
        let cut = raw
            .get()
            .floor_char_boundary(MAX_CONTENT_BYTES + REDACTION_SLACK_BYTES);
        let text = format!(
            "{}… [{} bytes in total]",
            &raw.get()[..cut],
            raw.get().len()
        );
        *part = serde_json::value::to_raw_value(&text).ok();
    }
}

/// Converts text to raw JSON. Text that is too long, or no longer valid JSON after redaction,
/// becomes a JSON string.
fn truncate_content(text: String) -> Box<RawValue> {
    if text.len() <= MAX_CONTENT_BYTES
        && let Ok(raw) = RawValue::from_string(text.clone())
    {
        return raw;
    }
    let cut = text.floor_char_boundary(MAX_CONTENT_BYTES);
    let shown = if cut < text.len() {
        format!("{}… [{} bytes in total]", &text[..cut], text.len())
    } else {
        text
    };
    serde_json::value::to_raw_value(&shown).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
