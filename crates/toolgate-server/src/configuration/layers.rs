//! Files below, the API's changes above, and what they make together.

use std::collections::HashMap;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use toolgate::store::Override;
use toolgate_core::Config;
use toolgate_core::config::{Document, Finding, Invalid, entries};

/// The name under which findings speak of the API's changes.
const API: &str = "the API";

/// Where a server's configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) enum Source {
    #[serde(rename = "file")]
    File,
    #[serde(rename = "api")]
    Api,
    #[serde(rename = "file+api")]
    FileAndApi,
}

/// All that the configuration in force is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    pub(super) documents: Vec<Document>,
    pub(super) overrides: Vec<Override>,
    /// The tool manager's settings, and the hash of what the files said when they were set.
    pub(super) tool_manager: Option<(Value, String)>,
}

/// What was set through the API and no longer holds.
#[derive(Debug, Default)]
pub(super) struct Outdated {
    pub(super) servers: Vec<String>,
    pub(super) tool_manager: bool,
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
        if let Some((settings, _)) = &self.tool_manager {
            overlay["mcp"]["tool_manager_config"] = settings.clone();
        }
        let mut documents = self.documents.clone();
        documents.push(Document::from_value(API, overlay));
        let (mut config, findings) = Config::load(&documents)?;
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

    /// The hash of what the files say of the tool manager.
    pub(super) fn settings_hash(&self) -> String {
        let said = self
            .documents
            .iter()
            .map(|document| document.value["mcp"]["tool_manager_config"].clone());
        hash(&Value::Array(said.collect()))
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
        let now = self.settings_hash();
        let tool_manager = self
            .tool_manager
            .take_if(|(_, then)| *then != now)
            .is_some();
        Outdated {
            servers,
            tool_manager,
        }
    }

    /// Takes out a change that keeps the whole from being valid: one that a finding is about, else
    /// the last one.
    pub(super) fn take_misfit(&mut self, invalid: &Invalid) -> Option<Override> {
        let about = invalid
            .0
            .iter()
            .filter(|finding| finding.place.file == API)
            .find_map(|finding| {
                let index = finding
                    .place
                    .key
                    .strip_prefix("mcp.client_configs[")?
                    .split(']')
                    .next()?;
                index.parse::<usize>().ok()
            });
        let with_entry =
            |(index, change): (usize, &Override)| change.entry.is_some().then_some(index);
        let places: Vec<usize> = self
            .overrides
            .iter()
            .enumerate()
            .filter_map(with_entry)
            .collect();
        let place = about.and_then(|index| places.get(index).copied());
        let place = place.or_else(|| self.overrides.len().checked_sub(1))?;
        Some(self.overrides.remove(place))
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
        let documents = self.documents.iter().rev();
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
    Sha256::digest(value.to_string())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
