//! The database: connections, transactions, migrations, sealing, and the servers and settings changed
//! through the API. Queries of other data live beside its owner, for example in `approval/store.rs`.
//!
//! Everything is stored in one SQLite file in the data directory. Entries that may contain secrets are
//! sealed (encrypted) with the key in `store.key` next to it.

mod batch_writer;
mod bulk;
mod schema;
mod seal;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use batch_writer::{BatchSettings, BatchSink, BatchWriter, OnWriteError};
pub(crate) use bulk::{BulkInsert, Statement};
use seal::StoreCipher;
use serde_json::Value;
use sqlx::any::{AnyPoolOptions, AnyRow};
use sqlx::{Any, AnyPool, Connection as _, Executor as _, Row as _, Transaction};
use uuid::Uuid;

/// A transaction that is rolled back unless it is committed.
pub(crate) type StoreTransaction = Transaction<'static, Any>;

/// The database of a gateway. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    /// A single connection, since SQLite allows only one writer.
    writer: AnyPool,
    /// Separate connections, so that long audit queries do not block writes.
    readers: AnyPool,
    cipher: StoreCipher,
    /// Keeps other gateways from using the same data directory.
    _lock: Option<Arc<File>>,
}

/// A server entry changed through the API.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)] // for the API of the binary
pub struct ServerOverride {
    /// Name of the server.
    pub server: String,
    /// The entry; `None` if the server was removed.
    pub entry: Option<Value>,
    /// Hash of the config file's entry that it replaces; `None` if the file had none.
    pub file_hash: Option<String>,
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum StoreError {
    /// The database failed.
    #[error("the database cannot be used: {0}")]
    Database(#[from] sqlx::Error),
    /// The database has an unknown format.
    #[error("the database was created by another version of Toolgate: {0}")]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The key file cannot be read or written.
    #[error("the key file `{file}` cannot be used: {cause}")]
    Key { file: String, cause: std::io::Error },
    /// Encryption failed.
    #[error("the entry could not be encrypted and was not stored")]
    SealFailed,
    /// An entry cannot be decrypted or parsed.
    #[error(
        "a stored entry cannot be read: it was sealed with another `store.key`, is damaged, or was written by another version"
    )]
    Unreadable,
    /// A setting cannot be decrypted or parsed.
    #[error(
        "the setting `{0}` in the database cannot be read; restore the `store.key` that it was sealed with, or remove the data directory to discard all changes made through the API"
    )]
    UnreadableSetting(String),
    /// Another process uses the data directory.
    #[error("another gateway uses the data directory `{0}`; choose another with --data-dir")]
    InUse(String),
    /// The data directory cannot be used.
    #[error("the data directory `{folder}` cannot be used: {cause}")]
    Folder {
        folder: String,
        cause: std::io::Error,
    },
}

