//! State of a run, rebuilt from its journal.

use std::collections::HashMap;

use serde_json::Value;
use toolgate_llm::TokenUsage;
use toolgate_llm::prompt::RequestedToolCall;

use super::journal::{call_from_value, part_from_value};
use super::store::RunStep;
use super::tool_calls::ExecutedCall;

/// State of a run rebuilt from its journal.
#[derive(Default)]
pub(super) struct Replay {
    pub(super) history: Vec<Value>,
    pub(super) turns: Vec<String>,
    pub(super) iterations: u32,
    pub(super) executed: Vec<ExecutedCall>,
    pub(super) usage: TokenUsage,
    pub(super) micro_usd: u64,
    /// Calls and items of the last turn, until all its calls have results.
    pub(super) calls: Vec<RequestedToolCall>,
    pub(super) items: Vec<Value>,
    /// Ids of calls of the last turn that were started and may have run.
    pub(super) opened: Vec<String>,
    /// Suspended scripts by call id, with a text listing the calls they have already made.
    pub(super) started_scripts: HashMap<String, String>,
    pub(super) next_seq: i64,
}

impl Replay {
    pub(super) fn from_steps(steps: &[RunStep]) -> Self {
        let mut replay = Self::default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        for RunStep { seq, step, .. } in steps {
            replay.next_seq = seq + 1;
            let id = step["id"].as_str().unwrap_or_default().to_owned();
            match step["kind"].as_str().unwrap_or_default() {
                "turn" => {
                    replay.iterations += 1;
                    replay
                        .turns
                        .push(step["text"].as_str().unwrap_or_default().to_owned());
                    replay.calls = list(&step["calls"]).iter().map(call_from_value).collect();
                    replay.items = list(&step["items"]);
                    replay.opened.clear();
                    replay.usage = replay.usage.plus(TokenUsage {
                        input: count(&step["input_tokens"]),
                        output: count(&step["output_tokens"]),
                        cached: count(&step["cached_tokens"]),
                        cache_written: 0,
                        reasoning: count(&step["reasoning_tokens"]),
                    });
                    replay.micro_usd += count(&step["cost_micro_usd"]);
                }
                "call_opened" => replay.opened.push(id),
                "call_waits" => {
                    replay.opened.retain(|known| *known != id);
                    if step["inner"].is_array() {
                        let calls_made = step["made"].as_str().unwrap_or_default();
                        replay.started_scripts.insert(id, calls_made.to_owned());
                    }
                }
                "call_closed" => {
                    replay.executed.push(ExecutedCall {
                        call: call_from_value(step),
                        turn: u32::try_from(count(&step["turn"])).unwrap_or_default(),
                        parts: list(&step["result"]).iter().map(part_from_value).collect(),
                        is_error: step["is_error"] == true,
                        ms: count(&step["ms"]),
                    });
                }
                "answered" => {
                    replay.history.append(&mut replay.items);
                    replay.history.extend(list(&step["items"]));
                    replay.calls.clear();
                }
                _ => {}
            }
        }
        replay
    }

    /// Returns the calls of the last turn that have no result.
    pub(super) fn unanswered_calls(&self) -> Vec<RequestedToolCall> {
        let turn = self.iterations;
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
