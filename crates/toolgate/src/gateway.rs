//! The gateway: everything that runs, behind one handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use toolgate_core::catalog::Entry as CatalogEntry;
use toolgate_core::config::{Link, Protocol, Server};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{Decision, ToolList, ToolLists};
use toolgate_core::{Catalog, Config};
use toolgate_mcp::registry::{Entry, Registry, Setup};
use toolgate_mcp::{Environment, LocalServer};

use crate::call::{CallError, Outcome, ToolCall};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::metrics::Metrics;

/// A running gateway; clones share it.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    engine: Engine,
    metrics: Arc<Metrics>,
}

/// A gateway to be started.
#[derive(Debug)]
pub struct Builder {
    config: Config,
    locals: Vec<Arc<LocalServer>>,
    environment: Environment,
}

/// Why a gateway does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error(
        "server `{0}` is defined twice; names count as the same whatever their case, `-` and `_`"
    )]
    NameTaken(ServerName),
}

impl Builder {
    /// Adds a server of the embedding program. All its tools may be called, none unasked.
    #[must_use]
    pub fn local(mut self, server: LocalServer) -> Self {
        self.config.servers.push(Server {
            name: server.name().clone(),
            id: server.name().to_string(),
            enabled: true,
            link: Link::InProcess,
            protocol: Protocol::Legacy,
            lists: ToolLists {
                execute: ToolList::All,
                auto_execute: ToolList::none(),
            },
            timeout: None,
            sync_interval: None,
        });
        self.locals.push(Arc::new(server));
        self
    }

    /// Where `env.NAME` and the children's minimal environment come from; empty unless set.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Starts everything and returns at once; servers join as they come up.
    pub fn start(self) -> Result<Gateway, StartError> {
        let Self {
            config,
            locals,
            environment,
        } = self;
        let mut names = std::collections::HashSet::new();
        for server in &config.servers {
            if !names.insert(server.name.folded()) {
                return Err(StartError::NameTaken(server.name.clone()));
            }
        }
        let registry = Arc::new(Registry::start(Setup {
            servers: config.servers.clone(),
            locals,
            lists: config.security.clone(),
            style: config.tool_name_style,
            sync_interval: config.tool_manager.tool_sync_interval,
            environment,
        }));
        let metrics = Arc::new(Metrics::new());
        let engine = Engine::new(&config, Arc::clone(&registry), Arc::clone(&metrics));
        Ok(Gateway(Arc::new(Inner {
            registry,
            engine,
            metrics,
        })))
    }
}

impl Gateway {
    pub fn builder(config: Config) -> Builder {
        Builder {
            config,
            locals: Vec::new(),
            environment: Environment::new(|_| None),
        }
    }

    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        self.0.engine.call(caller, call).await
    }

    /// The current catalog, whoever asks; [`Self::scope`] says what a caller may see of it.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.registry.catalog()
    }

    pub fn scope<'c>(
        &self,
        caller: &Caller,
        catalog: &'c Catalog,
    ) -> Vec<(&'c CatalogEntry, Decision)> {
        self.0.engine.scope(caller, catalog)
    }

    /// Hears of every new catalog.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.registry.subscribe()
    }

    pub fn servers(&self) -> Vec<Arc<Entry>> {
        self.0.registry.entries()
    }

    /// Waits until every server is connected or has failed to.
    pub async fn settled(&self) {
        for entry in self.servers() {
            entry.settled().await;
        }
    }

    /// Figures in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.0.metrics.text(&self.0.registry)
    }

    /// Lets calls under way end within a bound, then ends all servers.
    pub async fn stop(&self, within: Duration) {
        self.0.engine.drain(within).await;
        self.0.registry.stop().await;
    }
}
