//! Spending of keys, which budgets count: the sum of their call and model records, and the totals of
//! records that were deleted.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use crate::store::{Store, StoreError, StoreTransaction, clock, min_id_at};

/// Budget usage of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spending {
    pub(super) calls: u64,
    pub(super) tokens: u64,
    pub(super) micro_usd: u64,
}

/// Returns the spending of a key since a time. Zero means since the key was created or reset.
pub(super) async fn spending(
    store: &Store,
    caller: &str,
    since: i64,
) -> Result<Spending, StoreError> {
    let carried_over =
        sqlx::query("SELECT calls, micro_usd, tokens, reset_id FROM spending WHERE caller = $1")
            .bind(caller)
            .fetch_optional(store.readers())
            .await?;
    let reset: Option<String> = match &carried_over {
        Some(row) => row.try_get(3)?,
        None => None,
    };
    let from = min_id_at(since).max(reset.unwrap_or_default());
    let row = sqlx::query(
        "SELECT COUNT(*), COALESCE(SUM(cost_micro_usd), 0) FROM audit
         WHERE caller = $1 AND id >= $2 AND charged = 1",
    )
    .bind(caller)
    .bind(&from)
    .fetch_one(store.readers())
    .await?;
    let models = sqlx::query(
        "SELECT COALESCE(SUM(input_tokens + output_tokens), 0), COALESCE(SUM(cost_micro_usd), 0)
         FROM model_requests WHERE caller = $1 AND id >= $2",
    )
    .bind(caller)
    .bind(&from)
    .fetch_one(store.readers())
    .await?;
    let count_at = |row: &AnyRow, at: usize| -> Result<u64, sqlx::Error> {
        let value: i64 = row.try_get(at)?;
        Ok(value.unsigned_abs())
    };
    let mut spent = Spending {
        calls: count_at(&row, 0)?,
        tokens: count_at(&models, 0)?,
        micro_usd: count_at(&row, 1)? + count_at(&models, 1)?,
    };
    if let Some(carried_over) = carried_over.filter(|_| since == 0) {
        spent.calls += count_at(&carried_over, 0)?;
        spent.micro_usd += count_at(&carried_over, 1)?;
        spent.tokens += count_at(&carried_over, 2)?;
    }
    Ok(spent)
}

/// Resets the spending of a key.
///
/// Spending counts from a fresh id onwards: records of earlier calls that are written later have
/// smaller ids, so they are not charged to a new key of the same name.
pub(super) async fn reset_spending(
    transaction: &mut StoreTransaction,
    caller: &str,
) -> Result<(), StoreError> {
    let statement = sqlx::query(
        "INSERT INTO spending (caller, calls, micro_usd, tokens, reset_id) VALUES ($1, 0, 0, 0, $2)
         ON CONFLICT (caller) DO UPDATE SET calls = 0, micro_usd = 0, tokens = 0, reset_id = excluded.reset_id",
    )
    .bind(caller)
    .bind(clock::new_id().to_string());
    transaction.run(statement).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditEntry, AuditRecord, AuditStore, EntryKind, SealKey};
    use crate::call::ToolCall;
    use crate::caller::Caller;

    fn charged_record(caller: &str) -> Box<AuditRecord> {
        let call = ToolCall::parse("zoo_echo", "{}");
        let mut record = AuditRecord::new(&Caller::library(), &call, "r");
        record.caller = Some(caller.to_owned());
        record.charged = true;
        record.cost_micro_usd = 5;
        Box::new(record)
    }

    async fn put(records: &AuditStore, record: Box<AuditRecord>) -> Result<(), StoreError> {
        let entry = AuditEntry {
            kind: EntryKind::Closed,
            record,
        };
        let mut transaction = records.store.begin().await?;
        records.append(&mut transaction, &[entry]).await?;
        transaction.commit().await
    }

    #[tokio::test]
    async fn late_record_of_a_removed_key_is_not_charged_to_a_new_key_of_the_same_name() {
        let store = Store::in_memory().await.unwrap();
        let records = AuditStore::new(store.clone(), SealKey::new(b"k"));
        let calls = async || spending(&store, "alice", 0).await.unwrap().calls;
        put(&records, charged_record("alice")).await.unwrap();
        let late = charged_record("alice");
        assert_eq!(calls().await, 1);
        let mut transaction = store.begin().await.unwrap();
        reset_spending(&mut transaction, "alice").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(calls().await, 0);
        put(&records, late).await.unwrap();
        assert_eq!(calls().await, 0, "a late record of the old key");
        put(&records, charged_record("alice")).await.unwrap();
        assert_eq!(calls().await, 1, "a record of the new key");
        records.delete(i64::MAX >> 16).await.unwrap();
        assert_eq!(
            calls().await,
            1,
            "deleted records still count, except those of the old key"
        );
        let spent = spending(&store, "alice", 0).await.unwrap();
        assert_eq!(spent.micro_usd, 5);
    }
}
