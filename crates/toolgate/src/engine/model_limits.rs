//! Limits and budgets of keys on model requests and agent runs.

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::config::RunLimits;
use toolgate_core::rate::Budget;
use toolgate_mcp::Deadline;
use toolgate_mcp::fair_queue::Slot;

use super::Inner;
use super::limits::LimitTarget;
use crate::call::CallError;
use crate::caller::Caller;

/// Maximum time a model request waits for a concurrency slot of its key.
const MODEL_SLOT_TIMEOUT: Duration = Duration::from_secs(60);

/// Handle for the limits of keys on model requests and agent runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelLimits<'a>(&'a Inner);

/// Concurrency slot of a model request, counted against its caller's key.
#[derive(Debug)]
pub(crate) struct ModelSlot(#[expect(dead_code, reason = "held for its Drop")] Option<Slot>);

impl<'a> ModelLimits<'a> {
    pub(super) fn new(engine: &'a Inner) -> Self {
        Self(engine)
    }

    /// Admits a model request under the rate, concurrency and budget limits of the caller's key.
    pub(crate) async fn admit_model_request(self, caller: &Caller) -> Result<ModelSlot, CallError> {
        let rules = self.0.rules.load_full();
        let key_entry = rules.key_entry(caller)?;
        let (Some(key), Some(key_entry)) = (caller.key(), key_entry) else {
            return Ok(ModelSlot(None));
        };
        let target = LimitTarget::Key(Arc::clone(key));
        rules.limits.check_rate(&target)?;
        if let Some(budget) = &key_entry.limits.budget {
            let store = &self.0.deps.store;
            Box::pin(self.0.budgets.check_remaining(store, key, budget)).await?;
        }
        let slot = rules
            .limits
            .acquire_slot(&target, &None, Deadline::now() + MODEL_SLOT_TIMEOUT)
            .await?;
        Ok(ModelSlot(slot))
    }

    /// Returns whether the caller's token or dollar usage counts against a budget.
    pub(crate) fn has_budget(self, caller: &Caller) -> bool {
        let budget = self.budget(caller);
        budget.is_some_and(|budget| budget.tokens.is_some() || budget.micro_usd.is_some())
    }

    /// Returns whether the caller's key has a budget in dollars.
    pub(crate) fn has_money_budget(self, caller: &Caller) -> bool {
        let budget = self.budget(caller);
        budget.is_some_and(|budget| budget.micro_usd.is_some())
    }

    /// Deducts the usage of a model request from the budget of the caller's key.
    pub(crate) fn record_spending(self, caller: &Caller, tokens: u64, micro_usd: u64) {
        if let Some(key) = caller.key() {
            self.0.budgets.record_spending(key, tokens, micro_usd);
        }
    }

    /// Returns the limits on an agent run of this caller. Fails if its key is no longer valid.
    pub(crate) fn run_limits(self, caller: &Caller) -> Result<RunLimits, CallError> {
        let rules = self.0.rules.load();
        let key_entry = rules.key_entry(caller)?;
        let key_limits = key_entry.map(|entry| entry.limits.run).unwrap_or_default();
        let depth = RunLimits {
            depth: Some(rules.manager.max_agent_depth),
            ..RunLimits::default()
        };
        Ok(rules.agent.combine(key_limits).combine(depth))
    }

    fn budget(self, caller: &Caller) -> Option<Budget> {
        let rules = self.0.rules.load();
        // A key that is no longer valid is refused when the request is admitted.
        let key_entry = rules.key_entry(caller).ok().flatten();
        key_entry.and_then(|key_entry| key_entry.limits.budget)
    }
}
