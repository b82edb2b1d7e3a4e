//! The intent log: a file to which the opening of each call is appended before the call is sent, and its
//! outcome before the caller gets it.
//!
//! Complete records follow in the database, in batches. After a crash, the lines that no batch has taken
//! are read back. Two files take turns: one is reused once the database holds all of its lines.
//!
//! A line is JSON, followed by a tag made with the key of the store. A line without its tag was cut off
//! by the crash or is not ours, and is left out.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::writer::RecordUpdate;
use super::{AuditKind, AuditRecord};

const FILES: [&str; 2] = ["intents-0.log", "intents-1.log"];
/// Size at which the other file is used.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Size at which nothing more is written if the other file cannot be used, because the database has not
/// taken its lines yet.
const MAX_FULL_FILE_BYTES: u64 = 16 * MAX_FILE_BYTES;
/// Bytes of the tag that are kept.
const TAG_BYTES: usize = 8;
/// Errors are cut to this length, since they come from servers.
const MAX_ERROR_BYTES: usize = 512;

/// Appends lines. Clones share the files.
#[derive(Clone, Debug)]
pub(super) struct IntentLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    files: [File; 2],
    key: hmac::Key,
    /// Last line known to be on the disk.
    synced: tokio::sync::Mutex<u64>,
}

#[derive(Debug)]
struct State {
    /// Index of the file that is written.
    current: usize,
    /// Bytes written to it.
    size: u64,
    /// Number of the last line.
    last: u64,
    /// Number of the last line in the other file.
    last_in_other: u64,
    /// Number up to which the database holds all lines.
    stored: u64,
    buffer: Vec<u8>,
}

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
struct Line<I> {
    n: u64,
    intent: I,
}

/// The part of a record that the log holds: everything but arguments and result, which may contain
/// secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent<'a> {
    id: Cow<'a, str>,
    request_id: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caller: Option<Cow<'a, str>>,
    origin: Cow<'a, str>,
    name: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instead_of: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approval: Option<Cow<'a, str>>,
    /// Kind of the record.
    kind: Cow<'a, str>,
    outcome: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
    bytes_in: i64,
    bytes_out: i64,
    started_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_us: Option<i64>,
    cost_micro_usd: i64,
    charged: bool,
}

/// What an earlier process left in the log.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// The last line of each record that the database may lack, oldest first.
    pub(super) intents: Vec<Intent<'static>>,
    /// Number of the last line.
    pub(super) last: u64,
}

impl<'a> Intent<'a> {
    pub(super) fn new(record: &'a AuditRecord) -> Self {
        let text = |text: &'a str| Cow::Borrowed(text);
        let optional = |text: &'a Option<String>| text.as_deref().map(Cow::Borrowed);
        let error = record.error.as_deref().map(|error| {
            let cut = error.floor_char_boundary(MAX_ERROR_BYTES);
            Cow::Borrowed(&error[..cut])
        });
        Self {
            id: text(&record.id),
            request_id: text(&record.request_id),
            parent_id: optional(&record.parent_id),
            run_id: optional(&record.run_id),
            caller: optional(&record.caller),
            origin: text(&record.origin),
            name: text(&record.name),
            server: optional(&record.server),
            tool: optional(&record.tool),
            instead_of: optional(&record.instead_of),
            verdict: optional(&record.verdict),
            rule: optional(&record.rule),
            approval: optional(&record.approval),
            kind: text(record.kind.as_str()),
            outcome: text(&record.outcome),
            error,
            bytes_in: record.bytes_in,
            bytes_out: record.bytes_out,
            started_at: record.started_at,
            duration_us: record.duration_us,
            cost_micro_usd: record.cost_micro_usd,
            charged: record.charged,
        }
    }

    pub(super) fn into_record(self) -> AuditRecord {
        AuditRecord {
            id: self.id.into_owned(),
            request_id: self.request_id.into_owned(),
            parent_id: self.parent_id.map(Cow::into_owned),
            run_id: self.run_id.map(Cow::into_owned),
            caller: self.caller.map(Cow::into_owned),
            origin: self.origin.into_owned(),
            name: self.name.into_owned(),
            server: self.server.map(Cow::into_owned),
            tool: self.tool.map(Cow::into_owned),
            instead_of: self.instead_of.map(Cow::into_owned),
            verdict: self.verdict.map(Cow::into_owned),
            rule: self.rule.map(Cow::into_owned),
            approval: self.approval.map(Cow::into_owned),
            kind: AuditKind::from_name(&self.kind).unwrap_or_default(),
            outcome: self.outcome.into_owned(),
            error: self.error.map(Cow::into_owned),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            started_at: self.started_at,
            duration_us: self.duration_us,
            cost_micro_usd: self.cost_micro_usd,
            charged: self.charged,
            ..AuditRecord::default()
        }
    }
}

