//! State of a run, rebuilt from its journal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::TokenUsage;
use toolgate_llm::prompt::RequestedToolCall;
use toolgate_llm::provider_turn::ProviderTurn;

use super::call_output::ExecutedCall;
use super::journal::{call_from_value, part_from_value};
use super::store::RunStep;
use crate::store::StoreError;

/// State of a run rebuilt from its journal.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) history: Vec<Value>,
    /// One for each turn with tool calls.
    pub(super) provider_turns: Vec<Option<Arc<ProviderTurn>>>,
    pub(super) turns: Vec<String>,
    pub(super) turn_count: u32,
    pub(super) tool_turn_count: u32,
    /// Time that the parts of the run took, without the time between them.
    pub(super) elapsed: Duration,
    pub(super) executed: Vec<ExecutedCall>,
    pub(super) usage: TokenUsage,
    pub(super) micro_usd: u64,
    /// Calls and items of the last turn, until all its calls have results.
    pub(super) calls: Vec<RequestedToolCall>,
    pub(super) items: Vec<Value>,
    /// Ids of calls of the last turn that were started and may have run.
    pub(super) opened: Vec<String>,
    /// Ids of the approvals that calls of the last turn wait for, by call id.
    pub(super) approvals: HashMap<String, Vec<String>>,
    /// Suspended scripts by call id, with a text listing the calls they have already made.
    pub(super) started_scripts: HashMap<String, String>,
    pub(super) next_seq: i64,
}

impl Replay {
    /// Rebuilds the state. Fails if any step cannot be read, since a call that ran must not be lost.
    pub(super) fn from_steps(started_at: i64, steps: &[RunStep]) -> Result<Self, StoreError> {
        let mut replay = Self::default();
        let mut previous_at = started_at;
        for RunStep { seq, at, step } in steps {
            replay.next_seq = seq + 1;
            replay.apply(step).ok_or(StoreError::Unreadable)?;
            if step["kind"] != "resumed" {
                // The clock may have been set back.
                let millis = u64::try_from(at.saturating_sub(previous_at)).unwrap_or_default();
                replay.elapsed += Duration::from_millis(millis);
            }
            previous_at = *at;
        }
        Ok(replay)
    }

    /// Applies a step; returns `None` if it cannot be read.
    fn apply(&mut self, step: &Value) -> Option<()> {
        let text = |name: &str| step[name].as_str().map(str::to_owned);
        match step["kind"].as_str()? {
            "turn" => self.apply_turn(step)?,
            "call_opened" => self.opened.push(text("id")?),
            "call_waits" => {
                let id = text("id")?;
                self.opened.retain(|known| *known != id);
                self.approvals.insert(id.clone(), approval_ids(step));
                if step["inner"].is_array() {
                    self.started_scripts.insert(id, text("made")?);
                }
            }
            "call_closed" => {
                let parts = step["result"].as_array()?.iter().map(part_from_value);
                self.executed.push(ExecutedCall {
                    call: call_from_value(step)?,
                    turn: u32::try_from(step["turn"].as_u64()?).ok()?,
                    parts: parts.collect::<Option<_>>()?,
                    is_error: step["is_error"].as_bool()?,
                    is_outage: step["is_outage"].as_bool().unwrap_or(false),
                    ms: step["ms"].as_u64()?,
                });
            }
            "answered" => {
                self.history.append(&mut self.items);
                self.history.extend_from_slice(step["items"].as_array()?);
                self.calls.clear();
            }
            "resumed" | "ended" => {}
            _ => return None,
        }
        Some(())
    }

    fn apply_turn(&mut self, step: &Value) -> Option<()> {
        let count = |name: &str| step[name].as_u64();
        let calls = step["calls"].as_array()?.iter().map(call_from_value);
        self.calls = calls.collect::<Option<_>>()?;
        self.items.clone_from(step["items"].as_array()?);
        self.turns.push(step["text"].as_str()?.to_owned());
        if !self.calls.is_empty() {
            let provider_turn = match &step["provider"] {
                Value::Null => None,
                provider => Some(Arc::new(self.read_provider_turn(provider)?)),
            };
            self.provider_turns.push(provider_turn);
        }
        self.turn_count += 1;
        self.tool_turn_count += u32::from(!self.calls.is_empty());
        self.opened.clear();
        self.approvals.clear();
        self.usage = self.usage.plus(TokenUsage {
            input: count("input_tokens")?,
            output: count("output_tokens")?,
            cached: count("cached_tokens")?,
            cache_written: 0,
            reasoning: count("reasoning_tokens")?,
        });
        self.micro_usd += count("cost_micro_usd")?;
        Some(())
    }

