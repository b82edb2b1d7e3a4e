//! The trail in its order: entries with their records, and seals. Read from the store, or from the lines
//! of an export, which are the same as JSON.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::chain::{ChainHead, Entry, from_hex, to_hex};
use super::columns::{COLUMNS, Digest, RecordRow, ReferencedTable, to_digest};
use crate::store::{Store, StoreError};

/// Entries read at a time.
const PAGE_SIZE: i64 = 2_000;

/// An entry or a seal.
#[derive(Debug)]
pub(super) enum TrailItem {
    Entry(Entry, EntryContent),
    Seal(Seal),
}

/// The record of an entry.
#[derive(Debug)]
pub(super) enum EntryContent {
    /// As stored, with its digest.
    Present {
        record: Value,
        digest: Digest,
    },
    /// The record has changed since, as a later entry says.
    ReplacedBy(i64),
    Missing,
}

/// A seal as stored.
#[derive(Debug)]
pub(super) struct Seal {
    pub(super) head: ChainHead,
    pub(super) at: i64,
    pub(super) key_id: Vec<u8>,
    pub(super) mac: Vec<u8>,
}

/// Reads the trail page by page.
#[derive(Debug)]
pub struct TrailReader {
    store: Store,
    tables: Vec<ReferencedTable>,
    seals: VecDeque<Seal>,
    /// Number of the last entry that was read.
    last: i64,
    /// Number of the last entry to read; later ones are being written.
    end: i64,
    is_done: bool,
}

/// The row of a record: its place in the chain and its content.
struct StoredRow {
    seq: i64,
    record: Value,
    digest: Digest,
}

impl TrailReader {
    pub(super) async fn open(
        store: &Store,
        tables: &[ReferencedTable],
    ) -> Result<Self, StoreError> {
        // First the end, then the seals: all entries up to the end are sealed by then.
        let row = sqlx::query("SELECT COALESCE(MAX(seq), $1) FROM audit_entries")
            .bind(i64::MAX)
            .fetch_one(store.readers())
            .await?;
        let end: i64 = row.try_get(0)?;
        let rows = sqlx::query(
            "SELECT seq, hash, at, key_id, mac FROM audit_seals WHERE seq <= $1 ORDER BY seq",
        )
        .bind(end)
        .fetch_all(store.readers())
        .await?;
        let seals: Result<VecDeque<Seal>, StoreError> = rows.iter().map(read_seal).collect();
        Ok(Self {
            store: store.clone(),
            tables: tables.to_vec(),
            seals: seals?,
            last: 0,
            end,
            is_done: false,
        })
    }

    /// Returns the next lines of the export; `None` at its end.
    pub async fn next_lines(&mut self) -> Result<Option<Vec<String>>, StoreError> {
        let page = self.next_page().await?;
        let to_line = |item: &TrailItem| item.to_json().to_string();
        Ok(page.map(|items| items.iter().map(to_line).collect()))
    }

    /// Returns the next entries and seals; `None` at the end.
    pub(super) async fn next_page(&mut self) -> Result<Option<Vec<TrailItem>>, StoreError> {
        if self.is_done {
            return Ok(None);
        }
        let entries = self.entries().await?;
        let mut rows = self.rows(&entries).await?;
        let mut items = Vec::new();
        for entry in entries {
            self.take_seals_before(entry.seq, &mut items);
            self.last = entry.seq;
            let content = match rows.remove(&entry.record) {
                None => EntryContent::Missing,
                Some(row) if row.seq == entry.seq => EntryContent::Present {
                    record: row.record,
                    digest: row.digest,
                },
                Some(row) => {
                    let replaced = EntryContent::ReplacedBy(row.seq);
                    rows.insert(entry.record.clone(), row);
                    replaced
                }
            };
            items.push(TrailItem::Entry(entry, content));
        }
        if items.is_empty() {
            self.is_done = true;
            self.take_seals_before(i64::MAX, &mut items);
        }
        Ok(Some(items))
    }

    /// Moves the seals of entries before a number to the items.
    fn take_seals_before(&mut self, seq: i64, items: &mut Vec<TrailItem>) {
        while let Some(seal) = self.seals.pop_front_if(|seal| seal.head.seq < seq) {
            items.push(TrailItem::Seal(seal));
        }
    }