impl Store {
    /// Opens the database in a directory, creating it if necessary.
    pub async fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let lock = lock_data_dir(data_dir)?;
        let cipher = StoreCipher::load_or_create(&data_dir.join("store.key"))?;
        let file = data_dir.join("toolgate.db").display().to_string();
        // The path becomes part of a URL.
        let file = file
            .replace('%', "%25")
            .replace('?', "%3f")
            .replace('#', "%23");
        let store = Self::connect(&format!("sqlite://{file}?mode=rwc"), cipher).await?;
        Ok(Self {
            _lock: Some(Arc::new(lock)),
            ..store
        })
    }

    /// Opens a database that lives in memory.
    pub async fn in_memory() -> Result<Self, StoreError> {
        Self::connect("sqlite::memory:", StoreCipher::random()?).await
    }

    async fn connect(url: &str, cipher: StoreCipher) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        // A pool would retry for 30 s before reporting an error.
        let mut probe = sqlx::AnyConnection::connect(url).await?;
        probe.execute("PRAGMA schema_version").await?;
        probe.close().await?;
        let writer = pool_options(1).connect(url).await?;
        schema::migrator().run(&writer).await?;
        let readers = if url.contains(":memory:") {
            // Every connection to an in-memory database opens a separate one.
            writer.clone()
        } else {
            pool_options(2).connect_lazy(url)?
        };
        Ok(Self {
            writer,
            readers,
            cipher,
            _lock: None,
        })
    }

    /// Returns the connection for writes, and for reads that must see the latest write.
    pub(crate) fn writer(&self) -> &AnyPool {
        &self.writer
    }

    /// Returns the connections for reads that may take long.
    pub(crate) fn readers(&self) -> &AnyPool {
        &self.readers
    }

    /// Starts a transaction.
    pub(crate) async fn begin(&self) -> Result<StoreTransaction, StoreError> {
        Ok(self.writer.begin().await?)
    }

    /// Encrypts a text so that only this store can read it.
    pub(crate) fn seal(&self, text: &str) -> Result<String, StoreError> {
        self.cipher.seal(text)
    }

    /// Decrypts a text sealed by this store.
    pub(crate) fn unseal(&self, sealed: &str) -> Option<String> {
        self.cipher.unseal(sealed)
    }

    /// Unseals JSON. Fails instead of returning a default, because an unreadable entry must not look
    /// like one that was never written.
    pub(crate) fn unseal_json(&self, sealed: &str) -> Result<Value, StoreError> {
        let text = self.cipher.unseal(sealed).ok_or(StoreError::Unreadable)?;
        serde_json::from_str(&text).map_err(|_| StoreError::Unreadable)
    }

    /// Returns the servers changed through the API. A server whose entry cannot be unsealed counts as
    /// removed, because the entry in the config file may allow more.
    #[doc(hidden)] // for the API of the binary
    pub async fn overrides(&self) -> Result<Vec<ServerOverride>, StoreError> {
        let rows =
            sqlx::query("SELECT server, entry, file_hash FROM server_overrides ORDER BY server")
                .fetch_all(&self.writer)
                .await?;
        rows.iter().map(|row| self.read_override(row)).collect()
    }

    /// Stores a changed server entry.
    #[doc(hidden)] // for the API of the binary
    pub async fn put_override(&self, change: &ServerOverride) -> Result<(), StoreError> {
        let entry = change.entry.as_ref();
        let entry = entry
            .map(|entry| self.cipher.seal(&entry.to_string()))
            .transpose()?;
        sqlx::query(
            "INSERT INTO server_overrides (server, entry, file_hash, changed_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (server) DO UPDATE SET entry = excluded.entry, file_hash = excluded.file_hash, changed_at = excluded.changed_at",
        )
        .bind(&change.server)
        .bind(entry)
        .bind(&change.file_hash)
        .bind(now())
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Deletes a changed server entry.
    #[doc(hidden)] // for the API of the binary
    pub async fn delete_override(&self, server: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM server_overrides WHERE server = $1")
            .bind(server)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Returns a setting and the hash of the config file's value at the time it was set. Fails if the
    /// setting cannot be read, since going on without it could widen access.
    #[doc(hidden)] // for the API of the binary
    pub async fn setting(&self, key: &str) -> Result<Option<(Value, String)>, StoreError> {
        let row = sqlx::query("SELECT value, file_hash FROM settings WHERE key = $1")
            .bind(key)
            .fetch_optional(&self.writer)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let text: String = row.try_get(0)?;
        // Earlier versions stored settings, which held no secrets then, in plain text.
        let text = self.cipher.unseal(&text).unwrap_or(text);
        let value = serde_json::from_str(&text)
            .map_err(|_| StoreError::UnreadableSetting(key.to_owned()))?;
        Ok(Some((value, row.try_get(1)?)))
    }

    /// Stores a setting and the hash of the config file's value.
    #[doc(hidden)] // for the API of the binary
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
        .bind(self.cipher.seal(&value.to_string())?)
        .bind(file_hash)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    /// Deletes a setting.
    #[doc(hidden)] // for the API of the binary
    pub async fn delete_setting(&self, key: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM settings WHERE key = $1")
            .bind(key)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    /// Finishes pending writes and closes the database.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    fn read_override(&self, row: &AnyRow) -> Result<ServerOverride, StoreError> {
        let server: String = row.try_get(0)?;
        let sealed: Option<String> = row.try_get(1)?;
        let entry = sealed.and_then(|sealed| {
            let entry = self.unseal_json(&sealed);
            let log = |error: &StoreError| {
                tracing::error!(
                    server,
                    %error,
                    "removing server whose stored entry cannot be read; restore `store.key` or set the server again"
                );
            };
            entry.inspect_err(log).ok()
        });
        Ok(ServerOverride {
            server,
            entry,
            file_hash: row.try_get(2)?,
        })
    }
}

fn pool_options(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(|connection, _| {
            Box::pin(async move {
                // First, because it makes creating a new database faster.
                connection.execute("PRAGMA synchronous = NORMAL").await?;
                connection.execute("PRAGMA journal_mode = WAL").await?;
                // Keep the statement journals of bulk inserts off the disk.
                connection.execute("PRAGMA temp_store = MEMORY").await?;
                connection.execute("PRAGMA busy_timeout = 5000").await?;
                // 1 MiB per connection; the OS page cache covers the rest.
                connection.execute("PRAGMA cache_size = -1024").await?;
                Ok(())
            })
        })
}

/// Locks the data directory against use by other gateways.
fn lock_data_dir(data_dir: &Path) -> Result<File, StoreError> {
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
    unix_millis(SystemTime::now())
}

/// Converts a time to milliseconds since the Unix epoch.
#[doc(hidden)] // for the API of the binary
pub fn unix_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Converts milliseconds since the Unix epoch to a time.
#[doc(hidden)] // for the API of the binary
pub fn from_unix_millis(millis: i64) -> SystemTime {
    UNIX_EPOCH + std::time::Duration::from_millis(millis.unsigned_abs())
}

/// Returns the lowest version 7 id that can be created at a time in milliseconds since the Unix epoch.
pub(crate) fn min_id_at(millis: i64) -> String {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    Uuid::from_bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn overrides_persist_and_secrets_are_encrypted_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let changed = ServerOverride {
            server: "a".to_owned(),
            entry: Some(json!({"name": "a", "headers": {"Authorization": "Bearer hunter2"}})),
            file_hash: Some("h".to_owned()),
        };
        let removed = ServerOverride {
            server: "b".to_owned(),
            entry: None,
            file_hash: None,
        };
        let store = Store::open(folder.path()).await.unwrap();
        store.put_override(&removed).await.unwrap();
        store
            .put_override(&ServerOverride {
                entry: None,
                ..changed.clone()
            })
            .await
            .unwrap();
        store.put_override(&changed).await.unwrap();
        store.put_setting("k", &json!({"n": 1}), "f").await.unwrap();
        let second = Store::open(folder.path()).await.unwrap_err();
        assert!(matches!(second, StoreError::InUse(_)), "{second}");
        store.close().await;
        drop(store);

        let store = Store::open(folder.path()).await.unwrap();
        assert_eq!(store.overrides().await.unwrap(), [changed, removed]);
        assert_eq!(
            store.setting("k").await.unwrap(),
            Some((json!({"n": 1}), "f".to_owned()))
        );
        store.delete_override("a").await.unwrap();
        store.delete_setting("k").await.unwrap();
        assert_eq!(store.overrides().await.unwrap().len(), 1);
        assert_eq!(store.setting("k").await.unwrap(), None);
        store.close().await;
        drop(store);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        }
    }

    #[tokio::test]
    async fn lost_key_removes_overridden_servers_and_fails_settings() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let sealed = ServerOverride {
            server: "a".to_owned(),
            entry: Some(json!({"name": "a"})),
            file_hash: Some("h".to_owned()),
        };
        store.put_override(&sealed).await.unwrap();
        store.put_setting("k", &json!({"n": 1}), "f").await.unwrap();
        // As written by versions that did not seal settings.
        sqlx::query(
            "INSERT INTO settings (key, value, file_hash) VALUES ('old', '{\"n\":2}', 'f')",
        )
        .execute(store.writer())
        .await
        .unwrap();
        store.close().await;
        drop(store);

        std::fs::remove_file(folder.path().join("store.key")).unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let removed = ServerOverride {
            entry: None,
            ..sealed
        };
        assert_eq!(store.overrides().await.unwrap(), [removed]);
        let old = store.setting("old").await.unwrap();
        assert_eq!(old, Some((json!({"n": 2}), "f".to_owned())));
        let error = store.setting("k").await.unwrap_err();
        assert!(
            matches!(&error, StoreError::UnreadableSetting(key) if key == "k"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn opens_folders_with_url_characters_and_rejects_broken_databases() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a?b%20c#d");
        std::fs::create_dir(&odd).unwrap();
        Store::open(&odd).await.unwrap().close().await;
        let broken = folder.path().join("broken");
        std::fs::create_dir(&broken).unwrap();
        std::fs::write(
            broken.join("toolgate.db"),
            "not a database, but long enough to be read as one",
        )
        .unwrap();
        assert!(matches!(
            Store::open(&broken).await,
            Err(StoreError::Database(_))
        ));
    }
}
