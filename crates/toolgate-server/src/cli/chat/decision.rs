//! Decisions on the calls that a run waits for: by the user, by flags, or by an approver elsewhere.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input::{ChatInput, TypedLine};
use super::stream::{print_now, str_or_empty};
use crate::remote::{RemoteGateway, is_forbidden};

/// Interval at which the state of approvals that others decide is looked up.
const APPROVAL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Decides on calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decider {
    User,
    /// All calls are approved.
    Approve,
    /// All calls are denied.
    Deny,
    /// No user is present, so calls are left pending.
    None,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decided {
    Decisions(Vec<Value>),
    /// Nobody decides.
    Nobody,
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// The answer to a question about one call.
enum CallAnswer {
    Decision(Value),
    Nobody,
    Interrupted,
}

/// Decides on calls, and remembers what the user allowed.
pub(super) struct Decisions {
    pub(super) decider: Decider,
    /// Tools that the user allowed for the rest of the conversation.
    always_allowed: HashSet<String>,
}

impl Decisions {
    pub(super) fn new(decider: Decider) -> Self {
        Self {
            decider,
            always_allowed: HashSet::new(),
        }
    }

    /// Forgets what the user allowed.
    pub(super) fn reset(&mut self) {
        self.always_allowed.clear();
    }

    /// Decides on the calls that a run waits for.
    pub(super) async fn decide(
        &mut self,
        remote: &RemoteGateway,
        input: &mut ChatInput,
        run: &str,
        pending: &[Value],
    ) -> anyhow::Result<Decided> {
        let asks_approver = matches!(self.decider, Decider::User | Decider::Approve);
        if asks_approver && !may_approve(remote, pending).await? {
            return wait_for_approver(remote, run, pending).await;
        }
        let mut decisions = Vec::new();
        for call in pending {
            match self.decide_call(input, call).await? {
                CallAnswer::Decision(decision) => decisions.push(decision),
                CallAnswer::Nobody => return Ok(Decided::Nobody),
                CallAnswer::Interrupted => return Ok(Decided::Interrupted),
            }
        }
        Ok(Decided::Decisions(decisions))
    }

    /// Decides on a call, or asks the user to.
    async fn decide_call(
        &mut self,
        input: &mut ChatInput,
        call: &Value,
    ) -> anyhow::Result<CallAnswer> {
        // The user cannot decide on a call that is not shown.
        let text = |member: &str| {
            call[member]
                .as_str()
                .with_context(|| format!("the gateway sent a pending call without `{member}`"))
        };
        let (name, arguments) = (text("name")?.to_owned(), text("arguments")?);
        match self.decider {
            Decider::Approve => return Ok(CallAnswer::Decision(approve(call))),
            Decider::Deny => return Ok(CallAnswer::Decision(deny(call, None))),
            Decider::None => return Ok(CallAnswer::Nobody),
            Decider::User if self.always_allowed.contains(&name) => {
                return Ok(CallAnswer::Decision(approve(call)));
            }
            Decider::User => {}
        }
        loop {
            print_now(&format!("\n{name} {arguments}\n"));
            let question = "Run it? [y] once, [s] always in this conversation, [e] edit, [n] no, [r] no, with a reason: ";
            let answer = match input.read_line(question, "").await? {
                TypedLine::Text(answer) => answer,
                TypedLine::Interrupt => return Ok(CallAnswer::Interrupted),
                TypedLine::End => return Ok(CallAnswer::Nobody),
            };
            let decision = match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => Some(approve(call)),
                "s" => {
                    self.always_allowed.insert(name.clone());
                    Some(approve(call))
                }
                "e" | "edit" => edit(input, call, arguments).await?,
                "n" | "no" => Some(deny(call, None)),
                "r" => match input.read_line("Reason: ", "").await? {
                    TypedLine::Text(reason) => Some(deny(call, Some(reason.trim()))),
                    TypedLine::Interrupt | TypedLine::End => None,
                },
                _ => None,
            };
            if let Some(decision) = decision {
                return Ok(CallAnswer::Decision(decision));
            }
        }
    }
}

fn approve(call: &Value) -> Value {
    json!({"id": call["id"], "decision": "approve"})
}

fn deny(call: &Value, reason: Option<&str>) -> Value {
    let reason = reason.filter(|reason| !reason.is_empty());
    let reason = reason.unwrap_or("the user denied the call");
    json!({"id": call["id"], "decision": "deny", "reason": reason})
}

/// Lets the user edit the arguments; `None` if they are not valid or the user gave up.
async fn edit(
    input: &mut ChatInput,
    call: &Value,
    arguments: &str,
) -> anyhow::Result<Option<Value>> {
    let TypedLine::Text(edited) = input.read_line("Arguments: ", arguments).await? else {
        return Ok(None);
    };
    let edited = edited.trim();
    if edited.is_empty() {
        return Ok(None);
    }
    // Numbers keep their text.
    let raw: Result<Box<RawValue>, _> = serde_json::from_str(edited);
    match raw {
        Ok(raw) if edited.starts_with('{') => {
            let mut decision = approve(call);
            decision["arguments"] = serde_json::to_value(raw)?;
            Ok(Some(decision))
        }
        _ => {
            print_now("arguments are a JSON object such as {\"path\": \"a.txt\"}\n");
            Ok(None)
        }
    }
}

/// Returns whether the user of this key may decide on the approvals of the calls.
async fn may_approve(remote: &RemoteGateway, pending: &[Value]) -> anyhow::Result<bool> {
    for approval in pending.iter().filter_map(approval_id) {
        let found: anyhow::Result<Value> =
            remote.get(&format!("api/approvals/{approval}"), &[]).await;
        match found {
            Ok(found) => {
                let mut approvers = found["approvers"].as_array().into_iter().flatten();
                if found["state"] == "pending" && !approvers.any(|who| who == "admin") {
                    return Ok(false);
                }
            }
            Err(error) if is_forbidden(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until approvers have decided on all calls, and returns what they decided. Calls that need no
/// approver are approved.
async fn wait_for_approver(
    remote: &RemoteGateway,
    run: &str,
    pending: &[Value],
) -> anyhow::Result<Decided> {
    for call in pending {
        if let Some(approval) = approval_id(call) {
            print_now(&format!(
                "\n[{} {} waits for an approver; approval {approval}]",
                str_or_empty(&call["name"]),
                str_or_empty(&call["arguments"]),
            ));
        }
    }
    print_now("\n");
    loop {
        let details: Value = remote.get(&format!("api/runs/{run}"), &[]).await?;
        let approvals = details["approvals"].as_array();
        let approvals = approvals.context("the gateway does not tell the state of approvals")?;
        let find = |id: &str| approvals.iter().find(|approval| approval["id"] == id);
        let is_open = |call: &Value| {
            let approval = approval_id(call).and_then(find);
            approval.is_some_and(|approval| approval["state"] == "pending")
        };
        if pending.iter().any(is_open) {
            tokio::time::sleep(APPROVAL_POLL_INTERVAL).await;
            continue;
        }
        let decide = |call: &Value| {
            let approval = approval_id(call).and_then(find);
            let approval = approval.unwrap_or(&Value::Null);
            match approval["state"].as_str() {
                Some("denied") => deny(
                    call,
                    Some(
                        approval["reason"]
                            .as_str()
                            .unwrap_or("an approver denied the call"),
                    ),
                ),
                Some("expired") => deny(call, Some("nobody decided on the call in time")),
                _ => approve(call),
            }
        };
        return Ok(Decided::Decisions(pending.iter().map(decide).collect()));
    }
}

fn approval_id(call: &Value) -> Option<&str> {
    call["approval_id"].as_str()
}
