//! The single path for tool calls: every call, from any caller, goes through `Engine::call`.
//!
//! A tool outside the caller's scope does not exist for that caller; calling it returns the same
//! error as calling an unknown name. Every attempt is recorded before anything is decided about it
//! and closes its own record, even if the caller has gone away.

mod approvers;
mod argument_check;
mod authorize;
mod builtin;
mod cancel_on_drop;
mod dispatch;
mod evaluate;
mod execute;
mod explain;
mod find;
mod item_request;
mod key_requirement;
mod keys;
mod limits;
mod model_limits;
mod output_schema;
mod preview;
mod progress;
mod resources;
mod result_cache;
mod result_store;
mod rules;
mod scope_cache;
#[cfg_attr(not(feature = "code-mode"), path = "engine/script_disabled.rs")]
mod script;
mod send;
mod spending;
mod startup;
mod tasks;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use approvers::is_undecidable;
use arc_swap::ArcSwap;
use argument_check::check_arguments;
pub(crate) use builtin::BuiltinTool;
use cancel_on_drop::CancelOnDrop;
use evaluate::Evaluations;
use execute::CallContext;
pub use explain::Explanation;
use futures_util::FutureExt as _;
pub(crate) use key_requirement::{KeyRequirement, RequirementGuard};
pub use keys::{Keys, MakeOptionalError};
use limits::Budgets;
pub(crate) use model_limits::{ModelLimits, ModelSlot};
use parking_lot::Mutex;
use progress::CallProgress;
pub use resources::Resources;
use result_cache::ResultCache;
pub use result_store::ResultChunk;
use result_store::ResultStore;
pub use rules::KeyError;
use rules::Rules;
use scope_cache::ScopeCache;
pub(crate) use startup::MissingServers;
pub(crate) use tasks::InterruptedTask;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::catalog::CatalogEntry;
use toolgate_core::name::ServerName;
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::{Config, config};
use toolgate_mcp::Environment;
use toolgate_mcp::fair_queue::FairQueue;
use toolgate_mcp::large::run_large;
use toolgate_mcp::registry::Registry;
use tracing::{Instrument as _, Span};

use crate::approval::{Approval, ApprovalRequest, ApprovalService, DecideError};
use crate::audit::{self, AuditLog, AuditRecord};
use crate::call::{Arguments, CallError, Outcome, RequestContext, ToolCall};
use crate::caller::{CallOrigin, Caller};
use crate::code_mode::{CodeMode, WorkerProgram};
use crate::conversations::Conversations;
use crate::hook::Hooks;
use crate::load::CurrentLoad;
use crate::metrics::{Bound, Metrics};
use crate::store::{Store, StoreError};
use crate::trace::{TraceContext, Tracer};

/// Authorizes and dispatches tool calls. Clones share state.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<Inner>);

/// Components the engine depends on.
#[derive(Debug)]
pub(crate) struct EngineDependencies {
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: AuditLog,
    pub(crate) approvals: ApprovalService,
    pub(crate) conversations: Conversations,
    pub(crate) store: Store,
    pub(crate) hooks: Hooks,
    pub(crate) tracer: Arc<dyn Tracer>,
    pub(crate) environment: Environment,
    pub(crate) load: CurrentLoad,
    /// The current executable, if it can run as a script worker.
    pub(crate) worker: Option<WorkerProgram>,
}

