//! The intent log: a file to which the opening of each call is appended before the call is sent, and its
//! outcome before the caller gets it.
//!
//! Complete records follow in the database, in batches. After a crash, the lines that no batch has taken
//! are read back. Two files take turns: one is reused once the database holds all of its lines. Their
//! space is allocated in advance, and an opening is written only if there is room for the end of its
//! call too, so that a full disk refuses new calls but does not lose the outcome of those in flight.
//!
//! Calls that run at the same time share writes: each appends its line to a buffer, lets others do the
//! same, and then whoever comes first writes the buffer.
//!
//! A line is JSON, followed by a tag made with the key of the store. A line without its tag was cut off
//! by the crash, overwritten or is not ours, and is left out. A line whose number the database has is
//! left over from an earlier turn.

mod line;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ring::hmac;

pub(super) use line::LoggedCall;
use line::{Ending, Line, MAX_ENDING_BYTES, Opening};

use super::AuditRecord;
use super::writer::RecordUpdate;

const FILES: [&str; 2] = ["intents-0.log", "intents-1.log"];
/// Size at which the other file is used.
const FILE_BYTES: u64 = 1024 * 1024;
/// Size at which nothing more is written if the other file cannot be used, because the database has not
/// taken its lines yet.
const MAX_FILE_BYTES: u64 = 64 * FILE_BYTES;
/// Bytes by which a file grows in that case.
const GROWTH_BYTES: usize = 64 * 1024;

/// Appends lines. Clones share the files.
#[derive(Clone, Debug)]
pub(super) struct IntentLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Lines that are being written, or could not be. Locked before `state`.
    unwritten: Mutex<Vec<Chunk>>,
    /// Number up to which all lines are written.
    written: AtomicU64,
    files: [File; 2],
    key: hmac::Key,
    /// Last line known to be on the disk.
    synced: tokio::sync::Mutex<u64>,
}

#[derive(Debug)]
struct State {
    /// Lines to be written.
    pending: Vec<Chunk>,
    /// Index of the file that is used.
    current: usize,
    /// Bytes used of it, with those to be written.
    size: u64,
    /// Bytes allocated to each file.
    allocated: [u64; 2],
    /// Calls whose end is still to be written.
    calls_in_flight: u64,
    /// Number of the last line.
    last: u64,
    /// Number of the last line in the other file.
    last_in_other: u64,
    /// Number up to which the database holds all lines.
    stored: u64,
    /// The line that is being formatted.
    line: Vec<u8>,
}

/// Lines that stand side by side in a file.
#[derive(Debug)]
struct Chunk {
    /// Index of the file.
    file: usize,
    position: u64,
    lines: Vec<u8>,
}

/// A line that was appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppendedLine {
    n: u64,
    /// Whether other calls are in flight, whose lines may follow at once.
    has_company: bool,
}

/// What an earlier process left in the log.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Calls whose records in the database may be incomplete, oldest first.
    pub(super) calls: Vec<LoggedCall>,
    /// Number of the last line.
    pub(super) last: u64,
}

