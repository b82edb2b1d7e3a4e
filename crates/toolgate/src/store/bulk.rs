//! Multi-row inserts, because every statement costs a round trip to the database thread.

use std::sync::Arc;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe};

use super::{StoreError, StoreTransaction};

/// Rows per statement. A few fixed sizes allow the prepared statements to be reused.
const BATCH_SIZES: [usize; 3] = [64, 8, 1];

pub(crate) type Statement<'q> = Query<'q, Any, AnyArguments>;

/// Insert statements for one table, one per batch size.
pub(crate) struct BulkInsert([(usize, Arc<str>); BATCH_SIZES.len()]);

impl BulkInsert {
    /// `suffix` follows the values, for example an `ON CONFLICT` clause.
    ///
    /// Parameters are anonymous because SQLite searches all of a statement's parameters to resolve
    /// each named one.
    pub(crate) fn new(table: &str, columns: &[&str], suffix: &str) -> Self {
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let names = columns.join(", ");
        Self(BATCH_SIZES.map(|rows| {
            let values = vec![row.as_str(); rows].join(", ");
            let sql = format!("INSERT INTO {table} ({names}) VALUES {values} {suffix}");
            (rows, sql.into())
        }))
    }

    /// Inserts all rows in a transaction. `bind` adds the values of one row.
    pub(crate) async fn insert<'q, Row>(
        &self,
        transaction: &mut StoreTransaction,
        rows: &'q [Row],
        bind: impl Fn(Statement<'q>, &'q Row) -> Statement<'q>,
    ) -> Result<(), StoreError> {
        let mut rest = rows;
        for (size, sql) in &self.0 {
            let batches = rest.chunks_exact(*size);
            rest = batches.remainder();
            for batch in batches {
                let query = sqlx::query(AssertSqlSafe(Arc::clone(sql)));
                transaction.run(batch.iter().fold(query, &bind)).await?;
            }
        }
        Ok(())
    }
}
