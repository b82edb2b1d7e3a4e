//! Storage of audit records and of the chain over them.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::chain::{self, ChainHead, EntryDraft, EntryKind, SealKey};
use super::columns::{COLUMNS, RecordRow};
use super::intent_log::Intent;
use super::{AuditPage, AuditQuery, AuditRecord, AuditUsage};
use crate::store::{BulkInsert, Statement, Store, StoreError, StoreTransaction, min_id_at};

static INSERT: LazyLock<BulkInsert> = LazyLock::new(|| {
    let columns: Vec<&str> = COLUMNS.into_iter().chain(["seq"]).collect();
    let updates: Vec<String> = columns[1..]
        .iter()
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    let on_conflict = format!("ON CONFLICT (id) DO UPDATE SET {}", updates.join(", "));
    BulkInsert::new("audit", &columns, &on_conflict)
});

/// Entry of the table `meta`: the last line of the intent log whose record is stored.
const INTENTS_KEY: &str = "stored_intents";
const INTERRUPTED: &str = "interrupted";
const INTERRUPTED_ERROR: &str = "the gateway stopped while the call was in flight; it may have run";
/// Entries before the end of the chain among which a batch of unknown fate is searched.
const MAX_BATCH_DISTANCE: i64 = 100_000;
/// Seals older than this are thinned out.
const SEAL_COMPACTION_AGE_MILLIS: i64 = 3_600_000;
/// One seal is kept for each period of this length.
const SEAL_PERIOD_MILLIS: i64 = 60_000;
/// Approximate bytes of an entry and its indexes.
const ENTRY_BYTES: usize = 250;

/// Reads and writes audit records. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct AuditStore {
    pub(super) store: Store,
    pub(super) key: SealKey,
}

/// A record and what its entry in the chain says about it.
#[derive(Debug)]
pub(crate) struct AuditEntry {
    pub(crate) kind: EntryKind,
    pub(crate) record: Box<AuditRecord>,
}

/// A row together with its place in the chain.
struct ChainedRow<'a> {
    row: &'a RecordRow<'a>,
    seq: i64,
}

impl AuditStore {
    pub(crate) fn new(store: Store, key: SealKey) -> Self {
        Self { store, key }
    }

    /// Appends records to the trail in a transaction, replacing earlier versions with the same id.
    /// Returns the new end of the chain.
    pub(crate) async fn append(
        &self,
        transaction: &mut StoreTransaction,
        entries: &[AuditEntry],
    ) -> Result<Option<ChainHead>, StoreError> {
        let rows: Vec<RecordRow<'_>> = entries
            .iter()
            .map(|entry| RecordRow::new(&entry.record))
            .collect();
        let drafts = entries.iter().zip(&rows).map(|(entry, row)| EntryDraft {
            kind: entry.kind,
            record: entry.record.id.clone(),
            digest: row.digest(),
        });
        let head = chain::head(transaction).await?;
        let linked = chain::link(drafts.collect(), head, crate::store::clock::now());
        let chained: Vec<ChainedRow<'_>> = rows
            .iter()
            .zip(&linked)
            .map(|(row, entry)| ChainedRow {
                row,
                seq: entry.seq,
            })
            .collect();
        INSERT
            .insert(transaction, &chained, |query, chained| {
                chained.row.bind(query).bind(chained.seq)
            })
            .await?;
        let bytes: usize = rows.iter().map(|row| row.size() + ENTRY_BYTES).sum();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        chain::append(transaction, &linked, &self.key, bytes).await
    }

    /// Appends entries about rows of another table to the chain. Returns the number of the first one.
    pub(crate) async fn append_references(
        &self,
        transaction: &mut StoreTransaction,
        drafts: Vec<EntryDraft>,
        bytes: usize,
    ) -> Result<i64, StoreError> {
        let head = chain::head(transaction).await?;
        let bytes = i64::try_from(bytes + drafts.len() * ENTRY_BYTES).unwrap_or(i64::MAX);
        let linked = chain::link(drafts, head, crate::store::clock::now());
        chain::append(transaction, &linked, &self.key, bytes).await?;
        Ok(head.seq + 1)
    }

    /// Writes a batch of records, and the number of the last line of the intent log that it covers.
    pub(crate) async fn put(
        &self,
        entries: &[AuditEntry],
        intents: Option<u64>,
    ) -> Result<Option<ChainHead>, StoreError> {
        let mut transaction = self.store.begin().await?;
        let head = self.append(&mut transaction, entries).await?;
        if let Some(intents) = intents {
            transaction
                .run(set_meta(INTENTS_KEY, intents.to_string()))
                .await?;
        }
        transaction.commit().await?;
        Ok(head)
    }

