//! Limits of a run. They hold for all its parts together: resuming a run lifts none of them.

use std::time::{Duration, Instant};

use toolgate_core::config::RunLimits;
use toolgate_llm::prompt::RequestedToolCall;

use super::AgentRun;
use super::report::RunStopReason;
use super::resume::{CallDecision, ResumeError, ResumePlan};

impl AgentRun {
    /// Number of model responses whose tool calls the run dealt with. A response beyond the depth is returned
    /// as it is and does not count.
    pub(super) fn iterations(&self) -> u32 {
        self.tool_turn_count.min(self.max_depth())
    }

    pub(super) fn max_depth(&self) -> u32 {
        self.limits.depth.unwrap_or(u32::MAX)
    }

    /// Number of tool calls the run may still execute.
    pub(super) fn remaining_calls(&self) -> usize {
        let limit = self.limits.tool_calls.unwrap_or(u64::MAX);
        let remaining = limit.saturating_sub(self.executed.len() as u64);
        usize::try_from(remaining).unwrap_or(usize::MAX)
    }

    /// Returns the limit that prevents the calls of a turn from being executed, if any.
    pub(super) fn limit_before_calls(&self, calls: &[RequestedToolCall]) -> Option<RunStopReason> {
        if self.turn_count > self.max_depth() {
            return Some(RunStopReason::MaxDepth);
        }
        if let Some(what) = self.exhausted_limit() {
            return Some(RunStopReason::Budget(what));
        }
        let exhausted = !calls.is_empty() && self.loop_guard.is_exhausted(calls);
        exhausted.then_some(RunStopReason::LoopGuard)
    }

    /// Checks that no limit of the run keeps it from going on: only higher limits let it, not a decision.
    pub(super) fn check_resume_limits(&self, plan: &ResumePlan) -> Result<(), ResumeError> {
        if let Some(stop) = self.limit_before_calls(&plan.replay.calls) {
            let explanation = self.limit_explanation(stop);
            return Err(ResumeError::LimitReached {
                id: self.id.clone(),
                limit: explanation.unwrap_or_default(),
            });
        }
        let decisions = plan.request.decisions.values();
        let approved =
            decisions.filter(|decision| matches!(decision, CallDecision::Approve { .. }));
        let remaining = self.remaining_calls();
        if approved.count() > remaining {
            return Err(ResumeError::TooManyCalls(remaining));
        }
        Ok(())
    }

    /// Time at which the run must end.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let time = self.limits.time?.saturating_sub(self.earlier_time);
        self.started_at.checked_add(time)
    }

    /// Time that the run has taken, without waiting for decisions.
    fn elapsed(&self) -> Duration {
        self.earlier_time + self.started_at.elapsed()
    }

    /// Returns the name of the first limit that is used up.
    pub(super) fn exhausted_limit(&self) -> Option<&'static str> {
        let RunLimits {
            depth: _,
            model_calls,
            tool_calls,
            tokens,
            micro_usd,
            time,
            parallel_tools: _,
            resume_on_approval: _,
        } = self.limits;
        let used = self.usage.input + self.usage.output;
        let reached = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
        let limits = [
            (
                "model_calls",
                reached(model_calls, u64::from(self.turn_count)),
            ),
            (
                "tool_calls",
                reached(tool_calls, self.executed.len() as u64),
            ),
            ("tokens", reached(tokens, used)),
            ("usd", reached(micro_usd, self.micro_usd)),
            ("time", time.is_some_and(|limit| self.elapsed() >= limit)),
        ];
        let reached = limits.into_iter().find(|(_, reached)| *reached);
        reached.map(|(name, _)| name)
    }

    /// Says why a limit ended the run, for the model's conversation and the caller; `None` for other reasons.
    pub(super) fn limit_explanation(&self, stop: RunStopReason) -> Option<String> {
        match stop {
            RunStopReason::MaxDepth => Some(format!(
                "The run has ended: it has reached its depth of {} (`max_agent_depth`).",
                self.max_depth()
            )),
            RunStopReason::LoopGuard => Some(
                "The run has ended: the model repeated tool calls that keep failing with the same arguments."
                    .to_owned(),
            ),
            RunStopReason::Budget(limit) => Some(format!(
                "The run has ended: its limit on {limit} is reached."
            )),
            RunStopReason::Done
            | RunStopReason::NeedsApproval
            | RunStopReason::CallerTool
            | RunStopReason::Error
            | RunStopReason::Interrupted(_) => None,
        }
    }
}
