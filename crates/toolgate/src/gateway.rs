//! The gateway: everything that runs, behind one handle.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{broadcast, watch};
use toolgate_core::config::{
    APPROVER, Approver, Care, Limits, Link, Protocol, Server, VirtualServer,
};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{ToolList, ToolLists};
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::{Catalog, Config, ToolId};
use toolgate_mcp::ear::Ear;
use toolgate_mcp::lane::Ask;
use toolgate_mcp::registry::{Entry, Plan, Registry, Setup, TriedOut, Watching};
use toolgate_mcp::{Environment, LocalServer};

use crate::approval::{Approval, ApprovalState, Approvals, DecideError, Decider, Ruling};
use crate::audit::{Audit, Page, Query};
use crate::call::{CallError, Outcome, Request, ToolCall};
use crate::caller::Caller;
use crate::code_mode::Program;
use crate::engine::{Engine, Explanation, KeyError, Part, Parts};
use crate::event::{Event, Events, ServerWatch};
use crate::history::History;
use crate::hook::{Hook, NoHook};
use crate::mcp::Pages;
use crate::metrics::{Metrics, Stats};
use crate::models::{Ledger, Models};
use crate::store::{Store, StoreError, Version};
use crate::trace::{NoTracer, Tracer};

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
    audit: Audit,
    approvals: Approvals,
    events: Events,
    models: Models,
    ledger: Ledger,
    pages: Pages,
    server_watch: ServerWatch,
}

