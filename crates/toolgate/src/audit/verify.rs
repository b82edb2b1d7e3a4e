//! Verification of the trail, stored or exported: finds entries that were removed, changed or reordered, and records
//! that do not match their entries.

use std::collections::HashMap;

use sqlx::Row as _;

use super::chain::{ChainHead, Entry, SealKey, from_hex};
use super::columns::{ReferencedTable, to_digest};
use super::trail::{EntryContent, Seal, TrailItem, TrailReader};
use crate::store::{Store, StoreError};

/// Problems that are listed; the rest is counted.
const MAX_LISTED_PROBLEMS: usize = 100;

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
    /// A seal does not fit its entry.
    #[error("the seal at entry {seq} does not fit the entry")]
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
        let mut walk = self.start_walk();
        let mut reader = TrailReader::open(store, &self.tables).await?;
        while let Some(items) = reader.next_page().await? {
            items.iter().for_each(|item| walk.add(item));
        }
        let mut result = walk.finish();
        find_unknown_records(store, &mut result).await?;
        Ok(result)
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

    fn start_walk(&self) -> Walk<'_> {
        Walk {
            verifier: self,
            last: None,
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
            EntryContent::Present { digest, .. } if *digest == entry.digest => {
                self.replaced
                    .retain(|id, later| *id != record || *later != seq);
            }
            _ => self.report(ChainProblem::ChangedRecord { seq, record }),
        }
    }

    fn add_seal(&mut self, seal: &Seal) {
        self.result.seals += 1;
        let seq = seal.head.seq;
        match self.last {
            // Retention deleted everything up to this seal.
            None => self.last = Some(seal.head),
            Some(last) if last == seal.head => {}
            Some(last) if last.seq < seq => self.report(ChainProblem::MissingEnd { seq }),
            Some(_) => self.report(ChainProblem::WrongSeal { seq }),
        }
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

/// Finds records that claim a place in the chain that is not theirs, or none although the chain had
/// begun when they were made.
async fn find_unknown_records(store: &Store, result: &mut VerifiedTrail) -> Result<(), StoreError> {
    let rows = sqlx::query(
        "SELECT id FROM audit WHERE
           (seq > (SELECT COALESCE(MIN(seq), 0) FROM audit_seals)
            AND NOT EXISTS (SELECT 1 FROM audit_entries WHERE audit_entries.seq = audit.seq AND record = audit.id))
           OR (seq = 0 AND started_at > (SELECT MIN(at) FROM audit_seals))
         LIMIT $1",
    )
    .bind(i64::try_from(MAX_LISTED_PROBLEMS).unwrap_or(i64::MAX))
    .fetch_all(store.readers())
    .await?;
    for row in rows {
        result.report(ChainProblem::UnknownRecord {
            record: row.try_get(0)?,
        });
    }
    Ok(())
}
