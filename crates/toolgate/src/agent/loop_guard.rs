//! Stops a model from repeating the same failing call.

use std::collections::HashMap;

use toolgate_llm::prompt::RequestedToolCall;

use super::call_output::ExecutedCall;

/// Failures of a call after which repeats are refused instead of executed.
const MAX_FAILED_RUNS: u32 = 2;
/// Failures, including refusals, of every call in a turn after which the run ends.
const MAX_FAILURES: u32 = 4;

/// Failure counts by tool name and canonical arguments.
#[derive(Debug, Default)]
pub(super) struct LoopGuard(HashMap<(String, String), u32>);

impl LoopGuard {
    /// Rebuilds the guard from the calls of an earlier part of the run.
    pub(super) fn from_executed(executed: &[ExecutedCall]) -> Self {
        let mut guard = Self::default();
        for failed in executed.iter().filter(|call| call.counts_as_failure()) {
            guard.record_failure(&failed.call);
        }
        guard
    }

    /// Returns the message sent to the model instead of executing the call again.
    pub(super) fn refusal(&self, call: &RequestedToolCall) -> Option<String> {
        let failures = self.failure_count(call);
        (failures >= MAX_FAILED_RUNS).then(|| {
            format!("this call has failed with the same arguments {MAX_FAILED_RUNS} times and was not run again; change the arguments, use another tool, or answer without it")
        })
    }

    pub(super) fn record_failure(&mut self, call: &RequestedToolCall) {
        *self.0.entry(call_key(call)).or_default() += 1;
    }

    /// Returns whether every call of a turn has already failed too often.
    pub(super) fn is_exhausted(&self, calls: &[RequestedToolCall]) -> bool {
        calls
            .iter()
            .all(|call| self.failure_count(call) >= MAX_FAILURES)
    }

    fn failure_count(&self, call: &RequestedToolCall) -> u32 {
        self.0.get(&call_key(call)).copied().unwrap_or_default()
    }
}

fn call_key(call: &RequestedToolCall) -> (String, String) {
    // Reserialize so that whitespace differences do not defeat the guard.
    let arguments = match serde_json::from_str::<serde_json::Value>(&call.arguments) {
        Ok(value) => value.to_string(),
        Err(_) => call.arguments.clone(),
    };
    (call.name.clone(), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(is_outage: bool) -> ExecutedCall {
        ExecutedCall {
            call: RequestedToolCall {
                id: "c".to_owned(),
                name: "zoo_add".to_owned(),
                arguments: "{}".to_owned(),
            },
            turn: 1,
            parts: Vec::new(),
            is_error: true,
            is_outage,
            ms: 0,
        }
    }

    #[test]
    fn outages_do_not_count() {
        let outages: Vec<_> = (0..9).map(|_| failed(true)).collect();
        let call = &outages[0].call;
        assert_eq!(LoopGuard::from_executed(&outages).refusal(call), None);
        let failures = [failed(false), failed(false)];
        assert!(LoopGuard::from_executed(&failures).refusal(call).is_some());
    }
}
