//! The configuration of a running gateway: the files, and what the API changed over them.
//!
//! One task, the [`keeper`], owns it all, so that a change of a file and one through the API never
//! meet halfway. What the API changes is kept in the store and wins while the file's own entry
//! stays what it was; once the file's entry changes, the file wins.

mod keeper;
mod layers;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use toolgate::Gateway;
use toolgate::registry::TriedOut;
use toolgate::store::StoreError;
use toolgate_core::Config;
use toolgate_core::config::{Finding, Server};

pub(crate) use keeper::{Files, Keeper};
pub(crate) use layers::{Named, Source};

/// How long a server may take to be tried out.
const VERIFY: Duration = Duration::from_secs(60);

/// A handle on the configuration; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    gateway: Gateway,
    requests: mpsc::Sender<Request>,
    published: Arc<ArcSwap<Published>>,
}

/// What anyone may read of the configuration in force.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) sources: HashMap<String, Source>,
    pub(crate) config: Config,
    /// Keys and roles that the files have; the API made the others.
    pub(crate) in_files: HashMap<Named, BTreeSet<String>>,
    pub(crate) permissions_by: Option<Source>,
}

/// What is asked of the keeper.
#[derive(Debug)]
enum Ask {
    Add {
        entry: Value,
    },
    /// Only says what server the entry would make.
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
    /// None goes back to what the files say.
    Permissions {
        section: Option<Value>,
    },
    /// Sets an entry of a table.
    Put {
        table: Named,
        name: String,
        put: Put,
    },
}

/// How an entry is set.
#[derive(Debug)]
pub(crate) enum Put {
    /// Only if there is none.
    New(Value),
    Patch(Map<String, Value>),
    /// Whether there is one or not.
    Whole(Value),
    Remove,
}

impl Put {
    /// What it does, for the log.
    fn verb(&self) -> &'static str {
        match self {
            Self::New(_) => "made",
            Self::Patch(_) | Self::Whole(_) => "changed",
            Self::Remove => "removed",
        }
    }
}

/// Whether to connect to a server before it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    Yes,
    No,
}

/// What came of it.
#[derive(Debug)]
enum Done {
    /// The name of the server that was changed.
    Server(String),
    Checked(Box<Server>),
    Settings,
}

type Request = (Ask, oneshot::Sender<Result<Done, ChangeError>>);

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("no server has the id or name `{0}`; see /api/mcp/clients")]
    NotFound(String),
    #[error("a server called `{0}` exists already; change it with PUT /api/mcp/client/{0}")]
    Exists(String),
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    #[error("the server cannot be used: {0}")]
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

impl Configuration {
    pub(crate) fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Adds a server and gives its name.
    pub(crate) async fn add(&self, entry: Value, verify: Verify) -> Result<String, ChangeError> {
        if verify == Verify::Yes {
            let tried = self.test(entry.clone()).await?;
            tried.map_err(ChangeError::Unverified)?;
        }
        self.server(Ask::Add { entry }).await
    }

    pub(crate) async fn patch(
        &self,
        id: String,
        patch: Map<String, Value>,
    ) -> Result<String, ChangeError> {
        self.server(Ask::Patch { id, patch }).await
    }

    pub(crate) async fn remove(&self, id: String) -> Result<String, ChangeError> {
        self.server(Ask::Remove { id }).await
    }

    pub(crate) async fn set_tool_manager(
        &self,
        patch: Map<String, Value>,
    ) -> Result<(), ChangeError> {
        self.ask(Ask::ToolManager { patch }).await.map(drop)
    }

    /// Sets the permissions as a whole, or goes back to those of the files.
    pub(crate) async fn set_permissions(&self, section: Option<Value>) -> Result<(), ChangeError> {
        self.ask(Ask::Permissions { section }).await.map(drop)
    }

    /// Sets an entry of a table.
    pub(crate) async fn put(&self, table: Named, name: &str, put: Put) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.ask(Ask::Put { table, name, put }).await.map(drop)
    }

    /// Connects to a server that is not configured, to see what it would offer. Only the check of
    /// the entry waits for other changes.
    pub(crate) async fn test(&self, entry: Value) -> Result<Result<TriedOut, String>, ChangeError> {
        match self.ask(Ask::Check { entry }).await? {
            Done::Checked(server) => Ok(self.gateway.try_out(&server, VERIFY).await),
            Done::Server(_) | Done::Settings => Err(ChangeError::Stopping),
        }
    }

    async fn server(&self, ask: Ask) -> Result<String, ChangeError> {
        match self.ask(ask).await? {
            Done::Server(name) => Ok(name),
            Done::Checked(_) | Done::Settings => Err(ChangeError::Stopping),
        }
    }

    async fn ask(&self, ask: Ask) -> Result<Done, ChangeError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send((ask, answer)).await;
        sent.map_err(|_| ChangeError::Stopping)?;
        answered.await.unwrap_or(Err(ChangeError::Stopping))
    }
}

impl ChangeError {
    fn invalid(findings: &[Finding]) -> Self {
        let errors = findings
            .iter()
            .filter(|finding| finding.severity == toolgate_core::config::Severity::Error);
        Self::Invalid(
            errors
                .map(|finding| match finding.place.key.is_empty() {
                    true => finding.message.clone(),
                    false => format!(
                        "{}: {}",
                        layers::own_key(&finding.place.key),
                        finding.message
                    ),
                })
                .collect(),
        )
    }
}

/// Applies a configuration that was checked; what clashes with servers of the program is refused.
fn apply(gateway: &Gateway, config: toolgate::Config) -> Result<(), ChangeError> {
    gateway
        .apply(config)
        .map_err(|error| ChangeError::Invalid(vec![error.to_string()]))
}
