//! The one door: every tool call, whoever makes it, goes through [`Engine::call`].
//!
//! What is not in the caller's scope does not exist: it is answered like a name that nobody has.
//! An attempt is recorded before anything is decided about it; a call that is dispatched runs as a
//! task that closes its own record, also when nobody waits for it any more.

mod clear;
mod dispatch;
mod explain;
mod find;
mod kept;
mod limits;
mod own;
mod reuse;
mod rules;
mod scopes;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use clear::Run;
use dispatch::Dispatch;
pub use explain::Explanation;
use find::{Finder, Target};
use futures_util::FutureExt as _;
use kept::Kept;
pub use kept::Part;
use limits::{Budgets, Limited};
use reuse::Reuse;
pub use rules::KeyError;
use rules::Rules;
use scopes::Scopes;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::name::ToolId;
use toolgate_core::scope::{Filters, Scope};
use toolgate_mcp::Environment;
use toolgate_mcp::registry::Registry;
use toolgate_mcp::transport::RequestError;

use crate::approval::{Approval, Approvals};
use crate::audit::{Attempt, Audit, Record};
use crate::call::{Approved, CallError, Outcome, ToolCall};
use crate::caller::{Caller, Origin};
use crate::hook::Hook;
use crate::metrics::Metrics;
use crate::result::ToolResult;
use crate::result::bound::bound;
use crate::result::tidy::{Secrets, tidy};
use crate::store::Store;

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
    pub(crate) environment: Environment,
}

