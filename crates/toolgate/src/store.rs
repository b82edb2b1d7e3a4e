//! The database: connections, transactions, migrations, sealing. Queries of data live beside its owner,
//! for example in `approval/store.rs`.
//!
//! Everything is stored in one SQLite file in the data directory. Entries that may contain secrets are
//! sealed (encrypted) with a key in `store.key` next to it, or kept elsewhere. Whatever cannot be read at start keeps the
//! gateway from starting, because going on without it could widen access.

pub mod backup;
mod batch_writer;
mod bulk;
pub(crate) mod clock;
mod data_dir;
mod health;
mod key;
mod key_check;
mod overrides;
mod schema;
mod seal;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use batch_writer::{BATCH_DELAY, BatchSettings, BatchSink, BatchWriter, WriteAttempt};
pub(crate) use bulk::{BulkInsert, Statement};
use data_dir::DataDir;
use health::StoreHealth;
pub(crate) use health::StoreMonitor;
pub use key::{InvalidStoreKey, ProvidedKey, StoreKey};
pub use overrides::{ConfigChange, ServerOverride};
use parking_lot::Mutex;
use seal::StoreCipher;
use serde_json::Value;
use sqlx::any::AnyPoolOptions;
use sqlx::{AnyConnection, AnyPool, Connection as _, Executor as _, Row as _};
use tokio::sync::watch;
use uuid::Uuid;
pub(crate) use writer::StoreTransaction;
use writer::{Durability, StoreWriter};

/// Connections for reads.
const MAX_READERS: u32 = 4;

/// The database of a gateway. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    writer: StoreWriter,
    /// Separate connections, so that long audit queries do not block writes.
    readers: AnyPool,
    cipher: StoreCipher,
    health: StoreHealth,
    /// `None` for a database in memory.
    data_dir: Option<Arc<DataDir>>,
    /// Keeps a database in memory alive while the writer's connection is replaced.
    _anchor: Option<Arc<Mutex<AnyConnection>>>,
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
    #[error(
        "the database has the format of another version of Toolgate ({0}); run that version, or restore a backup made by this one"
    )]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// The database is of another version and is not to be changed.
    #[error(
        "the database has version {0} of the schema, and this version of Toolgate needs {latest}; start the gateway once to upgrade it", latest = schema::LATEST
    )]
    OtherSchema(i64),
    /// Earlier writes failed, and writes do not work yet.
    #[error("the store cannot be written: {0}")]
    NotWritable(Arc<str>),
    /// The key file cannot be read or written.
    #[error("the key file `{file}` cannot be used: {cause}")]
    Key { file: String, cause: std::io::Error },
    /// The key file is gone, but the database has entries sealed with it.
    #[error(
        "the key file `{0}` is missing, and the database has entries sealed with it; restore the file from a backup, set where the key is kept (`[store]` in the configuration, TOOLGATE_STORE_KEY or TOOLGATE_STORE_KEY_FILE), or move the data directory away to start without the servers, keys and settings made through the API"
    )]
    MissingKey(String),
    /// The key file belongs to another database.
    #[error(
        "the key file `{0}` does not fit the database; restore the file that belongs to it, or move the data directory away to start without the servers, keys and settings made through the API"
    )]
    WrongKey(String),
    /// The key that was provided belongs to another database.
    #[error(
        "the key of the store from {0} does not fit the database; provide the key that belongs to it, or move the data directory away to start without the servers, keys and settings made through the API"
    )]
    WrongProvidedKey(String),
    /// The key that was provided is not the one in the data directory, which fits.
    #[error(
        "the key of the store from {origin} does not fit the database, but the one in `{file}` does; to keep it elsewhere, provide the content of that file (`base64 {file}` prints it as text) and then delete the file; to keep it there, remove the setting"
    )]
    KeyInDataDir { file: String, origin: String },
    /// The proof that the key fits was removed.
    #[error(
        "the database was changed by something other than Toolgate: its check of the key is missing; restore a backup"
    )]
    MissingKeyCheck,
    /// Encryption failed.
    #[error("the entry could not be encrypted and was not stored")]
    SealFailed,
    /// An entry cannot be decrypted or parsed.
    #[error(
        "a stored entry cannot be read: it was sealed with another key, is damaged, or was written by another version"
    )]
    Unreadable,
    /// A setting cannot be decrypted or parsed.
    #[error(
        "the setting `{0}` in the database cannot be read: it is damaged or was not written by Toolgate; restore a backup of the data directory, or move the directory away to start without the changes made through the API"
    )]
    UnreadableSetting(String),
    /// The entry of a server cannot be decrypted or parsed.
    #[error(
        "the stored entry of server `{0}` cannot be read: it is damaged or was not written by Toolgate; restore a backup of the data directory, or move the directory away to start without the changes made through the API"
    )]
    UnreadableServer(String),
    /// Another process uses the data directory.
    #[error(
        "another gateway uses the data directory `{0}`, perhaps `toolgate mcp` of a desktop client; end it, or choose another directory with --data-dir"
    )]
    InUse(String),
    /// The data directory cannot be used.
    #[error("the data directory `{folder}` cannot be used: {cause}")]
    Folder {
        folder: String,
        cause: std::io::Error,
    },
}

