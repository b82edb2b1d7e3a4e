//! Preparation of audit records for storage: redaction and truncation. Records are written in batches;
//! of several updates to a record in a batch, only the last is written.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolgate_core::config::{AuditContent, AuditSettings as Settings};
use toolgate_core::secret::Masker;
use toolgate_core::secret::patterns;

use super::{AuditRecord, AuditStore};
use crate::store::{BatchSettings, BatchSink, BatchWriter, OnWriteError, StoreError};

const MAX_BATCH_UPDATES: usize = 512;
/// Bytes stored of the arguments and of the result.
const MAX_CONTENT_BYTES: usize = 16 * 1024;
/// Bytes kept in memory beyond [`MAX_CONTENT_BYTES`] until secrets have been redacted.
const REDACTION_SLACK_BYTES: usize = 8 * 1024;

/// A new version of a record.
#[derive(Debug)]
pub(super) struct RecordUpdate {
    pub(super) record: Box<AuditRecord>,
    pub(super) masker: Option<Masker>,
    /// With the final update of an attempt: its slot, released once the record is written.
    pub(super) slot: Option<OwnedSemaphorePermit>,
}

/// Writes records to the store.
pub(super) struct AuditSink {
    pub(super) store: AuditStore,
    pub(super) settings: Arc<ArcSwap<Settings>>,
}

/// Records ready to be written.
pub(super) struct AuditBatch {
    #[expect(
        clippy::vec_box,
        reason = "records arrive boxed; unboxing would copy them"
    )]
    records: Vec<Box<AuditRecord>>,
    /// Released once the records are written.
    _slots: Vec<Option<OwnedSemaphorePermit>>,
}

impl AuditSink {
    /// Starts the task. A record that cannot be written is retried, since none may be lost.
    pub(super) fn start(self) -> BatchWriter<RecordUpdate> {
        let settings = BatchSettings {
            kind: "audit",
            // Attempts wait for a slot instead, so that no update is dropped.
            max_queued: Semaphore::MAX_PERMITS,
            max_batch: MAX_BATCH_UPDATES,
            on_error: OnWriteError::Retry,
        };
        BatchWriter::start(self, settings)
    }
}

impl BatchSink for AuditSink {
    type Item = RecordUpdate;
    type Batch = AuditBatch;

    fn prepare(&self, updates: Vec<RecordUpdate>) -> AuditBatch {
        let content = self.settings.load().content;
        let prepared = latest_updates(updates).map(|mut update| {
            prepare_record(&mut update.record, update.masker.as_ref(), content);
            (update.record, update.slot)
        });
        let (records, slots) = prepared.unzip();
        AuditBatch {
            records,
            _slots: slots,
        }
    }

    async fn write(&self, batch: &AuditBatch) -> Result<(), StoreError> {
        self.store.put(&batch.records).await
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
    record.warnings.iter_mut().for_each(hide);
    if content == AuditContent::Off {
        (record.arguments, record.result, record.error) = (None, None, None);
    }
    record.error.iter_mut().for_each(hide);
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
