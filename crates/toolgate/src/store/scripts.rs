//! Scripts that wait for somebody, in the database. What they were answered may be anything that
//! tools said, so it is sealed.

use sqlx::Row as _;

use super::{Store, StoreError};
use crate::code_mode::{KeptScript, ScriptKey, ScriptState, steps_of, steps_value};

impl Store {
    pub(crate) async fn script(&self, key: &ScriptKey) -> Result<Option<KeptScript>, StoreError> {
        let row = sqlx::query(
            "SELECT state, steps FROM scripts WHERE caller = $1 AND call = $2 AND digest = $3",
        )
        .bind(&key.caller)
        .bind(&key.call)
        .bind(&key.digest)
        .fetch_optional(&self.readers)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let state: String = row.try_get(0)?;
        let steps = self.opened(&row.try_get::<String, _>(1)?)?;
        Ok(Some(KeptScript {
            // What cannot be told is not run again.
            state: ScriptState::named(&state).unwrap_or(ScriptState::Done),
            steps: steps_of(&steps),
        }))
    }

    /// Keeps a script that waits, with what it was answered so far.
    pub(crate) async fn keep_script(
        &self,
        key: &ScriptKey,
        script: &KeptScript,
        now: i64,
    ) -> Result<(), StoreError> {
        let steps = steps_value(&script.steps).to_string();
        sqlx::query(
            "INSERT INTO scripts (caller, call, digest, state, steps, changed_at) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (caller, call, digest) DO UPDATE SET state = $4, steps = $5, changed_at = $6",
        )
        .bind(&key.caller)
        .bind(&key.call)
        .bind(&key.digest)
        .bind(script.state.as_str())
        .bind(self.seal.close(&steps)?)
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Takes a script that waits; false if somebody else has.
    pub(crate) async fn take_script(&self, key: &ScriptKey) -> Result<bool, StoreError> {
        let done = sqlx::query(
            "UPDATE scripts SET state = 'running' WHERE caller = $1 AND call = $2 AND digest = $3 AND state = 'waiting'",
        )
        .bind(&key.caller)
        .bind(&key.call)
        .bind(&key.digest)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// A script that waited has ended.
    pub(crate) async fn forget_script(&self, key: &ScriptKey) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM scripts WHERE caller = $1 AND call = $2 AND digest = $3")
            .bind(&key.caller)
            .bind(&key.call)
            .bind(&key.digest)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
