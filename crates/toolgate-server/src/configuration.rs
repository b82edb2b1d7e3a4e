//! The configuration of a running gateway: the files, and changes made through the API.
//!
//! One task, the [`manager`], owns the configuration, so that file changes and API changes are applied
//! one at a time. API changes are persisted in the store. They override an entry of a file until that
//! entry changes; then the file wins.

mod entry_changes;
mod exposed_files;
mod file_watcher;
mod known_servers;
mod layers;
mod manager;
mod masking;
mod name_checks;
mod reload;
mod server_changes;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use toolgate::Gateway;
use toolgate::engine::MakeOptionalError;
use toolgate::gateway::StartError;
use toolgate::registry::ProbeResult;
use toolgate::store::StoreError;
use toolgate_core::config::{ConfigFinding, NameOwner, ServerConfig};
use toolgate_core::{Catalog, Config};

use crate::actor::current_actor;
pub(crate) use exposed_files::find_exposed_files;
pub(crate) use layers::{ConfigSource, ConfigTable};
pub(crate) use manager::{ConfigFiles, ConfigManager};
pub(crate) use masking::mask_entry;

/// Maximum time for a test connection to a server.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Handle to the configuration manager; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    gateway: Gateway,
    requests: mpsc::Sender<PendingRequest>,
    snapshot: Arc<ArcSwap<ConfigSnapshot>>,
}

/// The configuration in force, and where its parts come from.
#[derive(Debug, Default)]
pub(crate) struct ConfigSnapshot {
    /// Sources of the servers, by name.
    pub(crate) sources: HashMap<String, ConfigSource>,
    pub(crate) config: Config,
    /// Names in each table that the files define; all others were created through the API.
    pub(crate) names_in_files: HashMap<ConfigTable, BTreeSet<String>>,
    /// `None` if the permissions come from the files.
    pub(crate) permissions_source: Option<ConfigSource>,
    /// What needs the administrator's attention, such as a changed file that is not in force.
    pub(crate) problems: Vec<String>,
}

/// A request to the configuration manager.
#[derive(Debug)]
enum ConfigRequest {
    Add {
        entry: Value,
    },
    /// Validates a server entry without adding it.
    Check {
        entry: Value,
    },
    Patch {
        id: String,
        patch: Map<String, Value>,
    },
    Remove {
        id: String,
    },
    ToolManager {
        patch: Map<String, Value>,
    },
    /// `None` restores the permissions of the files.
    Permissions {
        section: Option<Value>,
    },
    /// Requires keys of callers, even if none is defined.
    RequireKeys,
    /// Lets callers on this machine do without a key; fails while any is defined.
    MakeKeysOptional,
    /// Changes an entry of a table.
    Entry {
        table: ConfigTable,
        name: String,
        change: EntryChange,
    },
}

/// A change to an entry of a table.
#[derive(Debug)]
pub(crate) enum EntryChange {
    /// Creates the entry; fails if it exists.
    Create(Value),
    Patch(Map<String, Value>),
    /// Creates or replaces the entry.
    Replace(Value),
    Remove,
}

impl ConfigSnapshot {
    /// Describes the problems with the names that one part of the configuration contains.
    pub(crate) fn name_problems(&self, catalog: &Catalog, owner: &NameOwner) -> Vec<String> {
        let problems = self.config.find_name_problems(catalog).into_iter();
        let problems = problems.filter(|problem| problem.owner == *owner);
        problems.map(|problem| problem.reason).collect()
    }

    /// Returns the source of an entry, which is either the files or the API: the API cannot override
    /// table entries of files. Servers have [`Self::sources`] instead.
    pub(crate) fn entry_source(&self, table: ConfigTable, name: &str) -> ConfigSource {
        let names = self.names_in_files.get(&table);
        if names.is_some_and(|names| names.contains(name)) {
            ConfigSource::File
        } else {
            ConfigSource::Api
        }
    }
}

impl EntryChange {
    /// Name of the change in the log and the audit trail.
    fn log_action(&self) -> &'static str {
        match self {
            Self::Create(_) => "add",
            Self::Patch(_) | Self::Replace(_) => "change",
            Self::Remove => "remove",
        }
    }
}

/// Whether to test the connection to a server before adding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionTest {
    Required,
    Skipped,
}

/// The result of a [`ConfigRequest`].
#[derive(Debug)]
enum ConfigResponse {
    /// Name of the changed server.
    Server(String),
    Checked(Box<ServerConfig>),
    Settings,
}

/// A request, who makes it, and where the response goes.
#[derive(Debug)]
struct PendingRequest {
    request: ConfigRequest,
    actor: String,
    reply: oneshot::Sender<Result<ConfigResponse, ChangeError>>,
}

/// The reason why a configuration change failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("no server with id or name `{0}`; see /api/mcp/clients")]
    NotFound(String),
    #[error("server `{0}` already exists; change it with PUT /api/mcp/client/{0}")]
    Exists(String),
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    #[error("could not connect to the server: {0}")]
    Unverified(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Missing(String),
    #[error("the gateway is stopping")]
    Stopping,
}

