//! Sends an authorized call: limits, budget, cache, dispatch and post-processing of the result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use toolgate_core::Catalog;
use toolgate_core::config::ServerConnection;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Verdict;
use toolgate_mcp::fair_queue::Slot;
use toolgate_mcp::large::run_large;
use toolgate_mcp::local::CallIdentity;

use super::authorize::AuthorizedCall;
use super::dispatch::{Dispatch, ServerResponse, TimeLimit};
use super::limits::LimitTarget;
use super::output_schema;
use super::result_cache::CacheKey;
use super::result_store::ResultStore;
use super::rules::Rules;
use super::{CallContext, CallProgress, Inner};
use crate::call::{CallError, Outcome};
use crate::caller::{CallOrigin, Caller};
use crate::hook::CompletedCall;
use crate::result::sanitize::{SecretPolicy, sanitize};
use crate::result::truncate::truncate;
use crate::result::{ToolResult, is_input_required};
use crate::trace;

impl Inner {
    /// Checks rate limits and acquires the concurrency slots of the tool and the caller's key.
    pub(super) async fn acquire_slots(
        &self,
        context: &CallContext,
        id: &ToolId,
        limit: TimeLimit,
    ) -> Result<Vec<Slot>, CallError> {
        let CallContext { rules, caller, .. } = context;
        rules
            .limits
            .check_rate(&LimitTarget::Server(id.server.clone()))?;
        rules.limits.check_rate(&LimitTarget::Tool(id.clone()))?;
        let deadline = limit.deadline;
        let mut slots = Vec::new();
        if let Some(key) = caller.key() {
            let key = LimitTarget::Key(Arc::clone(key));
            slots.extend(rules.limits.acquire_slot(&key, &None, deadline).await?);
        }
        let tool = LimitTarget::Tool(id.clone());
        let owner = caller.share_owner().cloned();
        slots.extend(rules.limits.acquire_slot(&tool, &owner, deadline).await?);
        Ok(slots)
    }

    /// Checks that a call that waited for a slot is still allowed if the rules changed meanwhile, or
    /// the tool that was approved.
    pub(super) fn recheck_rules(
        &self,
        context: &CallContext,
        authorized: &AuthorizedCall,
    ) -> Result<(), CallError> {
        let tool = &authorized.target.entry.tool;
        if authorized.needed_approval
            && let Some(now) = self.current_catalog(context).tool(&tool.id)
            && now.tool.contract_hash() != tool.contract_hash()
        {
            let alias = authorized.target.entry.alias.to_string();
            return Err(CallError::ToolChanged(alias));
        }
        let now = self.rules.load();
        if now.generation == context.rules.generation {
            return Ok(());
        }
        let principal = now.principal(&context.caller)?;
        let view = now.access.view(principal, &context.call.request.filters);
        let judged = view.judge((&authorized.target.entry).into());
        match judged.map(|judged| judged.decide(authorized.arguments.value()).verdict) {
            Some(verdict) if verdict < Verdict::Ask => Ok(()),
            Some(Verdict::Ask) if authorized.needed_approval => Ok(()),
            _ => Err(CallError::RulesChanged(
                authorized.target.entry.alias.to_string(),
            )),
        }
    }

    /// Returns the catalog as the caller's client sees it now.
    fn current_catalog(&self, context: &CallContext) -> Arc<Catalog> {
        let client = context.call.request.filters.client.as_ref();
        self.deps.registry.catalog().for_client(client)
    }

    /// Charges the price of a call to the budget of the caller's key.
    async fn charge(
        &self,
        context: &CallContext,
        id: &ToolId,
        progress: &mut CallProgress,
    ) -> Result<(), CallError> {
        let server_rules = context.rules.servers.get(&id.server);
        let price = server_rules
            .and_then(|server_rules| server_rules.server.tool_limits(id.tool.as_str()).price);
        let CallContext { rules, caller, .. } = context;
        self.charge_price(rules, caller, price.unwrap_or(0), progress)
            .await
    }

    /// Charges a call of a known price to the budget of the caller's key.
    pub(super) async fn charge_price(
        &self,
        rules: &Rules,
        caller: &Caller,
        price: u64,
        progress: &mut CallProgress,
    ) -> Result<(), CallError> {
        let mut charge = None;
        if let (Some(key), Some(key_entry)) = (caller.key(), rules.key_entry(caller)?)
            && let Some(budget) = &key_entry.limits.budget
        {
            let store = &self.deps.store;
            charge = Some(self.budgets.charge(store, key, budget, price).await?);
        }
        progress.set_charge(price, charge);
        Ok(())
    }