/// A gateway to be started.
#[derive(Debug)]
pub struct Builder {
    config: Config,
    locals: Vec<Arc<LocalServer>>,
    environment: Environment,
    store: Option<Store>,
    hook: Arc<dyn Hook>,
    tracer: Arc<dyn Tracer>,
    worker: Option<Program>,
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
            limits: Limits::default(),
            on_all_keys: false,
            resources: true,
            per_session: false,
            code_mode: false,
        });
        self.locals.push(Arc::new(server));
        self
    }

    /// Adds a server of the embedding program whose tools models reach by scripts.
    #[must_use]
    pub fn scripted(self, server: LocalServer) -> Self {
        let mut own = self.local(server);
        if let Some(server) = own.config.servers.last_mut() {
            server.code_mode = true;
        }
        own
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

    /// Your own logic, which reviews every call before it runs.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hook = Arc::new(hook);
        self
    }

    /// Knows the traces that spans belong to, so that servers and providers are told; without it
    /// they are told what came with the request.
    #[must_use]
    pub fn tracer(mut self, tracer: impl Tracer + 'static) -> Self {
        self.tracer = Arc::new(tracer);
        self
    }

    /// Says that this program becomes a worker for scripts when it is asked to: that its `main` calls
    /// `toolgate::script_worker::main` first thing if `toolgate::script_worker::is_asked_for`. Code
    /// mode needs that, or a `worker_command` in its configuration.
    #[must_use]
    pub fn is_script_worker(mut self) -> Self {
        self.worker = Program::own().ok();
        self
    }

    /// Starts everything and returns at once; servers join as they come up.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Self {
            config,
            locals,
            environment,
            store,
            hook,
            tracer,
            worker,
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
            environment: environment.clone(),
        };
        let registry = Arc::new(Registry::start(setup, plan(&config)));
        let metrics = Arc::new(Metrics::new());
        let events = Events::new();
        let audit = Audit::start(store.clone(), config.audit, events.clone());
        let approvals = Approvals::new(store.clone(), events.clone());
        let parts = Parts {
            registry: Arc::clone(&registry),
            metrics: Arc::clone(&metrics),
            audit: audit.clone(),
            approvals: approvals.clone(),
            store: store.clone(),
            hook,
            tracer,
            environment: environment.clone(),
            worker,
        };
        let engine = Engine::new(&config, parts);
        let ledger = Ledger::start(store.clone(), Arc::clone(&metrics));
        Ok(Gateway(Arc::new(Inner {
            models: Models::new(
                &config,
                engine.clone(),
                environment,
                (ledger.clone(), store.clone()),
            ),
            engine,
            ledger,
            pages: Pages::new(),
            history: History::start(store.clone(), registry.subscribe()),
            server_watch: ServerWatch::start(Arc::clone(&registry), events.clone()),
            registry,
            metrics,
            own_servers,
            store,
            audit,
            approvals,
            events,
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
            hook: Arc::new(NoHook),
            tracer: Arc::new(NoTracer),
            worker: None,
        }
    }

    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        self.0.engine.call(caller, call).await
    }

    /// The way to models.
    pub fn models(&self) -> &Models {
        &self.0.models
    }

    /// The current catalog, whoever asks; [`Self::scope`] says what a caller may see of it.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.registry.catalog()
    }

    /// The tools that exist for a request of a caller with these filters.
    pub fn scope(&self, caller: &Caller, filters: &Filters) -> Result<Arc<Scope>, CallError> {
        self.0.engine.scope(caller, filters)
    }

    /// Lists of tools that are encoded already.
    pub(crate) fn pages(&self) -> &Pages {
        &self.0.pages
    }

    /// Ends the connections that a client's session has of its own.
    pub(crate) fn end_session(&self, session: &str) {
        self.0.registry.end_session(session);
    }

    /// Sends a request to every server with which a client's session has a connection of its own.
    pub(crate) fn tell_own(&self, session: &str, ask: &Ask) {
        self.0.registry.tell_own(session, ask);
    }

    /// Sends a notification in the same way.
    pub(crate) fn notify_own(&self, session: &str, method: &'static str) {
        self.0.registry.notify_own(session, method);
    }

    /// Whether the key of a caller, if it has one, is still valid.
    pub fn knows(&self, caller: &Caller) -> bool {
        self.0.engine.knows(caller)
    }

    /// Whether any part of any server exists for a request, be it up or not.
    pub(crate) fn sees_any_server(&self, caller: &Caller, filters: &Filters) -> bool {
        self.0.engine.sees_any_server(caller, filters)
    }

    /// A named subset of the tools.
    pub fn virtual_server(&self, name: &str) -> Option<VirtualServer> {
        self.0.engine.virtual_server(name)
    }

    /// The servers whose resources and prompts exist for a request.
    pub fn servers_with_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<ServerName>, CallError> {
        self.0.engine.servers_with_resources(caller, filters)
    }

    /// Asks a server for something that is no tool call, such as a resource.
    pub async fn ask(
        &self,
        caller: &Caller,
        request: &Request,
        server: &ServerName,
        ask: Ask,
    ) -> Result<Box<RawValue>, CallError> {
        self.0.engine.ask(caller, request, server, ask).await
    }

    /// Has `ear` told whenever a resource of a server changes, for as long as the answer lives.
    pub async fn watch(
        &self,
        caller: &Caller,
        filters: &Filters,
        server: &ServerName,
        uri: &str,
        ear: Arc<dyn Ear>,
    ) -> Result<Watching, CallError> {
        let resource = (server, uri);
        self.0.engine.watch(caller, filters, resource, ear).await
    }

    /// Why a tool exists for a request, or does not.
    pub fn explain(
        &self,
        caller: &Caller,
        filters: &Filters,
        tool: &str,
    ) -> Result<Explanation, CallError> {
        self.0.engine.explain(caller, filters, tool)
    }

    /// The name of the key that was presented, if it opens.
    pub fn authenticate(&self, key: &str) -> Result<Arc<str>, KeyError> {
        self.0.engine.authenticate(key)
    }

    /// Whether any key is defined, so that callers need one.
    pub fn has_keys(&self) -> bool {
        self.0.engine.has_keys()
    }

    /// Whether a key may decide about approvals.
    pub fn is_approver(&self, key: &str) -> bool {
        self.0.engine.has_role(key, APPROVER)
    }

    /// A part of a large result, from an offset; none if it is not kept for this caller.
    pub fn read_result(&self, caller: &Caller, handle: &str, offset: u64) -> Option<Part> {
        self.0.engine.read_result(caller, handle, offset)
    }

    /// Approvals, the oldest first.
    pub async fn approvals(
        &self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        self.0.approvals.list(state, after, limit).await
    }

    /// One approval.
    pub async fn approval(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.0.store.approval(id).await
    }

    /// Decides about a pending approval.
    pub async fn decide(
        &self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
    ) -> Result<Approval, DecideError> {
        let settings = self.0.engine.approval_settings();
        self.0.approvals.decide(id, ruling, by, &settings).await
    }

    /// How long a call of an MCP client waits for its approval.
    pub(crate) fn approval_wait(&self) -> Duration {
        self.0.engine.approval_settings().wait
    }

    /// Whether the person at a client may approve its calls.
    pub(crate) fn asks_clients(&self) -> bool {
        let settings = self.0.engine.approval_settings();
        settings.by.contains(&Approver::Client)
    }

    /// Takes back all that was granted to a key, by name, and forgets what it has spent.
    pub async fn forget_caller(&self, key: &str) -> Result<(), StoreError> {
        self.0.approvals.forget(key).await?;
        self.0.engine.forget(key);
        Ok(())
    }

    /// Records of calls, the newest first.
    pub async fn audit(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.store.records(query).await
    }

    /// Hears of servers, approvals and calls.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.events.subscribe()
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
        self.0.models.apply(&config);
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
        self.0.models.drain(within).await;
        self.0.engine.drain(within).await;
        self.0.approvals.stop().await;
        self.0.audit.stop().await;
        self.0.ledger.stop().await;
        self.0.registry.stop().await;
        self.0.server_watch.stop().await;
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
