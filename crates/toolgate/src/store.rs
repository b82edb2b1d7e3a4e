//! What must survive a restart: servers and settings changed through the API, the history of tool
//! definitions, approvals and the audit trail.
//!
//! One SQLite file in the data directory. Entries may hold secrets, so they are sealed with a key
//! that stands beside the file.

mod approvals;
mod audit;
mod bulk;
mod models;
mod runs;
mod schema;
mod scripts;
mod seal;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use audit::Spent;
use bulk::Insert;
use seal::Seal;
use serde_json::Value;
use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::{AnyPool, AssertSqlSafe, Connection as _, Executor as _, Row as _};
use toolgate_core::ToolId;

/// Definitions that are kept of one tool.
const MAX_VERSIONS: i64 = 50;
/// Definitions that are noted in one transaction.
const NOTED_TOGETHER: usize = 256;

static NOTE: LazyLock<Insert> = LazyLock::new(|| {
    let columns = [
        "server",
        "tool",
        "hash",
        "definition",
        "first_seen",
        "last_seen",
    ];
    let again = "ON CONFLICT (server, tool, hash) DO UPDATE SET last_seen = excluded.last_seen";
    Insert::new("tool_versions", &columns, again)
});

/// The database of a gateway; clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    /// One writer.
    pool: AnyPool,
    /// Readers beside it, so that a long look at the audit trail holds nobody up.
    readers: AnyPool,
    seal: Seal,
    /// Held as long as the store is used, so that no other gateway uses the same directory.
    _lock: Option<Arc<File>>,
}

/// A server entry that was changed through the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub server: String,
    /// The entry; none if the server was removed.
    pub entry: Option<Value>,
    /// Hash of the file's entry that it replaced; none if the file had none.
    pub file_hash: Option<String>,
}

/// One definition that a tool has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub hash: String,
    pub definition: String,
    /// Milliseconds since 1970.
    pub first_seen: i64,
    pub last_seen: i64,
}

/// A definition to be noted.
#[derive(Clone, Debug)]
pub struct Seen {
    pub tool: ToolId,
    pub hash: String,
    pub definition: String,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database cannot be used: {0}")]
    Database(#[from] sqlx::Error),
    #[error("the database is of another version: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    #[error("the key file `{file}` cannot be used: {cause}")]
    Key { file: String, cause: std::io::Error },
    #[error("the entry could not be encrypted, so it is not stored")]
    NotSealed,
    #[error("an entry cannot be read: it was sealed with another `store.key`, or is damaged")]
    Unreadable,
    #[error("another gateway uses the data directory `{0}`; choose another with --data-dir")]
    InUse(String),
    #[error("the data directory `{folder}` cannot be used: {cause}")]
    Folder {
        folder: String,
        cause: std::io::Error,
    },
}

impl Store {
    /// Opens the database in a directory, making it if there is none.
    pub async fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let lock = lock(data_dir)?;
        let seal = Seal::kept_in(&data_dir.join("store.key"))?;
        let file = data_dir.join("toolgate.db").display().to_string();
        // The path is part of a URL.
        let file = file
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        let store = Self::connect(&format!("sqlite://{file}?mode=rwc"), seal).await?;
        Ok(Self {
            _lock: Some(Arc::new(lock)),
            ..store
        })
    }

    /// A database that ends with the process.
    pub async fn in_memory() -> Result<Self, StoreError> {
        Self::connect("sqlite::memory:", Seal::random()?).await
    }

