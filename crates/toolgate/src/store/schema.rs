//! The tables, as migrations that are never changed once released.

use std::borrow::Cow;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

const MIGRATIONS: &[(i64, &str, &str)] = &[(
    1,
    "servers, settings and tool versions",
    "CREATE TABLE server_overrides (
        server TEXT PRIMARY KEY,
        entry TEXT,
        file_hash TEXT,
        changed_at BIGINT NOT NULL
    );
    CREATE TABLE settings (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL,
        file_hash TEXT NOT NULL
    );
    CREATE TABLE tool_versions (
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        hash TEXT NOT NULL,
        definition TEXT NOT NULL,
        first_seen BIGINT NOT NULL,
        last_seen BIGINT NOT NULL,
        PRIMARY KEY (server, tool, hash)
    );",
)];

pub(super) fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, description, sql)| {
        let sql = AssertSqlSafe(*sql).into_sql_str();
        Migration::new(
            *version,
            Cow::Borrowed(*description),
            MigrationType::Simple,
            sql,
            false,
        )
    });
    Migrator {
        migrations: migrations.collect(),
        ..Migrator::DEFAULT
    }
}
