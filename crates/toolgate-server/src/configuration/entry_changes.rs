//! API changes to entries of the configuration's tables: keys, roles, virtual servers and providers.

use serde_json::Value;
use toolgate::audit::AdminAction;
use toolgate::store::ConfigChange;

use super::layers::{ConfigLayers, ConfigTable};
use super::manager::{RunningManager, apply_patch};
use super::masking::mask_entry;
use super::{ChangeError, ConfigResponse, EntryChange};

impl RunningManager {
    /// Validates, stores and applies a change to an entry.
    pub(super) async fn change_entry(
        &mut self,
        table: ConfigTable,
        name: &str,
        change: EntryChange,
        actor: &str,
    ) -> Result<ConfigResponse, ChangeError> {
        let action = format!("{}.{}", table.entry_kind(), change.log_action()).replace(' ', "_");
        let removes_role = table == ConfigTable::Roles && matches!(change, EntryChange::Remove);
        let layers = self.manager.layers.with_entry_change(table, name, change)?;
        if removes_role {
            self.check_role_is_unused(name)?;
        }
        let (config, _) = layers
            .build_config()
            .map_err(|invalid| ChangeError::from_findings(&invalid.0))?;
        self.check_new_names(&config)?;
        if !config.keys.is_empty() {
            // Before the first key is stored: a key that exists must be required after a restart too.
            let action = AdminAction::new(actor, "keys.require", "");
            self.gateway.keys().require(action).await?;
        }
        let entries = layers.tables.get(&table).cloned().unwrap_or_default();
        let change = ConfigChange::PutSetting {
            key: table.as_str().to_owned(),
            value: Value::Object(entries),
            file_hash: String::new(),
        };
        let masked = |layers: &ConfigLayers| layers.table_entry(table, name).map(mask_entry);
        let action = AdminAction::new(actor, &action, name)
            .with_change(masked(&self.manager.layers), masked(&layers));
        self.save(&[change], action).await?;
        self.manager.layers = layers;
        self.apply_layers().await?;
        Ok(ConfigResponse::Settings)
    }

    fn check_role_is_unused(&self, role: &str) -> Result<(), ChangeError> {
        let snapshot = self.snapshot.load();
        let mut keys = snapshot.config.keys.iter();
        match keys.find(|key| key.roles.iter().any(|name| name == role)) {
            Some(key) => Err(ChangeError::Conflict(format!(
                "key `{}` has the role `{role}`; remove it from the key first",
                key.name
            ))),
            None => Ok(()),
        }
    }
}

impl ConfigLayers {
    /// Returns the layers with a change to an entry, which the files must not define.
    fn with_entry_change(
        &self,
        table: ConfigTable,
        name: &str,
        change: EntryChange,
    ) -> Result<Self, ChangeError> {
        let kind = table.entry_kind();
        if self.names_in_files(table).contains(name) {
            return Err(ChangeError::Conflict(format!(
                "{kind} `{name}` is defined in a configuration file; change it there"
            )));
        }
        let entry = match (change, self.table_entry(table, name)) {
            (EntryChange::Create(_), Some(_)) => {
                return Err(ChangeError::Conflict(format!(
                    "{kind} `{name}` already exists"
                )));
            }
            (EntryChange::Create(entry), None) | (EntryChange::Replace(entry), _) => Some(entry),
            (EntryChange::Patch(patch), Some(current)) => Some(apply_patch(current, &patch)?),
            (EntryChange::Remove, Some(_)) => None,
            (EntryChange::Patch(_) | EntryChange::Remove, None) => {
                return Err(ChangeError::Missing(format!("no {kind} named `{name}`")));
            }
        };
        let mut layers = self.clone();
        let entries = layers.tables.entry(table).or_default();
        match entry {
            Some(entry) => drop(entries.insert(name.to_owned(), entry)),
            None => drop(entries.shift_remove(name)),
        }
        Ok(layers)
    }
}
