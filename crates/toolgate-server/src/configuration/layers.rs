//! Files below, the API's changes above, and what they make together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};
use toolgate::store::Override;
use toolgate_core::Config;
use toolgate_core::config::{Document, Finding, Invalid, entries, layered};
use toolgate_core::hash::sha256;

/// The name under which findings speak of the API's changes.
const API: &str = "the API";

/// Where a part of the configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) enum Source {
    #[serde(rename = "file")]
    File,
    #[serde(rename = "api")]
    Api,
    #[serde(rename = "file+api")]
    FileAndApi,
}

impl Source {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::FileAndApi => "file+api",
        }
    }
}

/// All that the configuration in force is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    pub(super) documents: Vec<Document>,
    pub(super) overrides: Vec<Override>,
    /// Whole sections, each with the hash of what the files said when it was set.
    pub(super) sections: BTreeMap<Section, (Value, String)>,
    /// Keys and roles by name.
    pub(super) named: BTreeMap<Named, Map<String, Value>>,
}

/// A section that the API sets as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    ToolManager,
    Permissions,
}

/// A table of which the API sets single entries; names that a file has stay the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Named {
    Keys,
    Roles,
    VirtualServers,
    Providers,
}

/// What was set through the API and no longer holds.
#[derive(Debug, Default)]
pub(super) struct Outdated {
    pub(super) servers: Vec<String>,
    pub(super) sections: Vec<Section>,
}

impl Section {
    pub(super) const ALL: [Self; 2] = [Self::ToolManager, Self::Permissions];

    /// Under which it is stored, and told of.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ToolManager => "tool_manager_config",
            Self::Permissions => "permissions",
        }
    }

    fn of(self, value: &Value) -> &Value {
        match self {
            Self::ToolManager => &value["mcp"]["tool_manager_config"],
            Self::Permissions => &value["permissions"],
        }
    }
}

impl Named {
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
}

impl Layers {
    /// The configuration, checked as a whole.
    pub(super) fn config(&self) -> Result<(Config, Vec<Finding>), Invalid> {
        let entries: Vec<&Value> = self
            .overrides
            .iter()
            .filter_map(|change| change.entry.as_ref())
            .collect();
        let mut overlay = json!({"mcp": {"client_configs": entries}});
        if let Some((settings, _)) = self.sections.get(&Section::ToolManager) {
            overlay["mcp"]["tool_manager_config"] = settings.clone();
        }
        let mut documents = layered(&self.documents);
        if let Some((permissions, _)) = self.sections.get(&Section::Permissions) {
            for document in &mut documents {
                document.without("permissions");
            }
            overlay["permissions"] = permissions.clone();
        }
        for (table, entries) in &self.named {
            let in_files = self.in_files(*table);
            let own = entries.iter().filter(|(name, _)| !in_files.contains(*name));
            let own = own.map(|(name, entry)| (name.clone(), entry.clone()));
            overlay[table.as_str()] = Value::Object(own.collect());
        }
        documents.push(Document::from_value(API, overlay));
        let (mut config, findings) = Config::load_layers(&documents)?;
        let removed = |name: &str| {
            self.overrides
                .iter()
                .any(|o| o.entry.is_none() && o.server == name)
        };
        config
            .servers
            .retain(|server| !removed(server.name.as_str()));
        Ok((config, findings))
    }

    /// The entry of a server as it is in force.
    pub(super) fn entry(&self, name: &str) -> Option<Value> {
        match self.overrides.iter().find(|change| change.server == name) {
            Some(change) => change.entry.clone(),
            None => self.file_entry(name),
        }
    }

    /// The hash of what the files say of a server.
    pub(super) fn file_hash(&self, name: &str) -> Option<String> {
        self.file_entry(name).map(|entry| hash(&entry))
    }

    /// The hash of what the files say in a section.
    pub(super) fn section_hash(&self, section: Section) -> String {
        let documents = layered(&self.documents);
        let said = documents
            .iter()
            .map(|document| section.of(&document.value).clone());
        hash(&Value::Array(said.collect()))
    }

    /// The names that the files have in a table.
    pub(super) fn in_files(&self, table: Named) -> BTreeSet<String> {
        let documents = layered(&self.documents);
        let tables = documents
            .iter()
            .filter_map(|document| document.value[table.as_str()].as_object());
        tables.flat_map(|table| table.keys().cloned()).collect()
    }

    /// An entry of a table that the API set.
    pub(super) fn named_entry(&self, table: Named, name: &str) -> Option<&Value> {
        self.named.get(&table)?.get(name)
    }

