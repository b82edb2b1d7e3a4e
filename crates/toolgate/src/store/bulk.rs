//! Many rows in one statement, since each statement is a trip to the database's thread and back.

use std::sync::Arc;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyPool, AssertSqlSafe};

/// Rows that one statement writes; few sizes, so that statements are prepared once.
const ROWS: [usize; 3] = [64, 8, 1];

pub(super) type Statement<'q> = Query<'q, Any, AnyArguments>;

/// Statements that insert some rows each.
pub(super) struct Insert([(usize, Arc<str>); ROWS.len()]);

impl Insert {
    /// `end` is what follows the values, such as what to do about rows that are there.
    ///
    /// Parameters have no names: SQLite looks each one up among all of a statement's.
    pub(super) fn new(table: &str, columns: &[&str], end: &str) -> Self {
        let row = format!("({})", vec!["?"; columns.len()].join(", "));
        let names = columns.join(", ");
        Self(ROWS.map(|rows| {
            let values = vec![row.as_str(); rows].join(", ");
            let sql = format!("INSERT INTO {table} ({names}) VALUES {values} {end}");
            (rows, sql.into())
        }))
    }

    /// Writes all or none; `bind` adds the values of one row.
    pub(super) async fn write<'q, Row>(
        &self,
        pool: &AnyPool,
        rows: &'q [Row],
        bind: impl Fn(Statement<'q>, &'q Row) -> Statement<'q>,
    ) -> Result<(), sqlx::Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut transaction = pool.begin().await?;
        let mut rest = rows;
        for (size, sql) in &self.0 {
            let batches = rest.chunks_exact(*size);
            rest = batches.remainder();
            for batch in batches {
                let query = sqlx::query(AssertSqlSafe(Arc::clone(sql)));
                let query = batch.iter().fold(query, &bind);
                query.execute(&mut *transaction).await?;
            }
        }
        transaction.commit().await
    }
}
