//! The gateway: everything that runs, behind one handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use toolgate_core::catalog::Entry as CatalogEntry;
use toolgate_core::config::{Care, Link, Protocol, Server};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{Decision, ToolList, ToolLists};
use toolgate_core::{Catalog, Config, ToolId};
use toolgate_mcp::registry::{Entry, Plan, Registry, Setup, TriedOut};
use toolgate_mcp::{Environment, LocalServer};

use crate::call::{CallError, Outcome, ToolCall};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::history::History;
use crate::metrics::{Metrics, Stats};
use crate::store::{Store, StoreError, Version};

/// A running gateway; clones share it.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    engine: Engine,
    metrics: Arc<Metrics>,
    /// Servers of the embedding program, which no file knows of.
    own_servers: Vec<Server>,
    store: Store,
    history: History,
}

/// A gateway to be started.
#[derive(Debug)]
pub struct Builder {
    config: Config,
    locals: Vec<Arc<LocalServer>>,
    environment: Environment,
    store: Option<Store>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
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
            care: Care::default(),
            fallback: None,
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

    /// Where to keep what must survive a restart; in memory unless set.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Starts everything and returns at once; servers join as they come up.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Self {
            config,
            locals,
            environment,
            store,
        } = self;
        let store = match store {
            Some(store) => store,
            None => Store::in_memory().await?,
        };
        check_names(&config)?;
        let in_process = |server: &&Server| server.link == Link::InProcess;
        let own_servers = config.servers.iter().filter(in_process).cloned().collect();
        let setup = Setup {
            locals,
            environment,
        };
        let registry = Arc::new(Registry::start(setup, plan(&config)));
        let metrics = Arc::new(Metrics::new());
        let catalogs = registry.subscribe();
        let engine = Engine::new(&config, Arc::clone(&registry), Arc::clone(&metrics));
        Ok(Gateway(Arc::new(Inner {
            registry,
            engine,
            metrics,
            own_servers,
            history: History::start(store.clone(), catalogs),
            store,
        })))
    }
}

impl Gateway {
    pub fn builder(config: Config) -> Builder {
        Builder {
            config,
            locals: Vec::new(),
            environment: Environment::new(|_| None),
            store: None,
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

    /// Takes up a new configuration without touching calls under way. Servers of the embedding
    /// program stay.
    pub fn apply(&self, mut config: Config) -> Result<(), StartError> {
        let own = self.0.own_servers.iter().cloned();
        config.servers.extend(own);
        check_names(&config)?;
        self.0.engine.apply(&config);
        self.0.registry.apply(plan(&config));
        Ok(())
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Every definition that a tool has had, the one seen last first.
    pub async fn versions(&self, tool: &ToolId) -> Result<Vec<Version>, StoreError> {
        self.0.store.versions(tool).await
    }

    /// Connects to a server for a moment, to see what it would offer.
    pub async fn try_out(&self, server: &Server, within: Duration) -> Result<TriedOut, String> {
        self.0.registry.try_out(server, within).await
    }

    /// Calls, errors, bytes and latency of servers and tools.
    pub fn stats(&self) -> Stats {
        self.0.metrics.stats()
    }

    /// Figures in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.0.metrics.text(&self.0.registry)
    }

    /// Lets calls under way end within a bound, then ends all servers.
    pub async fn stop(&self, within: Duration) {
        self.0.engine.drain(within).await;
        self.0.registry.stop().await;
        self.0.history.stop().await;
        self.0.store.close().await;
    }
}

fn check_names(config: &Config) -> Result<(), StartError> {
    let mut names = std::collections::HashSet::new();
    let taken = config
        .servers
        .iter()
        .find(|server| !names.insert(server.name.folded()));
    match taken {
        Some(server) => Err(StartError::NameTaken(server.name.clone())),
        None => Ok(()),
    }
}

fn plan(config: &Config) -> Plan {
    Plan {
        servers: config.servers.clone(),
        lists: config.security.clone(),
        style: config.tool_name_style,
        sync_interval: config.tool_manager.tool_sync_interval,
        health_interval: config.tool_manager.health_interval,
        tool_timeout: config.tool_manager.tool_execution_timeout,
    }
}