impl StoreError {
    /// Returns whether the error says that the store as a whole cannot be written, rather than that
    /// one statement was wrong.
    fn is_write_failure(&self) -> bool {
        match self {
            Self::NotWritable(_) => true,
            Self::Database(sqlx::Error::Database(error)) => {
                // The primary result code of SQLite is in the low byte.
                let code = error.code().and_then(|code| code.parse::<i32>().ok());
                !matches!(
                    code.map(|code| code & 0xff),
                    Some(SQLITE_ERROR | SQLITE_CONSTRAINT)
                )
            }
            Self::Database(error) => matches!(
                error,
                sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::PoolTimedOut
            ),
            _ => false,
        }
    }
}

/// Result code of a wrong statement.
const SQLITE_ERROR: i32 = 1;
/// Result code of a violated constraint.
const SQLITE_CONSTRAINT: i32 = 19;

impl Store {
    /// Opens the database in a directory, creating it if necessary.
    pub async fn open(data_dir: &Path) -> Result<Self, StoreError> {
        Self::open_with_key(data_dir, &StoreKey::DataDir).await
    }

    /// Opens the database in a directory with a key that may be kept elsewhere.
    pub async fn open_with_key(data_dir: &Path, key: &StoreKey) -> Result<Self, StoreError> {
        let data_dir = DataDir::open(data_dir)?;
        let url = data_dir.database_url();
        let mut connection = Self::connect(&url).await?;
        let version = schema::version(&mut connection).await?;
        let cipher = key_check::load_key(&mut connection, data_dir.path(), key, version).await?;
        schema::migrator().run(&mut connection).await?;
        connection.close().await?;
        let writer = pool_options(1).connect(&url).await?;
        let readers = pool_options(MAX_READERS).connect_lazy(&url)?;
        let store = Self::new(writer, readers, cipher);
        store.load_latest_time().await?;
        Ok(Self {
            data_dir: Some(Arc::new(data_dir)),
            ..store
        })
    }

    /// Opens a database that another process may be using, only for reading.
    pub async fn open_read_only(data_dir: &Path, key: &StoreKey) -> Result<Self, StoreError> {
        let database = data_dir.join(data_dir::DATABASE_FILE);
        let url = data_dir::database_url(&database, "rw");
        let cipher = key_check::verify_key(&url, data_dir, key).await?;
        let readers = pool_options(MAX_READERS)
            .after_connect(|connection, _| {
                Box::pin(
                    async move { connection.execute("PRAGMA query_only = ON").await.map(drop) },
                )
            })
            // Not read-only: reading needs the files that SQLite keeps beside the database.
            .connect_lazy(&url)?;
        Ok(Self::new(readers.clone(), readers, cipher))
    }

    /// Opens a database that lives in memory.
    pub async fn in_memory() -> Result<Self, StoreError> {
        // A name of its own, under which the connections of this store share one database.
        let url = format!(
            "sqlite:file:toolgate-{}?mode=memory&cache=shared",
            Uuid::new_v4()
        );
        let mut anchor = Self::connect(&url).await?;
        schema::migrator().run(&mut anchor).await?;
        let pool = pool_options(1).connect(&url).await?;
        let store = Self::new(pool.clone(), pool, StoreCipher::random()?);
        Ok(Self {
            _anchor: Some(Arc::new(Mutex::new(anchor))),
            ..store
        })
    }

