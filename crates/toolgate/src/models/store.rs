//! Storage of model request records.

use std::borrow::Cow;
use std::sync::LazyLock;

use sqlx::AssertSqlSafe;

use super::ModelRecord;
use crate::audit::{
    AuditStore, Column, ColumnValue, EntryDraft, EntryKind, ReferencedTable, bind_values,
    digest_values,
};
use crate::conversations::{IssuedId, put_issued_ids};
use crate::store::{BulkInsert, Store, StoreError, min_id_at};

/// Approximate bytes of a record, for the size of the audit trail.
const APPROXIMATE_ROW_BYTES: usize = 300;

const COLUMNS: [Column; 18] = [
    Column::text("id"),
    Column::text("request_id"),
    Column::text("caller"),
    Column::text("provider"),
    Column::text("model"),
    Column::text("dialect"),
    Column::integer("status"),
    Column::text("outcome"),
    Column::integer("stream"),
    Column::integer("input_tokens"),
    Column::integer("output_tokens"),
    Column::integer("cached_tokens"),
    Column::integer("cache_written_tokens"),
    Column::integer("reasoning_tokens"),
    Column::integer("cost_micro_usd"),
    Column::integer("started_at"),
    Column::integer("first_byte_us"),
    Column::integer("duration_us"),
];
static INSERT: LazyLock<BulkInsert> = LazyLock::new(|| {
    let mut columns = Column::names(&COLUMNS);
    columns.push("seq");
    BulkInsert::new("model_requests", &columns, "")
});
/// The rows have entries in the audit trail.
pub(crate) const REFERENCED_TABLE: ReferencedTable = ReferencedTable {
    name: "model_requests",
    kind: EntryKind::Model,
    columns: &COLUMNS,
};
/// Reads and writes model records. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct ModelStore {
    store: Store,
    audit: AuditStore,
}

/// A record as it is stored, and its place in the audit trail.
struct ModelRow<'a> {
    values: [ColumnValue<'a>; COLUMNS.len()],
    seq: i64,
}

impl ModelStore {
    pub(crate) fn new(store: Store, audit: AuditStore) -> Self {
        Self { store, audit }
    }

    /// Stores records together with their entries in the audit trail.
    pub(crate) async fn put_records(&self, records: &[ModelRecord]) -> Result<(), StoreError> {
        let mut rows: Vec<ModelRow<'_>> = records.iter().map(ModelRow::new).collect();
        let drafts = records.iter().zip(&rows).map(|(record, row)| EntryDraft {
            kind: EntryKind::Model,
            record: record.id.clone(),
            digest: digest_values(&row.values),
        });
        let drafts = drafts.collect();
        let mut transaction = self.store.begin().await?;
        let bytes = records.len() * APPROXIMATE_ROW_BYTES;
        let appended = self
            .audit
            .append_entries(&mut transaction, drafts, bytes)
            .await?;
        let first = appended.map_or(0, |appended| appended.first);
        for (row, seq) in rows.iter_mut().zip(first..) {
            row.seq = seq;
        }
        INSERT
            .insert(&mut transaction, &rows, |query, row| {
                bind_values(query, &row.values).bind(row.seq)
            })
            .await?;
        let issued: Vec<IssuedId<'_>> = records.iter().flat_map(issued_ids).collect();
        put_issued_ids(&mut transaction, &issued).await?;
        transaction.commit().await
    }

    /// Returns whether a batch is stored although its commit failed.
    pub(crate) async fn contains(&self, records: &[ModelRecord]) -> Result<bool, StoreError> {
        let Some(last) = records.last() else {
            return Ok(true);
        };
        let row = sqlx::query("SELECT 1 FROM model_requests WHERE id = $1")
            .bind(&last.id)
            .fetch_optional(self.store.readers())
            .await?;
        Ok(row.is_some())
    }

    /// Deletes the records whose entries in the audit trail were deleted, and those of earlier versions
    /// that started before a time.
    pub(crate) async fn delete_records(&self, before: Option<i64>) -> Result<(), StoreError> {
        // A record is older than the segment of the trail that holds its entry.
        const DELETED: &str = "id < $1 AND seq <= $2";
        let start = self.audit.start().await?;
        let segment_end = start.map(|start| start.at + 1);
        let Some(before) = before.max(segment_end) else {
            return Ok(());
        };
        let before = min_id_at(before);
        let deleted_up_to = start.map_or(0, |start| start.seq);
        // Budgets without a period still count deleted records, so their totals move to `spending`.
        let totals = format!(
            "INSERT INTO spending (caller, calls, micro_usd, tokens)
             SELECT used.caller, 0, CAST(COALESCE(SUM(used.cost_micro_usd), 0) AS BIGINT), CAST(COALESCE(SUM(input_tokens + output_tokens), 0) AS BIGINT)
             FROM model_requests AS used LEFT JOIN spending AS earlier ON earlier.caller = used.caller
             WHERE {DELETED} AND used.caller IS NOT NULL AND id > COALESCE(earlier.reset_id, '')
             GROUP BY used.caller
             ON CONFLICT (caller) DO UPDATE SET micro_usd = spending.micro_usd + excluded.micro_usd, tokens = spending.tokens + excluded.tokens",
        );
        let records = format!("DELETE FROM model_requests WHERE {DELETED}");
        let mut transaction = self.store.begin().await?;
        for sql in [totals, records] {
            let statement = sqlx::query(AssertSqlSafe(sql));
            let statement = statement.bind(&before).bind(deleted_up_to);
            transaction.run(statement).await?;
        }
        transaction.commit().await
    }
}

/// Returns the ids in a response.
fn issued_ids(record: &ModelRecord) -> impl Iterator<Item = IssuedId<'_>> {
    let ids = record.response_ids.iter();
    ids.map(|id| IssuedId {
        id,
        caller: record.caller.as_deref(),
        provider: &record.provider,
        at: record.started_at,
    })
}

impl<'a> ModelRow<'a> {
    fn new(record: &'a ModelRecord) -> Self {
        let text = |text: &'a str| ColumnValue::Text(Some(Cow::Borrowed(text)));
        let integer = |value: i64| ColumnValue::Integer(Some(value));
        let count = |tokens: Option<u64>| {
            let count = tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
            ColumnValue::Integer(count)
        };
        let usage = record.usage;
        Self {
            values: [
                text(&record.id),
                text(&record.request_id),
                ColumnValue::Text(record.caller.as_deref().map(Cow::Borrowed)),
                text(&record.provider),
                text(&record.model),
                text(&record.dialect),
                integer(record.status.into()),
                text(&record.outcome),
                integer(record.stream.into()),
                count(usage.map(|usage| usage.input)),
                count(usage.map(|usage| usage.output)),
                count(usage.map(|usage| usage.cached)),
                count(usage.map(|usage| usage.cache_written)),
                count(usage.map(|usage| usage.reasoning)),
                count(record.cost_micro_usd),
                integer(record.started_at),
                ColumnValue::Integer(record.first_byte_us),
                integer(record.duration_us),
            ],
            seq: 0,
        }
    }
}