    /// Puts a change in the place of an earlier one of the same server.
    pub(super) fn put(&mut self, change: Override) {
        self.overrides.retain(|other| other.server != change.server);
        self.overrides.push(change);
    }

    /// Takes out what the files have overtaken since it was set, and names it.
    pub(super) fn drop_outdated(&mut self) -> Outdated {
        let current: HashMap<String, Option<String>> = self
            .overrides
            .iter()
            .map(|o| (o.server.clone(), self.file_hash(&o.server)))
            .collect();
        let is_outdated = |change: &Override| current[&change.server] != change.file_hash;
        let servers = self
            .overrides
            .iter()
            .filter(|change| is_outdated(change))
            .map(|c| c.server.clone())
            .collect();
        self.overrides.retain(|change| !is_outdated(change));
        let is_outdated = |section: &Section| {
            let then = self.sections.get(section).map(|(_, then)| then.clone());
            then.is_some_and(|then| then != self.section_hash(*section))
        };
        let sections: Vec<Section> = Section::ALL.into_iter().filter(is_outdated).collect();
        self.sections
            .retain(|section, _| !sections.contains(section));
        Outdated { servers, sections }
    }

    /// Takes out a change that keeps the whole from being valid, and says what it was. Nothing is
    /// taken out that would open a door: a key is disabled, and permissions stay as they are.
    pub(super) fn take_misfit(&mut self, invalid: &Invalid) -> Option<String> {
        let ours = invalid.0.iter().filter(|f| f.place.file == API);
        for key in ours.map(|finding| finding.place.key.as_str()) {
            let misfit = self.take_server(key).or_else(|| self.disable_key(key));
            if misfit.is_some() {
                return misfit;
            }
        }
        let with_entry = |change: &Override| change.entry.is_some();
        if let Some(place) = self.overrides.iter().rposition(with_entry) {
            return Some(self.close(place));
        }
        let section = Section::ToolManager;
        self.sections.remove(&section)?;
        Some(section.as_str().to_owned())
    }

    /// Takes out the server that a key of the API's document stands in.
    fn take_server(&mut self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("mcp.client_configs[")?;
        let index: usize = rest.split(']').next()?.parse().ok()?;
        let with_entry = self.overrides.iter().enumerate();
        let mut with_entry = with_entry.filter(|(_, change)| change.entry.is_some());
        let (place, _) = with_entry.nth(index)?;
        Some(self.close(place))
    }

    /// Takes a server out. What stood over a file's entry leaves nothing rather than that entry,
    /// which may be wider.
    fn close(&mut self, place: usize) -> String {
        let change = &mut self.overrides[place];
        let what = format!("server {}", change.server);
        match change.file_hash {
            Some(_) => change.entry = None,
            None => drop(self.overrides.remove(place)),
        }
        what
    }

    /// Disables the caller's key that a key of the API's document stands in.
    fn disable_key(&mut self, key: &str) -> Option<String> {
        let rest = key.strip_prefix("keys.")?;
        let keys = self.named.get_mut(&Named::Keys)?;
        let named = |name: &&String| rest == *name || rest.starts_with(&format!("{name}."));
        let name = keys.keys().filter(named).max_by_key(|name| name.len());
        let name = name?.clone();
        let disabled = json!({"sha256": keys[&name]["sha256"], "enabled": false});
        let before = keys.insert(name.clone(), disabled.clone());
        (before != Some(disabled)).then(|| format!("key {name}"))
    }

    pub(super) fn sources(&self, config: &Config) -> HashMap<String, Source> {
        let source = |name: &str| {
            let changed = self.overrides.iter().any(|change| change.server == name);
            match (self.file_entry(name).is_some(), changed) {
                (true, true) => Source::FileAndApi,
                (false, true) => Source::Api,
                (_, false) => Source::File,
            }
        };
        config
            .servers
            .iter()
            .map(|s| (s.name.to_string(), source(s.name.as_str())))
            .collect()
    }

    fn file_entry(&self, name: &str) -> Option<Value> {
        let documents = layered(&self.documents);
        let documents = documents.iter().rev();
        documents
            .flat_map(entries::of)
            .find(|(known, _)| known == name)
            .map(|(_, entry)| entry)
    }
}

/// `mcp.client_configs[3].headers` as the one who sent the entry knows it: `headers`.
pub(super) fn own_key(key: &str) -> &str {
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
    sha256(value.to_string())
}