#[derive(Debug)]
struct Inner {
    deps: EngineDependencies,
    rules: ArcSwap<Rules>,
    key_requirement: KeyRequirement,
    /// Serializes configuration changes.
    applying: Mutex<()>,
    scope_cache: ScopeCache,
    budgets: Arc<Budgets>,
    evaluations: Evaluations,
    /// Subscriptions to resources.
    subscriptions: FairQueue,
    result_store: ResultStore,
    result_cache: ResultCache,
    code_mode: CodeMode,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Engine {
    pub(crate) fn new(
        config: &Config,
        parts: EngineDependencies,
        key_requirement: KeyRequirement,
    ) -> Self {
        let rules = Rules::new(config, &parts.environment, None);
        let code = CodeMode::new(config, parts.worker.clone(), parts.store.clone());
        Self(Arc::new(Inner {
            deps: parts,
            rules: ArcSwap::from_pointee(rules),
            key_requirement,
            applying: Mutex::new(()),
            scope_cache: ScopeCache::new(),
            budgets: Arc::default(),
            evaluations: Evaluations::new(),
            subscriptions: FairQueue::new(resources::SUBSCRIPTIONS),
            result_store: ResultStore::default(),
            result_cache: ResultCache::new(),
            code_mode: code,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Stores that keys are required if the configuration has any. It must be applied while the returned
    /// guard is held.
    pub(crate) async fn remember_keys(
        &self,
        config: &Config,
    ) -> Result<RequirementGuard<'_>, StoreError> {
        self.0.key_requirement.remember_keys(config).await
    }

    /// Applies a new configuration. Calls in flight are not affected.
    pub(crate) fn apply(&self, config: &Config) {
        let _guard = self.0.applying.lock();
        let before = self.0.rules.load();
        let rules = Rules::new(config, &self.0.deps.environment, Some(&before));
        self.0.rules.store(Arc::new(rules));
        self.0.deps.audit.apply(config.audit.clone());
        self.0.code_mode.apply(config);
    }

    /// Returns the handle for the keys of callers.
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys::new(&self.0)
    }

    /// Returns the load of the gateway.
    pub(crate) fn load(&self) -> &CurrentLoad {
        &self.0.deps.load
    }

    /// Counts that a bound was reached.
    pub(crate) fn report_bound(&self, bound: Bound, caller: &Caller) {
        let key = caller.key().map_or("", |key| &**key);
        self.0.deps.metrics.report_bound(bound, key);
    }

    /// Counts a run that stopped.
    pub(crate) fn count_run(&self, stop_reason: &'static str) {
        self.0.deps.metrics.count_run(stop_reason);
    }

    /// Returns the limits on what callers may use.
    pub(crate) fn capacity(&self) -> config::CapacityLimits {
        self.0.deps.registry.capacity()
    }

    /// Returns the handle for the limits of keys.
    pub(crate) fn limits(&self) -> ModelLimits<'_> {
        ModelLimits::new(&self.0)
    }

    /// Returns the handle for resources and prompts of servers.
    pub(crate) fn resources(&self) -> Resources<'_> {
        Resources::new(&self.0)
    }

    /// Returns the responses to which callers may refer.
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.0.deps.conversations
    }

    /// Returns an approval by id.
    pub(crate) async fn approval(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.0.deps.approvals.get(id).await
    }

    /// Subscribes to approvals, published when they are created or change their state.
    pub(crate) fn subscribe_approvals(&self) -> broadcast::Receiver<Arc<Approval>> {
        self.0.deps.approvals.subscribe()
    }

    /// Returns the approval settings in force.
    pub(crate) fn approval_settings(&self) -> config::ApprovalSettings {
        self.0.rules.load().approvals.clone()
    }

    /// Checks that an approver's decision fits the tool as it is now: its definition must not have
    /// changed since the call, and edited arguments must fit its schema. Returns the edited arguments,
    /// converted like those of a call. A tool that is not listed at the moment is checked when the
    /// call is repeated.
    pub(crate) fn check_ruling(
        &self,
        request: &ApprovalRequest,
        edited: Option<Arguments>,
    ) -> Result<Option<Arguments>, DecideError> {
        if request.fingerprint.is_item() {
            return if edited.is_some() {
                Err(DecideError::NotEditable)
            } else {
                Ok(None)
            };
        }
        let catalog = self.0.deps.registry.catalog();
        let definitions = catalog.definitions_of(&request.tool);
        if definitions.is_empty() {
            return Ok(edited);
        }
        let rules = self.0.rules.load();
        let is_called =
            |entry: &&CatalogEntry| rules.tool_fingerprint(&entry.tool) == request.fingerprint;
        let Some(entry) = definitions.iter().find(is_called) else {
            return Err(DecideError::ToolChanged(request.alias.clone()));
        };
        let Some(edited) = edited else {
            return Ok(None);
        };
        let check = rules.argument_check(&request.tool);
        let checked = run_large(edited.raw().get().len(), || {
            check_arguments::<DecideError>(&entry.tool, &edited, check)
        })?;
        Ok(Some(checked.arguments))
    }

