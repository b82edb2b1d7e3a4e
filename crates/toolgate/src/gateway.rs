//! The gateway handle, which owns all components and their lifecycle.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{broadcast, watch};
use toolgate_core::config::{
    APPROVER_ROLE, Approver, Protocol, ServerConfig, ServerConnection, ServerLimits, ServerTuning,
    VirtualServer,
};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{ToolList, ToolLists};
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::{Catalog, Config, ToolId};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::{
    ProbeResult, Registry, RegistryConfig, RegistryDependencies, RegistryEntry,
    ResourceSubscription,
};
use toolgate_mcp::{Environment, LocalServer};

use crate::approval::{Approval, ApprovalService, ApprovalState, DecideError, Decider, Ruling};
use crate::audit::{AuditLog, AuditPage, AuditQuery};
use crate::call::{CallError, Outcome, RequestContext, ToolCall};
use crate::caller::Caller;
use crate::code_mode::WorkerProgram;
use crate::engine::{Engine, EngineDependencies, Explanation, KeyError, ResultChunk};
use crate::event::{EventBus, GatewayEvent, ServerWatcher};
use crate::history::DefinitionHistory;
use crate::hook::{Hook, NoHook};
use crate::mcp::ToolPageCache;
use crate::metrics::{Metrics, Stats};
use crate::models::{Models, UsageRecorder};
use crate::store::{Store, StoreError, ToolVersion};
use crate::trace::{NoTracer, Tracer};

/// A running gateway. Clones share it.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    engine: Engine,
    metrics: Arc<Metrics>,
    /// Servers of the embedding program, which appear in no configuration file.
    in_process_servers: Vec<ServerConfig>,
    store: Store,
    history: DefinitionHistory,
    audit: AuditLog,
    approvals: ApprovalService,
    events: EventBus,
    models: Models,
    ledger: UsageRecorder,
    tool_pages: ToolPageCache,
    server_watch: ServerWatcher,
}

/// Configures and starts a [`Gateway`].
#[derive(Debug)]
pub struct GatewayBuilder {
    config: Config,
    locals: Vec<Arc<LocalServer>>,
    environment: Environment,
    store: Option<Store>,
    hook: Arc<dyn Hook>,
    tracer: Arc<dyn Tracer>,
    worker: Option<WorkerProgram>,
}

/// An error while starting or reconfiguring a gateway.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "server `{0}` is defined twice; names that differ only in case, `-` or `_` are the same"
    )]
    NameTaken(ServerName),
}

impl GatewayBuilder {
    /// Adds an in-process server. All its tools may be called, but none run automatically.
    #[must_use]
    pub fn local(mut self, server: LocalServer) -> Self {
        self.config.servers.push(ServerConfig {
            name: server.name().clone(),
            id: server.name().to_string(),
            enabled: true,
            connection: ServerConnection::InProcess,
            protocol: Protocol::Legacy,
            lists: ToolLists {
                execute: ToolList::All,
                auto_execute: ToolList::none(),
            },
            timeout: None,
            tuning: ServerTuning::default(),
            fallback: None,
            limits: ServerLimits::default(),
            allow_on_all_keys: false,
            resources: true,
            per_session: false,
            code_mode: false,
        });
        self.locals.push(Arc::new(server));
        self
    }

    /// Adds an in-process server whose tools models call from scripts (code mode).
    #[must_use]
    pub fn local_code_mode(self, server: LocalServer) -> Self {
        let mut builder = self.local(server);
        if let Some(server) = builder.config.servers.last_mut() {
            server.code_mode = true;
        }
        builder
    }