    /// Reads the original form of the turn that was read last.
    fn read_provider_turn(&self, provider: &Value) -> Option<ProviderTurn> {
        let name = provider["dialect"].as_str()?;
        let mut dialects = Dialect::ALL.into_iter();
        Some(ProviderTurn {
            dialect: dialects.find(|dialect| dialect.as_str() == name)?,
            items: provider["items"].as_array()?.clone(),
            text: self.turns.last()?.clone(),
            calls: self.calls.clone(),
        })
    }

    /// Returns the calls of the last turn that have no result.
    pub(super) fn unanswered_calls(&self) -> Vec<RequestedToolCall> {
        let turn = self.turn_count;
        let is_answered = |call: &RequestedToolCall| {
            let mut executed = self.executed.iter();
            executed.any(|executed| executed.turn == turn && executed.call.id == call.id)
        };
        self.calls
            .iter()
            .filter(|call| !is_answered(call))
            .cloned()
            .collect()
    }
}

/// Returns the approvals that a waiting call needs: its own, or those of the calls of a suspended script.
fn approval_ids(step: &Value) -> Vec<String> {
    let inner = step["inner"].as_array();
    let calls: Vec<&Value> = inner.map_or_else(|| vec![step], |inner| inner.iter().collect());
    let ids = calls.iter().map(|call| call["approval_id"].as_str());
    // A call without one needs a decision of the caller.
    let ids: Option<Vec<String>> = ids.map(|id| id.map(str::to_owned)).collect();
    ids.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replay(steps: &[Value]) -> Result<Replay, StoreError> {
        let steps = steps.iter().enumerate().map(|(index, step)| RunStep {
            seq: index as i64,
            at: index as i64 * 100,
            step: step.clone(),
        });
        Replay::from_steps(0, &steps.collect::<Vec<_>>())
    }

    fn turn() -> Value {
        json!({"kind": "turn", "items": [{"role": "assistant"}], "text": "hi",
            "calls": [{"id": "1", "name": "t", "arguments": "{}"}], "input_tokens": 1,
            "output_tokens": 2, "cached_tokens": 0, "reasoning_tokens": 0, "cost_micro_usd": 3})
    }

    fn closed() -> Value {
        json!({"kind": "call_closed", "id": "1", "name": "t", "arguments": "{}",
            "result": [{"text": "a"}, {"media_type": "image/png", "data": "AA=="}],
            "is_error": false, "turn": 1, "ms": 5})
    }

    #[test]
    fn journal_restores_turns_and_calls() {
        let opened = json!({"kind": "call_opened", "id": "1"});
        let replay = replay(&[turn(), opened, closed(), json!({"kind": "ended"})]).unwrap();
        assert_eq!(replay.executed[0].parts.len(), 2);
        assert!(replay.unanswered_calls().is_empty());
        let state = (replay.turn_count, replay.micro_usd, replay.next_seq);
        assert_eq!(state, (1, 3, 4));
    }

    #[test]
    fn time_between_parts_does_not_count() {
        let steps = [
            turn(),
            json!({"kind": "ended"}),
            json!({"kind": "resumed"}),
            turn(),
        ];
        let replay = replay(&steps).unwrap();
        assert_eq!(replay.elapsed, Duration::from_millis(200));
        assert_eq!((replay.turn_count, replay.tool_turn_count), (2, 2));
    }

    #[test]
    fn unreadable_step_is_an_error() {
        let without = |mut step: Value, field: &str| {
            step[field] = Value::Null;
            step
        };
        let mut steps = vec![json!({"kind": "new"}), json!({}), Value::Null];
        for field in ["items", "calls", "text", "input_tokens", "cost_micro_usd"] {
            steps.push(without(turn(), field));
        }
        for field in ["id", "name", "arguments", "result", "is_error", "turn"] {
            steps.push(without(closed(), field));
        }
        for step in steps {
            let result = replay(&[turn(), step.clone()]);
            assert!(matches!(result, Err(StoreError::Unreadable)), "{step}");
        }
    }
}
