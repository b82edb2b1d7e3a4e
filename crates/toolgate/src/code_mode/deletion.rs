//! Deletion of stored scripts.

use crate::store::{Store, StoreError, StoreTransaction};

/// Deletes scripts that were last changed before a time.
pub(crate) async fn delete_expired_scripts(store: &Store, before: i64) -> Result<(), StoreError> {
    store
        .execute(sqlx::query("DELETE FROM scripts WHERE changed_at < $1").bind(before))
        .await?;
    Ok(())
}

/// Deletes the suspended scripts of a caller.
pub(crate) async fn delete_scripts_of(
    transaction: &mut StoreTransaction,
    caller: &str,
) -> Result<(), StoreError> {
    let delete = sqlx::query("DELETE FROM scripts WHERE caller = $1").bind(caller);
    transaction.run(delete).await?;
    Ok(())
}