impl IntentLog {
    /// Reads the lines after number `stored`, up to which the database has taken them.
    pub(super) fn read(folder: &Path, key: &[u8; 32], stored: u64) -> io::Result<Leftovers> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let mut files = Vec::new();
        for name in FILES {
            match std::fs::read(folder.join(name)) {
                Ok(bytes) => files.push(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let lines = files
            .iter()
            .flat_map(|bytes| bytes.split(|byte| *byte == b'\n'));
        let mut lines: Vec<Line<'static>> =
            lines.filter_map(|line| Line::parse(line, &key)).collect();
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
        let mut calls: Vec<LoggedCall> = Vec::new();
        let mut positions = HashMap::new();
        for Line { open, end, .. } in lines {
            let opened = open.as_ref().map(|opening| &opening.id);
            let Some(id) = opened.or(end.as_ref().map(|ending| &ending.id)) else {
                continue;
            };
            let id = id.to_string();
            let position = *positions.entry(id).or_insert_with_key(|id| {
                calls.push(LoggedCall::new(id));
                calls.len() - 1
            });
            calls[position].add(open, end);
        }
        Ok(Leftovers { calls, last })
    }

    /// Opens the log. `last` is the number of the last line of earlier processes, all of which the
    /// database holds.
    pub(super) fn create(folder: &Path, key: &[u8; 32], last: u64) -> io::Result<Self> {
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(folder.join(name))?;
            let length = file.metadata()?.len();
            allocate(&file, length.min(FILE_BYTES), FILE_BYTES)?;
            file.set_len(FILE_BYTES)?;
            Ok::<File, io::Error>(file)
        };
        Ok(Self(Arc::new(Inner {
            state: Mutex::new(State {
                pending: Vec::new(),
                current: 0,
                size: 0,
                allocated: [FILE_BYTES; 2],
                calls_in_flight: 0,
                last,
                last_in_other: last,
                stored: last,
                line: Vec::new(),
            }),
            unwritten: Mutex::default(),
            written: AtomicU64::new(last),
            files: [open(FILES[0])?, open(FILES[1])?],
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            synced: tokio::sync::Mutex::new(last),
        })))
    }

    /// Appends the opening of a call. Each opening is followed by one end, also if it failed.
    ///
    /// Queues the update before another line can follow, so that updates reach the database in the order
    /// of their lines; also if its line could not be appended.
    pub(super) fn append_opening(
        &self,
        mut update: RecordUpdate,
        enqueue: impl FnOnce(RecordUpdate),
    ) -> io::Result<AppendedLine> {
        let mut state = self.0.state.lock();
        let appended = self.0.append_opening(&mut state, &update.record);
        update.intent = appended.as_ref().ok().map(|line| line.n);
        enqueue(update);
        appended
    }

    /// Appends the end of a call, and queues its update like [`Self::append_opening`].
    pub(super) fn append_ending(
        &self,
        mut update: RecordUpdate,
        enqueue: impl FnOnce(RecordUpdate),
    ) -> io::Result<AppendedLine> {
        let mut state = self.0.state.lock();
        let appended = self.0.append_ending(&mut state, &update.record);
        update.intent = appended.as_ref().ok().map(|line| line.n);
        enqueue(update);
        appended
    }

    /// Waits until a line is written, so that it survives the process; and until it is on the disk if
    /// it must survive a power failure.
    pub(super) async fn write(&self, line: AppendedLine, must_sync: bool) -> io::Result<()> {
        if line.has_company {
            tokio::task::yield_now().await;
        }
        while self.0.written.load(Ordering::Acquire) < line.n {
            match self.0.unwritten.try_lock() {
                Some(mut unwritten) => self.0.write_pending(&mut unwritten)?,
                None => tokio::task::yield_now().await,
            }
        }
        if must_sync {
            self.sync(line).await?;
        }
        Ok(())
    }

    /// Writes all lines unless another thread is about to.
    pub(super) fn try_write(&self) -> io::Result<()> {
        match self.0.unwritten.try_lock() {
            Some(mut unwritten) => self.0.write_pending(&mut unwritten),
            None => Ok(()),
        }
    }

    /// Waits until a written line is on the disk. Concurrent calls share one flush.
    async fn sync(&self, line: AppendedLine) -> io::Result<()> {
        let mut synced = self.0.synced.lock().await;
        if *synced >= line.n {
            return Ok(());
        }
        let inner = Arc::clone(&self.0);
        let flushed = tokio::task::spawn_blocking(move || {
            let last = inner.written.load(Ordering::Acquire);
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
    fn append_opening(&self, state: &mut State, record: &AuditRecord) -> io::Result<AppendedLine> {
        state.calls_in_flight += 1;
        let line = Line {
            n: state.last + 1,
            open: Some(Opening::new(record)),
            end: None,
        };
        line.format(&self.key, &mut state.line)?;
        self.make_room(state)?;
        Ok(state.append())
    }

    fn append_ending(&self, state: &mut State, record: &AuditRecord) -> io::Result<AppendedLine> {
        let line = Line {
            n: state.last + 1,
            open: None,
            end: Some(Ending::new(record)),
        };
        line.format(&self.key, &mut state.line)?;
        state.calls_in_flight = state.calls_in_flight.saturating_sub(1);
        Ok(state.append())
    }

    /// Makes room for the formatted line and for the ends of all calls in flight.
    fn make_room(&self, state: &mut State) -> io::Result<()> {
        let needed = state.line.len() as u64 + state.calls_in_flight * MAX_ENDING_BYTES;
        if state.size + needed > FILE_BYTES && state.size > 0 && state.stored >= state.last_in_other
        {
            let other = 1 - state.current;
            if state.allocated[other] > FILE_BYTES {
                self.files[other].set_len(FILE_BYTES)?;
                state.allocated[other] = FILE_BYTES;
            }
            (state.current, state.size, state.last_in_other) = (other, 0, state.last);
        }
        let (size, allocated) = (state.size + needed, &mut state.allocated[state.current]);
        if size > MAX_FILE_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the intent log is full, since the database takes no records",
            ));
        }
        while size > *allocated {
            let grown = *allocated + GROWTH_BYTES as u64;
            allocate(&self.files[state.current], *allocated, grown)?;
            *allocated = grown;
        }
        Ok(())
    }

    /// Writes all lines. After a failure, they are written again, in the same place.
    fn write_pending(&self, unwritten: &mut Vec<Chunk>) -> io::Result<()> {
        let last = {
            let mut state = self.state.lock();
            unwritten.append(&mut state.pending);
            state.last
        };
        for chunk in unwritten.iter() {
            self.files[chunk.file].write_all_at(&chunk.lines, chunk.position)?;
        }
        unwritten.clear();
        self.written.store(last, Ordering::Release);
        Ok(())
    }
}

impl Chunk {
    fn end(&self) -> u64 {
        self.position + self.lines.len() as u64
    }
}

impl State {
    /// Appends the formatted line to those that are to be written.
    fn append(&mut self) -> AppendedLine {
        match self.pending.last_mut() {
            Some(chunk) if chunk.file == self.current && chunk.end() == self.size => {
                chunk.lines.extend_from_slice(&self.line);
            }
            _ => self.pending.push(Chunk {
                file: self.current,
                position: self.size,
                lines: self.line.clone(),
            }),
        }
        self.size += self.line.len() as u64;
        self.last += 1;
        AppendedLine {
            n: self.last,
            has_company: self.calls_in_flight > 1,
        }
    }
}

/// Allocates a part of a file on the disk.
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; GROWTH_BYTES];
    let mut position = from;
    while position < to {
        let length = (to - position).min(GROWTH_BYTES as u64);
        file.write_all_at(&zeros[..usize::try_from(length).unwrap_or(0)], position)?;
        position += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn record(id: &str, outcome: &str) -> AuditRecord {
        AuditRecord {
            id: id.to_owned(),
            outcome: outcome.to_owned(),
            name: format!("tool of {id}"),
            ..AuditRecord::default()
        }
    }

    fn append_opening(log: &IntentLog, id: &str) -> AppendedLine {
        let mut state = log.0.state.lock();
        log.0
            .append_opening(&mut state, &record(id, "open"))
            .unwrap()
    }

    fn append_ending(log: &IntentLog, record: &AuditRecord) -> AppendedLine {
        log.0
            .append_ending(&mut log.0.state.lock(), record)
            .unwrap()
    }

    fn open(log: &IntentLog, id: &str) -> u64 {
        let line = append_opening(log, id);
        log.try_write().unwrap();
        line.n
    }

    fn end(log: &IntentLog, id: &str) -> u64 {
        let line = append_ending(log, &record(id, "ok"));
        log.try_write().unwrap();
        line.n
    }

    fn read(folder: &Path, stored: u64) -> Leftovers {
        IntentLog::read(folder, &KEY, stored).unwrap()
    }

    fn records(left: Leftovers) -> Vec<(String, String)> {
        let records = left.calls.into_iter().map(|call| call.into_record(None));
        records
            .flatten()
            .map(|record| (record.name, record.outcome))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned()))
            .collect()
    }

    #[test]
    fn opening_and_end_of_each_call_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 10).unwrap();
        open(&log, "a");
        open(&log, "b");
        end(&log, "a");
        assert_eq!(read(folder.path(), 10).last, 13);
        assert_eq!(
            records(read(folder.path(), 10)),
            pairs(&[("tool of a", "ok"), ("tool of b", "open")])
        );
        // The database has the openings.
        let mut calls = read(folder.path(), 12).calls;
        let stored = Some(record("a", "open"));
        let ended = calls.remove(0).into_record(stored).unwrap();
        assert_eq!(
            (ended.name.as_str(), ended.outcome.as_str()),
            ("tool of a", "ok")
        );
        let other_key = IntentLog::read(folder.path(), &[4; 32], 10).unwrap();
        assert_eq!(records(other_key), []);
    }

    #[test]
    fn complete_records_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        open(&log, "a");
        let call = read(folder.path(), 0).calls.remove(0);
        assert!(call.into_record(Some(record("a", "timeout"))).is_none());
    }

    /// Wherever a crash cuts the file, all complete lines are read.
    #[test]
    fn cut_line_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let file = folder.path().join(FILES[0]);
        let mut ends = Vec::new();
        for id in ["a", "b", "c"] {
            open(&log, id);
            ends.push(log.0.state.lock().size);
        }
        let whole = std::fs::read(&file).unwrap();
        for cut in 0..=usize::try_from(ends[2]).unwrap() {
            std::fs::write(&file, &whole[..cut]).unwrap();
            // The line break does not belong to the line.
            let complete = ends.iter().filter(|end| **end <= cut as u64 + 1).count();
            let left = read(folder.path(), 0);
            assert_eq!(left.calls.len(), complete, "cut at {cut}");
        }
    }

    /// Lines of earlier turns are overwritten without being read again, wherever the new ones end.
    #[test]
    fn files_take_turns_once_the_database_holds_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let mut stored = 0;
        for n in 0..12_000 {
            let id = format!("call {n} {}", "x".repeat(n % 17));
            open(&log, &id);
            end(&log, &id);
            if n % 499 == 0 {
                let left = read(folder.path(), stored);
                assert_eq!(left.last, 2 * (n as u64 + 1));
                assert_eq!(left.calls.len() as u64, (left.last - stored) / 2);
                stored = left.last;
                log.set_stored(stored);
            }
        }
        for name in FILES {
            let size = std::fs::metadata(folder.path().join(name)).unwrap().len();
            assert_eq!(size, FILE_BYTES);
        }
    }

    #[test]
    fn file_grows_while_the_database_takes_nothing_and_shrinks_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let mut last = 0;
        while log.0.state.lock().allocated != [FILE_BYTES, 2 * FILE_BYTES] {
            last = open(&log, "a");
            end(&log, "a");
        }
        assert_eq!(read(folder.path(), 0).last, last + 1);
        log.set_stored(last + 1);
        while log.0.state.lock().allocated != [FILE_BYTES; 2] {
            let n = open(&log, "a");
            end(&log, "a");
            log.set_stored(n + 1);
        }
    }

    /// Every opening leaves room for the end of its call.
    #[test]
    fn ends_never_need_new_space() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let longest = AuditRecord {
            id: uuid::Uuid::max().to_string(),
            outcome: "upstream_protocol_error".to_owned(),
            bytes_out: i64::MAX,
            duration_us: Some(i64::MAX),
            cost_micro_usd: i64::MAX,
            ..AuditRecord::default()
        };
        for _ in 0..10_000 {
            open(&log, "a");
        }
        let allocated = log.0.state.lock().allocated;
        for _ in 0..10_000 {
            let before = log.0.state.lock().size;
            append_ending(&log, &longest);
            let state = log.0.state.lock();
            assert!(state.size - before <= MAX_ENDING_BYTES);
            assert!(state.size <= allocated[state.current]);
        }
        log.try_write().unwrap();
    }

    #[tokio::test]
    async fn one_write_takes_the_lines_of_all_calls() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let first = append_opening(&log, "a");
        let second = append_opening(&log, "b");
        assert_eq!(read(folder.path(), 0).last, 0);
        log.write(first, false).await.unwrap();
        assert_eq!(read(folder.path(), 0).last, 2);
        assert_eq!(*log.0.synced.lock().await, 0);
        log.write(first, true).await.unwrap();
        assert_eq!(*log.0.synced.lock().await, second.n);
        log.write(second, true).await.unwrap();
    }

    /// Every line is written before its call goes on, whatever other calls do.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_calls_lose_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = IntentLog::create(folder.path(), &KEY, 0).unwrap();
        let tasks = TaskTracker::new();
        for call in 0..40 {
            let log = log.clone();
            tasks.spawn(async move {
                for turn in 0..20 {
                    let id = format!("{call}-{turn}");
                    for line in [
                        append_opening(&log, &id),
                        append_ending(&log, &record(&id, "ok")),
                    ] {
                        log.write(line, false).await.unwrap();
                        assert!(log.0.written.load(Ordering::Acquire) >= line.n);
                    }
                }
            });
        }
        tasks.close();
        tasks.wait().await;
        let left = records(read(folder.path(), 0));
        assert_eq!(left.len(), 800);
        assert!(left.iter().all(|(_, outcome)| outcome == "ok"));
    }
}
