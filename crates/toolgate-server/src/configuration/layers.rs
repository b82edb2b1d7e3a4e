//! The layers of the configuration, files below API changes, and how they are merged.
//!
//! Dropping an invalid API change must never widen access: keys are disabled and servers removed rather
//! than restored to their state in the files.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use serde_json::{Map, Value, json};
use toolgate::store::ServerOverride;
use toolgate_core::Config;
use toolgate_core::config::{ConfigFinding, Document, InvalidConfig, apply_overlays, entries};
use toolgate_core::hash::sha256_hex;
use utoipa::ToSchema;

/// Document name of the API changes in findings.
const API_DOCUMENT: &str = "the API";

/// The source of a part of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) enum ConfigSource {
    #[serde(rename = "file")]
    File,
    #[serde(rename = "api")]
    Api,
    #[serde(rename = "file+api")]
    FileAndApi,
}

impl ConfigSource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::FileAndApi => "file+api",
        }
    }
}

/// The files and all API changes.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigLayers {
    pub(super) documents: Vec<Document>,
    pub(super) overrides: Vec<ServerOverride>,
    /// Sections set through the API, each with the hash of the files' section at that time.
    pub(super) sections: BTreeMap<ConfigSection, (Value, String)>,
    /// Table entries set through the API, by name.
    pub(super) tables: BTreeMap<ConfigTable, Map<String, Value>>,
}

/// A section that the API replaces as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConfigSection {
    ToolManager,
    Permissions,
}

/// A table whose entries the API sets individually. Entries defined in a file take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ConfigTable {
    Keys,
    Roles,
    VirtualServers,
    Providers,
}

/// API changes that were superseded by changes in the files.
#[derive(Debug, Default)]
pub(super) struct OutdatedChanges {
    pub(super) servers: Vec<String>,
    pub(super) sections: Vec<ConfigSection>,
}

impl ConfigSection {
    pub(super) const ALL: [Self; 2] = [Self::ToolManager, Self::Permissions];

    /// Name of the section in the store, in logs and in the configuration.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ToolManager => "tool_manager_config",
            Self::Permissions => "permissions",
        }
    }

    fn value_in(self, value: &Value) -> &Value {
        match self {
            Self::ToolManager => &value["mcp"]["tool_manager_config"],
            Self::Permissions => &value["permissions"],
        }
    }
}

impl ConfigTable {
    pub(super) const ALL: [Self; 4] = [
        Self::Keys,
        Self::Roles,
        Self::VirtualServers,
        Self::Providers,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Roles => "roles",
            Self::VirtualServers => "virtual_servers",
            Self::Providers => "providers",
        }
    }

    /// Name for an entry of the table in errors and logs.
    pub(super) fn entry_kind(self) -> &'static str {
        match self {
            Self::Keys => "key",
            Self::Roles => "role",
            Self::VirtualServers => "virtual server",
            Self::Providers => "provider",
        }
    }
}

impl ConfigLayers {
    /// Merges and validates all layers.
    pub(super) fn build_config(&self) -> Result<(Config, Vec<ConfigFinding>), InvalidConfig> {
        let entries: Vec<&Value> = self
            .overrides
            .iter()
            .filter_map(|change| change.entry.as_ref())
            .collect();
        let mut overlay = json!({"mcp": {"client_configs": entries}});
        if let Some((settings, _)) = self.sections.get(&ConfigSection::ToolManager) {
            overlay["mcp"]["tool_manager_config"] = settings.clone();
        }
        let mut documents = apply_overlays(&self.documents);
        if let Some((permissions, _)) = self.sections.get(&ConfigSection::Permissions) {
            for document in &mut documents {
                document.remove_key("permissions");
            }
            overlay["permissions"] = permissions.clone();
        }
        for (table, entries) in &self.tables {
            let in_files = self.names_in_files(*table);
            let by_api = entries.iter().filter(|(name, _)| !in_files.contains(*name));
            let by_api = by_api.map(|(name, entry)| (name.clone(), entry.clone()));
            overlay[table.as_str()] = Value::Object(by_api.collect());
        }
        documents.push(Document::from_value(API_DOCUMENT, overlay));
        let (mut config, findings) = Config::load_layers(&documents)?;
        let is_removed = |name: &str| {
            self.overrides
                .iter()
                .any(|o| o.entry.is_none() && o.server == name)
        };
        config
            .servers
            .retain(|server| !is_removed(server.name.as_str()));
        Ok((config, findings))
    }

    /// Returns the entry of a server that is in force.
    pub(super) fn effective_entry(&self, name: &str) -> Option<Value> {
        match self.overrides.iter().find(|change| change.server == name) {
            Some(change) => change.entry.clone(),
            None => self.file_entry(name),
        }
    }

    /// Returns the hash of a server's entry in the files.
    pub(super) fn file_hash(&self, name: &str) -> Option<String> {
        self.file_entry(name).map(|entry| hash(&entry))
    }

    /// Returns the hash of a section in the files.
    pub(super) fn section_hash(&self, section: ConfigSection) -> String {
        let documents = apply_overlays(&self.documents);
        let sections = documents
            .iter()
            .map(|document| section.value_in(&document.value).clone());
        hash(&Value::Array(sections.collect()))
    }