    /// Returns whether a batch is stored although its commit failed.
    pub(super) async fn contains(&self, entries: &[AuditEntry]) -> Result<bool, StoreError> {
        let Some(AuditEntry { record, .. }) = entries.last() else {
            return Ok(true);
        };
        let row = sqlx::query(
            "SELECT 1 FROM audit_entries WHERE seq > (SELECT COALESCE(MAX(seq), 0) FROM audit_entries) - $1 AND record = $2 AND digest = $3",
        )
        .bind(MAX_BATCH_DISTANCE)
        .bind(&record.id)
        .bind(RecordRow::new(record).digest().to_vec())
        .fetch_optional(self.store.readers())
        .await?;
        Ok(row.is_some())
    }

    /// Returns the number of the last line of the intent log whose record is stored.
    pub(super) async fn stored_intents(&self) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
            .bind(INTENTS_KEY)
            .fetch_optional(self.store.readers())
            .await?;
        let value: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        value.map_or(Ok(0), |value| {
            value.parse().map_err(|_| StoreError::Unreadable)
        })
    }

    /// Completes the trail of an earlier process: takes over the lines of its intent log, and marks the
    /// calls that it left unfinished.
    pub(super) async fn recover(
        &self,
        intents: Vec<Intent<'static>>,
        last: u64,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.store.begin_durable().await?;
        let mut entries: Vec<AuditEntry> = Vec::new();
        for intent in intents {
            let record = self.merge(&mut transaction, intent.into_record()).await?;
            entries.extend(record.map(|record| AuditEntry {
                kind: EntryKind::Closed,
                record: Box::new(record),
            }));
        }
        let known: HashSet<String> = entries
            .iter()
            .map(|entry| entry.record.id.clone())
            .collect();
        let sql = format!(
            "SELECT {} FROM audit WHERE outcome = 'open'",
            COLUMNS.join(", ")
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .fetch_all(&mut *transaction)
            .await?;
        for row in &rows {
            let record = RecordRow::read(row)?.into_record();
            if !known.contains(&record.id) {
                entries.push(AuditEntry {
                    kind: EntryKind::Closed,
                    record: Box::new(record),
                });
            }
        }
        let mut interrupted = 0;
        for AuditEntry { record, .. } in &mut entries {
            if record.outcome == "open" {
                INTERRUPTED.clone_into(&mut record.outcome);
                record.error = Some(INTERRUPTED_ERROR.to_owned());
                interrupted += 1;
            }
        }
        self.append(&mut transaction, &entries).await?;
        transaction
            .run(set_meta(INTENTS_KEY, last.to_string()))
            .await?;
        transaction.commit().await?;
        Ok(interrupted)
    }

    /// Combines a record from the intent log with the stored one, which may have arguments. Returns
    /// `None` if the stored one is complete.
    async fn merge(
        &self,
        transaction: &mut StoreTransaction,
        found: AuditRecord,
    ) -> Result<Option<AuditRecord>, StoreError> {
        let sql = format!("SELECT {} FROM audit WHERE id = $1", COLUMNS.join(", "));
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(&found.id)
            .fetch_optional(&mut **transaction)
            .await?;
        let Some(row) = row else {
            return Ok(Some(found));
        };
        let stored = RecordRow::read(&row)?.into_record();
        if stored.outcome != "open" {
            return Ok(None);
        }
        Ok(Some(AuditRecord {
            arguments: stored.arguments,
            warnings: stored.warnings,
            ..found
        }))
    }

    /// Deletes records up to the last seal before a time and returns their number.
    pub(crate) async fn delete(&self, before: i64) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT COALESCE(MAX(seq), 0) FROM audit_seals WHERE at < $1")
            .bind(before)
            .fetch_one(self.store.readers())
            .await?;
        self.delete_up_to(row.try_get(0)?, &min_id_at(before)).await
    }

    /// Deletes the oldest records until all others have at most a size; returns their number.
    pub(super) async fn shrink(&self, max_size: u64) -> Result<u64, StoreError> {
        let rows = sqlx::query("SELECT seq, bytes FROM audit_seals ORDER BY seq DESC")
            .fetch_all(self.store.readers())
            .await?;
        let mut size = 0_u64;
        for row in &rows {
            let bytes: i64 = row.try_get(1)?;
            size = size.saturating_add(bytes.unsigned_abs());
            if size > max_size {
                return self.delete_up_to(row.try_get(0)?, "").await;
            }
        }
        Ok(0)
    }

    /// Deletes the chain up to a seal, which stays, and the records in that part. `before_id` bounds
    /// records of earlier versions, which are not in the chain. Calls in flight stay.
    async fn delete_up_to(&self, seq: i64, before_id: &str) -> Result<u64, StoreError> {
        const DELETED: &str =
            "outcome <> 'open' AND (seq BETWEEN 1 AND $1 OR (seq = 0 AND id < $2))";
        let mut transaction = self.store.begin().await?;
        // Budgets without a period still count deleted records, so their totals move to `spending`.
        let totals = format!(
            "INSERT INTO spending (caller, calls, micro_usd)
             SELECT audit.caller, COUNT(*), CAST(SUM(cost_micro_usd) AS BIGINT) FROM audit
             LEFT JOIN spending AS earlier ON earlier.caller = audit.caller
             WHERE {DELETED} AND charged = 1 AND audit.caller IS NOT NULL AND id > COALESCE(earlier.reset_id, '')
             GROUP BY audit.caller
             ON CONFLICT (caller) DO UPDATE SET calls = spending.calls + excluded.calls, micro_usd = spending.micro_usd + excluded.micro_usd",
        );
        let records = format!("DELETE FROM audit WHERE {DELETED}");
        let mut deleted = 0;
        for sql in [totals, records] {
            let statement = sqlx::query(AssertSqlSafe(sql)).bind(seq).bind(before_id);
            deleted = transaction.run(statement).await?;
        }
        for sql in [
            "DELETE FROM audit_entries WHERE seq <= $1",
            "DELETE FROM audit_seals WHERE seq < $1",
            "UPDATE audit_seals SET bytes = 0 WHERE seq = $1",
        ] {
            transaction.run(sqlx::query(sql).bind(seq)).await?;
        }
        transaction.commit().await?;
        Ok(deleted)
    }

    /// Thins out old seals: one for each minute is enough to find what was changed.
    pub(super) async fn compact_seals(&self, now: i64) -> Result<(), StoreError> {
        let rows = sqlx::query("SELECT seq, at, bytes FROM audit_seals WHERE at < $1 ORDER BY seq")
            .bind(now - SEAL_COMPACTION_AGE_MILLIS)
            .fetch_all(self.store.readers())
            .await?;
        let mut transaction = self.store.begin().await?;
        let mut kept: Option<(i64, i64, i64)> = None;
        for row in &rows {
            let (seq, at, bytes): (i64, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let Some((earlier, earlier_at, earlier_bytes)) = kept else {
                // The first seal is where the chain starts.
                kept = Some((seq, i64::MIN, bytes));
                continue;
            };
            if at / SEAL_PERIOD_MILLIS != earlier_at / SEAL_PERIOD_MILLIS {
                kept = Some((seq, at, bytes));
                continue;
            }
            let delete = sqlx::query("DELETE FROM audit_seals WHERE seq = $1").bind(earlier);
            transaction.run(delete).await?;
            let bytes = bytes + earlier_bytes;
            let update = sqlx::query("UPDATE audit_seals SET bytes = $2 WHERE seq = $1");
            transaction.run(update.bind(seq).bind(bytes)).await?;
            kept = Some((seq, at, bytes));
        }
        transaction.commit().await
    }

    /// Returns how much is stored.
    pub(super) async fn usage(&self) -> Result<AuditUsage, StoreError> {
        let row = sqlx::query(
            "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), MIN(seq), MAX(seq), MIN(at), MAX(at) FROM audit_seals",
        )
        .fetch_one(self.store.readers())
        .await?;
        let bytes: i64 = row.try_get(0)?;
        Ok(AuditUsage {
            bytes: bytes.unsigned_abs(),
            first_entry: row.try_get(1)?,
            last_entry: row.try_get(2)?,
            oldest_at: row.try_get(3)?,
            sealed_at: row.try_get(4)?,
        })
    }

    /// Returns matching records, newest first.
    pub(super) async fn query(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let since = query.since.map(min_id_at);
        let until = query.until.map(min_id_at);
        let kind = query.kind.map(|kind| kind.as_str().to_owned());
        let conditions: [(&str, &Option<String>); 10] = [
            ("kind =", &kind),
            ("server =", &query.server),
            ("tool =", &query.tool),
            ("caller =", &query.caller),
            ("outcome =", &query.outcome),
            ("request_id =", &query.request_id),
            ("run_id =", &query.run_id),
            ("id >=", &since),
            ("id <", &until),
            ("id <", &query.before),
        ];
        let conditions: Vec<(&str, &String)> = conditions
            .iter()
            .filter_map(|(left, right)| Some((*left, right.as_ref()?)))
            .collect();
        let mut sql = format!("SELECT {} FROM audit", COLUMNS.join(", "));
        for (index, (left, _)) in conditions.iter().enumerate() {
            let keyword = if index == 0 { "WHERE" } else { "AND" };
            sql.push_str(&format!(" {keyword} {left} ${}", index + 1));
        }
        sql.push_str(&format!(
            " ORDER BY id DESC LIMIT {}",
            query.limit.saturating_add(1)
        ));
        let mut select = sqlx::query(AssertSqlSafe(sql));
        for (_, right) in conditions {
            select = select.bind(right);
        }
        let rows = select.fetch_all(self.store.readers()).await?;
        let more = rows.len() > query.limit;
        let read = |row: &AnyRow| Ok(RecordRow::read(row)?.into_record());
        let records: Result<Vec<AuditRecord>, StoreError> =
            rows.iter().take(query.limit).map(read).collect();
        Ok(AuditPage {
            records: records?,
            more,
        })
    }
}

fn set_meta(key: &'static str, value: String) -> Statement<'static> {
    sqlx::query(
        "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )
    .bind(key)
    .bind(value)
}
