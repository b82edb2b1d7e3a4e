//! Storage of audit records and of the chain over them.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::chain::{self, Appended, ChainHead, EntryDraft, EntryKind, SealKey};
use super::columns::{COLUMNS, Column, RecordRow, to_digest};
use super::intent_log::LoggedCall;
use super::{AuditPage, AuditQuery, AuditRecord, AuditUsage};
use crate::store::{BulkInsert, Store, StoreError, StoreTransaction, min_id_at};

static INSERT: LazyLock<BulkInsert> = LazyLock::new(|| {
    let mut columns = Column::names(&COLUMNS);
    columns.push("seq");
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
/// Approximate bytes of an entry, and of the indexes of its record.
const ENTRY_BYTES: usize = 150;

/// Reads and writes audit records. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct AuditStore {
    pub(crate) store: Store,
    pub(super) key: SealKey,
    /// Bytes of the trail; `None` if they must be counted first. May be too high, since it counts what
    /// was not committed.
    size: Arc<Mutex<Option<u64>>>,
}

/// Where the chain starts after retention has deleted what was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailStart {
    /// Number of the last entry that was deleted.
    pub(crate) seq: i64,
    /// Time of its segment, in milliseconds since the Unix epoch.
    pub(crate) at: i64,
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
        Self {
            store,
            key,
            size: Arc::default(),
        }
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
        let bytes = rows.iter().map(RecordRow::size).sum();
        let appended = self
            .append_entries(transaction, drafts.collect(), bytes)
            .await?;
        let Some(Appended { first, head }) = appended else {
            return Ok(None);
        };
        let chained = rows.iter().zip(first..);
        let chained: Vec<ChainedRow<'_>> =
            chained.map(|(row, seq)| ChainedRow { row, seq }).collect();
        INSERT
            .insert(transaction, &chained, |query, chained| {
                chained.row.bind(query).bind(chained.seq)
            })
            .await?;
        Ok(Some(head))
    }

    /// Appends entries to the chain, whose rows the caller stores in the same transaction. `bytes` is
    /// the approximate size of the rows.
    pub(crate) async fn append_entries(
        &self,
        transaction: &mut StoreTransaction,
        drafts: Vec<EntryDraft>,
        bytes: usize,
    ) -> Result<Option<Appended>, StoreError> {
        let bytes = i64::try_from(bytes + drafts.len() * ENTRY_BYTES).unwrap_or(i64::MAX);
        if let Some(size) = &mut *self.size.lock() {
            *size += bytes.unsigned_abs();
        }
        chain::append(transaction, drafts, &self.key, bytes).await
    }

    /// Notes, in a transaction with records, the last line of the intent log that they cover.
    pub(super) async fn set_stored_intents(
        &self,
        transaction: &mut StoreTransaction,
        last: u64,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        );
        let statement = statement.bind(INTENTS_KEY).bind(last.to_string());
        transaction.run(statement).await?;
        Ok(())
    }

    /// Returns whether a segment is stored although its commit failed.
    pub(super) async fn contains(&self, head: &ChainHead) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT 1 FROM audit_segments WHERE seq = $1 AND hash = $2")
            .bind(head.seq)
            .bind(&head.hash[..])
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
        calls: Vec<LoggedCall>,
        last: u64,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.store.begin_durable().await?;
        let mut entries: Vec<AuditEntry> = Vec::new();
        for call in calls {
            let stored = find_record(&mut transaction, &call.id).await?;
            let record = call.into_record(stored);
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
            Column::names(&COLUMNS).join(", ")
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
        self.set_stored_intents(&mut transaction, last).await?;
        transaction.commit().await?;
        Ok(interrupted)
    }

    /// Deletes records up to the last seal before a time and returns their number.
    pub(crate) async fn delete(&self, before: i64) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT COALESCE(MAX(seq), 0) FROM audit_segments WHERE at < $1")
            .bind(before)
            .fetch_one(self.store.readers())
            .await?;
        self.delete_up_to(row.try_get(0)?, before).await
    }

    /// Deletes the oldest records until all others have at most a size. Returns their number;
    /// `None` if nothing had to be deleted.
    pub(super) async fn shrink(&self, max_size: u64) -> Result<Option<u64>, StoreError> {
        if self.size.lock().is_some_and(|size| size <= max_size) {
            return Ok(None);
        }
        let rows = sqlx::query("SELECT seq, bytes, at FROM audit_segments ORDER BY seq DESC")
            .fetch_all(self.store.readers())
            .await?;
        let mut size = 0_u64;
        for row in &rows {
            let (bytes, at): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
            if size + bytes.unsigned_abs() > max_size {
                let deleted = self.delete_up_to(row.try_get(0)?, at + 1).await?;
                *self.size.lock() = Some(size);
                return Ok(Some(deleted));
            }
            size += bytes.unsigned_abs();
        }
        *self.size.lock() = Some(size);
        Ok(None)
    }

    /// Deletes the segments up to a number, all of which were written before a time, and their records.
    /// Also deletes records of earlier versions from before that time, which are not in the chain.
    /// Calls in flight stay.
    async fn delete_up_to(&self, seq: i64, before: i64) -> Result<u64, StoreError> {
        // A record is older than the segment that holds its entry.
        const DELETED: &str = "outcome <> 'open' AND id < $2 AND seq <= $1";
        let before_id = min_id_at(before);
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
            let statement = sqlx::query(AssertSqlSafe(sql)).bind(seq).bind(&before_id);
            deleted = transaction.run(statement).await?;
        }
        self.delete_segments(&mut transaction, seq).await?;
        transaction.commit().await?;
        Ok(deleted)
    }

    /// Deletes segments and empties the last of them, where the chain starts from now on.
    async fn delete_segments(
        &self,
        transaction: &mut StoreTransaction,
        seq: i64,
    ) -> Result<(), StoreError> {
        let row = sqlx::query("SELECT hash FROM audit_segments WHERE seq = $1 AND entries <> $2")
            .bind(seq)
            .bind(Vec::<u8>::new())
            .fetch_optional(&mut **transaction)
            .await?;
        let Some(row) = row else {
            return Ok(());
        };
        let hash: Vec<u8> = row.try_get(0)?;
        let entry = EntryDraft {
            kind: EntryKind::Retention,
            record: seq.to_string(),
            digest: to_digest(&hash),
        };
        let delete = sqlx::query("DELETE FROM audit_segments WHERE seq < $1").bind(seq);
        transaction.run(delete).await?;
        let empty = sqlx::query("UPDATE audit_segments SET entries = $2, bytes = 0 WHERE seq = $1")
            .bind(seq)
            .bind(Vec::<u8>::new());
        transaction.run(empty).await?;
        self.append_entries(transaction, vec![entry], 0).await?;
        Ok(())
    }

    /// Returns where the chain starts; `None` if nothing was deleted.
    pub(crate) async fn start(&self) -> Result<Option<TrailStart>, StoreError> {
        TrailStart::read(&self.store).await
    }

    /// Returns how much is stored.
    pub(super) async fn usage(&self) -> Result<AuditUsage, StoreError> {
        let row = sqlx::query(
            "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), MIN(seq), MAX(seq), MIN(at), MAX(at) FROM audit_segments",
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
        let mut sql = format!("SELECT {} FROM audit", Column::names(&COLUMNS).join(", "));
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

impl TrailStart {
    pub(super) async fn read(store: &Store) -> Result<Option<Self>, StoreError> {
        let row = sqlx::query("SELECT seq, at, entries FROM audit_segments ORDER BY seq LIMIT 1")
            .fetch_optional(store.readers())
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let entries: Vec<u8> = row.try_get(2)?;
        let start = Self {
            seq: row.try_get(0)?,
            at: row.try_get(1)?,
        };
        Ok(entries.is_empty().then_some(start))
    }
}

async fn find_record(
    transaction: &mut StoreTransaction,
    id: &str,
) -> Result<Option<AuditRecord>, StoreError> {
    let columns = Column::names(&COLUMNS).join(", ");
    let sql = format!("SELECT {columns} FROM audit WHERE id = $1");
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(id)
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(match row {
        Some(row) => Some(RecordRow::read(&row)?.into_record()),
        None => None,
    })
}
