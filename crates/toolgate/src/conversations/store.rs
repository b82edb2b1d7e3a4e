//! Storage of the ids of responses, items and conversations, and of the keys that they belong to.

use std::sync::LazyLock;

use sqlx::Row as _;

use crate::store::{BulkInsert, Store, StoreError, StoreTransaction, clock, min_id_at};

static INSERT: LazyLock<BulkInsert> = LazyLock::new(|| {
    let columns = ["id", "caller", "known", "provider", "at"];
    BulkInsert::new("response_ids", &columns, "ON CONFLICT DO NOTHING")
});

/// Reads and writes the owners of ids. Clones share the store.
#[derive(Clone, Debug)]
pub(super) struct OwnerStore(Store);

/// An id that belongs to a caller.
#[derive(Clone, Debug)]
pub(super) struct OwnedId {
    /// Name of the caller's key.
    caller: Option<String>,
    /// The id at the provider.
    pub(super) provider_id: String,
    /// Name of the provider, if it was recorded.
    pub(super) provider: Option<String>,
    /// Whether it belonged to an earlier key of the same name.
    is_orphaned: bool,
}

impl OwnedId {
    pub(super) fn belongs_to(&self, caller: Option<&str>) -> bool {
        self.caller.as_deref() == caller && !self.is_orphaned
    }
}

/// An id that a provider issued to a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IssuedId<'a> {
    pub(crate) id: &'a str,
    /// Name of the caller's key.
    pub(crate) caller: Option<&'a str>,
    /// Name of the provider.
    pub(crate) provider: &'a str,
    /// Milliseconds since the Unix epoch.
    pub(crate) at: i64,
}

impl OwnerStore {
    pub(super) fn new(store: Store) -> Self {
        Self(store)
    }

    pub(super) async fn put(
        &self,
        id: &str,
        caller: Option<&str>,
        provider_id: &str,
    ) -> Result<(), StoreError> {
        let statement =
            sqlx::query("INSERT INTO response_ids (id, caller, known, at) VALUES ($1, $2, $3, $4)")
                .bind(id)
                .bind(caller)
                .bind(provider_id)
                .bind(clock::now());
        self.0.execute(statement).await?;
        Ok(())
    }

    /// Makes a key the owner of an id that has none.
    pub(super) async fn claim(&self, id: &str, caller: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO response_ids (id, caller, known, at) VALUES ($1, $2, $1, $3)
            ON CONFLICT DO NOTHING";
        let statement = sqlx::query(sql).bind(id).bind(caller).bind(clock::now());
        self.0.execute(statement).await?;
        Ok(())
    }

    /// Keeps an id for as long as a new one.
    pub(super) async fn renew(&self, id: &str) -> Result<(), StoreError> {
        let statement = sqlx::query("UPDATE response_ids SET at = $1 WHERE id = $2")
            .bind(clock::now())
            .bind(id);
        self.0.execute(statement).await?;
        Ok(())
    }

    pub(super) async fn get(&self, id: &str) -> Result<Option<OwnedId>, StoreError> {
        // The reset of a key's budget marks when an earlier key of that name was removed.
        let sql = "SELECT ids.caller, ids.known, ids.at, spending.reset_id, ids.provider FROM response_ids AS ids
            LEFT JOIN spending ON spending.caller = ids.caller WHERE ids.id = $1";
        let row = sqlx::query(sql)
            .bind(id)
            .fetch_optional(self.0.readers())
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let (issued_at, reset): (i64, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
        Ok(Some(OwnedId {
            caller: row.try_get(0)?,
            provider_id: row.try_get(1)?,
            provider: row.try_get(4)?,
            is_orphaned: reset.is_some_and(|reset| min_id_at(issued_at) <= reset),
        }))
    }

    pub(super) async fn delete(&self, id: &str) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM response_ids WHERE id = $1").bind(id);
        self.0.execute(statement).await?;
        Ok(())
    }

    pub(super) async fn delete_before(&self, before: i64) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM response_ids WHERE at < $1").bind(before);
        self.0.execute(statement).await?;
        Ok(())
    }
}

/// Stores ids that providers issued. An id that is already known keeps its owner.
pub(crate) async fn put_issued_ids(
    transaction: &mut StoreTransaction,
    ids: &[IssuedId<'_>],
) -> Result<(), StoreError> {
    let insert = INSERT.insert(transaction, ids, |query, issued| {
        let query = query.bind(issued.id).bind(issued.caller);
        query.bind(issued.id).bind(issued.provider).bind(issued.at)
    });
    insert.await
}