    fn new(writer: AnyPool, readers: AnyPool, cipher: StoreCipher) -> Self {
        let health = StoreHealth::new();
        Self {
            writer: StoreWriter::new(writer, health.clone()),
            readers,
            cipher,
            health,
            data_dir: None,
            _anchor: None,
        }
    }

    /// Opens a connection outside of a pool, which would retry for 30 s before reporting an error.
    async fn connect(url: &str) -> Result<AnyConnection, StoreError> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(url).await?;
        configure(&mut connection).await?;
        Ok(connection)
    }

    /// Advances the clock to the latest time that earlier processes have seen.
    async fn load_latest_time(&self) -> Result<(), StoreError> {
        let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
            .bind(clock::LATEST_TIME_KEY)
            .fetch_optional(self.readers())
            .await?;
        let latest: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        if let Some(latest) = latest.and_then(|latest| latest.parse().ok()) {
            clock::advance_to(latest);
        }
        Ok(())
    }

    /// Executes a statement as a transaction of its own, which survives a crash of the process.
    /// Returns the number of changed rows.
    pub(crate) async fn execute(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        self.writer.execute(statement).await
    }

    /// Executes a statement as a transaction of its own, which survives a power failure. Returns the
    /// number of changed rows.
    pub(crate) async fn execute_durable(
        &self,
        statement: Statement<'_>,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.begin_durable().await?;
        let changed = transaction.run(statement).await?;
        transaction.commit().await?;
        Ok(changed)
    }

    /// Starts a transaction that survives a crash of the process once it is committed.
    pub(crate) async fn begin(&self) -> Result<StoreTransaction, StoreError> {
        self.writer.begin(Durability::Process).await
    }

    /// Starts a transaction that survives a power failure once it is committed.
    pub(crate) async fn begin_durable(&self) -> Result<StoreTransaction, StoreError> {
        self.writer.begin(Durability::Disk).await
    }

    /// Returns the connections for reads, which see everything that is committed.
    pub(crate) fn readers(&self) -> &AnyPool {
        &self.readers
    }

    /// Returns why the store cannot be written, if it cannot. Changes and calls are refused meanwhile.
    pub fn write_problem(&self) -> Option<Arc<str>> {
        self.health.problem()
    }

    /// Subscribes to changes of [`Self::write_problem`].
    pub fn subscribe_write_problem(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.health.subscribe()
    }

    /// Takes note that a write to a file in the data directory failed.
    pub(crate) fn report_write_failure(&self, error: &std::io::Error) {
        let reason = error.to_string();
        let failed: Result<(), _> = Err(StoreError::NotWritable(reason.into()));
        // Only the mark matters.
        let _ = self.health.observe(failed);
    }

    /// Returns the data directory; `None` for a store in memory.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref().map(DataDir::path)
    }

    /// Derives a key for a purpose from the key of the store.
    pub(crate) fn derive_key(&self, purpose: &str) -> [u8; 32] {
        self.cipher.derive(purpose)
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

    /// Finishes pending writes and closes the database.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.pool().close().await;
        if let Some(data_dir) = &self.data_dir {
            data_dir.unlock();
        }
    }
}

fn pool_options(connections: u32) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        .after_connect(|connection, _| Box::pin(configure(connection)))
        // No transaction of sqlx is used, so one that is open is the remains of an error.
        .after_release(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}

async fn configure(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    for pragma in [
        // First, because it makes creating a new database faster.
        "PRAGMA synchronous = NORMAL",
        "PRAGMA journal_mode = WAL",
        // Keep the statement journals of bulk inserts off the disk.
        "PRAGMA temp_store = MEMORY",
        "PRAGMA busy_timeout = 5000",
        // 1 MiB per connection; the OS page cache covers the rest.
        "PRAGMA cache_size = -1024",
    ] {
        connection.execute(pragma).await?;
    }
    Ok(())
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
mod tests;
