//! Storage of model request records and response ids.

use std::sync::LazyLock;

use sqlx::Row as _;

use super::ModelRecord;
use crate::store::{BulkInsert, Statement, Store, StoreError, min_id_at};

const COLUMNS: [&str; 18] = [
    "id",
    "request_id",
    "caller",
    "provider",
    "model",
    "dialect",
    "status",
    "outcome",
    "stream",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_written_tokens",
    "reasoning_tokens",
    "cost_micro_usd",
    "started_at",
    "first_byte_us",
    "duration_us",
];
static INSERT: LazyLock<BulkInsert> =
    LazyLock::new(|| BulkInsert::new("model_requests", &COLUMNS, ""));

/// Reads and writes model records and response ids. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct ModelStore(Store);

impl ModelStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    pub(crate) async fn put_records(&self, records: &[ModelRecord]) -> Result<(), StoreError> {
        Ok(INSERT.write(self.0.writer(), records, bind).await?)
    }

    /// Deletes records of requests that started before a time.
    pub(crate) async fn delete_records(&self, before: i64) -> Result<(), StoreError> {
        let before = min_id_at(before);
        let mut transaction = self.0.begin().await?;
        // Budgets without a period still count deleted records, so their totals move to `spending`.
        sqlx::query(
            "INSERT INTO spending (caller, calls, micro_usd, tokens)
             SELECT used.caller, 0, COALESCE(SUM(used.cost_micro_usd), 0), COALESCE(SUM(input_tokens + output_tokens), 0)
             FROM model_requests AS used LEFT JOIN spending AS earlier ON earlier.caller = used.caller
             WHERE id < $1 AND used.caller IS NOT NULL AND id > COALESCE(earlier.reset_id, '')
             GROUP BY used.caller
             ON CONFLICT (caller) DO UPDATE SET micro_usd = spending.micro_usd + excluded.micro_usd, tokens = spending.tokens + excluded.tokens",
        )
        .bind(&before)
        .execute(&mut *transaction)
        .await?;
        sqlx::query("DELETE FROM model_requests WHERE id < $1")
            .bind(&before)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Maps one of the gateway's response ids to the provider's id of the response.
    pub(crate) async fn put_response_id(
        &self,
        id: &str,
        provider_id: &str,
        caller: Option<&str>,
        at: i64,
    ) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO response_ids (id, caller, known, at) VALUES ($1, $2, $3, $4)")
            .bind(id)
            .bind(caller)
            .bind(provider_id)
            .bind(at)
            .execute(self.0.writer())
            .await?;
        Ok(())
    }

    /// Returns the provider's id of a response that the caller knows by one of the gateway's ids.
    pub(crate) async fn response_id(
        &self,
        id: &str,
        caller: Option<&str>,
    ) -> Result<Option<String>, StoreError> {
        let sql = "SELECT known FROM response_ids WHERE id = $1 AND (caller = $2 OR ($2 IS NULL AND caller IS NULL))";
        let row = sqlx::query(sql).bind(id).bind(caller);
        let row = row.fetch_optional(self.0.readers()).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Deletes response ids issued before a time.
    pub(crate) async fn delete_response_ids(&self, before: i64) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM response_ids WHERE at < $1")
            .bind(before)
            .execute(self.0.writer())
            .await?;
        Ok(())
    }
}

fn bind<'q>(query: Statement<'q>, record: &'q ModelRecord) -> Statement<'q> {
    let usage = record.usage;
    let count =
        |tokens: Option<u64>| tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
    query
        .bind(&record.id)
        .bind(&record.request_id)
        .bind(&record.caller)
        .bind(&record.provider)
        .bind(&record.model)
        .bind(&record.dialect)
        .bind(i64::from(record.status))
        .bind(&record.outcome)
        .bind(i64::from(record.stream))
        .bind(count(usage.map(|usage| usage.input)))
        .bind(count(usage.map(|usage| usage.output)))
        .bind(count(usage.map(|usage| usage.cached)))
        .bind(count(usage.map(|usage| usage.cache_written)))
        .bind(count(usage.map(|usage| usage.reasoning)))
        .bind(count(record.cost_micro_usd))
        .bind(record.started_at)
        .bind(record.first_byte_us)
        .bind(record.duration_us)
}
