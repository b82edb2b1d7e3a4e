//! Evaluates the arguments of a call: validates them, and applies rules and scanner.
//!
//! The time that takes grows with the size of the arguments. Large ones are evaluated on threads of
//! their own, a few at a time, so that they do not delay the calls of others.

use std::sync::Arc;

use tokio::sync::Semaphore;
use toolgate_core::catalog::Tool;
use toolgate_core::config::{OnDanger, ScannerSettings};
use toolgate_core::policy::{Decision, Judgement, Verdict};
use toolgate_core::scan::{Danger, ScanFinding, scan};

use crate::call::{Arguments, CallError};

/// Size from which arguments are evaluated on a thread of their own.
const LARGE_BYTES: usize = 64 * 1024;
/// Large arguments that are evaluated at a time.
const MAX_LARGE_AT_ONCE: usize = 2;

/// Runs evaluations. Clones share the threads for large arguments.
#[derive(Clone, Debug)]
pub(super) struct Evaluations(Arc<Semaphore>);

/// Everything that the evaluation of a call depends on.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) tool: Arc<Tool>,
    pub(super) judgement: Judgement,
    pub(super) scanner: ScannerSettings,
    pub(super) arguments: Arguments,
}

/// The result for valid arguments.
#[derive(Debug)]
pub(super) struct Evaluated {
    pub(super) decision: Decision,
    /// What the scanner found.
    pub(super) warnings: Vec<String>,
    /// Why the call is denied, if it is.
    pub(super) reason: String,
}

impl Evaluations {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LARGE_AT_ONCE)))
    }

    pub(super) async fn run(&self, evaluation: Evaluation) -> Result<Evaluated, CallError> {
        if evaluation.arguments.raw().get().len() < LARGE_BYTES {
            return evaluation.run();
        }
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            // Held until the work is done, also if the call is cancelled.
            let _permit = permit;
            evaluation.run()
        });
        match work.await {
            Ok(evaluated) => evaluated,
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(CallError::Stopping),
            },
        }
    }
}

impl Evaluation {
    fn run(&self) -> Result<Evaluated, CallError> {
        self.check_arguments()?;
        let mut decision = self.judgement.decide(self.arguments.value());
        let mut warnings = Vec::new();
        let mut reason = "a rule denies these arguments".to_owned();
        for found in self.scan_arguments() {
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
            decision,
            warnings,
            reason,
        })
    }

    /// Validates arguments against the tool's schema. With an unusable schema, validation is left to
    /// the server.
    fn check_arguments(&self) -> Result<(), CallError> {
        let schema = self.tool.schema();
        self.arguments.check_keys(schema.ok())?;
        match schema {
            Ok(schema) => Ok(schema.check(self.arguments.value())?),
            Err(unusable) => {
                tracing::debug!(tool = %self.tool.id, error = %unusable, "skipping argument validation");
                Ok(())
            }
        }
    }

    fn scan_arguments(&self) -> Vec<ScanFinding> {
        let is_enabled =
            |danger: &Danger| configured_action(*danger, &self.scanner) != OnDanger::Off;
        let kinds: Vec<Danger> = Danger::ALL.into_iter().filter(is_enabled).collect();
        match kinds.as_slice() {
            [] => Vec::new(),
            kinds => scan(self.arguments.value(), kinds),
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
