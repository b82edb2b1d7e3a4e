//! Verification of the trail, stored or exported: finds entries that were removed, changed or reordered, and records
//! that do not match their entries.

use std::collections::HashMap;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::chain::{ChainHead, Entry, SealKey, decode_entries, from_hex};
use super::columns::{ReferencedTable, to_digest};
use super::store::TrailStart;
use super::trail::{EntryContent, Seal, TrailItem, TrailReader};
use crate::store::{ProvidedKey, Store, StoreError};

/// Problems that are listed; the rest is counted.
const MAX_LISTED_PROBLEMS: usize = 100;
/// Rows read at a time when their claims are checked.
const CLAIMS_PER_READ: usize = 2_000;

/// Verifies a stored trail.
#[derive(Clone, Debug)]
pub struct AuditVerifier {
    tables: Vec<ReferencedTable>,
    /// Keys that sealed the trail or parts of it.
    keys: Vec<SealKey>,
    /// Known ends of the chain, from logs or a second sink.
    checkpoints: Vec<ChainHead>,
}

/// Result of a verification.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifiedTrail {
    /// Entries that were checked.
    pub entries: u64,
    /// Seals that were checked.
    pub seals: u64,
    /// Records that were not checked, because entries after the end replaced them.
    pub replaced_later: u64,
    /// Number and hash of the last entry.
    pub end: Option<(i64, String)>,
    /// Number of problems.
    pub problem_count: u64,
    /// The first problems.
    pub problems: Vec<ChainProblem>,
}

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum ChainProblem {
    /// Entries are missing.
    #[error("entries {from} to {to} are missing")]
    MissingEntries { from: i64, to: i64 },
    /// An entry does not fit the one before it.
    #[error("entry {seq} was changed, or one before it: its hash does not continue the chain")]
    BrokenLink { seq: i64 },
    /// A seal is wrong.
    #[error("the seal at entry {seq} is not genuine")]
    ForgedSeal { seq: i64 },
    /// A seal does not fit its entries.
    #[error("the seal at entry {seq} does not fit the entries before it: they were changed")]
    WrongSeal { seq: i64 },
    /// A seal was made with another key.
    #[error("the seal at entry {seq} was made with another key; give it to verify this part")]
    UnknownKey { seq: i64 },
    /// Entries at the end have no seal.
    #[error("the entries after {seq} are not sealed")]
    Unsealed { seq: i64 },
    /// A record is gone.
    #[error("record `{record}` of entry {seq} is missing")]
    MissingRecord { seq: i64, record: String },
    /// A record was changed.
    #[error("record `{record}` was changed after entry {seq}")]
    ChangedRecord { seq: i64, record: String },
    /// A record is not in the chain.
    #[error("record `{record}` has no entry")]
    UnknownRecord { record: String },
    /// A line of an export cannot be read.
    #[error("line {line} cannot be read")]
    UnreadableLine { line: usize },
    /// The start of the chain was removed.
    #[error("the entries up to {seq} are missing, and were not deleted by retention")]
    MissingStart { seq: i64 },
    /// The end of the chain was removed or replaced.
    #[error(
        "the chain ends before entry {seq}, or has another entry there: entries at the end were removed"
    )]
    MissingEnd { seq: i64 },
}

impl AuditVerifier {
    pub(crate) fn new(tables: Vec<ReferencedTable>) -> Self {
        Self {
            tables,
            keys: Vec::new(),
            checkpoints: Vec::new(),
        }
    }

    /// Adds a key that sealed the trail or a part of it: `audit.seal_key`.
    #[must_use]
    pub fn with_key(self, secret: &str) -> Self {
        self.with_seal_key(SealKey::new(secret.as_bytes()))
    }

    /// Adds the key that seals the trail if there is no `audit.seal_key`.
    #[must_use]
    pub fn with_store_key(self, store: &Store) -> Self {
        self.with_seal_key(SealKey::of_store(store))
    }

    /// Like [`Self::with_store_key`], for a key that is kept outside of the data directory.
    #[must_use]
    pub fn with_provided_key(self, key: &ProvidedKey) -> Self {
        self.with_seal_key(SealKey::of_provided_key(key))
    }

    pub(super) fn with_seal_key(mut self, key: SealKey) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds a known entry, from a log or a second sink: its number, and its hash in hexadecimal.
    #[must_use]
    pub fn with_checkpoint(mut self, seq: i64, hash: &str) -> Self {
        let hash = from_hex(hash).unwrap_or_default();
        self.checkpoints.push(ChainHead {
            seq,
            hash: to_digest(&hash),
        });
        self
    }

    /// Verifies the whole trail. Memory does not grow with its length.
    pub async fn verify(&self, store: &Store) -> Result<VerifiedTrail, StoreError> {
        loop {
            let start = TrailStart::read(store).await?.map(|start| start.seq);
            let mut walk = self.start_walk();
            let mut reader = TrailReader::open(store, &self.tables).await?;
            while let Some(items) = reader.next_page().await? {
                items.iter().for_each(|item| walk.add(item));
            }
            let (found, mut result) = (walk.found_records, walk.finish());
            self.find_unknown_records(store, found, &mut result).await?;
            // Retention may have deleted what was about to be read.
            if TrailStart::read(store).await?.map(|start| start.seq) == start {
                return Ok(result);
            }
        }
    }

