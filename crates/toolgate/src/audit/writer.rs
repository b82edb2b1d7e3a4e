//! The task that writes records: in batches, the last note of each attempt alone.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use toolgate_core::config::{Audit as Settings, AuditContent};
use toolgate_core::secret::Masker;
use toolgate_core::shape;

use super::Record;
use crate::store::{Store, millis};

/// Longest time before a note is written.
const BATCH: Duration = Duration::from_millis(50);
const MOST: usize = 512;
/// Before what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often old records are taken out.
const SWEEP: Duration = Duration::from_secs(3600);
/// How long the journals of runs are kept.
const JOURNALS: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes of arguments and of results that are kept.
const KEPT: usize = 16 * 1024;
const SLACK: usize = 8 * 1024;

/// What an attempt has to tell.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) record: Box<Record>,
    pub(super) masker: Option<Masker>,
    /// With the last note of an attempt: its place among those that are not written yet.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) settings: Arc<ArcSwap<Settings>>,
}

impl Writer {
    /// Writes until `stop`, and then what is left.
    pub(super) async fn run(
        self,
        mut inbox: mpsc::UnboundedReceiver<Note>,
        stop: CancellationToken,
    ) {
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                first = inbox.recv() => match first {
                    Some(first) => self.write(collect(first, &mut inbox, &stop).await, &stop).await,
                    None => return,
                },
                _ = sweep.tick() => self.forget_old().await,
            }
        }
        inbox.close();
        let mut rest = Vec::new();
        while let Ok(note) = inbox.try_recv() {
            rest.push(note);
        }
        self.write(rest, &stop).await;
    }

    /// Writes a batch; while the gateway runs, until it is written.
    async fn write(&self, notes: Vec<Note>, stop: &CancellationToken) {
        let content = self.settings.load().content;
        let fitted = last_of_each(notes).map(|mut note| {
            fit(&mut note.record, note.masker.as_ref(), content);
            (note.record, note.place)
        });
        // Places are free once the records are written.
        let (records, _places): (Vec<_>, Vec<_>) = fitted.unzip();
        while let Err(error) = self.store.put_records(&records).await {
            tracing::error!(%error, records = records.len(), "the audit trail could not be written");
            if stop.is_cancelled() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn forget_old(&self) {
        let Some(retention) = self.settings.load().retention else {
            return;
        };
        let before = millis(SystemTime::now() - retention);
        match self.store.drop_records(before).await {
            Ok(0) => {}
            Ok(dropped) => tracing::info!(dropped, "old audit records are taken out"),
            Err(error) => tracing::error!(%error, "old audit records could not be taken out"),
        }
        let journals = millis(SystemTime::now() - JOURNALS.min(retention));
        if let Err(error) = self.store.drop_runs(journals).await {
            tracing::error!(%error, "old runs could not be taken out");
        }
        if let Err(error) = self.store.drop_approvals(before).await {
            tracing::error!(%error, "old approvals could not be taken out");
        }
    }
}

/// What comes within a while of the first note. Nobody is woken for each.
async fn collect(
    first: Note,
    inbox: &mut mpsc::UnboundedReceiver<Note>,
    stop: &CancellationToken,
) -> Vec<Note> {
    if inbox.len() < MOST {
        tokio::select! {
            () = tokio::time::sleep(BATCH) => {}
            () = stop.cancelled() => {}
        }
    }
    let mut notes = vec![first];
    while let Ok(note) = inbox.try_recv() {
        notes.push(note);
        if notes.len() == MOST {
            break;
        }
    }
    notes
}

/// An attempt that was opened and closed within a batch is written once.
fn last_of_each(notes: Vec<Note>) -> impl Iterator<Item = Note> {
    let mut seen = std::collections::HashSet::new();
    let newest_first = notes.iter().rev();
    let is_last = newest_first.map(|note| seen.insert(note.record.id.as_str()));
    let mut is_last: Vec<bool> = is_last.collect();
    is_last.reverse();
    let notes = notes.into_iter().zip(is_last);
    notes.filter_map(|(note, is_last)| is_last.then_some(note))
}

/// A record as it may be stored and shown. What needs no change is not copied.
pub(super) fn fit(record: &mut Record, masker: Option<&Masker>, content: AuditContent) {
    let hide = |text: &mut String| {
        if let Some(hidden) = hidden(text, masker, content) {
            *text = hidden;
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
        let plain = plain(raw.get());
        let text = match (hidden(&plain, masker, content), plain) {
            (Some(text), _) => text,
            (None, Cow::Borrowed(same)) if same.len() <= KEPT => continue,
            (None, plain) => plain.into_owned(),
        };
        *part = Some(bounded(text));
    }
}

/// A text without its secrets; none if it has none.
fn hidden(text: &str, masker: Option<&Masker>, content: AuditContent) -> Option<String> {
    let masked = masker.map_or(Cow::Borrowed(text), |masker| masker.masked(text));
    if content != AuditContent::Full
        && let Cow::Owned(redacted) = shape::redact(&masked)
    {
        return Some(redacted);
    }
    match masked {
        Cow::Owned(masked) => Some(masked),
        Cow::Borrowed(_) => None,
    }
}

/// The same JSON without needless escapes, behind which a secret could hide.
fn plain(json: &str) -> Cow<'_, str> {
    if !json.contains('\\') {
        return Cow::Borrowed(json);
    }
    match serde_json::from_str::<Value>(json) {
        Ok(value) => Cow::Owned(value.to_string()),
        Err(_) => Cow::Borrowed(json),
    }
}

/// What may wait in memory to be written: more than is kept, so that no secret at the end of it is
/// cut in two before it is found.
pub(super) fn trim(part: &mut Option<Box<RawValue>>) {
    if let Some(raw) = part
        && raw.get().len() > KEPT + SLACK
    {
        let cut = raw.get().floor_char_boundary(KEPT + SLACK);
        let text = format!("{}… [{} bytes in all]", &raw.get()[..cut], raw.get().len());
        *part = serde_json::value::to_raw_value(&text).ok();
    }
}

/// What is longer, or no longer JSON, becomes a JSON string.
fn bounded(text: String) -> Box<RawValue> {
    if text.len() <= KEPT
        && let Ok(raw) = RawValue::from_string(text.clone())
    {
        return raw;
    }
    let cut = text.floor_char_boundary(KEPT);
    let shown = match cut < text.len() {
        true => format!("{}… [{} bytes in all]", &text[..cut], text.len()),
        false => text,
    };
    serde_json::value::to_raw_value(&shown).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
