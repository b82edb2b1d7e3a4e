//! Storage of model request records.

use std::sync::LazyLock;

use super::bulk::{BulkInsert, Statement};
use super::{Store, StoreError};
use crate::models::ModelRecord;

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

impl Store {
    pub(crate) async fn put_model_records(
        &self,
        records: &[ModelRecord],
    ) -> Result<(), StoreError> {
        Ok(INSERT.write(&self.writer, records, bind).await?)
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