    /// Verifies an exported trail, line by line.
    pub fn verify_export<E>(
        &self,
        lines: impl Iterator<Item = Result<String, E>>,
    ) -> Result<VerifiedTrail, E> {
        let mut walk = self.start_walk();
        for (number, line) in lines.enumerate() {
            match TrailItem::parse(&line?, &self.tables) {
                Some(item) => walk.add(&item),
                None => walk.report(ChainProblem::UnreadableLine { line: number + 1 }),
            }
        }
        Ok(walk.finish())
    }

    /// Reads the trail for export: each line is an entry with its record, or a seal.
    pub async fn export(&self, store: &Store) -> Result<TrailReader, StoreError> {
        TrailReader::open(store, &self.tables).await
    }

    /// Finds records that are not in the chain. `found` is the number of those that are.
    async fn find_unknown_records(
        &self,
        store: &Store,
        found: i64,
        result: &mut VerifiedTrail,
    ) -> Result<(), StoreError> {
        let start = TrailStart::read(store).await?.map_or(0, |start| start.seq);
        let end = result.end.as_ref().map_or(0, |(seq, _)| *seq);
        let tables = self.tables.iter().map(|table| table.name);
        let tables: Vec<&str> = tables.chain(["audit"]).collect();
        let mut claims = 0;
        for table in &tables {
            // The chain had begun when they were made.
            let sql = format!(
                "SELECT id FROM {table} WHERE seq = 0 AND started_at > (SELECT MIN(at) FROM audit_segments)"
            );
            for row in query_list(store, sql).await? {
                let record = row.try_get(0)?;
                result.report(ChainProblem::UnknownRecord { record });
            }
            let sql = format!("SELECT COUNT(*) FROM {table} WHERE seq > $1 AND seq <= $2");
            let row = sqlx::query(AssertSqlSafe(sql)).bind(start).bind(end);
            claims += row.fetch_one(store.readers()).await?.try_get::<i64, _>(0)?;
        }
        // Retention deletes all others.
        let sql =
            format!("SELECT id FROM audit WHERE seq BETWEEN 1 AND {start} AND outcome <> 'open'");
        for row in query_list(store, sql).await? {
            let record = row.try_get(0)?;
            result.report(ChainProblem::UnknownRecord { record });
        }
        if claims != found {
            for table in tables {
                find_false_claims(store, table, end, result).await?;
            }
        }
        Ok(())
    }

    fn start_walk(&self) -> Walk<'_> {
        Walk {
            verifier: self,
            last: None,
            start: 0,
            deleted_up_to: 0,
            found_records: 0,
            last_sealed: 0,
            replaced: HashMap::new(),
            result: VerifiedTrail::default(),
        }
    }
}

impl VerifiedTrail {
    fn report(&mut self, problem: ChainProblem) {
        self.problem_count += 1;
        if self.problems.len() < MAX_LISTED_PROBLEMS {
            self.problems.push(problem);
        }
    }
}

/// The state of a verification, which takes entries and seals in their order.
struct Walk<'a> {
    verifier: &'a AuditVerifier,
    /// The last entry, or the seal at which the trail starts.
    last: Option<ChainHead>,
    /// Number of that seal; 0 if the trail starts with its first entry.
    start: i64,
    /// Number up to which retention deleted entries, as the trail says.
    deleted_up_to: i64,
    /// Records that are in their place.
    found_records: i64,
    last_sealed: i64,
    /// Entries that later ones are said to replace: the record's id and the number of the later entry.
    replaced: HashMap<String, i64>,
    result: VerifiedTrail,
}

