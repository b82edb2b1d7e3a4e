//! The task that owns the configuration: handles API changes, and files that [`super::reload`] finds changed.
//!
//! A change is validated as part of the whole configuration, then stored, then applied.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolgate::audit::AdminAction;
use toolgate::store::{ConfigChange, Store, StoreError};
use toolgate::{Config, Environment, Gateway};
use toolgate_core::config::{ConfigFinding, Document, ListenSettings, entries};

use super::exposed_files::find_exposed_files;
use super::file_watcher::FileWatcher;
use super::known_servers::KnownServers;
use super::layers::{ConfigLayers, ConfigSection, ConfigSource, ConfigTable, OutdatedChanges};
use super::masking::mask_entry;
use super::{
    ChangeError, ConfigRequest, ConfigResponse, ConfigSnapshot, Configuration, PendingRequest,
    apply,
};
use crate::files::{self, ConfigSelection};

/// Interval between checks for changed files.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Location of the configuration files and the data.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFiles {
    pub(crate) selection: ConfigSelection,
    pub(crate) data_dir: PathBuf,
    pub(crate) environment: Environment,
}

/// Owner of the configuration, loaded but not yet running.
#[derive(Debug)]
pub(crate) struct ConfigManager {
    pub(super) files: ConfigFiles,
    pub(super) store: Store,
    pub(super) layers: ConfigLayers,
    /// Listen settings at startup, to detect changes that need a restart.
    listen: ListenSettings,
    /// Why a change of the files is not in force.
    pub(super) pending_change: Option<String>,
    known_servers: KnownServers,
}

impl ConfigManager {
    /// Loads the stored API changes on top of the files. Changes that are no longer valid are skipped and
    /// logged.
    pub(crate) async fn load(
        files: ConfigFiles,
        documents: Vec<Document>,
        store: Store,
    ) -> Result<(Self, Config), anyhow::Error> {
        let mut layers = ConfigLayers {
            documents,
            ..ConfigLayers::default()
        };
        let (listen, _) = layers
            .build_config()
            .map(|(config, findings)| (config.listen, findings))?;
        layers.overrides = store.overrides().await?;
        for section in ConfigSection::ALL {
            let stored = store.setting(section.as_str()).await?;
            layers
                .sections
                .extend(stored.map(|stored| (section, stored)));
        }
        for table in ConfigTable::ALL {
            let stored = store.setting(table.as_str()).await?;
            match stored.map(|(value, _)| value) {
                None => {}
                Some(Value::Object(entries)) => drop(layers.tables.insert(table, entries)),
                // Without the keys, say, callers would need none.
                Some(_) => {
                    return Err(StoreError::UnreadableSetting(table.as_str().to_owned()).into());
                }
            }
        }
        let mut manager = Self {
            known_servers: KnownServers::new(store.clone(), &files.selection),
            files,
            store,
            layers,
            listen,
            pending_change: None,
        };
        let outdated = manager.layers.drop_outdated();
        manager.discard_outdated(&outdated).await;
        if manager
            .layers
            .sections
            .contains_key(&ConfigSection::Permissions)
        {
            tracing::warn!(
                "permissions set through the API override those in the files; restore them with DELETE /api/permissions"
            );
        }
        while let Err(invalid) = manager.layers.build_config() {
            let Some(change) = manager.layers.drop_invalid_change(&invalid) else {
                break;
            };
            tracing::error!(
                change,
                error = %invalid,
                "skipping API change that is no longer valid with the files"
            );
        }
        let (config, _) = manager.layers.build_config()?;
        manager.known_servers.check(&config).await?;
        Ok((manager, config))
    }

    /// Returns a handle, and the task that handles changes until `stop` is cancelled.
    pub(crate) fn start(
        self,
        gateway: Gateway,
        stop: CancellationToken,
    ) -> (Configuration, impl Future<Output = ()> + Send) {
        let (requests, inbox) = mpsc::channel(16);
        let snapshot = Arc::new(ArcSwap::default());
        let handle = Configuration {
            gateway: gateway.clone(),
            requests,
            snapshot: Arc::clone(&snapshot),
        };
        let running = RunningManager {
            manager: self,
            gateway,
            snapshot,
        };
        if let Ok((config, _)) = running.manager.layers.build_config() {
            running.publish(running.build_snapshot(&config));
        }
        (handle, running.run(inbox, stop))
    }