impl IntentLog {
    /// Reads the lines after number `stored`, up to which the database has taken them.
    pub(super) fn read(folder: &Path, key: &[u8; 32], stored: u64) -> io::Result<Leftovers> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let mut lines: Vec<Line<Intent<'static>>> = Vec::new();
        for name in FILES {
            match std::fs::read(folder.join(name)) {
                Ok(bytes) => lines.extend(
                    bytes
                        .split(|byte| *byte == b'\n')
                        .filter_map(|line| parse_line(line, &key)),
                ),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        lines.sort_by_key(|line| line.n);
        let last = lines.last().map_or(stored, |line| line.n.max(stored));
        lines.retain(|line| line.n > stored);
        if let Some(pair) = lines.windows(2).find(|pair| pair[1].n > pair[0].n + 1) {
            tracing::error!(
                after = pair[0].n,
                before = pair[1].n,
                "lines are missing in the intent log; calls of an earlier process may be unrecorded"
            );
        }
        let mut intents: Vec<Intent<'static>> = Vec::new();
        let mut at = std::collections::HashMap::new();
        for Line { intent, .. } in lines {
            match at.get(intent.id.as_ref()) {
                Some(index) => intents[*index] = intent,
                None => {
                    at.insert(intent.id.to_string(), intents.len());
                    intents.push(intent);
                }
            }
        }
        Ok(Leftovers { intents, last })
    }

    /// Opens the log with empty files. `last` is the number of the last line of earlier processes,
    /// all of which the database holds.
    pub(super) fn create(folder: &Path, key: &[u8; 32], last: u64) -> io::Result<Self> {
        let open = |name: &str| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(folder.join(name))
        };
        Ok(Self(Arc::new(Inner {
            state: Mutex::new(State {
                current: 0,
                size: 0,
                last,
                last_in_other: last,
                stored: last,
                buffer: Vec::new(),
            }),
            files: [open(FILES[0])?, open(FILES[1])?],
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            synced: tokio::sync::Mutex::new(last),
        })))
    }

    /// Appends the line of an update and returns its number. Queues the update before another line can
    /// follow, so that updates reach the database in the order of their lines; also if its line could
    /// not be written.
    pub(super) fn append(
        &self,
        mut update: RecordUpdate,
        enqueue: impl FnOnce(RecordUpdate),
    ) -> io::Result<u64> {
        let mut state = self.0.state.lock();
        let written = self.0.write(&mut state, &Intent::new(&update.record));
        update.intent = written.as_ref().ok().copied();
        enqueue(update);
        written
    }

    /// Waits until a line is on the disk. Concurrent calls share one flush.
    pub(super) async fn sync(&self, n: u64) -> io::Result<()> {
        let mut synced = self.0.synced.lock().await;
        if *synced >= n {
            return Ok(());
        }
        let inner = Arc::clone(&self.0);
        let flushed = tokio::task::spawn_blocking(move || {
            let last = inner.state.lock().last;
            // The line may be in the other file if that was exchanged meanwhile.
            inner.files.iter().try_for_each(File::sync_data)?;
            Ok::<u64, io::Error>(last)
        });
        *synced = flushed.await.map_err(io::Error::other)??;
        Ok(())
    }

    /// Takes note that the database holds all lines up to a number.
    pub(super) fn set_stored(&self, n: u64) {
        let mut state = self.0.state.lock();
        state.stored = state.stored.max(n);
    }
}