impl Walk<'_> {
    fn report(&mut self, problem: ChainProblem) {
        self.result.report(problem);
    }

    fn add(&mut self, item: &TrailItem) {
        match item {
            TrailItem::Entry(entry, content) => self.add_entry(entry, content),
            TrailItem::Seal(seal) => self.add_seal(seal),
        }
    }

    fn add_entry(&mut self, entry: &Entry, content: &EntryContent) {
        let seq = entry.seq;
        let before = self.last.unwrap_or_default();
        if seq != before.seq + 1 {
            self.report(ChainProblem::MissingEntries {
                from: before.seq + 1,
                to: seq - 1,
            });
        } else if entry.hash != entry.compute_hash(&before.hash) {
            self.report(ChainProblem::BrokenLink { seq });
        }
        let head = ChainHead {
            seq,
            hash: entry.hash,
        };
        self.result.entries += 1;
        self.last = Some(head);
        let mut known = self.verifier.checkpoints.iter();
        if known.any(|known| known.seq == seq && *known != head) {
            self.report(ChainProblem::MissingEnd { seq });
        }
        self.check_content(entry, content);
    }

    /// Checks the record of an entry: it must be as the entry says, unless a later entry replaced it.
    fn check_content(&mut self, entry: &Entry, content: &EntryContent) {
        let (seq, record) = (entry.seq, entry.record.clone());
        match content {
            EntryContent::Missing => self.report(ChainProblem::MissingRecord { seq, record }),
            EntryContent::ReplacedBy(later) if *later > seq => {
                self.replaced.insert(record, *later);
            }
            EntryContent::Present { digest, .. } => {
                self.found_records += 1;
                if self.replaced.get(&record) == Some(&seq) {
                    self.replaced.remove(&record);
                }
                if *digest != entry.digest {
                    self.report(ChainProblem::ChangedRecord { seq, record });
                }
            }
            EntryContent::ReplacedBy(_) => {
                self.report(ChainProblem::ChangedRecord { seq, record });
            }
            EntryContent::NoRecord => match record.parse() {
                Ok(up_to) => self.deleted_up_to = up_to,
                Err(_) => self.report(ChainProblem::BrokenLink { seq }),
            },
        }
    }

    fn add_seal(&mut self, seal: &Seal) {
        self.result.seals += 1;
        let seq = seal.head.seq;
        match self.last {
            // Retention deleted everything up to this seal.
            None => self.start = seq,
            Some(last) if last == seal.head => {}
            Some(last) if last.seq < seq => self.report(ChainProblem::MissingEntries {
                from: last.seq + 1,
                to: seq,
            }),
            Some(_) => self.report(ChainProblem::WrongSeal { seq }),
        }
        self.last = Some(seal.head);
        self.last_sealed = seq;
        let keys = &self.verifier.keys;
        let mut keys = keys.iter().filter(|key| key.id == seal.key_id).peekable();
        if keys.peek().is_none() {
            self.report(ChainProblem::UnknownKey { seq });
        } else if !keys.any(|key| key.verifies(&seal.head, seal.at, &seal.mac)) {
            self.report(ChainProblem::ForgedSeal { seq });
        }
    }

    fn finish(mut self) -> VerifiedTrail {
        let last = self.last.unwrap_or_default();
        if self.start != self.deleted_up_to {
            self.report(ChainProblem::MissingStart { seq: self.start });
        }
        if last.seq > self.last_sealed {
            self.report(ChainProblem::Unsealed {
                seq: self.last_sealed,
            });
        }
        for known in &self.verifier.checkpoints {
            if known.seq > last.seq {
                self.result
                    .report(ChainProblem::MissingEnd { seq: known.seq });
            }
        }
        for (record, seq) in std::mem::take(&mut self.replaced) {
            if seq > last.seq {
                self.result.replaced_later += 1;
            } else {
                self.report(ChainProblem::MissingRecord { seq, record });
            }
        }
        self.result.end = self.last.map(|last| (last.seq, last.hash_text()));
        self.result
    }
}

/// Selects as many rows as problems are listed.
async fn query_list(store: &Store, sql: String) -> Result<Vec<AnyRow>, StoreError> {
    let query = sqlx::query(AssertSqlSafe(format!("{sql} LIMIT {MAX_LISTED_PROBLEMS}")));
    Ok(query.fetch_all(store.readers()).await?)
}

/// Finds rows of a table that claim the place of another record in the chain.
async fn find_false_claims(
    store: &Store,
    table: &str,
    end: i64,
    result: &mut VerifiedTrail,
) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT id, seq FROM {table} WHERE id > $1 AND seq > 0 AND seq <= $2 ORDER BY id LIMIT {CLAIMS_PER_READ}"
    );
    let mut last = String::new();
    let mut segment = SegmentIds::default();
    loop {
        let rows = sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(&last)
            .bind(end)
            .fetch_all(store.readers())
            .await?;
        for row in &rows {
            last = row.try_get(0)?;
            let seq: i64 = row.try_get(1)?;
            if segment.get(seq).is_none() {
                segment = SegmentIds::read(store, seq).await?;
            }
            if segment.get(seq).is_some_and(|id| *id != last) {
                result.report(ChainProblem::UnknownRecord {
                    record: last.clone(),
                });
            }
        }
        if rows.is_empty() || result.problems.len() >= MAX_LISTED_PROBLEMS {
            return Ok(());
        }
    }
}

/// The ids of the records of a segment.
#[derive(Default)]
struct SegmentIds {
    ids: Vec<String>,
    /// Number of the first entry.
    first: i64,
}

impl SegmentIds {
    /// Reads the segment that holds an entry.
    async fn read(store: &Store, seq: i64) -> Result<Self, StoreError> {
        let row = sqlx::query(
            "SELECT seq, entries FROM audit_segments WHERE seq >= $1 ORDER BY seq LIMIT 1",
        )
        .bind(seq)
        .fetch_optional(store.readers())
        .await?;
        let Some(row) = row else {
            return Ok(Self::default());
        };
        let (last, encoded): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        let entries = decode_entries(&encoded).unwrap_or_default();
        let ids: Vec<String> = entries.into_iter().map(|entry| entry.record).collect();
        let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        Ok(Self {
            ids,
            first: last - count + 1,
        })
    }

    fn get(&self, seq: i64) -> Option<&String> {
        self.ids.get(usize::try_from(seq - self.first).ok()?)
    }
}
