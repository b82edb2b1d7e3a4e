//! Storage of suspended scripts. Their journals contain tool results, so they are sealed.

use sqlx::Row as _;

use super::journal::{ScriptKey, ScriptState, StoredScript, steps_from_value, steps_to_value};
use crate::store::{Store, StoreError};

/// Reads and writes suspended scripts. Clones share the store.
#[derive(Clone, Debug)]
pub(super) struct ScriptStore(Store);

impl ScriptStore {
    pub(super) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Returns the stored script that matches a request: within a run, the run's own; otherwise the
    /// newest waiting one, or else the newest finished one.
    pub(super) async fn find(
        &self,
        key: &ScriptKey,
        now: i64,
    ) -> Result<Option<StoredScript>, StoreError> {
        let row = sqlx::query(
            "SELECT id, state, steps, expires_at FROM scripts
             WHERE caller = $1 AND call = $2 AND digest = $3 AND expires_at > $4
               AND ((run = $5 AND run <> '') OR ($5 = '' AND session = $6 AND (run <> '' OR context IN ($7, $8))))
             ORDER BY CASE state WHEN 'waiting' THEN 0 ELSE 1 END, id DESC LIMIT 1",
        )
        .bind(&key.caller)
        .bind(&key.call)
        .bind(&key.digest)
        .bind(now)
        .bind(&key.run)
        .bind(&key.session)
        .bind(&key.context)
        .bind(&key.old_context)
        .fetch_optional(self.0.readers())
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let state: String = row.try_get(1)?;
        let steps = self.0.unseal_json(&row.try_get::<String, _>(2)?)?;
        Ok(Some(StoredScript {
            id: row.try_get(0)?,
            // A script in an unknown state must not run again.
            state: ScriptState::from_name(&state).unwrap_or(ScriptState::Done),
            steps: steps_from_value(&steps).ok_or(StoreError::Unreadable)?,
            expires_at: row.try_get(3)?,
        }))
    }

    /// Stores a script with its journal, replacing any earlier version.
    pub(super) async fn put(
        &self,
        key: &ScriptKey,
        script: &StoredScript,
        now: i64,
    ) -> Result<(), StoreError> {
        let steps = steps_to_value(&script.steps).to_string();
        self.0.execute(sqlx::query(
            "INSERT INTO scripts (id, caller, session, call, digest, run, context, state, steps, changed_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (id) DO UPDATE SET state = $8, steps = $9, changed_at = $10, expires_at = $11",
        )
        .bind(&script.id)
        .bind(&key.caller)
        .bind(&key.session)
        .bind(&key.call)
        .bind(&key.digest)
        .bind(&key.run)
        .bind(&key.context)
        .bind(script.state.as_str())
        .bind(self.0.seal(&steps)?)
        .bind(now)
        .bind(script.expires_at)).await?;
        Ok(())
    }

    /// Claims a waiting script; returns `false` if a concurrent request claimed it first.
    pub(super) async fn claim(&self, id: &str) -> Result<bool, StoreError> {
        let updated = self
            .0
            .execute(
                sqlx::query(
                    "UPDATE scripts SET state = 'running' WHERE id = $1 AND state = 'waiting'",
                )
                .bind(id),
            )
            .await?;
        Ok(updated == 1)
    }

    /// Deletes a script that has finished.
    pub(super) async fn delete(&self, id: &str) -> Result<(), StoreError> {
        self.0
            .execute(sqlx::query("DELETE FROM scripts WHERE id = $1").bind(id))
            .await?;
        Ok(())
    }
}
