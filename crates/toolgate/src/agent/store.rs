//! Storage of agent runs: the request and a journal of every step. Both may contain anything that
//! users and tools wrote, so they are sealed.

use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::{RunQuery, RunRecord, RunState};
use crate::store::{Store, StoreError};

const COLUMNS: &str = "id, caller, request_id, dialect, model, stream, state, stop_reason, iterations, input_tokens, output_tokens, cost_micro_usd, started_at, ended_at";

/// Reads and writes runs and their journals. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct RunStore(Store);

/// A step in the journal of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunStep {
    /// Position in the journal.
    pub seq: i64,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    /// The step as JSON.
    pub step: Value,
}

impl RunStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Marks runs that a previous gateway process left unfinished.
    pub(crate) async fn mark_interrupted(&self) -> Result<(), StoreError> {
        self.0
            .execute(sqlx::query(
                "UPDATE runs SET state = 'interrupted' WHERE state = 'running'",
            ))
            .await?;
        Ok(())
    }

    /// Stores a new run with its original request.
    pub(crate) async fn put(&self, run: &RunRecord, request: &Value) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO runs ({COLUMNS}, request) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
        );
        self.0
            .execute(
                sqlx::query(AssertSqlSafe(sql))
                    .bind(&run.id)
                    .bind(&run.caller)
                    .bind(&run.request_id)
                    .bind(&run.dialect)
                    .bind(&run.model)
                    .bind(i64::from(run.stream))
                    .bind(run.state.as_str())
                    .bind(&run.stop_reason)
                    .bind(run.iterations)
                    .bind(run.input_tokens)
                    .bind(run.output_tokens)
                    .bind(run.cost_micro_usd)
                    .bind(run.started_at)
                    .bind(run.ended_at)
                    .bind(self.0.seal(&request.to_string())?),
            )
            .await?;
        Ok(())
    }

    /// Updates the state and counters of a run.
    pub(crate) async fn update(&self, run: &RunRecord) -> Result<(), StoreError> {
        self.0.execute(sqlx::query(
            "UPDATE runs SET state = $2, stop_reason = $3, iterations = $4, input_tokens = $5, output_tokens = $6, cost_micro_usd = $7, ended_at = $8 WHERE id = $1",
        )
        .bind(&run.id)
        .bind(run.state.as_str())
        .bind(&run.stop_reason)
        .bind(run.iterations)
        .bind(run.input_tokens)
        .bind(run.output_tokens)
        .bind(run.cost_micro_usd)
        .bind(run.ended_at)).await?;
        Ok(())
    }

    /// Claims a waiting, interrupted or failed run; returns `false` if it is already running or
    /// done.
    pub(crate) async fn claim(&self, id: &str) -> Result<bool, StoreError> {
        let done = self.0.execute(sqlx::query(
            "UPDATE runs SET state = 'running', stop_reason = NULL, ended_at = NULL WHERE id = $1 AND state IN ('waiting', 'interrupted', 'failed')",
        )
        .bind(id)).await?;
        Ok(done == 1)
    }

    /// Appends a step to a run's journal.
    pub(crate) async fn put_step(
        &self,
        run: &str,
        seq: i64,
        step: &Value,
        at: i64,
    ) -> Result<(), StoreError> {
        self.0
            .execute(
                sqlx::query("INSERT INTO run_steps (run, seq, step, at) VALUES ($1, $2, $3, $4)")
                    .bind(run)
                    .bind(seq)
                    .bind(self.0.seal(&step.to_string())?)
                    .bind(at),
            )
            .await?;
        Ok(())
    }

    /// Returns a run and its request.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<(RunRecord, Value)>, StoreError> {
        let sql = format!("SELECT {COLUMNS}, request FROM runs WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(id)
            .fetch_optional(self.0.readers())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let request: String = row.try_get(14)?;
        let request = self.0.unseal_json(&request)?;
        Ok(Some((read_run(&row)?, request)))
    }

    /// Returns the steps of a run, in order.
    pub(crate) async fn steps(&self, run: &str) -> Result<Vec<RunStep>, StoreError> {
        let rows = sqlx::query("SELECT seq, at, step FROM run_steps WHERE run = $1 ORDER BY seq")
            .bind(run)
            .fetch_all(self.0.readers())
            .await?;
        let step = |row: &AnyRow| -> Result<RunStep, StoreError> {
            let sealed: String = row.try_get(2)?;
            Ok(RunStep {
                seq: row.try_get(0)?,
                at: row.try_get(1)?,
                step: self.0.unseal_json(&sealed)?,
            })
        };
        rows.iter().map(step).collect()
    }

    /// Returns runs, newest first, of one caller or of all.
    pub(crate) async fn list(&self, query: &RunQuery) -> Result<Vec<RunRecord>, StoreError> {
        let RunQuery {
            caller,
            state,
            before,
            limit,
        } = query;
        let sql = format!(
            "SELECT {COLUMNS} FROM runs WHERE ($1 IS NULL OR caller = $1) AND ($2 IS NULL OR state = $2) AND ($3 IS NULL OR id < $3) ORDER BY id DESC LIMIT {limit}"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(caller.as_deref())
            .bind(state.as_deref())
            .bind(before.as_deref())
            .fetch_all(self.0.readers())
            .await?;
        rows.iter().map(read_run).collect()
    }

    /// Deletes runs older than a time. Active runs stay.
    pub(crate) async fn delete_expired(&self, before: i64) -> Result<(), StoreError> {
        for sql in [
            "DELETE FROM run_steps WHERE run IN (SELECT id FROM runs WHERE started_at < $1 AND state <> 'running')",
            "DELETE FROM runs WHERE started_at < $1 AND state <> 'running'",
        ] {
            self.0.execute(sqlx::query(sql).bind(before)).await?;
        }
        Ok(())
    }
}

fn read_run(row: &AnyRow) -> Result<RunRecord, StoreError> {
    let stream: i64 = row.try_get(5)?;
    let state: String = row.try_get(6)?;
    Ok(RunRecord {
        id: row.try_get(0)?,
        caller: row.try_get(1)?,
        request_id: row.try_get(2)?,
        dialect: row.try_get(3)?,
        model: row.try_get(4)?,
        stream: stream != 0,
        state: RunState::from_name(&state).ok_or(StoreError::Unreadable)?,
        stop_reason: row.try_get(7)?,
        iterations: row.try_get(8)?,
        input_tokens: row.try_get(9)?,
        output_tokens: row.try_get(10)?,
        cost_micro_usd: row.try_get(11)?,
        started_at: row.try_get(12)?,
        ended_at: row.try_get(13)?,
    })
}