    /// Returns the names that the files define in a table.
    pub(super) fn names_in_files(&self, table: ConfigTable) -> BTreeSet<String> {
        let documents = apply_overlays(&self.documents);
        let tables = documents
            .iter()
            .filter_map(|document| document.value[table.as_str()].as_object());
        tables.flat_map(|table| table.keys().cloned()).collect()
    }

    /// Returns a table entry set through the API.
    pub(super) fn table_entry(&self, table: ConfigTable, name: &str) -> Option<&Value> {
        self.tables.get(&table)?.get(name)
    }

    /// Adds the override of a server, replacing an earlier one.
    pub(super) fn put_override(&mut self, change: ServerOverride) {
        self.overrides.retain(|other| other.server != change.server);
        self.overrides.push(change);
    }

    /// Removes and returns the API changes that were superseded by changes in the files.
    pub(super) fn drop_outdated(&mut self) -> OutdatedChanges {
        let current: HashMap<String, Option<String>> = self
            .overrides
            .iter()
            .map(|o| (o.server.clone(), self.file_hash(&o.server)))
            .collect();
        let is_outdated = |change: &ServerOverride| current[&change.server] != change.file_hash;
        let servers = self
            .overrides
            .iter()
            .filter(|change| is_outdated(change))
            .map(|c| c.server.clone())
            .collect();
        self.overrides.retain(|change| !is_outdated(change));
        let is_outdated = |section: &ConfigSection| {
            let stored = self.sections.get(section);
            stored.is_some_and(|(_, hash)| *hash != self.section_hash(*section))
        };
        let sections: Vec<ConfigSection> =
            ConfigSection::ALL.into_iter().filter(is_outdated).collect();
        self.sections
            .retain(|section, _| !sections.contains(section));
        OutdatedChanges { servers, sections }
    }

    /// Removes an API change that makes the configuration invalid, and describes it. Nothing is removed
    /// that would widen access: a key is disabled instead, and permissions are left unchanged.
    pub(super) fn drop_invalid_change(&mut self, invalid: &InvalidConfig) -> Option<String> {
        let findings = invalid.0.iter().filter(|f| f.location.file == API_DOCUMENT);
        for key in findings.map(|finding| finding.location.key.as_str()) {
            let dropped = self.drop_server_at(key).or_else(|| self.disable_key(key));
            if dropped.is_some() {
                return dropped;
            }
        }
        let with_entry = |change: &ServerOverride| change.entry.is_some();
        if let Some(index) = self.overrides.iter().rposition(with_entry) {
            return Some(self.drop_server(index));
        }
        let section = ConfigSection::ToolManager;
        self.sections.remove(&section)?;
        Some(section.as_str().to_owned())
    }

    /// Removes the server whose entry contains this key of the API document.
    fn drop_server_at(&mut self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("mcp.client_configs[")?;
        let index: usize = rest.split(']').next()?.parse().ok()?;
        let with_entry = self.overrides.iter().enumerate();
        let mut with_entry = with_entry.filter(|(_, change)| change.entry.is_some());
        let (index, _) = with_entry.nth(index)?;
        Some(self.drop_server(index))
    }

    /// Removes a server. If it overrides a file's entry, the server is removed altogether rather than
    /// restored, because the file's entry may allow more.
    fn drop_server(&mut self, index: usize) -> String {
        let change = &mut self.overrides[index];
        let description = format!("server {}", change.server);
        match change.file_hash {
            Some(_) => change.entry = None,
            None => drop(self.overrides.remove(index)),
        }
        description
    }

    /// Disables the caller key whose entry contains this key of the API document.
    fn disable_key(&mut self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("keys.")?;
        let keys = self.tables.get_mut(&ConfigTable::Keys)?;
        let is_prefix = |name: &&String| rest == *name || rest.starts_with(&format!("{name}."));
        let name = keys.keys().filter(is_prefix).max_by_key(|name| name.len());
        let name = name?.clone();
        let disabled = json!({"sha256": keys[&name]["sha256"], "enabled": false});
        let before = keys.insert(name.clone(), disabled.clone());
        (before != Some(disabled)).then(|| format!("key {name}"))
    }

    /// Returns the source of each server.
    pub(super) fn sources(&self, config: &Config) -> HashMap<String, ConfigSource> {
        let source = |name: &str| {
            let changed = self.overrides.iter().any(|change| change.server == name);
            match (self.file_entry(name).is_some(), changed) {
                (true, true) => ConfigSource::FileAndApi,
                (false, true) => ConfigSource::Api,
                (_, false) => ConfigSource::File,
            }
        };
        config
            .servers
            .iter()
            .map(|s| (s.name.to_string(), source(s.name.as_str())))
            .collect()
    }

    fn file_entry(&self, name: &str) -> Option<Value> {
        let documents = apply_overlays(&self.documents);
        let documents = documents.iter().rev();
        documents
            .flat_map(entries::from_document)
            .find(|(known, _)| known == name)
            .map(|(_, entry)| entry)
    }
}

/// Shortens `mcp.client_configs[3].headers` to `headers`, the key within the entry that the client sent.
pub(super) fn key_within_entry(key: &str) -> &str {
    let inner = key
        .strip_prefix("mcp.client_configs[")
        .and_then(|rest| rest.split_once(']'));
    match inner {
        Some((_, "")) => "server",
        Some((_, rest)) => rest.trim_start_matches('.'),
        None => key,
    }
}

fn hash(value: &Value) -> String {
    sha256_hex(value.to_string())
}