    async fn connect(url: &str, seal: Seal) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        // A pool would try for half a minute before it says what is wrong.
        let mut probe = sqlx::AnyConnection::connect(url).await?;
        probe.execute("PRAGMA schema_version").await?;
        probe.close().await?;
        let pool = pool(1).connect(url).await?;
        schema::migrator().run(&pool).await?;
        let readers = match url.contains(":memory:") {
            true => pool.clone(), // such a database is its connection
            false => self::pool(2).connect_lazy(url)?,
        };
        let store = Self {
            pool,
            readers,
            seal,
            _lock: None,
        };
        store.mark_interrupted().await?;
        Ok(store)
    }

    /// What was under way when the last gateway ended without closing it.
    async fn mark_interrupted(&self) -> Result<(), StoreError> {
        for sql in [
            "UPDATE audit SET outcome = 'interrupted', error = 'the gateway ended while the call was under way; it may have run' WHERE outcome = 'open'",
            "UPDATE approvals SET state = 'unknown' WHERE state = 'executing'",
            "UPDATE runs SET state = 'interrupted' WHERE state = 'running'",
        ] {
            sqlx::query(sql).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// A text that only this store can read again.
    pub(crate) fn sealed(&self, text: &str) -> Result<String, StoreError> {
        self.seal.close(text)
    }

    /// A text that this store has sealed.
    pub(crate) fn unseal(&self, sealed: &str) -> Option<String> {
        self.seal.open(sealed)
    }

    /// What was changed through the API. An entry that cannot be unsealed is left out, and told.
    pub async fn overrides(&self) -> Result<Vec<Override>, StoreError> {
        let rows =
            sqlx::query("SELECT server, entry, file_hash FROM server_overrides ORDER BY server")
                .fetch_all(&self.pool)
                .await?;
        let mut overrides = Vec::new();
        for row in &rows {
            overrides.extend(self.read_override(row)?);
        }
        Ok(overrides)
    }

    pub async fn put_override(&self, change: &Override) -> Result<(), StoreError> {
        let entry = change.entry.as_ref();
        let entry = entry
            .map(|entry| self.seal.close(&entry.to_string()))
            .transpose()?;
        sqlx::query(
            "INSERT INTO server_overrides (server, entry, file_hash, changed_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (server) DO UPDATE SET entry = excluded.entry, file_hash = excluded.file_hash, changed_at = excluded.changed_at",
        )
        .bind(&change.server)
        .bind(entry)
        .bind(&change.file_hash)
        .bind(now())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn drop_override(&self, server: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM server_overrides WHERE server = $1")
            .bind(server)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// A setting, and the hash of what the file said when it was set.
    pub async fn setting(&self, key: &str) -> Result<Option<(Value, String)>, StoreError> {
        let row = sqlx::query("SELECT value, file_hash FROM settings WHERE key = $1")
            .bind(key)
            .fetch_optional(&self.pool)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let text: String = row.try_get(0)?;
        // Earlier versions kept settings in clear; they held no secrets.
        let text = self.seal.open(&text).unwrap_or(text);
        Ok(Some((
            serde_json::from_str(&text).unwrap_or_default(),
            row.try_get(1)?,
        )))
    }

    pub async fn put_setting(
        &self,
        key: &str,
        value: &Value,
        file_hash: &str,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO settings (key, value, file_hash) VALUES ($1, $2, $3)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value, file_hash = excluded.file_hash",
        )
        .bind(key)
        .bind(self.seal.close(&value.to_string())?)
        .bind(file_hash)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn drop_setting(&self, key: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM settings WHERE key = $1")
            .bind(key)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Notes definitions that are in force now; some at a time, so that others who write need not
    /// wait for ten thousand.
    pub async fn note(&self, seen: &[Seen]) -> Result<(), StoreError> {
        let now = now();
        for some in seen.chunks(NOTED_TOGETHER) {
            NOTE.write(&self.pool, some, |query, seen| {
                query
                    .bind(seen.tool.server.as_str())
                    .bind(seen.tool.tool.as_str())
                    .bind(&seen.hash)
                    .bind(&seen.definition)
                    .bind(now)
                    .bind(now)
            })
            .await?;
        }
        let newest = "SELECT server, tool, hash, ROW_NUMBER() OVER
            (PARTITION BY server, tool ORDER BY last_seen DESC, first_seen DESC) AS place FROM tool_versions";
        let sql = format!(
            "DELETE FROM tool_versions WHERE (server, tool, hash) IN
             (SELECT server, tool, hash FROM ({newest}) AS newest WHERE place > $1)"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(MAX_VERSIONS)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// All definitions of a tool, the one seen last first.
    pub async fn versions(&self, tool: &ToolId) -> Result<Vec<Version>, StoreError> {
        let rows = sqlx::query(
            "SELECT hash, definition, first_seen, last_seen FROM tool_versions
             WHERE server = $1 AND tool = $2 ORDER BY last_seen DESC, first_seen DESC",
        )
        .bind(tool.server.as_str())
        .bind(tool.tool.as_str())
        .fetch_all(&self.pool)
        .await?;
        let version = |row: &AnyRow| {
            Ok(Version {
                hash: row.try_get(0)?,
                definition: row.try_get(1)?,
                first_seen: row.try_get(2)?,
                last_seen: row.try_get(3)?,
            })
        };
        rows.iter().map(version).collect()
    }

    /// Writes what is outstanding and closes the database.
    pub async fn close(&self) {
        self.readers.close().await;
        self.pool.close().await;
    }

    fn read_override(&self, row: &AnyRow) -> Result<Option<Override>, StoreError> {
        let server: String = row.try_get(0)?;
        let sealed: Option<String> = row.try_get(1)?;
        let file_hash = row.try_get(2)?;
        let Some(sealed) = sealed else {
            return Ok(Some(Override {
                server,
                entry: None,
                file_hash,
            }));
        };
        let entry = self
            .seal
            .open(&sealed)
            .and_then(|text| serde_json::from_str(&text).ok());
        if entry.is_none() {
            tracing::error!(
                server,
                "what the API set was sealed with another key and is left out; restore `store.key`, or set it again"
            );
        }
        Ok(entry.map(|entry| Override {
            server,
            entry: Some(entry),
            file_hash,
        }))
    }
}

fn pool(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(|connection, _| {
            Box::pin(async move {
                // First, since it makes a new database sooner.
                connection.execute("PRAGMA synchronous = NORMAL").await?;
                connection.execute("PRAGMA journal_mode = WAL").await?;
                // A statement of many rows keeps what it would undo, which is no business of the disk.
                connection.execute("PRAGMA temp_store = MEMORY").await?;
                connection.execute("PRAGMA busy_timeout = 5000").await?;
                // One MiB: what is not there comes from the system's own cache.
                connection.execute("PRAGMA cache_size = -1024").await?;
                Ok(())
            })
        })
}

/// Makes sure that nobody else uses the directory.
fn lock(data_dir: &Path) -> Result<File, StoreError> {
    let folder = data_dir.display().to_string();
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(data_dir.join("lock"));
    let file = opened.map_err(|cause| StoreError::Folder {
        folder: folder.clone(),
        cause,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse(folder)),
        Err(TryLockError::Error(cause)) => Err(StoreError::Folder { folder, cause }),
    }
}

fn now() -> i64 {
    millis(SystemTime::now())
}

/// Milliseconds since 1970.
pub fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time that so many milliseconds since 1970 stand for.
pub fn from_millis(millis: i64) -> SystemTime {
    UNIX_EPOCH + std::time::Duration::from_millis(millis.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn overrides_survive_and_secrets_are_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let change = Override {
            server: "a".to_owned(),
            entry: Some(json!({"name": "a", "headers": {"Authorization": "Bearer hunter2"}})),
            file_hash: Some("h".to_owned()),
        };
        let gone = Override {
            server: "b".to_owned(),
            entry: None,
            file_hash: None,
        };
        let store = Store::open(folder.path()).await.unwrap();
        store.put_override(&gone).await.unwrap();
        store
            .put_override(&Override {
                entry: None,
                ..change.clone()
            })
            .await
            .unwrap();
        store.put_override(&change).await.unwrap();
        store.put_setting("k", &json!({"n": 1}), "f").await.unwrap();
        let second = Store::open(folder.path()).await.unwrap_err();
        assert!(matches!(second, StoreError::InUse(_)), "{second}");
        store.close().await;
        drop(store);

        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(store.overrides().await.unwrap(), [change, gone]);
        assert_eq!(
            store.setting("k").await.unwrap(),
            Some((json!({"n": 1}), "f".to_owned()))
        );
        store.drop_override("a").await.unwrap();
        store.drop_setting("k").await.unwrap();
        assert_eq!(store.overrides().await.unwrap().len(), 1);
        assert_eq!(store.setting("k").await.unwrap(), None);
        store.close().await;
        drop(store);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        }

        store_again(folder.path()).await;
    }

    /// With another key, what was sealed is left out and the rest can be read.
    async fn store_again(folder: &Path) {
        let store = Store::open(folder).await.unwrap();
        let sealed = Override {
            server: "c".to_owned(),
            entry: Some(json!({})),
            file_hash: None,
        };
        store.put_override(&sealed).await.unwrap();
        store.close().await;
        drop(store);
        std::fs::remove_file(folder.join("store.key")).unwrap();
        let store = Store::open(folder).await.unwrap();
        let names: Vec<String> = store
            .overrides()
            .await
            .unwrap()
            .into_iter()
            .map(|o| o.server)
            .collect();
        assert_eq!(names, ["b"]);
    }

    #[tokio::test]
    async fn odd_folders_and_broken_databases() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a?b%20c#d");
        std::fs::create_dir(&odd).unwrap();
        Store::open(&odd).await.unwrap().close().await;
        let broken = folder.path().join("broken");
        std::fs::create_dir(&broken).unwrap();
        std::fs::write(
            broken.join("toolgate.db"),
            "this is no database, but long enough to be looked at",
        )
        .unwrap();
        assert!(matches!(
            Store::open(&broken).await,
            Err(StoreError::Database(_))
        ));
    }

    #[tokio::test]
    async fn versions_in_the_order_in_which_they_were_seen_last() {
        let store = Store::in_memory().await.unwrap();
        let tool = ToolId {
            server: toolgate_core::ServerName::parse("s").unwrap(),
            tool: toolgate_core::ToolName::new("t"),
        };
        let seen = |hash: &str| Seen {
            tool: tool.clone(),
            hash: hash.to_owned(),
            definition: format!("{{\"v\":\"{hash}\"}}"),
        };
        for hash in ["one", "two", "one"] {
            store.note(&[seen(hash)]).await.unwrap();
            // Times are in milliseconds.
            let before = now();
            toolgate_testkit::eventually(
                "time passes",
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
