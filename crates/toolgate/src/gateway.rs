//! The gateway handle, which owns all components and their lifecycle.

mod approvals;
mod in_process;
mod retention;
mod servers;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use approvals::Approvals;
pub use in_process::LocalServerOptions;
use in_process::Settings;
use parking_lot::Mutex;
use retention::{ExpiringData, RetentionTask};
pub use servers::Servers;
use tokio::sync::watch;
use toolgate_core::config::CapacityLimits;
use toolgate_core::name::ServerName;
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::{Catalog, Config};
use toolgate_mcp::registry::{Registry, RegistryDependencies};
use toolgate_mcp::{Environment, LocalServer, ServerLauncher};
pub use tools::Tools;

use crate::agent::{RunStore, Runs};
use crate::approval::{ApprovalService, ApprovalStore};
use crate::audit::{AuditLog, AuditStartError, AuditVerifier};
use crate::call::{CallError, Outcome, RequestContext, ToolCall};
use crate::caller::Caller;
use crate::code_mode::WorkerProgram;
use crate::conversations::Conversations;
use crate::definitions::{DefinitionHistory, Definitions};
use crate::engine::{Engine, EngineDependencies, InterruptedTask, KeyRequirement, Keys, Resources};
use crate::event::{GatewayEvents, ServerWatcher};
use crate::held_bytes::HeldBytes;
use crate::hook::Hook;
use crate::load::{CurrentLoad, Load, LoadLevel};
use crate::metrics::{Bound, Metrics, Stats};
use crate::models::{self, ModelError, ModelRequest, ModelResponse, ModelStore, Models, Operation};
use crate::result::ToolResult;
use crate::store::{Store, StoreError, StoreMonitor};
use crate::trace::{NoTracer, Tracer};

/// A running gateway. Clones share it.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    engine: Engine,
    held_bytes: HeldBytes,
    metrics: Arc<Metrics>,
    /// Locked while a change is applied, so that changes apply one after the other.
    settings: Mutex<Settings>,
    store: Store,
    history: DefinitionHistory,
    definitions: Definitions,
    audit: AuditLog,
    approvals: ApprovalService,
    models: Models,
    runs: Runs,
    retention: RetentionTask,
    store_monitor: StoreMonitor,
    server_watch: ServerWatcher,
}

/// Configures and starts a [`Gateway`].
#[derive(Debug)]
pub struct GatewayBuilder {
    settings: Settings,
    environment: Environment,
    store: Option<Store>,
    hooks: Vec<Arc<dyn Hook>>,
    tracer: Arc<dyn Tracer>,
    worker: Option<WorkerProgram>,
    launcher: Option<ServerLauncher>,
}

/// An error while starting or reconfiguring a gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The audit trail cannot be continued.
    #[error(transparent)]
    Audit(#[from] AuditStartError),
    /// Two servers have the same name.
    #[error(
        "server `{0}` is defined twice; names that differ only in case, `-` or `_` are the same"
    )]
    NameTaken(ServerName),
    /// Only in builds without the feature `code-mode`.
    #[error(
        "server `{0}` uses code mode, which this program lacks; build it with the feature `code-mode` of the crate `toolgate`"
    )]
    CodeModeUnavailable(ServerName),
}

impl GatewayBuilder {
    /// Adds an in-process server. All its tools may be called, but none run automatically.
    #[must_use]
    pub fn local(self, server: LocalServer) -> Self {
        self.local_with(server, LocalServerOptions::default())
    }