    /// Sets the source of `env.NAME` references and of the minimal environment of child processes;
    /// empty by default.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Sets the store for persistent state; in memory by default.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets a hook that reviews every call before it runs.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hook = Arc::new(hook);
        self
    }

    /// Sets the tracer that provides the trace context sent to servers and model providers. Without
    /// one, the context of the incoming request is forwarded.
    #[must_use]
    pub fn tracer(mut self, tracer: impl Tracer + 'static) -> Self {
        self.tracer = Arc::new(tracer);
        self
    }

    /// Uses the current executable as the script worker. Its `main` must start by calling
    /// `toolgate::script_worker::main` if `toolgate::script_worker::is_worker_process` returns true. Code
    /// mode needs either this or a `worker_command` in the configuration.
    #[must_use]
    pub fn script_worker(mut self) -> Self {
        self.worker = WorkerProgram::current_exe().ok();
        self
    }

    /// Starts the gateway without waiting for its servers; they become available as they connect.
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
        let in_process = |server: &&ServerConfig| server.connection == ServerConnection::InProcess;
        let in_process_servers = config.servers.iter().filter(in_process).cloned().collect();
        let setup = RegistryDependencies {
            locals,
            environment: environment.clone(),
        };
        let registry = Arc::new(Registry::start(setup, plan(&config)));
        let metrics = Arc::new(Metrics::new());
        let events = EventBus::new();
        let audit = AuditLog::start(store.clone(), config.audit, events.clone());
        let approvals = ApprovalService::new(store.clone(), events.clone());
        let parts = EngineDependencies {
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
        let ledger = UsageRecorder::start(store.clone(), Arc::clone(&metrics));
        Ok(Gateway(Arc::new(Inner {
            models: Models::new(
                &config,
                engine.clone(),
                environment,
                (ledger.clone(), store.clone()),
            ),
            engine,
            ledger,
            tool_pages: ToolPageCache::new(),
            history: DefinitionHistory::start(store.clone(), registry.subscribe()),
            server_watch: ServerWatcher::start(Arc::clone(&registry), events.clone()),
            registry,
            metrics,
            in_process_servers,
            store,
            audit,
            approvals,
            events,
        })))
    }
}

impl Gateway {
    pub fn builder(config: Config) -> GatewayBuilder {
        GatewayBuilder {
            config,
            locals: Vec::new(),
            environment: Environment::new(|_| None),
            store: None,
            hook: Arc::new(NoHook),
            tracer: Arc::new(NoTracer),
            worker: None,
        }
    }