/// Outcome of connecting to a server whose entry is valid.
#[derive(Debug)]
pub(crate) enum ProbeOutcome {
    Connected(ProbeResult),
    /// The reason why the server could not be used.
    Failed(String),
}

impl Configuration {
    /// Returns the configuration in force.
    pub(crate) fn snapshot(&self) -> Arc<ConfigSnapshot> {
        self.snapshot.load_full()
    }

    /// Adds a server and returns its name.
    pub(crate) async fn add_server(
        &self,
        entry: Value,
        verify: ConnectionTest,
    ) -> Result<String, ChangeError> {
        if verify == ConnectionTest::Required {
            match self.probe_server(entry.clone()).await? {
                ProbeOutcome::Connected(_) => {}
                ProbeOutcome::Failed(error) => return Err(ChangeError::Unverified(error)),
            }
        }
        self.request_server_change(ConfigRequest::Add { entry })
            .await
    }

    pub(crate) async fn patch_server(
        &self,
        id: String,
        patch: Map<String, Value>,
    ) -> Result<String, ChangeError> {
        self.request_server_change(ConfigRequest::Patch { id, patch })
            .await
    }

    pub(crate) async fn remove_server(&self, id: String) -> Result<String, ChangeError> {
        self.request_server_change(ConfigRequest::Remove { id })
            .await
    }

    pub(crate) async fn set_tool_manager(
        &self,
        patch: Map<String, Value>,
    ) -> Result<(), ChangeError> {
        self.request(ConfigRequest::ToolManager { patch })
            .await
            .map(drop)
    }

    /// Replaces all permissions; `None` restores those of the files.
    pub(crate) async fn set_permissions(&self, section: Option<Value>) -> Result<(), ChangeError> {
        self.request(ConfigRequest::Permissions { section })
            .await
            .map(drop)
    }

    /// Requires keys of callers, even if none is defined.
    pub(crate) async fn require_keys(&self) -> Result<(), ChangeError> {
        self.request(ConfigRequest::RequireKeys).await.map(drop)
    }

    /// Lets callers on this machine do without a key; fails while any is defined.
    pub(crate) async fn make_keys_optional(&self) -> Result<(), ChangeError> {
        self.request(ConfigRequest::MakeKeysOptional)
            .await
            .map(drop)
    }

    /// Changes an entry of a table.
    pub(crate) async fn change_entry(
        &self,
        table: ConfigTable,
        name: &str,
        change: EntryChange,
    ) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.request(ConfigRequest::Entry {
            table,
            name,
            change,
        })
        .await
        .map(drop)
    }

    /// Connects to a server that is not configured, to find out what it offers.
    ///
    /// Only the validation runs in the manager's task: a slow connection does not block other changes.
    pub(crate) async fn probe_server(&self, entry: Value) -> Result<ProbeOutcome, ChangeError> {
        match self.request(ConfigRequest::Check { entry }).await? {
            ConfigResponse::Checked(server) => {
                let probed = self.gateway.servers().probe(&server, PROBE_TIMEOUT).await;
                Ok(match probed {
                    Ok(result) => ProbeOutcome::Connected(result),
                    Err(error) => ProbeOutcome::Failed(error),
                })
            }
            ConfigResponse::Server(_) | ConfigResponse::Settings => Err(ChangeError::Stopping),
        }
    }

    async fn request_server_change(&self, request: ConfigRequest) -> Result<String, ChangeError> {
        match self.request(request).await? {
            ConfigResponse::Server(name) => Ok(name),
            ConfigResponse::Checked(_) | ConfigResponse::Settings => Err(ChangeError::Stopping),
        }
    }

    async fn request(&self, request: ConfigRequest) -> Result<ConfigResponse, ChangeError> {
        let (reply, response) = oneshot::channel();
        let pending = PendingRequest {
            request,
            actor: current_actor(),
            reply,
        };
        let sent = self.requests.send(pending).await;
        sent.map_err(|_| ChangeError::Stopping)?;
        response.await.unwrap_or(Err(ChangeError::Stopping))
    }
}

impl From<MakeOptionalError> for ChangeError {
    fn from(error: MakeOptionalError) -> Self {
        match error {
            MakeOptionalError::Store(error) => Self::Store(error),
            error => Self::Conflict(error.to_string()),
        }
    }
}

impl ChangeError {
    fn from_findings(findings: &[ConfigFinding]) -> Self {
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == toolgate_core::config::Severity::Error);
        Self::Invalid(
            errors
                .map(|finding| {
                    let key = &finding.location.key;
                    if finding.location.position.is_some() {
                        // In a file: its name and the line help to find it.
                        format!("{}: {}", finding.location, finding.message)
                    } else if key.is_empty() {
                        finding.message.clone()
                    } else {
                        format!("{}: {}", layers::key_within_entry(key), finding.message)
                    }
                })
                .collect(),
        )
    }
}

/// Applies a validated configuration. Fails if it clashes with a server of the embedding program.
async fn apply(gateway: &Gateway, config: toolgate::Config) -> Result<(), ChangeError> {
    gateway.apply(config).await.map_err(|error| match error {
        StartError::Store(error) => ChangeError::Store(error),
        error => ChangeError::Invalid(vec![error.to_string()]),
    })
}
