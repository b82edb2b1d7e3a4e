//! A call that needs an approval, put before the person at the client that made it.
//!
//! A client of the old era is asked while its call waits. A modern one gets the question as a
//! result, with a sealed state that holds what was asked: a retry of another call, by another
//! caller or with other arguments is refused.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_core::json::may_say;
use toolgate_mcp::jsonrpc::{Answer, INVALID_PARAMS, Object};
use toolgate_mcp::serve::{empty_object, rpc};

use super::{Asker, Door, Era};
use crate::approval::{ApprovalScope, ApprovalState, Decider, Ruling};
use crate::call::{Arguments, CallError, Needed, Outcome, ToolCall};
use crate::event::Event;

/// Characters of arguments in a question.
const LONGEST_SHOWN: usize = 2000;
/// The key of our question among those that a modern client is asked.
const KEY: &str = "toolgate_approval";
/// What our states begin with; those of servers are passed on.
const PREFIX: &str = "toolgate.";
/// How often a client hears that its call still waits.
const NOTICE: Duration = Duration::from_secs(10);

/// What was asked, sealed into the state that the client sends back.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct State {
    approval: String,
    caller: Option<String>,
    tool: String,
    digest: String,
}

/// What a person answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Accept,
    Decline,
    /// Neither: the approval stays open.
    Cancel,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Input<'a> {
    #[serde(borrow)]
    request_state: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
}

impl Door {
    /// Calls a tool, asking the person at the client where that is needed and possible.
    pub(super) async fn call_asking(
        &self,
        asker: &Asker,
        call: ToolCall,
        params: Option<&RawValue>,
    ) -> Result<Result<Outcome, CallError>, Answer> {
        let input: Input<'_> = params
            .filter(|params| may_say(params.get(), "requestState"))
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        // One that was not sealed here may be that of another gateway, behind this one.
        let state = input.request_state.as_deref();
        if let Some(state) = state.and_then(|state| self.unsealed(state)) {
            let reply = reply(input.input_responses);
            return self.answered(asker, call, &state, reply).await;
        }
        let outcome = self.gateway.call(&asker.caller, call.clone()).await;
        let needed = outcome.as_ref().err().and_then(CallError::needed);
        let Some(Needed {
            id,
            alias,
            because,
            expires_at,
        }) = needed
        else {
            return Ok(outcome);
        };
        if !asker.request.can_approve() || !self.gateway.asks_clients() {
            return Ok(match self.is_decided_in_time(asker, id).await {
                true => self.gateway.call(&asker.caller, call).await,
                false => outcome,
            });
        }
        let question = question((alias, because), id, &call, &outcome);
        match asker.era {
            Era::Modern => Err(Ok(self.input_required(asker, &call, id, &question))),
            Era::Legacy => {
                let Some(ear) = &asker.request.ear else {
                    return Ok(outcome);
                };
                let left = expires_at.duration_since(SystemTime::now());
                let asked = to_raw_value(&question).unwrap_or_else(|_| empty_object());
                let again = tokio::select! {
                    answer = ear.asked("elicitation/create", Some(&asked)) => {
                        let reply = answer.map_or(Reply::Cancel, |answer| action(&answer));
                        self.decide(id, reply).await
                    }
                    // Somebody else may be quicker, and nobody is asked for ever.
                    decided = self.is_decided(id, left.unwrap_or_default()) => decided,
                };
                match again {
                    true => {
                        let next = self.gateway.call(&asker.caller, call.clone()).await;
                        match waits_for_another(&next, id) {
                            true => Box::pin(self.call_asking(asker, call, None)).await,
                            false => Ok(next),
                        }
                    }
                    false => Ok(outcome),
                }
            }
        }
    }

    /// Waits as long as the configuration lets a call wait for its approval, and says so meanwhile.
    async fn is_decided_in_time(&self, asker: &Asker, approval: &str) -> bool {
        let wait = self.gateway.approval_wait();
        if wait.is_zero() {
            return false;
        }
        let decided = self.is_decided(approval, wait);
        tokio::pin!(decided);
        let mut notices = tokio::time::interval(NOTICE);
        let mut told = 0_u32;
        loop {
            tokio::select! {
                decided = &mut decided => return decided,
                _ = notices.tick() => {
                    told += 1;
                    if let Some(ear) = &asker.request.ear {
                        ear.hear("notifications/progress", waiting(approval, told).as_deref());
                    }
                }
            }
        }
    }

    /// Waits for somebody to decide about an approval; false if nobody does in time.
    async fn is_decided(&self, approval: &str, within: Duration) -> bool {
        // Heard from before the first look on, so that nothing is missed between the two.
        let mut events = self.gateway.events();
        let decided = async {
            loop {
                let found = self.gateway.approval(approval).await.ok().flatten();
                if found.is_none_or(|found| found.state != ApprovalState::Pending) {
                    return;
                }
                news_of(approval, &mut events).await;
            }
        };
        tokio::time::timeout(within, decided).await.is_ok()
    }

