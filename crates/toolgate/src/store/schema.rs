//! The database schema as a list of migrations. A released migration is never changed.

use std::borrow::Cow;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AnyConnection, AssertSqlSafe, Row as _, SqlSafeStr as _};

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (
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
    ),
    (
        2,
        "audit, approvals and grants",
        "CREATE TABLE audit (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        parent_id TEXT,
        run_id TEXT,
        caller TEXT,
        origin TEXT NOT NULL,
        name TEXT NOT NULL,
        server TEXT,
        tool TEXT,
        instead_of TEXT,
        arguments TEXT,
        verdict TEXT,
        rule TEXT,
        approval TEXT,
        warnings TEXT,
        outcome TEXT NOT NULL,
        error TEXT,
        result TEXT,
        bytes_in BIGINT NOT NULL,
        bytes_out BIGINT NOT NULL,
        started_at BIGINT NOT NULL,
        duration_us BIGINT,
        cost_micro_usd BIGINT NOT NULL,
        charged BIGINT NOT NULL,
        cached BIGINT NOT NULL
    );
    CREATE INDEX audit_open ON audit (id) WHERE outcome = 'open';
    CREATE INDEX audit_request ON audit (request_id);
    CREATE INDEX audit_caller ON audit (caller, id) WHERE caller IS NOT NULL;
    CREATE TABLE spending (
        caller TEXT PRIMARY KEY,
        calls BIGINT NOT NULL,
        micro_usd BIGINT NOT NULL
    );
    CREATE TABLE approvals (
        id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        caller TEXT NOT NULL,
        session TEXT,
        origin TEXT NOT NULL,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        alias TEXT NOT NULL,
        digest TEXT NOT NULL,
        binding TEXT NOT NULL,
        rule TEXT NOT NULL,
        request_id TEXT NOT NULL,
        run_id TEXT,
        arguments TEXT NOT NULL,
        edited TEXT,
        conversation TEXT,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        decided_at BIGINT,
        decided_by TEXT,
        scope TEXT,
        reason TEXT
    );
    CREATE UNIQUE INDEX approvals_pending ON approvals (caller, server, tool, digest, binding) WHERE state = 'pending';
    CREATE INDEX approvals_by_call ON approvals (caller, server, tool, digest);
    CREATE TABLE grants (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        binding TEXT NOT NULL,
        approval TEXT NOT NULL,
        granted_by TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        UNIQUE (caller, server, tool, binding)
    );",
    ),
    (
        3,
        "model requests",
        "CREATE TABLE model_requests (
        id TEXT PRIMARY KEY,
        request_id TEXT NOT NULL,
        caller TEXT,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        dialect TEXT NOT NULL,
        status BIGINT NOT NULL,
        outcome TEXT NOT NULL,
        stream BIGINT NOT NULL,
        input_tokens BIGINT,
        output_tokens BIGINT,
        cached_tokens BIGINT,
        cache_written_tokens BIGINT,
        reasoning_tokens BIGINT,
        cost_micro_usd BIGINT,
        started_at BIGINT NOT NULL,
        first_byte_us BIGINT,
        duration_us BIGINT NOT NULL
    );
    CREATE INDEX model_requests_caller ON model_requests (caller, id) WHERE caller IS NOT NULL;
    ALTER TABLE spending ADD COLUMN tokens BIGINT NOT NULL DEFAULT 0;",
    ),
    (
        4,
        "runs of agents",
        "CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        caller TEXT,
        request_id TEXT NOT NULL,
        dialect TEXT NOT NULL,
        model TEXT NOT NULL,
        stream BIGINT NOT NULL,
        state TEXT NOT NULL,
        stop_reason TEXT,
        iterations BIGINT NOT NULL,
        input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        cost_micro_usd BIGINT NOT NULL,
        started_at BIGINT NOT NULL,
        ended_at BIGINT,
        request TEXT NOT NULL
    );
    CREATE INDEX runs_caller ON runs (caller, id);
    CREATE INDEX runs_started ON runs (started_at);
    CREATE TABLE run_steps (
        run TEXT NOT NULL,
        seq BIGINT NOT NULL,
        step TEXT NOT NULL,
        at BIGINT NOT NULL,
        PRIMARY KEY (run, seq)
    );",
    ),
    (
        5,
        "scripts",
        "CREATE TABLE scripts (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        session TEXT NOT NULL,
        call TEXT NOT NULL,
        digest TEXT NOT NULL,
        run TEXT NOT NULL,
        context TEXT NOT NULL,
        state TEXT NOT NULL,
        steps TEXT NOT NULL,
        changed_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    );
    CREATE INDEX scripts_by_call ON scripts (caller, call, digest);
    ALTER TABLE audit ADD COLUMN script TEXT;",
    ),
    (
        6,
        "ids of answers",
        "CREATE TABLE response_ids (
        id TEXT PRIMARY KEY,
        caller TEXT,
        known TEXT NOT NULL,
        at BIGINT NOT NULL
    );
    CREATE INDEX response_ids_at ON response_ids (at);",
    ),
    (
        7,
        "budgets that start anew",
        "ALTER TABLE spending ADD COLUMN reset_id TEXT;",
    ),
    (
        8,
        "tamper-evident audit trail",
        "CREATE TABLE IF NOT EXISTS meta (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    );
    ALTER TABLE audit ADD COLUMN kind TEXT NOT NULL DEFAULT 'tool';
    ALTER TABLE audit ADD COLUMN occurrences BIGINT NOT NULL DEFAULT 1;
    ALTER TABLE audit ADD COLUMN detail TEXT;
    ALTER TABLE audit ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE model_requests ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
    CREATE INDEX audit_other_kinds ON audit (kind, id) WHERE kind <> 'tool';
    CREATE TABLE audit_segments (
        seq INTEGER PRIMARY KEY,
        at BIGINT NOT NULL,
        bytes BIGINT NOT NULL,
        entries BLOB NOT NULL,
        hash BLOB NOT NULL,
        key_id BLOB NOT NULL,
        mac BLOB NOT NULL
    );",
    ),
    (
        9,
        "fingerprints of tools and approvers",
        "ALTER TABLE approvals RENAME COLUMN binding TO fingerprint;
    ALTER TABLE grants RENAME COLUMN binding TO fingerprint;
    ALTER TABLE approvals ADD COLUMN approvers TEXT NOT NULL DEFAULT 'admin';",
    ),
    (
        10,
        "trusted definitions of tools",
        // A row without a tool says that the server is known.
        "CREATE TABLE trusted_definitions (
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        hash TEXT NOT NULL,
        definition TEXT NOT NULL,
        first_seen BIGINT NOT NULL,
        trusted_at BIGINT NOT NULL,
        trusted_by TEXT,
        PRIMARY KEY (server, tool)
    );",
    ),
    (
        11,
        "providers of stored responses",
        "ALTER TABLE response_ids ADD COLUMN provider TEXT;",
    ),
    (
        12,
        "tasks of MCP clients",
        "CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        endpoint TEXT NOT NULL,
        server TEXT,
        server_task TEXT,
        state TEXT NOT NULL,
        message TEXT,
        outcome TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        poll_ms BIGINT NOT NULL
    );
    CREATE INDEX tasks_caller ON tasks (caller, expires_at);
    CREATE INDEX tasks_expires ON tasks (expires_at);",
    ),
];

/// Version of the current schema.
pub(super) const LATEST: i64 = MIGRATIONS.len() as i64;

/// Returns the version of the schema; `None` for an empty database.
pub(super) async fn version(connection: &mut AnyConnection) -> Result<Option<i64>, sqlx::Error> {
    let table = sqlx::query("SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
        .fetch_optional(&mut *connection)
        .await?;
    if table.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("SELECT MAX(version) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

/// Returns the migrations up to a version, to create databases of earlier versions.
#[cfg(test)]
pub(super) fn migrator_up_to(last: i64) -> Migrator {
    let mut migrator = migrator();
    migrator
        .migrations
        .to_mut()
        .retain(|migration| migration.version <= last);
    migrator
}

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
