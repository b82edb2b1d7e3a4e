//! Evaluates the arguments of a call: checks them, and applies rules and scanner.
//!
//! The time that takes grows with the size of the arguments. Large ones are evaluated a few at a time and one
//! per caller, so that they do not delay the calls of others.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolgate_core::catalog::Tool;
use toolgate_core::config::{ArgumentCheck, OnDanger, ScannerSettings};
use toolgate_core::policy::{Decision, Judgement, Verdict};
use toolgate_core::scan::{Danger, ScanFinding, scan};
use toolgate_mcp::large::{LARGE_BYTES, run_large};

use super::argument_check::{CheckedArguments, check_arguments};
use crate::call::{Arguments, CallError, LimitReached};
use crate::metrics::Bound;
use toolgate_mcp::fair_queue::{FairQueue, NoSlot, Owner, QueueLimits};

const LARGE_LIMITS: QueueLimits = QueueLimits {
    slots: 2,
    slots_per_owner: 1,
    max_waiting: 256,
    max_waiting_per_owner: 64,
};
/// Time after which a refused call is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Runs evaluations. Clones share the slots for large arguments.
#[derive(Clone, Debug)]
pub(super) struct Evaluations(FairQueue);

/// Everything that the evaluation of a call depends on.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) tool: Arc<Tool>,
    pub(super) judgement: Judgement,
    pub(super) scanner: ScannerSettings,
    pub(super) argument_check: ArgumentCheck,
    pub(super) arguments: Arguments,
}

/// The result for valid arguments.
#[derive(Debug)]
pub(super) struct Evaluated {
    /// The arguments with which the call goes on.
    pub(super) checked: CheckedArguments,
    pub(super) decision: Decision,
    /// What the scanner found.
    pub(super) warnings: Vec<String>,
    /// Why the call is denied, if it is.
    pub(super) reason: String,
}

impl Evaluations {
    pub(super) fn new() -> Self {
        Self(FairQueue::new(LARGE_LIMITS))
    }

    pub(super) async fn run(
        &self,
        owner: &Owner,
        evaluation: Evaluation,
    ) -> Result<Evaluated, CallError> {
        let bytes = evaluation.arguments.raw().get().len();
        if bytes < LARGE_BYTES {
            return evaluation.run();
        }
        let slot = self.0.acquire(owner).await.map_err(|error| match error {
            NoSlot::QueueFull | NoSlot::OwnerQueueFull => CallError::Limited {
                limit: LimitReached::share(
                    owner.as_deref(),
                    Bound::LargeArguments,
                    LARGE_LIMITS.max_waiting_per_owner,
                ),
                retry_after: Some(RETRY_AFTER),
            },
            NoSlot::Closed => CallError::Stopping,
        })?;
        let evaluated = run_large(bytes, || evaluation.run());
        drop(slot);
        evaluated
    }
}

impl Evaluation {
    fn run(&self) -> Result<Evaluated, CallError> {
        let checked =
            check_arguments::<CallError>(&self.tool, &self.arguments, self.argument_check)?;
        let arguments = checked.arguments.value();
        let mut decision = self.judgement.decide(arguments);
        let mut warnings = Vec::new();
        let mut reason = "a rule denies these arguments".to_owned();
        for found in self.scan(arguments) {
            warnings.push(format_warning(&found));
            let verdict = match configured_action(found.danger, &self.scanner) {
                OnDanger::Off | OnDanger::Warn => continue,
                OnDanger::Ask => Verdict::Ask,
                OnDanger::Deny => Verdict::Deny,
            };
            let scanner = format!("scanner.{}", found.danger.as_str());
            if verdict > decision.verdict {
                reason = format_warning(&found);
                decision = Decision {
                    verdict,
                    decided_by: scanner.into(),
                    approval_by: None,
                };
            } else if verdict == decision.verdict && !decision.decided_by.contains(&scanner) {
                // The approver must see both reasons.
                decision.decided_by = format!("{} and {scanner}", decision.decided_by).into();
            }
        }
        Ok(Evaluated {
            checked,
            decision,
            warnings,
            reason,
        })
    }

    fn scan(&self, arguments: &Value) -> Vec<ScanFinding> {
        let is_enabled =
            |danger: &Danger| configured_action(*danger, &self.scanner) != OnDanger::Off;
        let kinds: Vec<Danger> = Danger::ALL.into_iter().filter(is_enabled).collect();
        match kinds.as_slice() {
            [] => Vec::new(),
            kinds => scan(arguments, kinds),
        }
    }
}

fn format_warning(found: &ScanFinding) -> String {
    format!("{} ({})", found.what, found.place)
}

/// Returns the configured reaction to a danger.
fn configured_action(danger: Danger, scanner: &ScannerSettings) -> OnDanger {
    match danger {
        Danger::PathTraversal => scanner.path_traversal,
        Danger::Shell => scanner.shell,
        Danger::PrivateAddress => scanner.private_address,
        Danger::Secret => scanner.secret,
    }
}