    /// Calls a tool. Dropping the future cancels the call.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        self.0.engine.call(caller, call).await
    }

    /// Returns the handle for model requests.
    pub fn models(&self) -> &Models {
        &self.0.models
    }

    /// Returns the current catalog of all servers. [`Self::scope`] returns the part visible to a
    /// caller.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.registry.catalog()
    }

    /// Returns the tools visible to a caller with these filters.
    pub fn scope(&self, caller: &Caller, filters: &Filters) -> Result<Arc<Scope>, CallError> {
        self.0.engine.scope(caller, filters)
    }

    /// Returns the cache of encoded tool lists.
    pub(crate) fn tool_pages(&self) -> &ToolPageCache {
        &self.0.tool_pages
    }

    /// Closes the lanes of a client session.
    pub(crate) fn end_session(&self, session: &str) {
        self.0.registry.end_session(session);
    }

    /// Sends a request over all lanes of a client session.
    pub(crate) fn request_on_session_lanes(&self, session: &str, request: &UpstreamRequest) {
        self.0.registry.send_to_session_lanes(session, request);
    }

    /// Sends a notification over all lanes of a client session.
    pub(crate) fn notify_session_lanes(&self, session: &str, method: &'static str) {
        self.0.registry.notify_session_lanes(session, method);
    }

    /// Returns whether the caller's key, if it has one, is still valid.
    pub fn has_valid_key(&self, caller: &Caller) -> bool {
        self.0.engine.has_valid_key(caller)
    }

    /// Returns whether a request can see any part of any server, whether or not that server is up.
    pub(crate) fn can_see_any_server(&self, caller: &Caller, filters: &Filters) -> bool {
        self.0.engine.can_see_any_server(caller, filters)
    }

    /// Returns a virtual server, a named subset of the tools.
    pub fn virtual_server(&self, name: &str) -> Option<VirtualServer> {
        self.0.engine.virtual_server(name)
    }

    /// Returns the servers whose resources and prompts are visible to a request.
    pub fn servers_with_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<ServerName>, CallError> {
        self.0.engine.servers_with_resources(caller, filters)
    }

    /// Sends a request other than a tool call to a server, for example to read a resource.
    pub async fn send_request(
        &self,
        caller: &Caller,
        request: &RequestContext,
        server: &ServerName,
        upstream: UpstreamRequest,
    ) -> Result<Box<RawValue>, CallError> {
        self.0
            .engine
            .send_request(caller, request, server, upstream)
            .await
    }

    /// Subscribes `handler` to changes of a resource until the returned subscription is dropped.
    pub async fn subscribe_resource(
        &self,
        caller: &Caller,
        filters: &Filters,
        server: &ServerName,
        uri: &str,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<ResourceSubscription, CallError> {
        let resource = (server, uri);
        self.0
            .engine
            .subscribe_resource(caller, filters, resource, handler)
            .await
    }

    /// Explains why a tool is or is not visible to a request.
    pub fn explain(
        &self,
        caller: &Caller,
        filters: &Filters,
        tool: &str,
    ) -> Result<Explanation, CallError> {
        self.0.engine.explain(caller, filters, tool)
    }

    /// Returns the name of the presented key if it is valid.
    pub fn authenticate(&self, key: &str) -> Result<Arc<str>, KeyError> {
        self.0.engine.authenticate(key)
    }

    /// Returns whether any keys are configured, so that callers need one.
    pub fn has_keys(&self) -> bool {
        self.0.engine.has_keys()
    }

    /// Returns whether a key may decide on approvals.
    pub fn is_approver(&self, key: &str) -> bool {
        self.0.engine.has_role(key, APPROVER_ROLE)
    }

    /// Returns a chunk of a large result, starting at an offset; `None` if no such result is stored
    /// for this caller.
    pub fn read_result(&self, caller: &Caller, handle: &str, offset: u64) -> Option<ResultChunk> {
        self.0.engine.read_result(caller, handle, offset)
    }

    /// Returns approvals, oldest first.
    pub async fn approvals(
        &self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        self.0.approvals.list(state, after, limit).await
    }

    /// Returns an approval by id.
    pub async fn approval(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.0.store.approval(id).await
    }

    /// Decides on a pending approval.
    pub async fn decide(
        &self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
    ) -> Result<Approval, DecideError> {
        let settings = self.0.engine.approval_settings();
        self.0.approvals.decide(id, ruling, by, &settings).await
    }

    /// Returns the time that a call of an MCP client waits for its approval.
    pub(crate) fn approval_wait(&self) -> Duration {
        self.0.engine.approval_settings().wait
    }

    /// Returns whether the users of MCP clients may approve their own calls.
    pub(crate) fn can_clients_approve(&self) -> bool {
        let settings = self.0.engine.approval_settings();
        settings.by.contains(&Approver::Client)
    }

    /// Revokes everything granted to a key, by name, and resets its budget.
    pub async fn reset_caller(&self, key: &str) -> Result<(), StoreError> {
        self.0.approvals.revoke_caller(key).await?;
        self.0.engine.reset_budget(key);
        Ok(())
    }

    /// Returns audit records, newest first.
    pub async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        self.0.store.records(query).await
    }

    /// Subscribes to events about servers, approvals and calls.
    pub fn events(&self) -> broadcast::Receiver<GatewayEvent> {
        self.0.events.subscribe()
    }

    /// Subscribes to catalog updates.
    pub fn subscribe_catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.registry.subscribe()
    }

    /// Returns the registry entries of all servers.
    pub fn servers(&self) -> Vec<Arc<RegistryEntry>> {
        self.0.registry.entries()
    }

    /// Waits until every server has either connected or failed to.
    pub async fn wait_until_settled(&self) {
        for entry in self.servers() {
            entry.wait_settled().await;
        }
    }

    /// Applies a new configuration without affecting calls in flight. In-process servers are kept.
    pub fn apply(&self, mut config: Config) -> Result<(), StartError> {
        let in_process = self.0.in_process_servers.iter().cloned();
        config.servers.extend(in_process);
        check_names(&config)?;
        self.0.engine.apply(&config);
        self.0.models.apply(&config);
        self.0.registry.apply(plan(&config));
        Ok(())
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns all definitions that a tool has had, most recently seen first.
    pub async fn tool_versions(&self, tool: &ToolId) -> Result<Vec<ToolVersion>, StoreError> {
        self.0.store.tool_versions(tool).await
    }

    /// Connects to a server temporarily to find out what it offers.
    pub async fn probe(
        &self,
        server: &ServerConfig,
        within: Duration,
    ) -> Result<ProbeResult, String> {
        self.0.registry.probe(server, within).await
    }

    /// Returns calls, errors, bytes and latencies per server and tool.
    pub fn stats(&self) -> Stats {
        self.0.metrics.stats()
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.0.metrics.render(&self.0.registry)
    }

    /// Waits up to `within` for calls in flight, then stops all servers and closes the store.
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
        .find(|server| !names.insert(server.name.to_folded()));
    match taken {
        Some(server) => Err(StartError::NameTaken(server.name.clone())),
        None => Ok(()),
    }
}

fn plan(config: &Config) -> RegistryConfig {
    RegistryConfig {
        servers: config.servers.clone(),
        lists: config.security.clone(),
        style: config.tool_name_style,
        sync_interval: config.tool_manager.tool_sync_interval,
        health_interval: config.tool_manager.health_interval,
        tool_timeout: config.tool_manager.tool_execution_timeout,
    }
}
