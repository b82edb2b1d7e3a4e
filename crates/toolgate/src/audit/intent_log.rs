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

    /// Appends the opening of a call, and reserves space for its end, which must follow. If it fails,
    /// no end may follow: it would take the space of another call.
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
            if !self.try_write()? {
                tokio::task::yield_now().await;
            }
        }
        if must_sync {
            self.sync(line).await?;
        }
        Ok(())
    }

    /// Writes all lines unless another thread is doing that. Returns whether it did.
    pub(super) fn try_write(&self) -> io::Result<bool> {
        let Some(mut unwritten) = self.0.unwritten.try_lock() else {
            return Ok(false);
        };
        self.0.write_pending(&mut unwritten)?;
        Ok(true)
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
        let line = Line {
            n: state.last + 1,
            open: Some(Opening::new(record)),
            end: None,
        };
        line.format(&self.key, &mut state.line)?;
        self.make_room(state)?;
        state.calls_in_flight += 1;
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

    /// Makes room for the formatted opening and for the ends of its call and of all calls in flight.
    fn make_room(&self, state: &mut State) -> io::Result<()> {
        let needed = state.line.len() as u64 + (state.calls_in_flight + 1) * MAX_ENDING_BYTES;
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
mod tests;