    /// Returns the tools visible to a request.
    pub(crate) fn scope(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Arc<Scope>, CallError> {
        let catalog = self.0.deps.registry.catalog();
        let catalog = catalog.for_client(filters.client.as_ref());
        let rules = self.0.rules.load();
        self.0.scope_cache.get(&rules, &catalog, caller, filters)
    }

    pub(crate) fn virtual_server(&self, name: &str) -> Option<config::VirtualServer> {
        let rules = self.0.rules.load();
        let found = rules
            .virtual_servers
            .iter()
            .find(|server| server.name == name);
        found.cloned()
    }

    /// Returns the servers of which a request can see any part.
    pub(crate) fn visible_servers(&self, caller: &Caller, filters: &Filters) -> Vec<ServerName> {
        let rules = self.0.rules.load();
        let Ok(principal) = rules.principal(caller) else {
            return Vec::new();
        };
        let view = rules.access.view(principal, filters);
        let names = rules.servers.keys();
        names
            .filter(|name| view.can_see_server(name))
            .cloned()
            .collect()
    }

    /// Returns whether a request can see any part of any server, whether or not that server is up.
    pub(crate) fn can_see_any_server(&self, caller: &Caller, filters: &Filters) -> bool {
        let rules = self.0.rules.load();
        rules.principal(caller).is_ok_and(|principal| {
            let view = rules.access.view(principal, filters);
            match &filters.server {
                Some(only) => view.can_see_server(only),
                None => rules.servers.keys().any(|name| view.can_see_server(name)),
            }
        })
    }

    pub(crate) fn hooks(&self) -> &Hooks {
        &self.0.deps.hooks
    }

    /// Returns the trace context of a span, if it is traced.
    pub(crate) fn trace_context(&self, span: &Span) -> Option<TraceContext> {
        self.0.deps.tracer.context(span)
    }

    /// Returns which tools are added to the model requests of a caller's key, if that is set.
    pub(crate) fn tool_injection(
        &self,
        caller: &Caller,
    ) -> Result<Option<config::ToolInjection>, CallError> {
        let rules = self.0.rules.load();
        Ok(rules.key_entry(caller)?.and_then(|entry| entry.inject))
    }

    /// Returns whether tools are injected into model requests that have no tool filter.
    pub(crate) fn injects_tools(&self) -> bool {
        self.0.rules.load().manager.inject_tools
    }

    /// Explains why a tool is or is not visible to a request.
    pub(crate) fn explain(
        &self,
        caller: &Caller,
        filters: &Filters,
        name: &str,
    ) -> Result<Explanation, CallError> {
        let rules = self.0.rules.load();
        explain::explain(&rules, &self.0.deps.registry, caller, filters, name)
    }

    /// Returns a chunk of a large result stored for this caller.
    pub(crate) fn read_result(
        &self,
        caller: &Caller,
        handle: &str,
        offset: u64,
    ) -> Option<ResultChunk> {
        let max_bytes = self.0.rules.load().results.max_bytes;
        self.0.result_store.read(caller, handle, offset, max_bytes)
    }

    /// Runs a tool call. Dropping the future cancels it.
    pub(crate) async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        let inner = &self.0;
        // Calls of running scripts belong to a call that is already being drained.
        let is_from_script = matches!(caller.origin, CallOrigin::Script { .. });
        if inner.tasks.is_closed() && !is_from_script {
            return Err(CallError::Stopping);
        }
        let id = call.request.id.clone();
        let request_id = id.unwrap_or_else(|| inner.deps.hooks.request_id());
        let record = Box::new(AuditRecord::new(caller, &call, &request_id));
        let span = audit::start_call_span(&*inner.deps.tracer, &call.request);
        let attempt = inner.deps.audit.begin(record, span.clone()).await?;
        let cancel = inner.stop.child_token();
        let work =
            Arc::clone(inner).run_to_completion(caller.clone(), call, attempt, cancel.clone());
        let call = CancelOnDrop::new(Box::pin(work.instrument(span)), cancel, &inner.tasks);
        let answer = AssertUnwindSafe(call).catch_unwind().await;
        answer.unwrap_or(Err(CallError::Cancelled))
    }

    /// Records an event that is not a call, so that it survives a power failure.
    pub(crate) async fn record_event(&self, record: AuditRecord) -> Result<(), StoreError> {
        let Inner { deps, .. } = &*self.0;
        let transaction = deps.store.begin_durable().await?;
        let entry = deps.audit.prepare(record);
        deps.audit.commit(transaction, vec![entry]).await
    }

    /// Decides whether a request may contain tools that the provider runs, and records it.
    pub(crate) fn admit_provider_tools(
        &self,
        caller: &Caller,
        request: &RequestContext,
        tools: &[String],
    ) -> Result<bool, CallError> {
        let Inner { deps, rules, .. } = &*self.0;
        let is_permitted = rules.load().permits_provider_tools(caller)?;
        deps.audit
            .record_provider_tools(caller, request, tools, is_permitted);
        Ok(is_permitted)
    }

    /// Returns an error if nothing can be recorded, unless calls go on regardless.
    pub(crate) fn check_writable(&self) -> Result<(), CallError> {
        self.0.deps.audit.check_writable()
    }

    /// Waits for calls in flight and cancels those that exceed the timeout.
    pub(crate) async fn drain(&self, within: Duration) {
        let Inner { tasks, stop, .. } = &*self.0;
        tasks.close();
        if tokio::time::timeout(within, tasks.wait()).await.is_err() {
            tracing::warn!(calls = tasks.len(), "cancelling calls still in flight");
            stop.cancel();
            tasks.wait().await;
        }
        // Calls that passed the `is_closed` check before `close` are cancelled as well.
        stop.cancel();
        self.0.code_mode.close().await;
    }
}
