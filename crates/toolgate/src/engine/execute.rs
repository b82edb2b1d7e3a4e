//! The pipeline of one call, from resolving the caller's scope to closing the audit record:
//! begin, find, authorize, send, close.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::scope::Scope;
use toolgate_mcp::param_header;

use super::builtin::BuiltinTool;
use super::explain::{self, Explanation};
use super::find::{Finder, ResolvedTool};
use super::limits::LimitTarget;
use super::rules::Rules;
use super::{CallProgress, Inner};
use crate::audit::Attempt;
use crate::call::{CallError, Outcome, ToolCall};
use crate::caller::Caller;

/// A call in flight, with the rules and scope in force when it started.
pub(super) struct CallContext {
    pub(super) caller: Caller,
    pub(super) call: ToolCall,
    pub(super) request_id: String,
    pub(super) rules: Arc<Rules>,
    pub(super) scope: Arc<Scope>,
}

impl Inner {
    /// Runs a call until it succeeds, fails, panics or is cancelled, and closes its record.
    pub(super) async fn run_to_completion(
        self: Arc<Self>,
        caller: Caller,
        call: ToolCall,
        attempt: Attempt,
        cancel: CancellationToken,
    ) -> Result<Outcome, CallError> {
        let request_id = attempt.record.request_id.clone();
        let mut progress = CallProgress::new(attempt);
        // The future is several KB; boxing it avoids repeated moves.
        let work = Box::pin(self.execute(caller, call, request_id, &mut progress));
        let work = AssertUnwindSafe(work);
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Some(Err(CallError::Cancelled)),
            answer = work.catch_unwind() => answer.ok(),
        };
        let attempt = progress.settle(answer.as_ref()).await;
        let panicked = || CallError::Panicked(attempt.record.tool_id_or_builtin());
        let answer = answer.unwrap_or_else(|| Err(panicked()));
        self.close(attempt, answer).await
    }

    async fn execute(
        self: &Arc<Self>,
        caller: Caller,
        call: ToolCall,
        request_id: String,
        progress: &mut CallProgress,
    ) -> Result<Outcome, CallError> {
        let started = Instant::now();
        let context = self.begin(caller, call, request_id)?;
        if let Some(builtin) = self.find_builtin(&context) {
            progress.attempt.set_tool(&builtin.id());
            // Rare paths are boxed to keep the future of ordinary calls small.
            let result = Box::pin(self.run_builtin(&context, builtin, progress)).await?;
            let (result, handle) = match builtin {
                BuiltinTool::ReadResult => (result, None),
                BuiltinTool::ListResources | BuiltinTool::ReadResource | BuiltinTool::Code(_) => {
                    self.truncate_result(&context, result)
                }
            };
            return Ok(Outcome {
                handle,
                ..Outcome::new(builtin.id(), result, started)
            });
        }
        let ToolCall { name, server, .. } = &context.call;
        let target = match self.finder(&context).find(name, server.as_ref()) {
            Ok(target) => target,
            Err(error) => {
                progress.attempt.record.detail = self.describe_hidden(&context);
                return Err(error);
            }
        };
        if context.call.request.headers_mirror_arguments {
            check_mirrored_arguments(&target, &context.call)?;
        }
        let arguments = context.call.arguments.clone();
        let authorized = self
            .authorize(&context, target, arguments, progress)
            .await?;
        let (id, arguments) = (
            authorized.target.entry.tool.id.clone(),
            authorized.arguments.clone(),
        );
        let is_fallback = authorized.target.fallback_for.is_some();
        let answer = self.send(&context, authorized, started, progress).await;
        let is_unavailable = answer
            .as_ref()
            .is_err_and(|error| error.is_not_sent() && !matches!(error, CallError::Busy { .. }));
        if is_fallback || !is_unavailable {
            return answer;
        }
        match self.finder(&context).find_fallback(&id) {
            Some(target) => {
                // Use the authorized arguments: an approver may have edited them.
                let authorized = self.authorize(&context, target, Ok(arguments), progress);
                let authorized = Box::pin(authorized).await?;
                Box::pin(self.send(&context, authorized, started, progress)).await
            }
            None => answer,
        }
    }

    /// Checks the caller's key and rate limit, and resolves its scope.
    fn begin(
        &self,
        caller: Caller,
        call: ToolCall,
        request_id: String,
    ) -> Result<CallContext, CallError> {
        let rules = self.rules.load_full();
        if let Some(key) = caller.key() {
            rules.key_entry(&caller)?;
            let admission = call.request.rate_admission.as_ref();
            if !admission.is_some_and(|admission| admission.take(key)) {
                let target = LimitTarget::Key(Arc::clone(key));
                rules.limits.check_rate(&target)?;
            }
        }
        let filters = &call.request.filters;
        let catalog = self.deps.registry.catalog();
        let catalog = catalog.for_client(filters.client.as_ref());
        let scope = self.scope_cache.get(&rules, &catalog, &caller, filters)?;
        Ok(CallContext {
            caller,
            call,
            request_id,
            rules,
            scope,
        })
    }

    /// Counts the outcome of an attempt and closes its record.
    async fn close(
        &self,
        attempt: Attempt,
        answer: Result<Outcome, CallError>,
    ) -> Result<Outcome, CallError> {
        let code = match &answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        if let Err(CallError::Store(error)) = &answer {
            tracing::error!(%error, "refusing tool call because the store failed");
        }
        if let Some(bound) = answer.as_ref().err().and_then(CallError::bound) {
            let caller = attempt.record.caller.as_deref();
            self.deps.metrics.report_bound(bound, caller.unwrap_or(""));
        }
        let tool = answer.as_ref().map(|outcome| outcome.tool.clone()).ok();
        let tool = tool.or_else(|| attempt.record.tool_id());
        self.deps.metrics.count_call(tool.as_ref(), code);
        self.log_call(&attempt, answer.as_ref().err(), code);
        attempt.close(&answer).await;
        answer
    }

    /// Logs the end of a call: always if it timed out, else only on request.
    fn log_call(&self, attempt: &Attempt, error: Option<&CallError>, outcome: &'static str) {
        let record = &*attempt.record;
        // Evaluated only if the line is written: calls are frequent.
        let tool = || match record.tool_id() {
            Some(tool) => tool.to_string(),
            None => record.name.clone(),
        };
        let ms = u64::try_from(attempt.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (caller, origin) = (record.caller.as_deref(), &record.origin);
        let request = &record.request_id;
        if let Some(CallError::Timeout { .. }) = error {
            tracing::warn!(
                tool = tool(),
                caller,
                origin,
                ms,
                request,
                "tool call timed out"
            );
        } else if self.rules.load().log.calls {
            tracing::info!(
                tool = tool(),
                caller,
                origin,
                outcome,
                ms,
                request,
                "tool call"
            );
        } else {
            tracing::debug!(
                tool = tool(),
                caller,
                origin,
                outcome,
                ms,
                request,
                "tool call"
            );
        }
    }

    /// Describes a tool that exists but is hidden from the caller, for the administrator: which tool
    /// the name means, and what hides it.
    fn describe_hidden(&self, context: &CallContext) -> Option<Value> {
        let CallContext {
            rules,
            caller,
            call,
            ..
        } = context;
        let name = match &call.server {
            Some(server) => format!("{server}.{}", call.name),
            None => call.name.clone(),
        };
        let filters = &call.request.filters;
        let explanation = explain::explain(rules, &self.deps.registry, caller, filters, &name);
        let Explanation { tool, steps, .. } = explanation.ok()?;
        let mut steps = steps.into_iter();
        // The first step says whether there is such a tool at all.
        steps.next().filter(|exists| exists.passes)?;
        let gate = steps.find(|step| !step.passes)?;
        Some(json!({
            "hidden_tool": tool?.to_string(),
            "gate": gate.key,
            "reason": gate.explanation,
        }))
    }

    fn finder<'a>(&'a self, context: &'a CallContext) -> Finder<'a> {
        Finder {
            rules: &context.rules,
            scope: &context.scope,
            registry: &self.deps.registry,
            caller: &context.caller,
            filters: &context.call.request.filters,
        }
    }
}

/// Verifies that the headers of a call repeat the arguments that its tool mirrors in headers.
fn check_mirrored_arguments(target: &ResolvedTool, call: &ToolCall) -> Result<(), CallError> {
    let tool = &target.entry.tool;
    // Invalid arguments are reported by the authorization.
    let Ok(arguments) = &call.arguments else {
        return Ok(());
    };
    if target.fallback_for.is_some() || !param_header::may_have_annotations(tool) {
        return Ok(());
    }
    param_header::verify_headers(&tool.view(), arguments.raw(), &call.request.headers)
        .map_err(CallError::HeaderMismatch)
}