    /// A modern client's second try, with the person's answer.
    async fn answered(
        &self,
        asker: &Asker,
        call: ToolCall,
        state: &State,
        reply: Reply,
    ) -> Result<Result<Outcome, CallError>, Answer> {
        if *state != self.state(asker, &call, &state.approval) {
            let told = "`requestState` belongs to another call";
            return Err(Err(rpc(INVALID_PARAMS, told)));
        }
        self.decide(&state.approval, reply).await;
        let again = ToolCall {
            request: asker.without_input(),
            ..call.clone()
        };
        let next = self.gateway.call(&asker.caller, again).await;
        match waits_for_another(&next, &state.approval) {
            true => Box::pin(self.call_asking(asker, call, None)).await,
            false => Ok(next),
        }
    }

    /// Whether the call may be made again.
    async fn decide(&self, approval: &str, reply: Reply) -> bool {
        let ruling = match reply {
            Reply::Accept => Ruling::Approve {
                scope: ApprovalScope::Once,
                arguments: None,
            },
            Reply::Decline => Ruling::Deny {
                reason: Some("the person at the client declined".to_owned()),
            },
            Reply::Cancel => return false,
        };
        let decided = self
            .gateway
            .decide(approval, ruling, &Decider::Client)
            .await;
        if let Err(error) = decided {
            tracing::debug!(%error, approval, "the client's decision was not taken");
        }
        true
    }

    fn input_required(
        &self,
        asker: &Asker,
        call: &ToolCall,
        approval: &str,
        question: &Value,
    ) -> Box<RawValue> {
        let state = self.state(asker, call, approval);
        let sealed = serde_json::to_string(&state)
            .ok()
            .and_then(|state| self.gateway.store().sealed(&state).ok())
            .unwrap_or_default();
        let asked = json!({KEY: {"method": "elicitation/create", "params": question}});
        let result = Object::new()
            .text("resultType", "input_required")
            .raw("inputRequests", &asked.to_string())
            .text("requestState", &format!("{PREFIX}{sealed}"));
        super::raw(&result)
    }

    /// What was asked here, if this is what was sent along with it.
    fn unsealed(&self, state: &str) -> Option<State> {
        let text = self.gateway.store().unseal(state.strip_prefix(PREFIX)?)?;
        serde_json::from_str(&text).ok()
    }

    fn state(&self, asker: &Asker, call: &ToolCall, approval: &str) -> State {
        State {
            approval: approval.to_owned(),
            caller: asker.caller.key().map(|key| key.to_string()),
            tool: match &call.server {
                Some(server) => format!("{server}.{}", call.name),
                None => call.name.clone(),
            },
            digest: call
                .arguments
                .as_ref()
                .map(Arguments::digest)
                .unwrap_or_default(),
        }
    }
}

/// Whether a script, gone on with, waits once more.
fn waits_for_another(outcome: &Result<Outcome, CallError>, approval: &str) -> bool {
    let Err(error @ CallError::ScriptWaits(_)) = outcome else {
        return false;
    };
    error.needed().is_some_and(|needed| needed.id != approval)
}

/// Waits until something is heard of an approval, or may have been missed.
async fn news_of(approval: &str, events: &mut broadcast::Receiver<Event>) {
    loop {
        match events.recv().await {
            Ok(Event::Approval(told)) if told.id == approval => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// A notice that a call still waits; its token is put in by whoever passes it on. Progress must
/// only ever grow, so it leaves room for that of the tool itself.
fn waiting(approval: &str, told: u32) -> Option<Box<RawValue>> {
    let message = format!("waiting for approval {approval}");
    let progress = f64::from(told) * 1e-6;
    let notice = json!({"progressToken": 0, "progress": progress, "message": message});
    to_raw_value(&notice).ok()
}

/// The question, with the tool and its arguments: those of a script's call, not of the script.
fn question(
    (alias, because): (&str, &str),
    approval: &str,
    call: &ToolCall,
    outcome: &Result<Outcome, CallError>,
) -> Value {
    let (arguments, place) = match outcome {
        Err(CallError::ScriptWaits(waits)) => {
            let call = waits.call(approval);
            let place = call.map(|call| format!(" A script calls it at line {}.", call.line));
            let arguments = call.map(|call| call.arguments.get());
            (arguments, place.unwrap_or_default())
        }
        _ => {
            let arguments = call.arguments.as_ref().ok();
            let arguments = arguments.map(|arguments| arguments.raw().get());
            (arguments, String::new())
        }
    };
    let arguments = arguments.unwrap_or("{}");
    let shown: String = arguments.chars().take(LONGEST_SHOWN).collect();
    let more = match shown.len() < arguments.len() {
        true => format!("… ({} bytes in all)", arguments.len()),
        false => String::new(),
    };
    json!({
        "mode": "form",
        "message": format!("Run tool `{alias}`? It needs an approval ({because}).{place} Arguments: {shown}{more}"),
        "requestedSchema": {"type": "object", "properties": {}},
    })
}

/// The person's answer among those of a modern client.
fn reply(responses: Option<&RawValue>) -> Reply {
    let responses: std::collections::HashMap<String, &RawValue> = responses
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    responses.get(KEY).map_or(Reply::Cancel, |raw| action(raw))
}

fn action(answer: &RawValue) -> Reply {
    #[derive(Deserialize)]
    struct Elicited {
        action: String,
    }
    match serde_json::from_str::<Elicited>(answer.get()) {
        Ok(Elicited { action }) if action == "accept" => Reply::Accept,
        Ok(Elicited { action }) if action == "decline" => Reply::Decline,
        _ => Reply::Cancel,
    }
}
