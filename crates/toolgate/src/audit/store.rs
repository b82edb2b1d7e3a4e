//! Storage of audit records.

use std::sync::LazyLock;

use serde_json::value::RawValue;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::{AuditPage, AuditQuery, AuditRecord};
use crate::store::{BulkInsert, Statement, Store, StoreError, min_id_at};

const COLUMNS: [&str; 26] = [
    "id",
    "request_id",
    "parent_id",
    "run_id",
    "caller",
    "origin",
    "name",
    "server",
    "tool",
    "instead_of",
    "arguments",
    "verdict",
    "rule",
    "approval",
    "warnings",
    "outcome",
    "error",
    "result",
    "bytes_in",
    "bytes_out",
    "started_at",
    "duration_us",
    "cost_micro_usd",
    "charged",
    "cached",
    "script",
];
static INSERT: LazyLock<BulkInsert> = LazyLock::new(|| {
    let updates: Vec<String> = COLUMNS[1..]
        .iter()
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    let on_conflict = format!("ON CONFLICT (id) DO UPDATE SET {}", updates.join(", "));
    BulkInsert::new("audit", &COLUMNS, &on_conflict)
});

/// Reads and writes audit records. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct AuditStore(Store);

impl AuditStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Marks calls that a previous gateway process left unfinished.
    pub(crate) async fn mark_interrupted(&self) -> Result<(), StoreError> {
        sqlx::query("UPDATE audit SET outcome = 'interrupted', error = 'the gateway stopped while the call was in flight; it may have run' WHERE outcome = 'open'")
            .execute(self.0.writer())
            .await?;
        Ok(())
    }

    /// Writes records, replacing earlier versions with the same id.
    pub(crate) async fn put(&self, records: &[Box<AuditRecord>]) -> Result<(), StoreError> {
        Ok(INSERT
            .write(self.0.writer(), records, |query, record| {
                bind(query, record)
            })
            .await?)
    }

    /// Deletes records of calls that started before a time and returns their number.
    pub(crate) async fn delete(&self, before: i64) -> Result<u64, StoreError> {
        let before = min_id_at(before);
        let mut transaction = self.0.begin().await?;
        // Budgets without a period still count deleted records, so their totals move to `spending`.
        sqlx::query(
            "INSERT INTO spending (caller, calls, micro_usd)
             SELECT audit.caller, COUNT(*), SUM(cost_micro_usd) FROM audit
             LEFT JOIN spending AS earlier ON earlier.caller = audit.caller
             WHERE id < $1 AND charged = 1 AND audit.caller IS NOT NULL AND id > COALESCE(earlier.reset_id, '')
             GROUP BY audit.caller
             ON CONFLICT (caller) DO UPDATE SET calls = spending.calls + excluded.calls, micro_usd = spending.micro_usd + excluded.micro_usd",
        )
        .bind(&before)
        .execute(&mut *transaction)
        .await?;
        let done = sqlx::query("DELETE FROM audit WHERE id < $1")
            .bind(&before)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(done.rows_affected())
    }

    /// Returns matching records, newest first.
    pub(crate) async fn query(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let since = query.since.map(min_id_at);
        let until = query.until.map(min_id_at);
        let conditions: [(&str, &Option<String>); 9] = [
            ("server =", &query.server),
            ("tool =", &query.tool),
            ("caller =", &query.caller),
            ("outcome =", &query.outcome),
            ("request_id =", &query.request_id),
            ("run_id =", &query.run_id),
            ("id >=", &since),
            ("id <", &until),
            ("id <", &query.before),
        ];
        let conditions: Vec<(&str, &String)> = conditions
            .iter()
            .filter_map(|(left, right)| Some((*left, right.as_ref()?)))
            .collect();
        let mut sql = format!("SELECT {} FROM audit", COLUMNS.join(", "));
        for (index, (left, _)) in conditions.iter().enumerate() {
            let keyword = if index == 0 { "WHERE" } else { "AND" };
            sql.push_str(&format!(" {keyword} {left} ${}", index + 1));
        }
        sql.push_str(&format!(
            " ORDER BY id DESC LIMIT {}",
            query.limit.saturating_add(1)
        ));
        let mut select = sqlx::query(AssertSqlSafe(sql));
        for (_, right) in conditions {
            select = select.bind(right);
        }
        let rows = select.fetch_all(self.0.readers()).await?;
        let more = rows.len() > query.limit;
        let records: Result<Vec<AuditRecord>, sqlx::Error> =
            rows.iter().take(query.limit).map(read_record).collect();
        Ok(AuditPage {
            records: records?,
            more,
        })
    }
}