    async fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let rows = sqlx::query(
            "SELECT seq, kind, record, at, digest, hash FROM audit_entries WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3",
        )
        .bind(self.last)
        .bind(self.end)
        .bind(PAGE_SIZE)
        .fetch_all(self.store.readers())
        .await?;
        rows.iter().map(read_entry).collect()
    }

    /// Returns the stored records of entries, by id.
    async fn rows(&self, entries: &[Entry]) -> Result<HashMap<String, StoredRow>, StoreError> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(HashMap::new());
        };
        let select = |sql: String| {
            sqlx::query(AssertSqlSafe(sql))
                .bind(first.seq)
                .bind(last.seq)
        };
        let readers = self.store.readers();
        let mut found = HashMap::new();
        let sql = format!(
            "SELECT {columns}, seq FROM audit WHERE id IN (SELECT record FROM audit_entries WHERE seq BETWEEN $1 AND $2)",
            columns = COLUMNS.join(", ")
        );
        for row in &select(sql).fetch_all(readers).await? {
            let content = RecordRow::read(row)?;
            let stored = StoredRow {
                seq: row.try_get(COLUMNS.len())?,
                record: content.to_json(),
                digest: content.digest(),
            };
            found.insert(row.try_get(0)?, stored);
        }
        for table in &self.tables {
            let sql = format!(
                "SELECT {columns}, seq FROM {name} WHERE seq BETWEEN $1 AND $2",
                columns = table.columns.join(", "),
                name = table.name
            );
            for row in &select(sql).fetch_all(readers).await? {
                let stored = StoredRow {
                    seq: row.try_get(table.columns.len())?,
                    record: table.row_to_json(row)?,
                    digest: table.digest(row)?,
                };
                found.insert(row.try_get(0)?, stored);
            }
        }
        Ok(found)
    }
}

impl TrailItem {
    /// Returns the line of an export.
    fn to_json(&self) -> Value {
        match self {
            Self::Entry(entry, content) => {
                let mut line = json!({
                    "seq": entry.seq,
                    "entry": entry.kind,
                    "id": entry.record,
                    "at": entry.at,
                    "digest": to_hex(&entry.digest),
                    "hash": to_hex(&entry.hash),
                });
                match content {
                    EntryContent::Present { record, .. } => line["record"] = record.clone(),
                    EntryContent::ReplacedBy(later) => line["replaced_by"] = (*later).into(),
                    EntryContent::Missing => {}
                }
                line
            }
            Self::Seal(seal) => json!({
                "seq": seal.head.seq,
                "entry": "seal",
                "at": seal.at,
                "hash": seal.head.hash_text(),
                "key_id": to_hex(&seal.key_id),
                "mac": to_hex(&seal.mac),
            }),
        }
    }

    /// Reads a line of an export.
    pub(super) fn parse(line: &str, tables: &[ReferencedTable]) -> Option<Self> {
        let json: Map<String, Value> = serde_json::from_str(line).ok()?;
        let text = |name: &str| json.get(name).and_then(Value::as_str);
        let bytes = |name: &str| text(name).and_then(from_hex);
        let number = |name: &str| json.get(name).and_then(Value::as_i64);
        let head = ChainHead {
            seq: number("seq")?,
            hash: to_digest(&bytes("hash")?),
        };
        let (kind, at) = (text("entry")?, number("at")?);
        if kind == "seal" {
            return Some(Self::Seal(Seal {
                head,
                at,
                key_id: bytes("key_id")?,
                mac: bytes("mac")?,
            }));
        }
        let content = match (json.get("record"), number("replaced_by")) {
            (Some(Value::Object(record)), _) => EntryContent::Present {
                digest: match tables.iter().find(|table| table.kind.as_str() == kind) {
                    Some(table) => table.digest_json(record),
                    None => RecordRow::from_json(record).digest(),
                },
                record: Value::Null,
            },
            (_, Some(later)) => EntryContent::ReplacedBy(later),
            _ => EntryContent::Missing,
        };
        let entry = Entry {
            seq: head.seq,
            kind: kind.to_owned(),
            record: text("id")?.to_owned(),
            at,
            digest: to_digest(&bytes("digest")?),
            hash: head.hash,
        };
        Some(Self::Entry(entry, content))
    }
}

fn read_seal(row: &AnyRow) -> Result<Seal, StoreError> {
    let hash: Vec<u8> = row.try_get(1)?;
    Ok(Seal {
        head: ChainHead {
            seq: row.try_get(0)?,
            hash: to_digest(&hash),
        },
        at: row.try_get(2)?,
        key_id: row.try_get(3)?,
        mac: row.try_get(4)?,
    })
}

fn read_entry(row: &AnyRow) -> Result<Entry, StoreError> {
    let (digest, hash): (Vec<u8>, Vec<u8>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(Entry {
        seq: row.try_get(0)?,
        kind: row.try_get(1)?,
        record: row.try_get(2)?,
        at: row.try_get(3)?,
        digest: to_digest(&digest),
        hash: to_digest(&hash),
    })
}
