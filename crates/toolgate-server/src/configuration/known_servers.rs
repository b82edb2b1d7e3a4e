//! The servers of the last configuration in force, kept in the store, so that a server that was renamed
//! while the gateway was stopped does not escape its restrictions either.

use std::path::PathBuf;

use anyhow::bail;
use serde_json::{Value, json};
use toolgate::store::{ConfigChange, Store, StoreError};
use toolgate_core::config::KnownServer;
use toolgate_core::hash::sha256_hex;
use toolgate_core::{Config, ServerName};

use crate::files::ConfigSelection;

/// Remembers servers, separately for each file and environment: another one may well have other
/// servers.
#[derive(Clone, Debug)]
pub(super) struct KnownServers {
    store: Store,
    /// The file that was selected explicitly.
    file: Option<PathBuf>,
}

impl KnownServers {
    pub(super) fn new(store: Store, selection: &ConfigSelection) -> Self {
        let path = selection.path.as_deref();
        let file = path.map(|path| std::fs::canonicalize(path).unwrap_or(path.to_owned()));
        Self { store, file }
    }

    /// Fails if a server that was renamed since the last run would escape a restriction.
    pub(super) async fn check(&self, config: &Config) -> anyhow::Result<()> {
        let lost = config.find_lost_restrictions(&self.read(config).await?);
        if lost.is_empty() {
            return Ok(());
        }
        let messages: Vec<String> = lost.iter().map(ToString::to_string).collect();
        bail!(
            "servers were changed while the gateway was stopped: {}",
            messages.join("; ")
        );
    }

    /// Stores the servers of the configuration in force, if they have changed.
    pub(super) async fn remember(&self, config: &Config) {
        let servers = config.known_servers();
        let stored = match self.read(config).await {
            Ok(known) if known == servers => return,
            Ok(_) => self.write(config, &servers).await,
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            tracing::error!(%error, "failed to store the names of the servers");
        }
    }

    async fn read(&self, config: &Config) -> Result<Vec<KnownServer>, StoreError> {
        let stored = self.store.setting(&self.key(config)).await?;
        let Some((Value::Array(servers), _)) = stored else {
            return Ok(Vec::new());
        };
        let known = servers.iter().filter_map(|server| {
            Some(KnownServer {
                name: ServerName::parse(server["name"].as_str()?).ok()?,
                allow_on_all_keys: server["allow_on_all_keys"] == true,
            })
        });
        Ok(known.collect())
    }

    async fn write(&self, config: &Config, servers: &[KnownServer]) -> Result<(), StoreError> {
        let servers = servers.iter().map(
            |server| json!({"name": server.name, "allow_on_all_keys": server.allow_on_all_keys}),
        );
        let change = ConfigChange::PutSetting {
            key: self.key(config),
            value: servers.collect(),
            file_hash: String::new(),
        };
        self.store.save(&[change]).await
    }

    fn key(&self, config: &Config) -> String {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let selected = json!([file, config.environment]).to_string();
        format!("known_servers:{}", sha256_hex(selected))
    }
}
