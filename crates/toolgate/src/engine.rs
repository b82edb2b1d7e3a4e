//! The one door: every tool call, whoever makes it, goes through [`Engine::call`].
//!
//! What is not in the caller's scope does not exist: it is answered like a name that nobody has.
//! An attempt is recorded before anything is decided about it, and closes its own record, also when
//! nobody waits for it any more.

mod carried;
mod clear;
mod dispatch;
mod explain;
mod find;
mod journey;
mod kept;
mod limits;
mod own;
mod preview;
mod reuse;
mod rules;
mod scopes;
mod script;
mod send;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use carried::Carried;
pub use explain::Explanation;
use futures_util::FutureExt as _;
use journey::{Journey, Progress, Ticket};
use kept::Kept;
pub use kept::Part;
use limits::{Budgets, Limited};
pub(crate) use own::OwnTool;
use reuse::Reuse;
pub use rules::KeyError;
use rules::Rules;
use scopes::Scopes;
pub(crate) use script::CodeTool;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::RunLimits;
use toolgate_core::name::ServerName;
use toolgate_core::scope::{Filters, Scope};
use toolgate_core::{Config, config};
use toolgate_mcp::Environment;
use toolgate_mcp::ear::Ear;
use toolgate_mcp::lane::Ask;
use toolgate_mcp::registry::{Registry, Watching};
use tracing::{Instrument as _, Span};

use crate::approval::Approvals;
use crate::audit::{Audit, Record};
use crate::call::{CallError, Outcome, Request, ToolCall};
use crate::caller::{Caller, Origin};
use crate::code_mode::{CodeMode, Program};
use crate::hook::Hook;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::trace::{self, TraceContext, Tracer};

/// How long a model request waits for a place among those with its key.
const MODEL_WAIT: Duration = Duration::from_secs(60);

/// Decides about calls and dispatches them; clones share it.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

/// What an engine works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Audit,
    pub(crate) approvals: Approvals,
    pub(crate) store: Store,
    pub(crate) hook: Arc<dyn Hook>,
    pub(crate) tracer: Arc<dyn Tracer>,
    pub(crate) environment: Environment,
    /// This program, if it becomes a worker for scripts when it is asked to.
    pub(crate) worker: Option<Program>,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    rules: ArcSwap<Rules>,
    /// One new configuration at a time.
    applying: Mutex<()>,
    scopes: Scopes,
    budgets: Budgets,
    kept: Kept,
    reuse: Reuse,
    code: CodeMode,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A model request's place among those with its caller's key.
#[derive(Debug)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "it is held, not looked at")] Option<OwnedSemaphorePermit>,
);

