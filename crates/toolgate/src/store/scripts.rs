//! Scripts that wait for somebody, in the database. What they were answered may be anything that
//! tools said, so it is sealed.

use sqlx::Row as _;

use super::{Store, StoreError};
use crate::code_mode::{KeptScript, ScriptKey, ScriptState, steps_of, steps_value};

impl Store {
    /// The script that a request means: within a run its own, else the newest that waits, or has ended.
    pub(crate) async fn script(
        &self,
        key: &ScriptKey,
        now: i64,
    ) -> Result<Option<KeptScript>, StoreError> {
        let row = sqlx::query(
            "SELECT id, state, steps, expires_at FROM scripts
             WHERE caller = $1 AND call = $2 AND digest = $3 AND expires_at > $4
               AND ((run = $5 AND run <> '') OR ($5 = '' AND session = $6 AND (run <> '' OR context = $7)))
             ORDER BY CASE state WHEN 'waiting' THEN 0 ELSE 1 END, id DESC LIMIT 1",
        )
        .bind(&key.caller)
        .bind(&key.call)
        .bind(&key.digest)
        .bind(now)
        .bind(&key.run)
        .bind(&key.session)
        .bind(&key.context)
        .fetch_optional(&self.readers)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let state: String = row.try_get(1)?;
        let steps = self.opened(&row.try_get::<String, _>(2)?)?;
        Ok(Some(KeptScript {
            id: row.try_get(0)?,
            // What cannot be told is not run again.
            state: ScriptState::named(&state).unwrap_or(ScriptState::Done),
            steps: steps_of(&steps).ok_or(StoreError::Unreadable)?,
            expires_at: row.try_get(3)?,
        }))
    }

    /// Keeps a script, with what it was answered so far, in the place of what was kept of it before.
    pub(crate) async fn keep_script(
        &self,
        key: &ScriptKey,
        script: &KeptScript,
        now: i64,
    ) -> Result<(), StoreError> {
        let steps = steps_value(&script.steps).to_string();
        sqlx::query(
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
        .bind(self.seal.close(&steps)?)
        .bind(now)
        .bind(script.expires_at)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Takes a script that waits; false if somebody else has.
    pub(crate) async fn take_script(&self, id: &str) -> Result<bool, StoreError> {
        let taken =
            sqlx::query("UPDATE scripts SET state = 'running' WHERE id = $1 AND state = 'waiting'")
                .bind(id)
                .execute(&self.pool)
                .await?;
        Ok(taken.rows_affected() == 1)
    }

    /// A script that waited has ended.
    pub(crate) async fn forget_script(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM scripts WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