#[derive(Debug)]
struct Inner {
    parts: Parts,
    rules: ArcSwap<Rules>,
    scopes: Scopes,
    budgets: Budgets,
    kept: Kept,
    reuse: Reuse,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A call on its way, with all that was decided when it began.
struct Journey {
    caller: Caller,
    call: ToolCall,
    request_id: String,
    rules: Arc<Rules>,
    scope: Arc<Scope>,
}

/// How far a call has come; it outlives the call's work, which may be cancelled at any point.
struct Progress {
    attempt: Attempt,
    /// Approvals that were taken for it.
    tickets: Vec<Approval>,
    /// Whether it may have reached a server.
    sent: bool,
}

impl Engine {
    pub(crate) fn new(config: &Config, parts: Parts) -> Self {
        let rules = Rules::new(config, &parts.environment, None);
        Self(Arc::new(Inner {
            parts,
            rules: ArcSwap::from_pointee(rules),
            scopes: Scopes::new(),
            budgets: Budgets::default(),
            kept: Kept::new(),
            reuse: Reuse::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Takes up a new configuration; calls under way are not touched.
    pub(crate) fn apply(&self, config: &Config) {
        let before = self.0.rules.load();
        let rules = Rules::new(config, &self.0.parts.environment, Some(&before));
        self.0.rules.store(Arc::new(rules));
        self.0.parts.audit.apply(config.audit);
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

    pub(crate) fn approval_expiry(&self) -> Duration {
        self.0.rules.load().approvals.expiry
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
        let id = call.request.id.clone();
        let request_id = id.unwrap_or_else(|| inner.parts.hook.request_id());
        let record = Record::new(caller, &call, &request_id);
        let attempt = inner.parts.audit.begin(record).await?;
        let cancel = inner.stop.child_token();
        let _guard = cancel.clone().drop_guard();
        let task = Arc::clone(inner).carry(caller.clone(), call, request_id, (attempt, cancel));
        let answer = inner.tasks.spawn(task).await;
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
    }
}

impl Inner {
    /// Carries a call to its end, whatever that is, and closes its record.
    async fn carry(
        self: Arc<Self>,
        caller: Caller,
        call: ToolCall,
        request_id: String,
        (attempt, cancel): (Attempt, CancellationToken),
    ) -> Result<Outcome, CallError> {
        let mut progress = Progress {
            attempt,
            tickets: Vec::new(),
            sent: false,
        };
        let work = AssertUnwindSafe(self.go(caller, call, request_id, &mut progress));
        let answer = tokio::select! {
            answer = work.catch_unwind() => answer.ok(),
            () = cancel.cancelled() => Some(Err(CallError::Cancelled)),
        };
        let Progress {
            attempt,
            tickets,
            sent,
        } = progress;
        for ticket in tickets {
            match sent {
                true => self.parts.approvals.done(ticket).await,
                false => self.parts.approvals.give_back(ticket).await,
            }
        }
        let panicked = || CallError::Panicked(attempt.record.tool_id_or_own());
        let answer = answer.unwrap_or_else(|| Err(panicked()));
        self.close(attempt, answer)
    }

    async fn go(
        &self,
        caller: Caller,
        call: ToolCall,
        request_id: String,
        progress: &mut Progress,
    ) -> Result<Outcome, CallError> {
        let began = Instant::now();
        let journey = self.begin(caller, call, request_id)?;
        if own::is_read_result(&journey.call.name) {
            let result = self.read_own(&journey, &mut progress.attempt.record)?;
            return Ok(Outcome::new(own::read_result_id(), result, began));
        }
        let target = self.finder(&journey).find(&journey.call.name)?;
        let run = self.clear(&journey, target, progress).await?;
        let first = run.target.entry.tool.id.clone();
        let is_stand_in = run.target.instead_of.is_some();
        let answer = self.send(&journey, run, began, progress).await;
        let away = matches!(
            answer,
            Err(CallError::Away(_)
                | CallError::Server {
                    cause: RequestError::NotSent(_),
                    ..
                })
        );
        if is_stand_in || !away {
            return answer;
        }
        match self.finder(&journey).stand_in(&first) {
            Some(target) => {
                let run = self.clear(&journey, target, progress).await?;
                self.send(&journey, run, began, progress).await
            }
            None => answer,
        }
    }

    /// Who calls, and what exists for them.
    fn begin(
        &self,
        caller: Caller,
        call: ToolCall,
        request_id: String,
    ) -> Result<Journey, CallError> {
        let rules = self.rules.load_full();
        if let Some(key) = caller.key() {
            rules.holder(&caller)?;
            rules.limits.count(&Limited::Key(Arc::clone(key)))?;
        }
        let catalog = self.parts.registry.catalog();
        let filters = &call.request.filters;
        let scope = self.scopes.get(&rules, &catalog, &caller, filters)?;
        Ok(Journey {
            caller,
            call,
            request_id,
            rules,
            scope,
        })
    }

    fn read_own(&self, journey: &Journey, record: &mut Record) -> Result<ToolResult, CallError> {
        record.about(&own::read_result_id());
        record.verdict = Some("allow".to_owned());
        record.rule = Some("toolgate".to_owned());
        let arguments = journey.call.arguments.clone()?;
        let most = journey.rules.results.max_bytes;
        Ok(own::read_result(
            &self.kept,
            &journey.caller,
            &arguments,
            most,
        ))
    }

    /// Limits of the tool and of the caller's key, and a place among the calls under way.
    async fn enter(
        &self,
        journey: &Journey,
        id: &ToolId,
        record: &mut Record,
    ) -> Result<Vec<OwnedSemaphorePermit>, CallError> {
        let Journey { rules, caller, .. } = journey;
        rules.limits.count(&Limited::Server(id.server.clone()))?;
        rules.limits.count(&Limited::Tool(id.clone()))?;
        let mut places = Vec::new();
        if let Some(key) = caller.key() {
            let place = rules.limits.enter(&Limited::Key(Arc::clone(key))).await?;
            places.extend(place);
        }
        let place = rules.limits.enter(&Limited::Tool(id.clone())).await?;
        places.extend(place);
        let served = rules.servers.get(&id.server);
        let price = served.and_then(|served| served.server.tool(id.tool.as_str()).price);
        if let (Some(key), Some(holder)) = (caller.key(), rules.holder(caller)?)
            && let Some(budget) = &holder.limits.budget
        {
            let store = &self.parts.store;
            let price = price.unwrap_or(0);
            self.budgets.charge(store, key, budget, price).await?;
        }
        let cost = price.and_then(|price| i64::try_from(price).ok());
        record.cost_micro_usd = cost.unwrap_or(0);
        Ok(places)
    }

    /// Sends a call that may run to its server, or finds its result among those to be reused.
    async fn send(
        &self,
        journey: &Journey,
        run: Run,
        began: Instant,
        progress: &mut Progress,
    ) -> Result<Outcome, CallError> {
        let Target {
            entry, instead_of, ..
        } = &run.target;
        let id = &entry.tool.id;
        if let Some(asked) = instead_of {
            tracing::info!(tool = %asked, instead = %id, "the fallback takes the call");
        }
        let rules = &journey.rules;
        let record = &mut progress.attempt.record;
        let _places = self.enter(journey, id, record).await?;
        let dispatch = Dispatch {
            registry: Arc::clone(&self.parts.registry),
            metrics: Arc::clone(&self.parts.metrics),
            headers: rules.forwarded(&id.server, &journey.call.request.headers),
            arguments: run.arguments,
            tool: Arc::clone(&entry.tool),
            after: rules.timeout(id),
        };
        let key = self.reuse.key(rules, &dispatch);
        let reused = key.as_ref().and_then(|(key, _)| self.reuse.get(key));
        let cached = reused.is_some();
        progress.sent = true;
        let result = match reused {
            Some(result) => {
                record.cost_micro_usd = 0;
                result
            }
            None => {
                progress.attempt.open();
                let result = self.tidied(dispatch.run().await?, rules);
                if let Some((key, ttl)) = key {
                    self.reuse.put(key, &result, ttl);
                }
                result
            }
        };
        let (result, handle) = self.bounded(journey, result);
        Ok(Outcome {
            instead_of: instead_of.clone(),
            handle,
            cached,
            approval: progress.tickets.last().map(|ticket| Approved {
                id: ticket.id.clone(),
                edited: ticket.edited.is_some(),
            }),
            ..Outcome::new(id.clone(), result, began)
        })
    }

    fn tidied(&self, raw: Box<RawValue>, rules: &Rules) -> ToolResult {
        let secrets = match rules.results.redact_secrets {
            true => Secrets::Redacted,
            false => Secrets::Kept,
        };
        ToolResult::new(tidy(raw, secrets))
    }

    /// The result as whoever asked gets it, and the handle of the whole if it was cut.
    fn bounded(&self, journey: &Journey, result: ToolResult) -> (ToolResult, Option<String>) {
        let settings = journey.rules.results;
        let for_model = journey.caller.origin == Origin::Http;
        if !for_model || result.raw().get().len() <= settings.max_bytes {
            return (result, None);
        }
        let handle = Kept::new_handle();
        let Some(cut) = bound(&result, settings.max_bytes, &handle) else {
            return (result, None);
        };
        self.kept
            .put(&handle, &journey.caller, cut.whole, settings.keep);
        (cut.result, Some(handle))
    }

    /// Counts and records what came of an attempt.
    fn close(
        &self,
        attempt: Attempt,
        answer: Result<Outcome, CallError>,
    ) -> Result<Outcome, CallError> {
        let word = match &answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        if let Err(CallError::Store(error)) = &answer {
            tracing::error!(%error, "a call was refused because the store failed");
        }
        let tool = answer.as_ref().map(|outcome| outcome.tool.clone()).ok();
        let tool = tool.or_else(|| attempt.record.tool_id());
        self.parts.metrics.count(tool.as_ref(), word);
        tracing::debug!(
            request = attempt.record.request_id,
            tool = attempt.record.name,
            origin = attempt.record.origin,
            outcome = word,
            "tool call"
        );
        attempt.close(&answer);
        answer
    }

    fn finder<'a>(&'a self, journey: &'a Journey) -> Finder<'a> {
        Finder {
            rules: &journey.rules,
            scope: &journey.scope,
            registry: &self.parts.registry,
            caller: &journey.caller,
            filters: &journey.call.request.filters,
        }
    }
}