    /// Sends an authorized call to its server, or returns a cached result.
    pub(super) async fn send(
        &self,
        context: &CallContext,
        authorized: AuthorizedCall,
        started: Instant,
        progress: &mut CallProgress,
    ) -> Result<Outcome, CallError> {
        let rules = &context.rules;
        let id = &authorized.target.entry.tool.id;
        if let Some(requested) = &authorized.target.fallback_for {
            tracing::info!(tool = %requested, instead = %id, "routing tool call to the fallback server");
        }
        let limit = TimeLimit::start(rules.tool_timeout(id));
        let _slots = self.acquire_slots(context, id, limit).await?;
        self.recheck_rules(context, &authorized)?;
        let AuthorizedCall {
            target,
            arguments,
            needed_approval,
        } = authorized;
        let id = &target.entry.tool.id;
        let has_hooks = !self.deps.hooks.is_empty();
        let shown_arguments = has_hooks.then(|| arguments.clone());
        let dispatch = Dispatch {
            registry: Arc::clone(&self.deps.registry),
            metrics: Arc::clone(&self.deps.metrics),
            headers: rules.forwarded_headers(&id.server, &context.call.request.headers),
            request: Arc::clone(&context.call.request),
            owner: context.caller.share_owner().cloned(),
            identity: call_identity(context, id),
            arguments,
            tool: Arc::clone(&target.entry.tool),
            limit,
            reconnect_wait: rules.reconnect_wait(&id.server),
            has_fallback: rules.has_fallback(&id.server),
            uses_session_lane: rules.has_session_lanes(&id.server),
            current_only: needed_approval,
        };
        let key = self.result_cache.key(rules, &dispatch);
        let cached = key.as_ref().and_then(|(key, _)| self.result_cache.get(key));
        let is_cached = cached.is_some();
        let answer = match cached {
            Some(result) => {
                progress.use_tickets(id);
                Ok(result)
            }
            None => self.dispatch(context, dispatch, key, progress).await,
        };
        let result = match &shown_arguments {
            Some(arguments) => {
                let call = CompletedCall {
                    tool: id,
                    alias: &target.entry.alias,
                    arguments,
                    caller: &context.caller,
                    request_id: &context.request_id,
                    result: answer.as_ref(),
                };
                let replaced = Box::pin(self.show_to_hooks(context, call)).await;
                replaced.map_or(answer, Ok)?
            }
            None => answer?,
        };
        let bytes = result.raw().get().len();
        let (result, handle) = run_large(bytes, || self.truncate_result(context, result));
        Ok(Outcome {
            fallback_for: target.fallback_for.clone(),
            handle,
            cached: is_cached,
            approval: progress.used_approval(id),
            ..Outcome::new(id.clone(), result, started)
        })
    }

    /// Charges a call, opens its record, sends it, and caches its result.
    async fn dispatch(
        &self,
        context: &CallContext,
        dispatch: Dispatch,
        cache_key: Option<(CacheKey, Duration)>,
        progress: &mut CallProgress,
    ) -> Result<ToolResult, CallError> {
        let (request, tool) = (&context.call.request, Arc::clone(&dispatch.tool));
        let id = &tool.id;
        self.charge(context, id, progress).await?;
        progress.attempt.open().await?;
        let access = match dispatch.acquire_lane().await {
            Ok(access) => access,
            Err(error) => {
                // Refunded at once, since the call may go on to a fallback.
                progress.mark_unsent(id);
                return Err(error);
            }
        };
        progress.mark_sent(id);
        let trace = trace::outgoing_context(&*self.deps.tracer, &progress.attempt.span, request);
        let answer = dispatch.send(access, trace).await;
        if answer.as_ref().is_err_and(CallError::is_not_sent) {
            progress.mark_unsent(id);
        }
        let ServerResponse { raw, outdated } = answer?;
        if request.modern_client.is_some() && is_input_required(&raw) {
            // The client repeats the call with its input; the approval covers that call too.
            progress.keep_tickets(id);
        }
        let result = run_large(raw.get().len(), || {
            let result = self.sanitize_result(raw, &context.rules);
            let warnings = &mut progress.attempt.record.warnings;
            let on_invalid = context.rules.results.output_schema;
            output_schema::check(&tool, &result, on_invalid, warnings)?;
            Ok::<_, CallError>(result)
        })?;
        if let Some((key, ttl)) = cache_key.filter(|_| !outdated) {
            self.result_cache.insert(key, &result, ttl);
        }
        Ok(result)
    }

    /// Shows a call to the hooks. Returns the result that replaces its own, if any.
    async fn show_to_hooks(
        &self,
        context: &CallContext,
        call: CompletedCall<'_>,
    ) -> Option<ToolResult> {
        let is_modern = context.call.request.modern_client.is_some();
        if is_modern
            && call
                .result
                .is_ok_and(|result| is_input_required(result.raw()))
        {
            return None; // the call is repeated with the client's input
        }
        self.deps.hooks.after_call(call).await
    }

    pub(super) fn sanitize_result(&self, raw: Box<RawValue>, rules: &Rules) -> ToolResult {
        ToolResult::new(self.sanitize_raw(raw, rules))
    }

    /// Cleans what a server sent, and redacts secrets if that is configured.
    pub(super) fn sanitize_raw(&self, raw: Box<RawValue>, rules: &Rules) -> Box<RawValue> {
        let secrets = if rules.results.redact_secrets {
            SecretPolicy::Redact
        } else {
            SecretPolicy::Keep
        };
        sanitize(raw, secrets)
    }

    /// Truncates a result that is too large for a model. Returns the handle of the full result if it
    /// was truncated.
    pub(super) fn truncate_result(
        &self,
        context: &CallContext,
        result: ToolResult,
    ) -> (ToolResult, Option<String>) {
        let settings = context.rules.results;
        let for_model = matches!(context.caller.origin, CallOrigin::Http | CallOrigin::Agent);
        if !for_model || result.raw().get().len() <= settings.max_bytes {
            return (result, None);
        }
        let handle = ResultStore::new_handle();
        let Some(truncated) = truncate(&result, settings.max_bytes, &handle) else {
            return (result, None);
        };
        self.result_store
            .insert(&handle, &context.caller, truncated.full_text, settings.keep);
        (truncated.result, Some(handle))
    }
}

/// Identifies a call for a tool of the embedding program. Other servers never learn it.
fn call_identity(context: &CallContext, id: &ToolId) -> Option<Arc<CallIdentity>> {
    let server = &context.rules.servers.get(&id.server)?.server;
    (server.connection == ServerConnection::InProcess).then(|| {
        Arc::new(CallIdentity {
            caller: context.caller.clone(),
            request_id: context.request_id.clone(),
        })
    })
}