impl Engine {
    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        let rules = Rules::new(config, &parts.environment, None);
        let code = CodeMode::new(config, parts.worker.clone(), parts.store.clone());
        Self(Arc::new(Inner {
            parts,
            rules: ArcSwap::from_pointee(rules),
            applying: Mutex::new(()),
            scopes: Scopes::new(),
            budgets: Budgets::default(),
            kept: Kept::new(),
            reuse: Reuse::new(),
            code,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Takes up a new configuration; calls under way are not touched.
    pub(crate) fn apply(&self, config: &Config) {
        let applying = &self.0.applying;
        let _one = applying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.0.rules.load();
        let rules = Rules::new(config, &self.0.parts.environment, Some(&before));
        self.0.rules.store(Arc::new(rules));
        self.0.parts.audit.apply(config.audit);
        self.0.code.apply(config);
    }

    /// The name of the key that was presented.
    pub(crate) fn authenticate(&self, presented: &str) -> Result<Arc<str>, KeyError> {
        self.0.rules.load().authenticate(presented)
    }

    /// Whether callers have keys at all.
    pub(crate) fn has_keys(&self) -> bool {
        self.0.rules.load().has_keys()
    }

    pub(crate) fn has_role(&self, key: &str, role: &str) -> bool {
        self.0.rules.load().has_role(key, role)
    }

    /// How approvals are had.
    pub(crate) fn approval_settings(&self) -> config::Approvals {
        self.0.rules.load().approvals.clone()
    }

    /// Forgets what a key has spent.
    pub(crate) fn forget(&self, key: &str) {
        self.0.budgets.forget(key);
    }

    /// The tools that exist for a request.
    pub(crate) fn scope(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Arc<Scope>, CallError> {
        let catalog = self.0.parts.registry.catalog();
        let rules = self.0.rules.load();
        self.0.scopes.get(&rules, &catalog, caller, filters)
    }

    pub(crate) fn virtual_server(&self, name: &str) -> Option<config::VirtualServer> {
        let rules = self.0.rules.load();
        let found = rules
            .virtual_servers
            .iter()
            .find(|server| server.name == name);
        found.cloned()
    }

    /// The servers whose resources and prompts exist for a request.
    pub(crate) fn servers_with_resources(
        &self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<Vec<ServerName>, CallError> {
        self.0.rules.load().with_resources(caller, filters)
    }

    /// Whether any part of any server exists for a request, be it up or not.
    pub(crate) fn sees_any_server(&self, caller: &Caller, filters: &Filters) -> bool {
        let rules = self.0.rules.load();
        rules.principal(caller).is_ok_and(|principal| {
            let lens = rules.access.lens(principal, filters);
            match &filters.server {
                Some(only) => lens.sees(only),
                None => rules.servers.keys().any(|name| lens.sees(name)),
            }
        })
    }

    /// Whether the key of a caller, if it has one, is still valid.
    pub(crate) fn knows(&self, caller: &Caller) -> bool {
        self.0.rules.load().holder(caller).is_ok()
    }

    /// Asks a server for something that is no tool call. Dropping the future cancels it.
    pub(crate) async fn ask(
        &self,
        caller: &Caller,
        request: &Request,
        server: &ServerName,
        ask: Ask,
    ) -> Result<Box<RawValue>, CallError> {
        let rules = self.0.rules.load_full();
        if let Some(key) = caller.key() {
            rules.limits.count(&Limited::Key(Arc::clone(key)))?;
        }
        self.0.ask(&rules, caller, request, server, ask).await
    }

    /// Lets a model request in: the rate, the places and the budget of the caller's key.
    pub(crate) async fn enter_model(&self, caller: &Caller) -> Result<Place, CallError> {
        let rules = self.0.rules.load_full();
        let holder = rules.holder(caller)?;
        let (Some(key), Some(holder)) = (caller.key(), holder) else {
            return Ok(Place(None));
        };
        let limited = Limited::Key(Arc::clone(key));
        rules.limits.count(&limited)?;
        if let Some(budget) = &holder.limits.budget {
            let store = &self.0.parts.store;
            Box::pin(self.0.budgets.check(store, key, budget)).await?;
        }
        let place = rules.limits.enter(&limited, MODEL_WAIT).await?;
        Ok(Place(place))
    }

    /// Whether what a caller uses must be counted.
    pub(crate) fn has_budget(&self, caller: &Caller) -> bool {
        let rules = self.0.rules.load();
        let holder = rules.holder(caller).ok().flatten();
        let budget = holder.and_then(|holder| holder.limits.budget);
        budget.is_some_and(|budget| budget.tokens.is_some() || budget.micro_usd.is_some())
    }

    /// Whether a caller's key is bounded in dollars.
    pub(crate) fn has_money_budget(&self, caller: &Caller) -> bool {
        let rules = self.0.rules.load();
        let holder = rules.holder(caller).ok().flatten();
        let budget = holder.and_then(|holder| holder.limits.budget);
        budget.is_some_and(|budget| budget.micro_usd.is_some())
    }

    /// Takes what a model request used from the budget of the caller's key.
    pub(crate) fn spend(&self, caller: &Caller, tokens: u64, micro_usd: u64) {
        if let Some(key) = caller.key() {
            self.0.budgets.spend(key, tokens, micro_usd);
        }
    }

    /// What bounds a run of this caller.
    pub(crate) fn run_limits(&self, caller: &Caller) -> RunLimits {
        let rules = self.0.rules.load();
        let holder = rules.holder(caller).ok().flatten();
        let own = holder.map(|holder| holder.limits.run).unwrap_or_default();
        let depth = RunLimits {
            depth: Some(rules.manager.max_agent_depth),
            ..RunLimits::default()
        };
        rules.agent.and(own).and(depth)
    }

    pub(crate) fn hook(&self) -> &Arc<dyn Hook> {
        &self.0.parts.hook
    }

    /// The context of a span, if it is traced.
    pub(crate) fn trace_context(&self, span: &Span) -> Option<TraceContext> {
        self.0.parts.tracer.context(span)
    }

    /// Whether model requests get tools without asking for them by a filter.
    pub(crate) fn injects_tools(&self) -> bool {
        self.0.rules.load().manager.inject_tools
    }

    /// Has `ear` told whenever a resource changes, for as long as the answer lives.
    pub(crate) async fn watch(
        &self,
        caller: &Caller,
        filters: &Filters,
        (server, uri): (&ServerName, &str),
        ear: Arc<dyn Ear>,
    ) -> Result<Watching, CallError> {
        let rules = self.0.rules.load_full();
        if let Some(key) = caller.key() {
            rules.limits.count(&Limited::Key(Arc::clone(key)))?;
        }
        rules.sees_resources(caller, filters, server)?;
        let within = rules.server_timeout(server);
        let registry = &self.0.parts.registry;
        dispatch::watch(registry, server, uri, ear, within).await
    }

    /// Why a tool exists for a request, or does not.
    pub(crate) fn explain(
        &self,
        caller: &Caller,
        filters: &Filters,
        name: &str,
    ) -> Result<Explanation, CallError> {
        let rules = self.0.rules.load();
        explain::explain(&rules, &self.0.parts.registry, caller, filters, name)
    }

    /// A part of a large result that was kept for this caller.
    pub(crate) fn read_result(&self, caller: &Caller, handle: &str, offset: u64) -> Option<Part> {
        let most = self.0.rules.load().results.max_bytes;
        self.0.kept.read(caller, handle, offset, most)
    }

    /// Runs a call. Dropping the future cancels it.
    pub async fn call(&self, caller: &Caller, call: ToolCall) -> Result<Outcome, CallError> {
        let inner = &self.0;
        let is_of_script = matches!(caller.origin, Origin::Script { .. });
        if inner.tasks.is_closed() && !is_of_script {
            return Err(CallError::Stopping);
        }
        let id = call.request.id.clone();
        let request_id = id.unwrap_or_else(|| inner.parts.hook.request_id());
        let record = Box::new(Record::new(caller, &call, &request_id));
        let span = trace::call::begin(&*inner.parts.tracer, &call.request);
        let attempt = inner.parts.audit.begin(record, span.clone()).await?;
        let cancel = inner.stop.child_token();
        let attempted = (attempt, cancel.clone());
        let work = Arc::clone(inner).carry(caller.clone(), call, request_id, attempted);
        let carried = Carried::new(Box::pin(work.instrument(span)), cancel, &inner.tasks);
        let answer = AssertUnwindSafe(carried).catch_unwind().await;
        answer.unwrap_or(Err(CallError::Cancelled))
    }

    /// Waits for the calls under way; those that last longer are cancelled.
    pub(crate) async fn drain(&self, within: Duration) {
        let Inner { tasks, stop, .. } = &*self.0;
        tasks.close();
        if tokio::time::timeout(within, tasks.wait()).await.is_err() {
            tracing::warn!(
                calls = tasks.len(),
                "cancelling calls that are still under way"
            );
            stop.cancel();
            tasks.wait().await;
        }
        // Whoever was about to begin finds the door closed.
        stop.cancel();
        self.0.code.close().await;
    }
}
