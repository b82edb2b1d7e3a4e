//! The trail in its order: entries with their records, and seals. Read from the store, or from the lines
//! of an export, which are the same as JSON.

use std::collections::{HashMap, VecDeque, hash_map};

use serde_json::{Map, Value, json};
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::chain::{ChainHead, Entry, EntryKind, decode_entries, from_hex, link, to_hex};
use super::columns::{COLUMNS, Column, Digest, RecordRow, ReferencedTable, to_digest};
use crate::store::{Store, StoreError};

/// Segments read at a time.
const SEGMENTS_PER_READ: i64 = 20;
/// Entries and seals of a page.
const PAGE_SIZE: usize = 500;

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
    /// The entry is not about a record.
    NoRecord,
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
    /// Entries and seals that were read and not yet returned.
    pending: VecDeque<ChainLink>,
    /// The end of the last segment that was read.
    head: ChainHead,
    /// Number of the last entry to read; later ones are being written.
    end: i64,
}

/// A part of the chain, without records.
#[derive(Debug)]
enum ChainLink {
    Entry(Entry),
    Seal(Seal),
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
        let row = sqlx::query("SELECT COALESCE(MAX(seq), 0) FROM audit_segments")
            .fetch_one(store.readers())
            .await?;
        Ok(Self {
            store: store.clone(),
            tables: tables.to_vec(),
            pending: VecDeque::new(),
            head: ChainHead::default(),
            end: row.try_get(0)?,
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
        if self.pending.is_empty() {
            self.read_segments().await?;
        }
        if self.pending.is_empty() {
            return Ok(None);
        }
        let size = self.pending.len().min(PAGE_SIZE);
        let links: Vec<ChainLink> = self.pending.drain(..size).collect();
        let mut rows = self.rows(&links).await?;
        let items = links.into_iter().map(|link| match link {
            ChainLink::Seal(seal) => TrailItem::Seal(seal),
            ChainLink::Entry(entry) => {
                let content = find_content(&entry, &mut rows);
                TrailItem::Entry(entry, content)
            }
        });
        Ok(Some(items.collect()))
    }

    async fn read_segments(&mut self) -> Result<(), StoreError> {
        let rows = sqlx::query(
            "SELECT seq, hash, at, key_id, mac, entries FROM audit_segments WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3",
        )
        .bind(self.head.seq)
        .bind(self.end)
        .bind(SEGMENTS_PER_READ)
        .fetch_all(self.store.readers())
        .await?;
        for row in &rows {
            let (seal, encoded): (Seal, Vec<u8>) = (read_seal(row)?, row.try_get(5)?);
            // Of a damaged segment, no entry can be told from another: all of them count as missing.
            let drafts = decode_entries(&encoded).unwrap_or_default();
            let count = i64::try_from(drafts.len()).unwrap_or(i64::MAX);
            let before = ChainHead {
                seq: seal.head.seq - count,
                hash: self.head.hash,
            };
            let entries = link(drafts, before, seal.at);
            self.head = seal.head;
            self.pending
                .extend(entries.into_iter().map(ChainLink::Entry));
            self.pending.push_back(ChainLink::Seal(seal));
        }
        Ok(())
    }

    /// Returns the stored records of entries, by id.
    async fn rows(&self, links: &[ChainLink]) -> Result<HashMap<String, StoredRow>, StoreError> {
        let mut found = HashMap::new();
        let is_of = |entry: &Entry, table: &ReferencedTable| entry.kind == table.kind.as_str();
        let ids = |table: Option<&ReferencedTable>| -> Vec<String> {
            let entries = links.iter().filter_map(|link| match link {
                ChainLink::Entry(entry) => Some(entry),
                ChainLink::Seal(_) => None,
            });
            let wanted = entries.filter(|entry| match table {
                Some(table) => is_of(entry, table),
                None => !self.tables.iter().any(|table| is_of(entry, table)),
            });
            wanted.map(|entry| entry.record.clone()).collect()
        };
        for row in &self.select("audit", &COLUMNS, ids(None)).await? {
            let content = RecordRow::read(row)?;
            let stored = StoredRow {
                seq: row.try_get(COLUMNS.len())?,
                record: content.to_json(),
                digest: content.digest(),
            };
            found.insert(row.try_get(0)?, stored);
        }
        for table in &self.tables {
            let rows = self.select(table.name, table.columns, ids(Some(table)));
            for row in &rows.await? {
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

    /// Selects rows by their ids, with their place in the chain as the last column.
    async fn select(
        &self,
        table: &str,
        columns: &[Column],
        ids: Vec<String>,
    ) -> Result<Vec<AnyRow>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {columns}, seq FROM {table} WHERE id IN ({ids})",
            columns = Column::names(columns).join(", "),
            ids = vec!["?"; ids.len()].join(", "),
        );
        let query = sqlx::query(AssertSqlSafe(sql));
        let query = ids.into_iter().fold(query, |query, id| query.bind(id));
        Ok(query.fetch_all(self.store.readers()).await?)
    }
}

/// Returns what is stored of the record of an entry.
fn find_content(entry: &Entry, rows: &mut HashMap<String, StoredRow>) -> EntryContent {
    if entry.kind == EntryKind::Retention.as_str() {
        return EntryContent::NoRecord;
    }
    match rows.entry(entry.record.clone()) {
        hash_map::Entry::Vacant(_) => EntryContent::Missing,
        hash_map::Entry::Occupied(row) if row.get().seq == entry.seq => {
            let StoredRow { record, digest, .. } = row.remove();
            EntryContent::Present { record, digest }
        }
        hash_map::Entry::Occupied(row) => EntryContent::ReplacedBy(row.get().seq),
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
                    EntryContent::Missing | EntryContent::NoRecord => {}
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
            _ if kind == EntryKind::Retention.as_str() => EntryContent::NoRecord,
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
