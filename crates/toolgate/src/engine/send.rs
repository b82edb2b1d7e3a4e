//! A call that may run, on its way: its place among others, its price, and its result.

use std::sync::Arc;
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Verdict;

use super::clear::Run;
use super::dispatch::{Answer, Dispatch};
use super::find::Target;
use super::kept::Kept;
use super::limits::Limited;
use super::rules::Rules;
use super::{Inner, Journey, Progress};
use crate::audit::Record;
use crate::call::{CallError, Outcome};
use crate::caller::Origin;
use crate::result::bound::bound;
use crate::result::tidy::{Secrets, tidy};
use crate::result::{ToolResult, asks_for_input};
use crate::trace;

impl Inner {
    /// Limits of the tool and of the caller's key, and a place among the calls under way.
    pub(super) async fn enter(
        &self,
        journey: &Journey,
        id: &ToolId,
    ) -> Result<Vec<OwnedSemaphorePermit>, CallError> {
        let Journey { rules, caller, .. } = journey;
        rules.limits.count(&Limited::Server(id.server.clone()))?;
        rules.limits.count(&Limited::Tool(id.clone()))?;
        let within = rules.timeout(id);
        let mut places = Vec::new();
        if let Some(key) = caller.key() {
            let key = Limited::Key(Arc::clone(key));
            places.extend(rules.limits.enter(&key, within).await?);
        }
        let tool = Limited::Tool(id.clone());
        places.extend(rules.limits.enter(&tool, within).await?);
        Ok(places)
    }

    /// Whether a call that waited may still run, should the rules have changed meanwhile.
    pub(super) fn still_holds(&self, journey: &Journey, run: &Run) -> Result<(), CallError> {
        let now = self.rules.load();
        if now.generation == journey.rules.generation {
            return Ok(());
        }
        let principal = now.principal(&journey.caller)?;
        let lens = now.access.lens(principal, &journey.call.request.filters);
        let judged = lens.judge((&run.target.entry).into());
        match judged.map(|judged| judged.on(run.arguments.value()).verdict) {
            Some(verdict) if verdict < Verdict::Ask => Ok(()),
            Some(Verdict::Ask) if run.asked => Ok(()),
            _ => Err(CallError::Overtaken(run.target.entry.alias.to_string())),
        }
    }

    /// Takes the price of a call from the budget of the caller's key.
    pub(super) async fn charge(
        &self,
        journey: &Journey,
        id: &ToolId,
        record: &mut Record,
    ) -> Result<(), CallError> {
        let Journey { rules, caller, .. } = journey;
        let served = rules.servers.get(&id.server);
        let price = served.and_then(|served| served.server.tool(id.tool.as_str()).price);
        let price = price.unwrap_or(0);
        if let (Some(key), Some(holder)) = (caller.key(), rules.holder(caller)?)
            && let Some(budget) = &holder.limits.budget
        {
            let store = &self.parts.store;
            self.budgets.charge(store, key, budget, price).await?;
        }
        record.charged = true;
        record.cost_micro_usd = i64::try_from(price).unwrap_or(i64::MAX);
        Ok(())
    }

    /// Gives back what a call that was never sent would have cost.
    pub(super) fn refund(&self, journey: &Journey, record: &mut Record) {
        if let Some(key) = journey.caller.key() {
            self.budgets
                .refund(key, record.cost_micro_usd.unsigned_abs());
        }
        record.charged = false;
        record.cost_micro_usd = 0;
    }

    /// Sends a call that may run to its server, or finds its result among those to be reused.
    pub(super) async fn send(
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
        let _places = self.enter(journey, id).await?;
        self.still_holds(journey, &run)?;
        let dispatch = Dispatch {
            registry: Arc::clone(&self.parts.registry),
            metrics: Arc::clone(&self.parts.metrics),
            headers: rules.forwarded(&id.server, &journey.call.request.headers),
            request: Arc::clone(&journey.call.request),
            arguments: run.arguments,
            tool: Arc::clone(&entry.tool),
            within: rules.timeout(id),
            after: rules.patience(&journey.call.request, &id.server, rules.timeout(id)),
            own_lane: rules.has_own_lanes(&id.server),
            current_only: run.asked,
        };
        let key = self.reuse.key(rules, &dispatch);
        let reused = key.as_ref().and_then(|(key, _)| self.reuse.get(key));
        let cached = reused.is_some();
        let result = match reused {
            Some(result) => {
                progress.uses(id, true);
                result
            }
            None => {
                let record = &mut progress.attempt.record;
                self.charge(journey, id, record).await?;
                progress.attempt.open();
                progress.uses(id, true);
                let (tracer, request) = (&*self.parts.tracer, &journey.call.request);
                let trace = trace::outgoing(tracer, &progress.attempt.span, request);
                let answer = dispatch.run(trace).await;
                if answer.as_ref().is_err_and(CallError::is_not_sent) {
                    progress.uses(id, false);
                    self.refund(journey, &mut progress.attempt.record);
                }
                let Answer { raw, outdated } = answer?;
                if journey.call.request.guest.is_some() && asks_for_input(&raw) {
                    // The same call is made again with the answers, and is approved already.
                    progress.uses(id, false);
                }
                let result = self.tidied(raw, rules);
                if let Some((key, ttl)) = key.filter(|_| !outdated) {
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
            approval: progress.approved(id),
            ..Outcome::new(id.clone(), result, began)
        })
    }

    pub(super) fn tidied(&self, raw: Box<RawValue>, rules: &Rules) -> ToolResult {
        let secrets = match rules.results.redact_secrets {
            true => Secrets::Redacted,
            false => Secrets::Kept,
        };
        ToolResult::new(tidy(raw, secrets))
    }

    /// The result as whoever asked gets it, and the handle of the whole if it was cut.
    pub(super) fn bounded(
        &self,
        journey: &Journey,
        result: ToolResult,
    ) -> (ToolResult, Option<String>) {
        let settings = journey.rules.results;
        let for_model = matches!(journey.caller.origin, Origin::Http | Origin::Agent);
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
}