impl Inner {
    /// Writes a line and returns its number.
    fn write(&self, state: &mut State, intent: &Intent<'_>) -> io::Result<u64> {
        if state.size > MAX_FILE_BYTES && state.stored >= state.last_in_other {
            let other = 1 - state.current;
            self.files[other].set_len(0)?;
            (state.current, state.size, state.last_in_other) = (other, 0, state.last);
        }
        if state.size > MAX_FULL_FILE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the intent log is full, since the database takes no records",
            ));
        }
        let n = state.last + 1;
        state.buffer.clear();
        serde_json::to_writer(&mut state.buffer, &Line { n, intent })?;
        let tag = hmac::sign(&self.key, &state.buffer);
        for byte in &tag.as_ref()[..TAG_BYTES] {
            state.buffer.extend_from_slice(&hex(*byte));
        }
        state.buffer.push(b'\n');
        // At a position of our own: after a failed write, the next one starts at the same place.
        self.files[state.current].write_all_at(&state.buffer, state.size)?;
        state.size += state.buffer.len() as u64;
        state.last = n;
        Ok(n)
    }
}

fn parse_line(line: &[u8], key: &hmac::Key) -> Option<Line<Intent<'static>>> {
    let (json, tag) = line.split_at_checked(line.len().checked_sub(2 * TAG_BYTES)?)?;
    let expected = hmac::sign(key, json);
    let expected: Vec<u8> = expected.as_ref()[..TAG_BYTES]
        .iter()
        .flat_map(|byte| hex(*byte))
        .collect();
    if tag != expected {
        return None;
    }
    serde_json::from_slice(json).ok()
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn intent<'a>(id: &'a str, outcome: &'a str) -> Intent<'a> {
        Intent {
            id: id.into(),
            outcome: outcome.into(),
            ..Intent::default()
        }
    }

    fn append(log: &IntentLog, id: &str, outcome: &str) -> u64 {
        let mut state = log.0.state.lock();
        log.0.write(&mut state, &intent(id, outcome)).unwrap()
    }

    fn outcomes(left: &Leftovers) -> Vec<(&str, &str)> {
        let intents = left.intents.iter();
        intents
            .map(|intent| (&*intent.id, &*intent.outcome))
            .collect()
    }

    #[test]
    fn last_line_of_each_record_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 10).unwrap();
        append(&log, "a", "open");
        append(&log, "b", "open");
        append(&log, "a", "ok");
        let left = IntentLog::read(folder.path(), &KEY, 10).unwrap();
        assert_eq!(left.last, 13);
        assert_eq!(outcomes(&left), [("a", "ok"), ("b", "open")]);
        let left = IntentLog::read(folder.path(), &KEY, 12).unwrap();
        assert_eq!(outcomes(&left), [("a", "ok")]);
        let other_key = IntentLog::read(folder.path(), &[4; 32], 10).unwrap();
        assert_eq!(outcomes(&other_key), []);
    }

    /// Wherever a crash cuts the file, all complete lines are read.
    #[test]
    fn cut_line_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let file = folder.path().join(FILES[0]);
        let mut ends = Vec::new();
        for id in ["a", "b", "c"] {
            append(&log, id, "open");
            ends.push(std::fs::metadata(&file).unwrap().len());
        }
        let whole = std::fs::read(&file).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&file, &whole[..cut]).unwrap();
            let left = IntentLog::read(folder.path(), &KEY, 0).unwrap();
            // The line break does not belong to the line.
            let complete = ends.iter().filter(|end| **end <= cut as u64 + 1).count();
            assert_eq!(left.intents.len(), complete, "cut at {cut}");
        }
    }

    #[test]
    fn files_take_turns_once_the_database_holds_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let long = "x".repeat(4096);
        let mut stored = 0;
        for turn in 0..4 {
            let mut first = None;
            for _ in 0..1200 {
                let n = append(&log, &long, "open");
                first.get_or_insert(n);
            }
            let left = IntentLog::read(folder.path(), &KEY, stored).unwrap();
            assert_eq!(left.last, (turn + 1) * 1200);
            stored = left.last;
            log.set_stored(stored);
        }
        let size: u64 = FILES
            .iter()
            .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len())
            .sum();
        assert!(size < 3 * MAX_FILE_BYTES, "{size}");
    }

    #[tokio::test]
    async fn sync_covers_all_lines_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let (first, second) = (append(&log, "a", "open"), append(&log, "b", "open"));
        log.sync(first).await.unwrap();
        assert_eq!(*log.0.synced.lock().await, second);
        log.sync(second).await.unwrap();
    }
}
