//! API changes to servers.

use serde_json::{Map, Value};
use toolgate::audit::AdminAction;
use toolgate::store::{ConfigChange, ServerOverride};
use toolgate_core::ServerName;
use toolgate_core::config::ServerConfig;

use super::layers::ConfigLayers;
use super::manager::{RunningManager, apply_patch};
use super::masking::mask_entry;
use super::{ChangeError, ConfigResponse};

impl RunningManager {
    pub(super) async fn add_server(
        &mut self,
        mut entry: Value,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        let folded = ServerName::parse(&name).map(|name| name.to_folded());
        let existing = self
            .gateway
            .servers()
            .list()
            .into_iter()
            .find(|known| Ok(known.server.name.to_folded()) == folded);
        if let Some(existing) = existing {
            return Err(ChangeError::Exists(existing.server.name.to_string()));
        }
        if entry.is_object() && entry["client_id"].is_null() {
            entry["client_id"] = uuid::Uuid::new_v4().to_string().into();
        }
        let (_, layers) = self.layers_with_entry(entry)?;
        self.save_server(layers, &name, "server.add", actor).await
    }

    pub(super) async fn patch_server(
        &mut self,
        id: &str,
        patch: &Map<String, Value>,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let (name, known_id) = self.find_server(id)?;
        for (key, fixed) in [("name", &name), ("client_id", &known_id)] {
            if patch
                .get(key)
                .is_some_and(|value| value.as_str() != Some(fixed))
            {
                let message =
                    format!("`{key}` cannot be changed; add a new server and delete this one");
                return Err(ChangeError::Invalid(vec![message]));
            }
        }
        let entry = self
            .manager
            .layers
            .effective_entry(&name)
            .ok_or_else(|| embedded_server_error(&name))?;
        let (_, layers) = self.layers_with_entry(apply_patch(&entry, patch)?)?;
        self.save_server(layers, &name, "server.change", actor)
            .await
    }

    pub(super) async fn remove_server(
        &mut self,
        id: &str,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let (name, _) = self.find_server(id)?;
        if self.manager.layers.effective_entry(&name).is_none() {
            return Err(embedded_server_error(&name));
        }
        let mut layers = self.manager.layers.clone();
        match layers.file_hash(&name) {
            None => layers.overrides.retain(|change| change.server != name),
            file_hash => layers.put_override(ServerOverride {
                server: name.clone(),
                entry: None,
                file_hash,
            }),
        }
        layers
            .build_config()
            .map_err(|invalid| ChangeError::from_findings(&invalid.0))?;
        self.save_server(layers, &name, "server.remove", actor)
            .await
    }

    /// Stores the change of a server and applies it.
    async fn save_server(
        &mut self,
        layers: ConfigLayers,
        name: &str,
        action: &str,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let change = match layers.overrides.iter().find(|change| change.server == name) {
            Some(change) => ConfigChange::PutServer(change.clone()),
            None => ConfigChange::DeleteServer(name.to_owned()),
        };
        let masked = |layers: &ConfigLayers| {
            let entry = layers.effective_entry(name);
            entry.as_ref().map(mask_entry)
        };
        let action = AdminAction::new(actor, action, name)
            .with_change(masked(&self.manager.layers), masked(&layers));
        self.save(&[change], action).await?;
        self.manager.layers = layers;
        self.apply_layers().await?;
        Ok(ConfigResponse::Server(name.to_owned()))
    }

    /// Returns the layers with this server entry added, and the resulting server.
    pub(super) fn layers_with_entry(
        &self,
        entry: Value,
    ) -> Result<(ServerConfig, ConfigLayers), ChangeError> {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        let mut layers = self.manager.layers.clone();
        let file_hash = layers.file_hash(&name);
        layers.put_override(ServerOverride {
            server: name.clone(),
            entry: Some(entry),
            file_hash,
        });
        let (config, _) = layers
            .build_config()
            .map_err(|invalid| ChangeError::from_findings(&invalid.0))?;
        let server = config
            .servers
            .into_iter()
            .find(|server| server.name.as_str() == name);
        let server =
            server.ok_or_else(|| ChangeError::Invalid(vec!["`name` is missing".to_owned()]))?;
        Ok((server, layers))
    }

    /// Finds a configured server by id or name; returns its name and id.
    fn find_server(&self, id: &str) -> Result<(String, String), ChangeError> {
        let servers = self.gateway.servers().list();
        let by_id = servers.iter().find(|entry| entry.server.id == id);
        let found = by_id.or_else(|| {
            servers
                .iter()
                .find(|entry| entry.server.name.as_str() == id)
        });
        let found = found.ok_or_else(|| ChangeError::NotFound(id.to_owned()))?;
        Ok((found.server.name.to_string(), found.server.id.clone()))
    }
}

fn embedded_server_error(name: &str) -> ChangeError {
    ChangeError::Invalid(vec![format!(
        "server `{name}` is registered by the embedding program and cannot be changed"
    )])
}
