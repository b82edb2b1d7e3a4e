//! Servers and settings changed through the API.

use serde_json::Value;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::{Statement, Store, StoreError, StoreTransaction, clock};

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

/// A change to what is stored of the configuration.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)] // for the API of the binary
pub enum ConfigChange {
    /// Stores a changed server entry.
    PutServer(ServerOverride),
    /// Deletes a changed server entry, by the name of the server.
    DeleteServer(String),
    /// Stores a setting.
    PutSetting {
        /// Name of the setting.
        key: String,
        /// Its value.
        value: Value,
        /// Hash of the config file's value.
        file_hash: String,
    },
    /// Deletes a setting, by its name.
    DeleteSetting(String),
}

impl Store {
    /// Returns the servers changed through the API.
    #[doc(hidden)] // for the API of the binary
    pub async fn overrides(&self) -> Result<Vec<ServerOverride>, StoreError> {
        let rows =
            sqlx::query("SELECT server, entry, file_hash FROM server_overrides ORDER BY server")
                .fetch_all(self.readers())
                .await?;
        rows.iter().map(|row| self.read_override(row)).collect()
    }

    /// Returns a setting and the hash of the config file's value at the time it was set.
    #[doc(hidden)] // for the API of the binary
    pub async fn setting(&self, key: &str) -> Result<Option<(Value, String)>, StoreError> {
        let row = sqlx::query("SELECT value, file_hash FROM settings WHERE key = $1")
            .bind(key)
            .fetch_optional(self.readers())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let sealed: String = row.try_get(0)?;
        let value = self
            .unseal_json(&sealed)
            .map_err(|_| StoreError::UnreadableSetting(key.to_owned()))?;
        Ok(Some((value, row.try_get(1)?)))
    }

    /// Stores changes, all or none, so that they survive a power failure.
    #[doc(hidden)] // for the API of the binary
    pub async fn save(&self, changes: &[ConfigChange]) -> Result<(), StoreError> {
        let mut transaction = self.begin_durable().await?;
        self.apply_changes(&mut transaction, changes).await?;
        transaction.commit().await
    }

    /// Makes changes in a transaction.
    pub(crate) async fn apply_changes(
        &self,
        transaction: &mut StoreTransaction,
        changes: &[ConfigChange],
    ) -> Result<(), StoreError> {
        for change in changes {
            let statement = self.statement(change)?;
            transaction.run(statement).await?;
        }
        Ok(())
    }

    fn statement<'a>(&self, change: &'a ConfigChange) -> Result<Statement<'a>, StoreError> {
        Ok(match change {
            ConfigChange::PutServer(change) => {
                let entry = change.entry.as_ref();
                let entry = entry.map(|entry| self.seal(&entry.to_string())).transpose()?;
                sqlx::query(
                    "INSERT INTO server_overrides (server, entry, file_hash, changed_at) VALUES ($1, $2, $3, $4)
                     ON CONFLICT (server) DO UPDATE SET entry = excluded.entry, file_hash = excluded.file_hash, changed_at = excluded.changed_at",
                )
                .bind(&change.server)
                .bind(entry)
                .bind(&change.file_hash)
                .bind(clock::now())
            }
            ConfigChange::DeleteServer(server) => {
                sqlx::query("DELETE FROM server_overrides WHERE server = $1").bind(server)
            }
            ConfigChange::PutSetting {
                key,
                value,
                file_hash,
            } => sqlx::query(
                "INSERT INTO settings (key, value, file_hash) VALUES ($1, $2, $3)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value, file_hash = excluded.file_hash",
            )
            .bind(key)
            .bind(self.seal(&value.to_string())?)
            .bind(file_hash),
            ConfigChange::DeleteSetting(key) => {
                sqlx::query("DELETE FROM settings WHERE key = $1").bind(key)
            }
        })
    }

    fn read_override(&self, row: &AnyRow) -> Result<ServerOverride, StoreError> {
        let server: String = row.try_get(0)?;
        let sealed: Option<String> = row.try_get(1)?;
        let entry = sealed.map(|sealed| self.unseal_json(&sealed)).transpose();
        Ok(ServerOverride {
            entry: entry.map_err(|_| StoreError::UnreadableServer(server.clone()))?,
            server,
            file_hash: row.try_get(2)?,
        })
    }
}
