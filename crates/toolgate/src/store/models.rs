//! Model requests in the database.

use super::{Store, StoreError};
use crate::models::ModelRecord;

const INSERT: &str = "INSERT INTO model_requests (id, request_id, caller, provider, model, dialect, status, outcome, stream,
    input_tokens, output_tokens, cached_tokens, cache_written_tokens, reasoning_tokens, cost_micro_usd,
    started_at, first_byte_us, duration_us)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";

impl Store {
    pub(crate) async fn put_model_records(
        &self,
        records: &[ModelRecord],
    ) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let count =
            |tokens: Option<u64>| tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
        let mut transaction = self.pool.begin().await?;
        for record in records {
            let usage = record.usage;
            sqlx::query(INSERT)
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
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}