    /// Adds an in-process server with options.
    #[must_use]
    pub fn local_with(mut self, server: LocalServer, options: LocalServerOptions) -> Self {
        self.settings.add_server(server, options);
        self
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

    /// Adds a hook around tool calls, model requests and runs. Several hooks act in the order in
    /// which they were added.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
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
    #[cfg(feature = "code-mode")]
    #[must_use]
    pub fn script_worker(mut self) -> Self {
        self.worker = WorkerProgram::current_exe().ok();
        self
    }

    /// Uses the current executable as the launcher that starts stdio servers in their sandbox. Its `main`
    /// must start by calling `toolgate::server_launcher::main` if
    /// `toolgate::server_launcher::is_launcher_process` returns true. Servers do not see the `hidden` files
    /// and directories. Without a launcher, servers run without a sandbox, and `sandbox = "strict"` is an
    /// error.
    #[must_use]
    pub fn server_launcher(mut self, hidden: Vec<PathBuf>) -> Self {
        self.launcher = ServerLauncher::current_exe(hidden).ok();
        self
    }

    /// Starts the gateway without waiting for its servers; they become available as they connect.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Self {
            settings,
            environment,
            store,
            hooks,
            tracer,
            worker,
            launcher,
        } = self;
        let store = match store {
            Some(store) => store,
            None => Store::in_memory().await?,
        };
        let config = settings.merge()?;
        let tables = vec![models::REFERENCED_TABLE];
        let audit =
            AuditLog::start(store.clone(), config.audit.clone(), &environment, tables).await?;
        let key_requirement = KeyRequirement::load(&store, audit.clone(), &config).await?;
        let setup = RegistryDependencies {
            environment: environment.clone(),
            launcher,
        };
        let registry = Registry::start(setup, settings.registry_config(&config));
        let registry = Arc::new(registry);
        let metrics = Arc::new(Metrics::new());
        let approval_store = ApprovalStore::new(store.clone(), audit.clone());
        let run_store = RunStore::new(store.clone());
        recover_interrupted(&approval_store, &run_store).await?;
        let approvals = ApprovalService::new(approval_store);
        let parts = EngineDependencies {
            registry: Arc::clone(&registry),
            metrics: Arc::clone(&metrics),
            audit: audit.clone(),
            approvals: approvals.clone(),
            conversations: Conversations::new(store.clone()),
            store: store.clone(),
            hooks: hooks.into_iter().collect(),
            tracer,
            environment: environment.clone(),
            load: CurrentLoad::default(),
            worker,
        };
        let engine = Engine::new(&config, parts, key_requirement);
        let models = Models::start(
            &config,
            engine.clone(),
            environment,
            ModelStore::new(store.clone(), audit.store().clone()),
            Arc::clone(&metrics),
        );
        let runs = Runs::new(engine.clone(), models.clone(), run_store, &config);
        runs.watch_approvals();
        let definitions =
            Definitions::start(store.clone(), audit.clone(), &registry, &config).await?;
        let retention = RetentionTask::start(ExpiringData {
            audit: audit.clone(),
            approvals: approvals.clone(),
            models: models.clone(),
            runs: runs.clone(),
            store: store.clone(),
        });
        Ok(Gateway(Arc::new(Inner {
            engine,
            models,
            runs,
            retention,
            store_monitor: StoreMonitor::start(store.clone()),
            history: DefinitionHistory::start(store.clone(), registry.subscribe()),
            definitions,
            server_watch: ServerWatcher::start(Arc::clone(&registry)),
            held_bytes: HeldBytes::new(registry.capacity().bodies),
            registry,
            metrics,
            settings: Mutex::new(settings),
            store,
            audit,
            approvals,
        })))
    }
}

/// Settles what an earlier process left unfinished.
async fn recover_interrupted(approvals: &ApprovalStore, runs: &RunStore) -> Result<(), StoreError> {
    approvals.mark_interrupted().await?;
    approvals.revoke_without_definition().await?;
    runs.mark_interrupted().await
}

impl Gateway {
    /// Configures a gateway.
    pub fn builder(config: Config) -> GatewayBuilder {
        GatewayBuilder {
            settings: Settings::new(config),
            environment: Environment::new(|_| None),
            store: None,
            hooks: Vec::new(),
            tracer: Arc::new(NoTracer),
            worker: None,
            launcher: None,
        }
    }

    /// Returns a verifier for the audit trail of any gateway's store, or for an export of it.
    pub fn audit_verifier() -> AuditVerifier {
        AuditVerifier::new(vec![models::REFERENCED_TABLE])
    }

