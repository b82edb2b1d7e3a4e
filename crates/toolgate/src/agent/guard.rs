//! Keeps a model from asking for the same failing call again and again.

use std::collections::HashMap;

use toolgate_llm::prompt::Call;

use super::act::Executed;

/// How often the same call may fail before it is no longer run, and before the run ends.
const RUN: u32 = 2;
const ANSWERED: u32 = 4;

/// Calls that failed, by name and arguments.
#[derive(Debug, Default)]
pub(super) struct Guard(HashMap<(String, String), u32>);

impl Guard {
    /// One that remembers what failed before.
    pub(super) fn after(executed: &[Executed]) -> Self {
        let mut guard = Self::default();
        for one in executed.iter().filter(|one| one.is_error) {
            guard.failed(&one.call);
        }
        guard
    }

    /// What the model is told instead of running a call once more.
    pub(super) fn refusal(&self, call: &Call) -> Option<String> {
        let failed = self.failures(call);
        (failed >= RUN).then(|| {
            format!("this call with these very arguments has failed {RUN} times and was not run again; change the arguments, use another tool, or answer without it")
        })
    }

    pub(super) fn failed(&mut self, call: &Call) {
        *self.0.entry(key(call)).or_default() += 1;
    }

    /// Whether the model asks only for what it was told not to ask for.
    pub(super) fn is_exhausted(&self, calls: &[Call]) -> bool {
        calls.iter().all(|call| self.failures(call) >= ANSWERED)
    }

    fn failures(&self, call: &Call) -> u32 {
        self.0.get(&key(call)).copied().unwrap_or_default()
    }
}

fn key(call: &Call) -> (String, String) {
    // The same arguments in another spelling are the same.
    let value: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let arguments = match value.is_null() {
        true => call.arguments.clone(),
        false => value.to_string(),
    };
    (call.name.clone(), arguments)
}