    /// Deletes API changes from the store that were superseded by changes in the files.
    pub(super) async fn discard_outdated(&self, outdated: &OutdatedChanges) {
        for server in &outdated.servers {
            tracing::warn!(
                server,
                "server entry changed in the file; dropping the API's changes to it"
            );
            let change = ConfigChange::DeleteServer(server.clone());
            if let Err(error) = self.store.save(&[change]).await {
                tracing::error!(server, %error, "failed to delete outdated API changes from the store");
            }
        }
        for section in &outdated.sections {
            let section = section.as_str();
            tracing::warn!(
                section,
                "section changed in the file; dropping the API's changes to it"
            );
            let change = ConfigChange::DeleteSetting(section.to_owned());
            if let Err(error) = self.store.save(&[change]).await {
                tracing::error!(section, %error, "failed to delete outdated API changes from the store");
            }
        }
    }
}

/// The manager while its task runs.
pub(super) struct RunningManager {
    pub(super) manager: ConfigManager,
    pub(super) gateway: Gateway,
    pub(super) snapshot: Arc<ArcSwap<ConfigSnapshot>>,
}

impl RunningManager {
    async fn run(mut self, mut inbox: mpsc::Receiver<PendingRequest>, stop: CancellationToken) {
        self.reset_keys_removed_while_stopped().await;
        let config = &self.snapshot.load_full().config;
        self.manager.known_servers.remember(config).await;
        let mut ticks = tokio::time::interval(FILE_POLL_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut watcher = FileWatcher::new(&self.manager.layers.documents);
        loop {
            tokio::select! {
                request = inbox.recv() => {
                    let Some(PendingRequest { request, actor, reply }) = request else { return };
                    let response = tokio::select! {
                        response = self.handle(request, &actor) => response,
                        () = stop.cancelled() => Err(ChangeError::Stopping),
                    };
                    // Fails only if the requester is gone.
                    let _ = reply.send(response);
                }
                _ = ticks.tick() => self.reload_changed_files(&mut watcher).await,
                () = stop.cancelled() => return,
            }
        }
    }

    /// Revokes the grants of keys that were removed from the files while the gateway was not running.
    async fn reset_keys_removed_while_stopped(&self) {
        let snapshot = self.snapshot.load_full();
        let keys = &snapshot.config.keys;
        let grants = match self.gateway.approvals().grants().await {
            Ok(grants) => grants,
            Err(error) => {
                tracing::error!(%error, "failed to look for grants of removed keys");
                return;
            }
        };
        let callers = grants.iter().filter_map(|grant| grant.caller.as_deref());
        let removed = callers.filter(|name| keys.iter().all(|key| key.name != *name));
        reset_removed_keys(&self.gateway, removed).await;
    }

    async fn handle(
        &mut self,
        request: ConfigRequest,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        match request {
            ConfigRequest::Add { entry } => self.add_server(entry, actor).await,
            ConfigRequest::Check { entry } => {
                let (server, _) = self.layers_with_entry(entry)?;
                Ok(ConfigResponse::Checked(Box::new(server)))
            }
            ConfigRequest::Patch { id, patch } => self.patch_server(&id, &patch, actor).await,
            ConfigRequest::Remove { id } => self.remove_server(&id, actor).await,
            ConfigRequest::ToolManager { patch } => self.set_tool_manager(&patch, actor).await,
            ConfigRequest::Permissions { section } => {
                self.set_section(ConfigSection::Permissions, section, actor)
                    .await
            }
            ConfigRequest::RequireKeys => {
                let action = AdminAction::new(actor, "keys.require", "");
                self.gateway.keys().require(action).await?;
                Ok(ConfigResponse::Settings)
            }
            ConfigRequest::MakeKeysOptional => {
                let action = AdminAction::new(actor, "keys.make_optional", "");
                self.gateway.keys().make_optional(action).await?;
                Ok(ConfigResponse::Settings)
            }
            ConfigRequest::Entry {
                table,
                name,
                change,
            } => self.change_entry(table, &name, change, actor).await,
        }
    }

    async fn set_tool_manager(
        &mut self,
        patch: &Map<String, Value>,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let sections = &self.manager.layers.sections;
        // The section is absent until its first change.
        let before = match sections.get(&ConfigSection::ToolManager) {
            Some((settings, _)) => settings.clone(),
            None => Value::Object(Map::new()),
        };
        let settings = apply_patch(&before, patch)?;
        self.set_section(ConfigSection::ToolManager, Some(settings), actor)
            .await
    }

    async fn set_section(
        &mut self,
        section: ConfigSection,
        value: Option<Value>,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let mut layers = self.manager.layers.clone();
        let file_hash = layers.section_hash(section);
        match &value {
            Some(value) => {
                let stored = (value.clone(), file_hash.clone());
                layers.sections.insert(section, stored);
            }
            None => drop(layers.sections.remove(&section)),
        }
        let (config, _) = layers
            .build_config()
            .map_err(|invalid| ChangeError::from_findings(&invalid.0))?;
        self.check_new_names(&config)?;
        let key = section.as_str().to_owned();
        let before = self.manager.layers.sections.get(&section);
        let before = before.map(|(value, _)| mask_entry(value));
        let after = value.as_ref().map(mask_entry);
        let (action, change) = match value {
            Some(value) => (
                "settings.change",
                ConfigChange::PutSetting {
                    key,
                    value,
                    file_hash,
                },
            ),
            None => ("settings.reset", ConfigChange::DeleteSetting(key)),
        };
        let action = AdminAction::new(actor, action, section.as_str()).with_change(before, after);
        self.save(&[change], action).await?;
        self.manager.layers = layers;
        self.apply_layers().await?;
        Ok(ConfigResponse::Settings)
    }

    /// Stores changes together with their record in the audit trail, and logs them.
    pub(super) async fn save(
        &self,
        changes: &[ConfigChange],
        action: AdminAction,
    ) -> Result<(), ChangeError> {
        let (actor, what, target) = (
            action.actor.clone(),
            action.action.clone(),
            action.target.clone(),
        );
        self.gateway.audit().save(changes, action).await?;
        tracing::info!(
            actor,
            action = what,
            name = target,
            "configuration changed through the API"
        );
        Ok(())
    }

    /// Applies the layers to the gateway and publishes the new snapshot.
    pub(super) async fn apply_layers(&self) -> Result<Vec<ConfigFinding>, ChangeError> {
        let (config, findings) = self
            .manager
            .layers
            .build_config()
            .map_err(|invalid| ChangeError::from_findings(&invalid.0))?;
        if config.listen != self.manager.listen {
            tracing::warn!(
                "changes to the listen settings (host, port, store key, admin key, allowed hosts and origins) take effect after a restart"
            );
        }
        for problem in self.find_new_name_problems(&config) {
            tracing::warn!(%problem, "the configuration names something that does not exist");
        }
        let snapshot = self.build_snapshot(&config);
        let before = self.snapshot.load_full();
        apply(&self.gateway, config).await?;
        let keys = &snapshot.config.keys;
        let removed = before.config.keys.iter().map(|key| key.name.as_str());
        let removed = removed.filter(|name| keys.iter().all(|key| key.name != *name));
        reset_removed_keys(&self.gateway, removed).await;
        if keys.is_empty() && !before.config.keys.is_empty() {
            tracing::warn!(
                "no caller keys are left, but callers still need one; create a key, or let callers on this machine do without with `toolgate keys make-optional`"
            );
        }
        self.manager.known_servers.remember(&snapshot.config).await;
        self.publish(snapshot);
        Ok(findings)
    }

    /// Publishes a snapshot and logs its new problems.
    pub(super) fn publish(&self, snapshot: ConfigSnapshot) {
        let before = self.snapshot.swap(Arc::new(snapshot));
        for problem in &self.snapshot.load().problems {
            if !before.problems.contains(problem) {
                tracing::warn!(problem, "configuration problem");
            }
        }
    }

    /// Builds the snapshot of a configuration.
    pub(super) fn build_snapshot(&self, config: &Config) -> ConfigSnapshot {
        let layers = &self.manager.layers;
        let names_in_files = ConfigTable::ALL.map(|table| (table, layers.names_in_files(table)));
        let by_api = layers.sections.contains_key(&ConfigSection::Permissions);
        let files = &self.manager.files;
        let own_files =
            files::own_files(&files.selection, Some(&files.data_dir), &files.environment);
        let exposed = find_exposed_files(config, &own_files);
        let pending = self.manager.pending_change.iter().cloned();
        ConfigSnapshot {
            problems: pending.chain(exposed).collect(),
            sources: layers.sources(config),
            names_in_files: names_in_files.into(),
            permissions_source: by_api.then_some(ConfigSource::Api),
            config: config.clone(),
        }
    }
}

/// Revokes the grants of removed keys and resets their budgets, so that a later key of the same name
/// inherits nothing.
async fn reset_removed_keys(gateway: &Gateway, names: impl Iterator<Item = &str>) {
    for name in names {
        if let Err(error) = gateway.keys().reset(name).await {
            tracing::error!(%error, key = name, "failed to reset removed key");
        }
    }
}

pub(super) fn apply_patch(entry: &Value, patch: &Map<String, Value>) -> Result<Value, ChangeError> {
    entries::patch(entry, patch).map_err(|masked| ChangeError::Invalid(vec![masked.to_string()]))
}