fn bind<'q>(query: Statement<'q>, record: &'q AuditRecord) -> Statement<'q> {
    let raw = |part: &Option<Box<RawValue>>| part.as_ref().map(|raw| raw.get().to_owned());
    let warnings = (!record.warnings.is_empty()).then(|| record.warnings.join("\n"));
    query
        .bind(&record.id)
        .bind(&record.request_id)
        .bind(&record.parent_id)
        .bind(&record.run_id)
        .bind(&record.caller)
        .bind(&record.origin)
        .bind(&record.name)
        .bind(&record.server)
        .bind(&record.tool)
        .bind(&record.instead_of)
        .bind(raw(&record.arguments))
        .bind(record.verdict.clone())
        .bind(&record.rule)
        .bind(&record.approval)
        .bind(warnings)
        .bind(&record.outcome)
        .bind(&record.error)
        .bind(raw(&record.result))
        .bind(record.bytes_in)
        .bind(record.bytes_out)
        .bind(record.started_at)
        .bind(record.duration_us)
        .bind(record.cost_micro_usd)
        .bind(i64::from(record.charged))
        .bind(i64::from(record.cached))
        .bind(record.script.as_ref().map(ToString::to_string))
}

fn read_record(row: &AnyRow) -> Result<AuditRecord, sqlx::Error> {
    let text = |at: usize| -> Result<Option<String>, sqlx::Error> { row.try_get(at) };
    let id: String = row.try_get(0)?;
    // A damaged part must not hide the record, nor the other records of the page.
    let log = |column: &str, error: &serde_json::Error| {
        tracing::warn!(record = id, column, %error, "leaving out unreadable part of an audit record");
    };
    let raw = |at: usize| -> Result<Option<Box<RawValue>>, sqlx::Error> {
        let parsed = text(at)?.map(RawValue::from_string).transpose();
        Ok(parsed.unwrap_or_else(|error| {
            log(COLUMNS[at], &error);
            None
        }))
    };
    let flag = |at: usize| -> Result<bool, sqlx::Error> {
        let flag: i64 = row.try_get(at)?;
        Ok(flag != 0)
    };
    let warnings = text(14)?.unwrap_or_default();
    let script = text(25)?
        .map(|text| serde_json::from_str(&text))
        .transpose();
    let script = script.unwrap_or_else(|error| {
        log(COLUMNS[25], &error);
        None
    });
    Ok(AuditRecord {
        request_id: row.try_get(1)?,
        parent_id: text(2)?,
        run_id: text(3)?,
        caller: text(4)?,
        origin: row.try_get(5)?,
        name: row.try_get(6)?,
        server: text(7)?,
        tool: text(8)?,
        instead_of: text(9)?,
        arguments: raw(10)?,
        verdict: text(11)?,
        rule: text(12)?,
        approval: text(13)?,
        warnings: warnings.lines().map(ToOwned::to_owned).collect(),
        outcome: row.try_get(15)?,
        error: text(16)?,
        result: raw(17)?,
        bytes_in: row.try_get(18)?,
        bytes_out: row.try_get(19)?,
        started_at: row.try_get(20)?,
        duration_us: row.try_get(21)?,
        cost_micro_usd: row.try_get(22)?,
        charged: flag(23)?,
        cached: flag(24)?,
        script,
        id,
    })
}
