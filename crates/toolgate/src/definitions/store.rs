//! Storage of trusted definitions.

use std::sync::{Arc, LazyLock};

use sqlx::Row as _;
use sqlx::any::AnyRow;
use toolgate_core::catalog::Tool;
use toolgate_core::name::{ServerName, ToolId, ToolName};

use super::TrustedDefinitions;
use crate::store::{BulkInsert, Statement, Store, StoreError, StoreTransaction, clock};

/// Definitions recorded per transaction.
const DEFINITION_BATCH_SIZE: usize = 256;

const COLUMNS: [&str; 7] = [
    "server",
    "tool",
    "hash",
    "definition",
    "first_seen",
    "trusted_at",
    "trusted_by",
];

static INSERT_FIRST_SEEN: LazyLock<BulkInsert> = LazyLock::new(|| {
    BulkInsert::new(
        "trusted_definitions",
        &COLUMNS,
        "ON CONFLICT (server, tool) DO NOTHING",
    )
});

static INSERT_TRUSTED: LazyLock<BulkInsert> = LazyLock::new(|| {
    let on_conflict = "ON CONFLICT (server, tool) DO UPDATE SET hash = excluded.hash, definition = excluded.definition, trusted_at = excluded.trusted_at, trusted_by = excluded.trusted_by";
    BulkInsert::new("trusted_definitions", &COLUMNS, on_conflict)
});

/// Reads and writes trusted definitions.
#[derive(Clone, Debug)]
pub(super) struct TrustStore(Store);

/// A definition that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustedDefinition {
    /// Hash of the definition.
    pub(crate) hash: String,
    /// Time at which the tool was first seen, in milliseconds since the Unix epoch.
    pub(crate) first_seen: i64,
    pub(crate) trusted_at: i64,
    /// `None` if the definition was trusted because it was seen for the first time.
    pub(crate) trusted_by: Option<String>,
}

type TrustedTool = (Arc<Tool>, TrustedDefinition);

impl TrustStore {
    pub(super) fn new(store: Store) -> Self {
        Self(store)
    }

    pub(super) async fn load(&self) -> Result<TrustedDefinitions, StoreError> {
        let rows = sqlx::query(
            "SELECT server, tool, hash, first_seen, trusted_at, trusted_by FROM trusted_definitions",
        )
        .fetch_all(self.0.readers())
        .await?;
        let mut trusted = TrustedDefinitions::default();
        for row in &rows {
            let (server, tool): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let server = ServerName::parse(&server).map_err(|_| StoreError::Unreadable)?;
            trusted.servers.insert(server.clone());
            if !tool.is_empty() {
                let tool = ToolName::new(&tool);
                let definition = read_definition(row)?;
                trusted.tools.insert(ToolId { server, tool }, definition);
            }
        }
        Ok(trusted)
    }

    /// Returns the text of the trusted definition of a tool.
    pub(super) async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT definition FROM trusted_definitions WHERE server = $1 AND tool = $2",
        )
        .bind(tool.server.as_str())
        .bind(tool.tool.as_str())
        .fetch_optional(self.0.readers())
        .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Records definitions and servers that were seen for the first time. Writes in batches, so that
    /// other writes do not wait for thousands of definitions. A server is recorded last: if that fails,
    /// the rest of its definitions are still seen for the first time.
    pub(super) async fn record_first_seen(
        &self,
        tools: &[TrustedTool],
        servers: &[ServerName],
    ) -> Result<(), StoreError> {
        for batch in tools.chunks(DEFINITION_BATCH_SIZE) {
            let mut transaction = self.0.begin().await?;
            INSERT_FIRST_SEEN
                .insert(&mut transaction, batch, bind_tool)
                .await?;
            transaction.commit().await?;
        }
        let now = clock::now();
        let mut transaction = self.0.begin().await?;
        INSERT_FIRST_SEEN
            .insert(&mut transaction, servers, |query, server| {
                let query = query.bind(server.as_str()).bind("").bind("").bind("");
                query.bind(now).bind(now).bind(None::<String>)
            })
            .await?;
        transaction.commit().await
    }

    /// Starts a transaction that stores definitions an administrator trusts.
    pub(super) async fn begin_trust(
        &self,
        tools: &[TrustedTool],
    ) -> Result<StoreTransaction, StoreError> {
        let mut transaction = self.0.begin_durable().await?;
        INSERT_TRUSTED
            .insert(&mut transaction, tools, bind_tool)
            .await?;
        Ok(transaction)
    }
}

fn bind_tool<'q>(query: Statement<'q>, (tool, trusted): &'q TrustedTool) -> Statement<'q> {
    query
        .bind(tool.id.server.as_str())
        .bind(tool.id.tool.as_str())
        .bind(&trusted.hash)
        .bind(tool.sent_definition().get())
        .bind(trusted.first_seen)
        .bind(trusted.trusted_at)
        .bind(&trusted.trusted_by)
}

fn read_definition(row: &AnyRow) -> Result<TrustedDefinition, StoreError> {
    Ok(TrustedDefinition {
        hash: row.try_get(2)?,
        first_seen: row.try_get(3)?,
        trusted_at: row.try_get(4)?,
        trusted_by: row.try_get(5)?,
    })
}
