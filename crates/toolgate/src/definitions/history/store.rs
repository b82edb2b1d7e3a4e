//! Storage of tool definitions.

use std::sync::LazyLock;
use std::time::SystemTime;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use toolgate_core::ToolId;

use super::{ObservedTool, ToolVersion};
use crate::store::{BulkInsert, Store, StoreError, unix_millis};

/// Definitions stored per tool.
const MAX_VERSIONS_PER_TOOL: i64 = 50;
/// Bytes of definitions stored per server, which may list other tools again and again.
const MAX_BYTES_PER_SERVER: i64 = 32 * 1024 * 1024;
/// Definitions recorded per transaction.
const DEFINITION_BATCH_SIZE: usize = 256;

static INSERT_VERSIONS: LazyLock<BulkInsert> = LazyLock::new(|| {
    let columns = [
        "server",
        "tool",
        "hash",
        "definition",
        "first_seen",
        "last_seen",
    ];
    let on_conflict =
        "ON CONFLICT (server, tool, hash) DO UPDATE SET last_seen = excluded.last_seen";
    BulkInsert::new("tool_versions", &columns, on_conflict)
});

/// Reads and writes tool definitions. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct DefinitionStore(Store);

impl DefinitionStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Records the definitions currently in force. Writes in batches, so that other writes do not
    /// wait for thousands of definitions.
    pub(crate) async fn record(&self, seen: &[ObservedTool]) -> Result<(), StoreError> {
        let now = unix_millis(SystemTime::now());
        for batch in seen.chunks(DEFINITION_BATCH_SIZE) {
            let mut transaction = self.0.begin().await?;
            INSERT_VERSIONS
                .insert(&mut transaction, batch, |query, seen| {
                    query
                        .bind(seen.tool.server.as_str())
                        .bind(seen.tool.tool.as_str())
                        .bind(&seen.hash)
                        .bind(&seen.definition)
                        .bind(now)
                        .bind(now)
                })
                .await?;
            transaction.commit().await?;
        }
        let per_tool = "ROW_NUMBER() OVER (PARTITION BY server, tool ORDER BY last_seen DESC, first_seen DESC)";
        self.delete_beyond(per_tool, MAX_VERSIONS_PER_TOOL).await?;
        let per_server = "SUM(LENGTH(definition)) OVER (PARTITION BY server ORDER BY last_seen DESC, tool, hash)";
        self.delete_beyond(per_server, MAX_BYTES_PER_SERVER).await
    }

    /// Deletes definitions whose place, as an expression of SQL, is beyond a maximum.
    async fn delete_beyond(&self, place: &str, max: i64) -> Result<(), StoreError> {
        let places = format!("SELECT server, tool, hash, {place} AS place FROM tool_versions");
        let sql = format!(
            "DELETE FROM tool_versions WHERE (server, tool, hash) IN
             (SELECT server, tool, hash FROM ({places}) AS places WHERE place > $1)"
        );
        let statement = sqlx::query(AssertSqlSafe(sql)).bind(max);
        self.0.execute(statement).await?;
        Ok(())
    }

    /// Returns all definitions of a tool, most recently seen first.
    pub(crate) async fn versions(&self, tool: &ToolId) -> Result<Vec<ToolVersion>, StoreError> {
        let rows = sqlx::query(
            "SELECT hash, definition, first_seen, last_seen FROM tool_versions
             WHERE server = $1 AND tool = $2 ORDER BY last_seen DESC, first_seen DESC",
        )
        .bind(tool.server.as_str())
        .bind(tool.tool.as_str())
        .fetch_all(self.0.readers())
        .await?;
        let version = |row: &AnyRow| {
            Ok(ToolVersion {
                hash: row.try_get(0)?,
                definition: row.try_get(1)?,
                first_seen: row.try_get(2)?,
                last_seen: row.try_get(3)?,
            })
        };
        rows.iter().map(version).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn definitions_of_a_server_are_bounded_in_bytes() {
        let store = DefinitionStore::new(Store::in_memory().await.unwrap());
        let seen = |server: &str, tool: &str| ObservedTool {
            tool: ToolId {
                server: toolgate_core::ServerName::parse(server).unwrap(),
                tool: toolgate_core::ToolName::new(tool),
            },
            hash: tool.to_owned(),
            definition: "x".repeat(8 * 1024 * 1024),
        };
        store.record(&[seen("other", "t")]).await.unwrap();
        for tool in ["a", "b", "c", "d", "e", "f"] {
            store.record(&[seen("s", tool)]).await.unwrap();
        }
        let rows = sqlx::query(
            "SELECT server, COUNT(*) FROM tool_versions GROUP BY server ORDER BY server",
        )
        .fetch_all(store.0.readers())
        .await
        .unwrap();
        let counts: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(counts, [("other".to_owned(), 1), ("s".to_owned(), 4)]);
    }

    #[tokio::test]
    async fn tool_versions_are_ordered_by_last_seen() {
        let store = DefinitionStore::new(Store::in_memory().await.unwrap());
        let tool = ToolId {
            server: toolgate_core::ServerName::parse("s").unwrap(),
            tool: toolgate_core::ToolName::new("t"),
        };
        let seen = |hash: &str| ObservedTool {
            tool: tool.clone(),
            hash: hash.to_owned(),
            definition: format!("{{\"v\":\"{hash}\"}}"),
        };
        for hash in ["one", "two", "one"] {
            store.record(&[seen(hash)]).await.unwrap();
            // Times have millisecond resolution.
            let now = || unix_millis(SystemTime::now());
            let before = now();
            toolgate_testkit::eventually(
                "the clock advances",
                std::time::Duration::from_secs(1),
                async || (now() > before).then_some(()),
            )
            .await;
        }
        let versions = store.versions(&tool).await.unwrap();
        let hashes: Vec<&str> = versions
            .iter()
            .map(|version| version.hash.as_str())
            .collect();
        assert_eq!(hashes, ["one", "two"]);
        assert!(
            versions[0].first_seen < versions[1].first_seen
                && versions[0].last_seen > versions[1].last_seen
        );
    }
}
