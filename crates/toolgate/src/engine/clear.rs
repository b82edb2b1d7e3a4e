//! Whether a call may run: its arguments, what the rules, the scanner and the embedding program
//! say, and the approver where one is to be asked.

use serde_json::value::RawValue;
use toolgate_core::config::{OnDanger, Scanner};
use toolgate_core::policy::{Decision, Verdict};
use toolgate_core::scan::{Danger, Found, scan};

use super::find::Target;
use super::{Inner, Journey, Progress, Ticket};
use crate::approval::{Ask, Asker, Clearance};
use crate::audit::Record;
use crate::call::{Arguments, BadArguments, CallError};
use crate::hook::{Proposal, Review};

/// Bytes of the conversation that an approver sees.
const LONGEST_CONVERSATION: usize = 64 * 1024;

/// A call that may run.
pub(super) struct Run {
    pub(super) target: Target,
    pub(super) arguments: Arguments,
    /// Whether somebody had to say so.
    pub(super) asked: bool,
}

impl Inner {
    pub(super) async fn clear(
        &self,
        journey: &Journey,
        target: Target,
        arguments: Result<Arguments, BadArguments>,
        progress: &mut Progress,
    ) -> Result<Run, CallError> {
        let id = &target.entry.tool.id;
        let served = journey.rules.servers.get(&id.server);
        progress.attempt.masker = served.map(|served| served.masker.clone());
        progress.attempt.about(id);
        let record = &mut progress.attempt.record;
        let instead_of = target.instead_of.as_ref();
        record.instead_of = instead_of.map(|asked| asked.server.to_string());
        let arguments = arguments?;
        check(&target, &arguments)?;
        let decision = self.decide(journey, &target, &arguments, record)?;
        if decision.verdict == Verdict::Manual && journey.caller.origin.is_unattended() {
            return Err(CallError::LeftToCaller(target.entry.alias.to_string()));
        }
        let proposal = Proposal {
            tool: &target.entry.tool.id,
            alias: &target.entry.alias,
            arguments: &arguments,
            caller: &journey.caller,
            request_id: &journey.request_id,
            decision: &decision,
        };
        let arguments = match self.parts.hook.review(proposal).await {
            Review::Proceed if decision.verdict == Verdict::Ask => {
                let ask = ask(journey, &target, &arguments, &decision);
                let approved = Box::pin(self.approved(journey, &target, ask, progress));
                let edited = approved.await?;
                edited.unwrap_or(arguments)
            }
            Review::Proceed | Review::Approve => arguments,
            Review::Edit(edited) => {
                self.edited(journey, &target, &edited, record)?;
                edited
            }
            Review::Deny { reason } => {
                record.verdict = Some(Verdict::Deny.as_str().to_owned());
                return Err(denied(&target, &decision, reason));
            }
        };
        Ok(Run {
            asked: decision.verdict == Verdict::Ask,
            target,
            arguments,
        })
    }

    /// What the rules and the scanner say; a `deny` is an error that names its reason.
    fn decide(
        &self,
        journey: &Journey,
        target: &Target,
        arguments: &Arguments,
        record: &mut Record,
    ) -> Result<Decision, CallError> {
        let mut decision = target.judgement.on(arguments.value());
        record.warnings.clear();
        let mut reason = "a rule denies it with these arguments".to_owned();
        for found in dangers(&journey.rules.scanner, arguments) {
            let action = found.danger.action(&journey.rules.scanner);
            record.warnings.push(warning(&found));
            let verdict = match action {
                OnDanger::Off | OnDanger::Warn => continue,
                OnDanger::Ask => Verdict::Ask,
                OnDanger::Deny => Verdict::Deny,
            };
            let scanner = format!("scanner.{}", found.danger.as_str());
            if verdict > decision.verdict {
                reason = warning(&found);
                decision = Decision {
                    verdict,
                    because: scanner.into(),
                };
            } else if verdict == decision.verdict && !decision.because.contains(&scanner) {
                // Whoever decides must know of both.
                decision.because = format!("{} and {scanner}", decision.because).into();
            }
        }
        if !record.warnings.is_empty() {
            tracing::warn!(
                tool = %target.entry.tool.id,
                request = journey.request_id,
                "dangerous arguments: {}", record.warnings.join("; ")
            );
        }
        record.verdict = Some(decision.verdict.as_str().to_owned());
        record.rule = Some(decision.because.to_string());
        match decision.verdict {
            Verdict::Deny => Err(denied(target, &decision, reason)),
            _ => Ok(decision),
        }
    }