    /// Calls a tool. Dropping the future cancels the call.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        self.0.engine.call(caller, call).await
    }

    /// Returns whether the tasks of a server survive the end of the gateway's process.
    pub(crate) fn keeps_tasks(&self, server: &ServerName) -> bool {
        self.0.engine.keeps_tasks(server)
    }

    /// Follows a task that an earlier process started.
    pub(crate) async fn resume_task(
        &self,
        caller: &Caller,
        request: &RequestContext,
        task: InterruptedTask,
    ) -> Result<ToolResult, CallError> {
        self.0.engine.resume_task(caller, request, task).await
    }

    /// Sends a request to a model. The request becomes an agent run if tools in its scope run without
    /// approval. Dropping the response cancels it.
    pub async fn complete(
        &self,
        caller: &Caller,
        request: ModelRequest,
    ) -> Result<ModelResponse, ModelError> {
        if matches!(request.operation, Operation::Forward(_)) {
            return Box::pin(self.0.models.forward(caller, request)).await;
        }
        self.0.runs.complete(caller, request).await
    }

    /// Returns the handle for agent runs.
    pub fn runs(&self) -> &Runs {
        &self.0.runs
    }

    /// Returns the handle for providers and their models.
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

    /// Returns the handle for approvals.
    pub fn approvals(&self) -> Approvals<'_> {
        Approvals::new(&self.0)
    }

    /// Returns the audit trail.
    pub fn audit(&self) -> &AuditLog {
        &self.0.audit
    }

    /// Returns an error if calls would be refused because nothing can be recorded.
    pub fn check_writable(&self) -> Result<(), CallError> {
        self.0.engine.check_writable()
    }

    /// Returns the handle for the keys of callers.
    pub fn keys(&self) -> Keys<'_> {
        self.0.engine.keys()
    }

    /// Returns the handle for resources and prompts of servers.
    pub fn resources(&self) -> Resources<'_> {
        self.0.engine.resources()
    }

    /// Returns the handle for servers.
    pub fn servers(&self) -> Servers<'_> {
        Servers::new(&self.0)
    }

    /// Returns the handle for tools.
    pub fn tools(&self) -> Tools<'_> {
        Tools::new(&self.0)
    }

    /// Subscribes to events about servers, approvals and calls.
    pub fn events(&self) -> GatewayEvents {
        GatewayEvents {
            servers: self.0.server_watch.subscribe(),
            approvals: self.0.approvals.subscribe(),
            calls: self.0.audit.subscribe(),
        }
    }

    /// Subscribes to catalog updates.
    pub fn subscribe_catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.0.registry.subscribe()
    }

    /// Waits until every server has either connected or failed to.
    pub async fn wait_until_settled(&self) {
        for entry in self.servers().list() {
            entry.wait_settled().await;
        }
        self.0.definitions.wait_reviewed().await;
    }

    /// Applies a new configuration without affecting calls in flight. In-process servers are kept.
    ///
    /// If it defines keys, the store remembers that keys are required before the first one takes effect.
    pub async fn apply(&self, config: Config) -> Result<(), StartError> {
        self.0
            .check_settings(|settings| settings.config = config.clone())?;
        {
            let _guard = self.0.engine.remember_keys(&config).await?;
            self.0
                .change_settings(|settings| settings.config = config)?;
        }
        self.approvals().end_undecidable().await;
        Ok(())
    }

    /// Returns the store for persistent state.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns calls, errors, bytes and latencies per server and tool.
    pub fn stats(&self) -> Stats {
        self.0.metrics.stats()
    }

    /// Counts that a bound of the server was reached, and logs it now and then.
    #[doc(hidden)] // for the API of the binary
    pub fn report_bound(&self, bound: Bound, who: &str) {
        self.0.metrics.report_bound(bound, who);
    }

    /// Returns the counts of the memory that is held for callers.
    #[doc(hidden)] // for the API of the binary
    pub fn held_bytes(&self) -> &HeldBytes {
        &self.0.held_bytes
    }

    /// Returns the limits on what callers may use.
    pub fn capacity(&self) -> CapacityLimits {
        self.0.registry.capacity()
    }

    pub(crate) fn set_session_count(&self, sessions: usize) {
        self.0.metrics.set_session_count(sessions);
    }

    /// Returns the number of open sessions of MCP clients.
    pub fn session_count(&self) -> usize {
        self.0.metrics.session_count()
    }

    /// Returns the time since the gateway started.
    pub fn uptime(&self) -> Duration {
        self.0.metrics.uptime()
    }

    /// Returns the load that was last set.
    pub fn load(&self) -> Load {
        self.0.engine.load().get()
    }

    /// Returns the level of the load.
    pub fn load_level(&self) -> LoadLevel {
        self.0.engine.load().level()
    }

    /// Sets the load, which the program that runs the gateway measures: under high load, new sessions,
    /// streams and runs are refused.
    pub fn set_load(&self, load: Load) {
        self.0.metrics.set_load_level(load.level as i64);
        self.0.engine.load().set(load);
    }

    /// Fails if new sessions, streams and runs are refused.
    pub fn check_load(&self) -> Result<(), CallError> {
        let load = self.0.engine.load();
        load.check()
            .inspect_err(|_| self.report_bound(load.bound(), ""))
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.0.metrics.render(&self.0.registry)
    }

    /// Waits up to `within` for calls in flight, then stops all servers and closes the store.
    pub async fn stop(&self, within: Duration) {
        self.0.retention.stop().await;
        self.0.runs.drain(within).await;
        self.0.engine.drain(within).await;
        self.0.approvals.stop().await;
        self.0.audit.stop().await;
        self.0.models.stop().await;
        self.0.registry.stop().await;
        self.0.server_watch.stop().await;
        self.0.history.stop().await;
        self.0.definitions.stop().await;
        self.0.store_monitor.stop().await;
        self.0.store.close().await;
    }
}

impl Inner {
    /// Checks that a change of the settings is valid.
    fn check_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<(), StartError> {
        let mut changed = self.settings.lock().clone();
        change(&mut changed);
        changed.merge().map(drop)
    }

    /// Changes the settings and applies them. An invalid change has no effect.
    fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<(), StartError> {
        let mut settings = self.settings.lock();
        let mut changed = settings.clone();
        change(&mut changed);
        let merged = changed.merge()?;
        self.engine.apply(&merged);
        self.models.apply(&merged);
        self.registry.apply(changed.registry_config(&merged));
        self.runs.apply(&merged);
        self.held_bytes.set_share(merged.capacity.bodies);
        self.definitions.apply(&merged);
        *settings = changed;
        Ok(())
    }
}