    /// Asks, or finds that it was answered already; gives the arguments that the approver put in
    /// the place of the call's own.
    async fn approved(
        &self,
        journey: &Journey,
        target: &Target,
        ask: Ask,
        progress: &mut Progress,
    ) -> Result<Option<Arguments>, CallError> {
        let settings = &journey.rules.approvals;
        let cleared = self.parts.approvals.clear(ask, settings).await;
        let record = &mut progress.attempt.record;
        record.approval = match &cleared {
            Ok(Clearance::Ticket(ticket)) => Some(ticket.id.clone()),
            Ok(Clearance::Granted { approval }) => Some(approval.clone()),
            Err(CallError::NeedsApproval { id, .. }) => Some(id.clone()),
            Err(CallError::Denied { approval, .. }) => approval.clone(),
            Err(_) => None,
        };
        let Clearance::Ticket(ticket) = cleared? else {
            return Ok(None);
        };
        let edited = ticket.edited.clone();
        progress.tickets.push(Ticket {
            approval: *ticket,
            used: false,
        });
        let Some(edited) = edited else {
            return Ok(None);
        };
        let edited = Arguments::parse(edited.get())?;
        self.edited(journey, target, &edited, record)?;
        Ok(Some(edited))
    }

    /// Whoever edits arguments answers an `ask`, and cannot lift a `deny`.
    fn edited(
        &self,
        journey: &Journey,
        target: &Target,
        edited: &Arguments,
        record: &mut Record,
    ) -> Result<(), CallError> {
        check(target, edited)?;
        record.arguments = Some(edited.raw().to_owned());
        self.decide(journey, target, edited, record).map(drop)
    }
}

/// A tool whose schema cannot be used takes what its server takes.
fn check(target: &Target, arguments: &Arguments) -> Result<(), CallError> {
    match target.entry.tool.schema() {
        Ok(schema) => Ok(schema.check(arguments.value())?),
        Err(unusable) => {
            tracing::debug!(tool = %target.entry.tool.id, "arguments are not checked: {unusable}");
            Ok(())
        }
    }
}

fn ask(journey: &Journey, target: &Target, arguments: &Arguments, decision: &Decision) -> Ask {
    let id = &target.entry.tool.id;
    let served = journey.rules.servers.get(&id.server);
    let Journey {
        caller,
        call,
        request_id,
        ..
    } = journey;
    Ask {
        tool: id.clone(),
        alias: target.entry.alias.to_string(),
        digest: arguments.digest(),
        arguments: arguments.raw().to_owned(),
        binding: served
            .map(|served| served.binding.clone())
            .unwrap_or_default(),
        rule: decision.because.to_string(),
        from: Asker {
            caller: caller.key().map(|key| key.to_string()),
            session: caller.session().map(ToOwned::to_owned),
            origin: caller.origin.as_str().to_owned(),
            request_id: request_id.clone(),
            run_id: call.request.run.clone(),
        },
        by_client: call.request.can_approve(),
        conversation: call.request.conversation.as_deref().map(recent),
    }
}

/// The conversation, or the end of it if it is long.
fn recent(conversation: &RawValue) -> Box<RawValue> {
    let text = conversation.get();
    if text.len() <= LONGEST_CONVERSATION {
        return conversation.to_owned();
    }
    let start = text.ceil_char_boundary(text.len() - LONGEST_CONVERSATION);
    let end = format!("… {}", &text[start..]);
    serde_json::value::to_raw_value(&end).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn denied(target: &Target, decision: &Decision, reason: String) -> CallError {
    CallError::Denied {
        alias: target.entry.alias.to_string(),
        because: decision.because.to_string(),
        reason,
        approval: None,
    }
}

fn dangers(scanner: &Scanner, arguments: &Arguments) -> Vec<Found> {
    let on = |danger: &Danger| danger.action(scanner) != OnDanger::Off;
    let kinds: Vec<Danger> = Danger::ALL.into_iter().filter(on).collect();
    match kinds.as_slice() {
        [] => Vec::new(),
        kinds => scan(arguments.value(), kinds),
    }
}

fn warning(found: &Found) -> String {
    format!("{} ({})", found.what, found.place)
}

trait Action {
    fn action(self, scanner: &Scanner) -> OnDanger;
}

impl Action for Danger {
    fn action(self, scanner: &Scanner) -> OnDanger {
        match self {
            Self::PathTraversal => scanner.path_traversal,
            Self::Shell => scanner.shell,
            Self::PrivateAddress => scanner.private_address,
            Self::Secret => scanner.secret,
        }
    }
}
