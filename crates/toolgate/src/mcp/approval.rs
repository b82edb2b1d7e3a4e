//! Asks the user of an MCP client to approve a call.
//!
//! A legacy client is asked by elicitation while its call waits. A modern client receives the
//! question as a result, with a sealed state that binds the answer: a retry by another caller, or
//! with another tool or other arguments, is rejected.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_core::json::may_contain;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, Object, RpcResult};
use toolgate_mcp::serve::{empty_object, rpc_error};

use super::{Era, McpRequestContext, McpServer};
use crate::approval::{Approval, ApprovalScope, ApprovalState, Decider, Ruling};
use crate::call::{Arguments, CallError, Outcome, RequiredApproval, ToolCall};

/// Characters of the arguments shown in a question.
const MAX_SHOWN_ARGUMENT_CHARS: usize = 2000;
/// Key of the gateway's question in `inputRequests`.
const INPUT_KEY: &str = "toolgate_approval";
/// Prefix of the gateway's own states; the states of servers are forwarded to them.
const STATE_PREFIX: &str = "toolgate.";
/// Interval between progress notifications while a call waits for its approval.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The call that the client was asked about, sealed into the state that it sends back.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct QuestionState {
    approval: String,
    caller: Option<String>,
    tool: String,
    digest: String,
}

/// The user's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Accept,
    Decline,
    /// Neither accepted nor declined: the approval stays pending.
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

impl McpServer {
    /// Calls a tool, asking the client's user for an approval where that is needed and possible.
    pub(super) async fn call_with_approval(
        &self,
        context: &McpRequestContext,
        call: ToolCall,
        params: Option<&RawValue>,
    ) -> Result<Result<Outcome, CallError>, RpcResult> {
        let input: Input<'_> = params
            .filter(|params| may_contain(params.get(), "requestState"))
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        // A state with the prefix that cannot be unsealed may belong to an upstream Toolgate.
        let state = input.request_state.as_deref();
        if let Some(state) = state.and_then(|state| self.unseal_state(state)) {
            let reply = find_reply(input.input_responses);
            return self.resume_with_reply(context, call, &state, reply).await;
        }
        let outcome = self.gateway.call(&context.caller, call.clone()).await;
        let required = outcome
            .as_ref()
            .err()
            .and_then(CallError::required_approval);
        let Some(RequiredApproval {
            id,
            alias,
            because,
            expires_at,
        }) = required
        else {
            return Ok(outcome);
        };
        if !context.request.can_approve() || !self.gateway.approvals().can_clients_approve() {
            return Ok(if self.wait_with_progress(context, id).await {
                self.gateway.call(&context.caller, call).await
            } else {
                outcome
            });
        }
        let question = elicitation_params((alias, because), id, &call, &outcome);
        match context.era {
            Era::Modern => Err(Ok(self.input_required(context, &call, id, &question))),
            Era::Legacy => {
                let Some(handler) = &context.request.client_handler else {
                    return Ok(outcome);
                };
                // An expired approval leaves no time to wait.
                let time_left = expires_at
                    .duration_since(SystemTime::now())
                    .unwrap_or_default();
                let params = to_raw_value(&question).unwrap_or_else(|_| empty_object());
                let is_decided = tokio::select! {
                    answer = handler.on_request("elicitation/create", Some(&params)) => {
                        let reply = answer.map_or(Reply::Cancel, |answer| parse_reply(&answer));
                        self.decide(id, reply).await
                    }
                    // Another approver may decide first, and the approval may expire.
                    decided = self.wait_for_decision(id, time_left) => decided,
                };
                if !is_decided {
                    return Ok(outcome);
                }
                let next = self.gateway.call(&context.caller, call.clone()).await;
                if needs_another_approval(&next, id) {
                    return Box::pin(self.call_with_approval(context, call, None)).await;
                }
                Ok(next)
            }
        }
    }

    /// Waits for a decision for up to the configured time, reporting progress to the client.
    async fn wait_with_progress(&self, context: &McpRequestContext, approval: &str) -> bool {
        let wait = self.gateway.approvals().wait_time();
        if wait.is_zero() {
            return false;
        }
        let decided = self.wait_for_decision(approval, wait);
        tokio::pin!(decided);
        let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
        let mut count = 0_u32;
        loop {
            tokio::select! {
                decided = &mut decided => return decided,
                _ = ticks.tick() => {
                    count += 1;
                    if let Some(handler) = &context.request.client_handler {
                        let params = waiting_progress(approval, count);
                        handler.on_notification("notifications/progress", params.as_deref());
                    }
                }
            }
        }
    }

    /// Waits for a decision on an approval; returns `false` on timeout.
    async fn wait_for_decision(&self, approval: &str, within: Duration) -> bool {
        // Subscribe before the first query, so that no decision is missed in between.
        let mut events = self.gateway.approvals().subscribe();
        let decided = async {
            loop {
                let found = self.gateway.approvals().get(approval).await.ok().flatten();
                if found.is_none_or(|found| found.state != ApprovalState::Pending) {
                    return;
                }
                wait_for_change(approval, &mut events).await;
            }
        };
        tokio::time::timeout(within, decided).await.is_ok()
    }

    /// Handles a modern client's retry, which carries the user's reply.
    async fn resume_with_reply(
        &self,
        context: &McpRequestContext,
        call: ToolCall,
        state: &QuestionState,
        reply: Reply,
    ) -> Result<Result<Outcome, CallError>, RpcResult> {
        if *state != self.question_state(context, &call, &state.approval) {
            let message = "`requestState` belongs to another call";
            return Err(Err(rpc_error(INVALID_PARAMS, message)));
        }
        self.decide(&state.approval, reply).await;
        let retry = ToolCall {
            request: context.without_input(),
            ..call.clone()
        };
        let next = self.gateway.call(&context.caller, retry).await;
        if needs_another_approval(&next, &state.approval) {
            return Box::pin(self.call_with_approval(context, call, None)).await;
        }
        Ok(next)
    }

    /// Applies the user's reply. Returns whether the call can be repeated.
    async fn decide(&self, approval: &str, reply: Reply) -> bool {
        let ruling = match reply {
            Reply::Accept => Ruling::Approve {
                scope: ApprovalScope::Once,
                arguments: None,
            },
            Reply::Decline => Ruling::Deny {
                reason: Some("the user declined it in the client".to_owned()),
            },
            Reply::Cancel => return false,
        };
        let decided = self
            .gateway
            .approvals()
            .decide(approval, ruling, &Decider::Client)
            .await;
        if let Err(error) = decided {
            tracing::debug!(%error, approval, "rejected the client's decision");
        }
        true
    }

    fn input_required(
        &self,
        context: &McpRequestContext,
        call: &ToolCall,
        approval: &str,
        question: &Value,
    ) -> Box<RawValue> {
        let state = self.question_state(context, call, approval);
        let sealed = serde_json::to_string(&state)
            .ok()
            .and_then(|state| self.gateway.store().seal(&state).ok())
            .unwrap_or_default();
        let requests = json!({INPUT_KEY: {"method": "elicitation/create", "params": question}});
        let result = Object::new()
            .text("resultType", "input_required")
            .raw("inputRequests", &requests.to_string())
            .text("requestState", &format!("{STATE_PREFIX}{sealed}"));
        super::to_raw(&result)
    }

    /// Unseals a state; `None` if it was not sealed by this gateway.
    fn unseal_state(&self, state: &str) -> Option<QuestionState> {
        let text = self
            .gateway
            .store()
            .unseal(state.strip_prefix(STATE_PREFIX)?)?;
        serde_json::from_str(&text).ok()
    }

    fn question_state(
        &self,
        context: &McpRequestContext,
        call: &ToolCall,
        approval: &str,
    ) -> QuestionState {
        QuestionState {
            approval: approval.to_owned(),
            caller: context.caller.key().map(|key| key.to_string()),
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

/// Returns whether a resumed script is suspended again, waiting for a different approval.
fn needs_another_approval(outcome: &Result<Outcome, CallError>, approval: &str) -> bool {
    let Err(error @ CallError::ScriptSuspended(_)) = outcome else {
        return false;
    };
    error
        .required_approval()
        .is_some_and(|needed| needed.id != approval)
}

/// Waits for an event about an approval, or until such an event may have been missed.
async fn wait_for_change(approval: &str, events: &mut broadcast::Receiver<Arc<Approval>>) {
    loop {
        match events.recv().await {
            Ok(changed) if changed.id == approval => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Builds a progress notification for a waiting call. The notifier replaces the token. Progress
/// must increase monotonically, so the values stay tiny to leave room for the tool's own progress.
fn waiting_progress(approval: &str, count: u32) -> Option<Box<RawValue>> {
    let message = format!("waiting for approval {approval}");
    let progress = f64::from(count) * 1e-6;
    let params = json!({"progressToken": 0, "progress": progress, "message": message});
    to_raw_value(&params).ok()
}

/// Builds the parameters of `elicitation/create`. For a script, they show the tool call that needs
/// the approval, not the script itself.
fn elicitation_params(
    (alias, because): (&str, &str),
    approval: &str,
    call: &ToolCall,
    outcome: &Result<Outcome, CallError>,
) -> Value {
    let (arguments, origin) = match outcome {
        Err(CallError::ScriptSuspended(script)) => {
            let call = script.pending_call(approval);
            let origin = call.map(|call| format!(" A script calls it at line {}.", call.line));
            let arguments = call.map(|call| call.arguments.get());
            (arguments, origin.unwrap_or_default())
        }
        _ => {
            let arguments = call.arguments.as_ref().ok();
            let arguments = arguments.map(|arguments| arguments.raw().get());
            (arguments, String::new())
        }
    };
    let arguments = arguments.unwrap_or("{}");
    let shown: String = arguments.chars().take(MAX_SHOWN_ARGUMENT_CHARS).collect();
    let more = if shown.len() < arguments.len() {
        format!("… ({} bytes in total)", arguments.len())
    } else {
        String::new()
    };
    json!({
        "mode": "form",
        "message": format!("Run tool `{alias}`? It needs an approval ({because}).{origin} Arguments: {shown}{more}"),
        "requestedSchema": {"type": "object", "properties": {}},
    })
}

/// Finds the reply to the gateway's question among a modern client's responses.
fn find_reply(responses: Option<&RawValue>) -> Reply {
    let responses: std::collections::HashMap<String, &RawValue> = responses
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    responses
        .get(INPUT_KEY)
        .map_or(Reply::Cancel, |raw| parse_reply(raw))
}

fn parse_reply(answer: &RawValue) -> Reply {
    #[derive(Deserialize)]
    struct ElicitResult {
        action: String,
    }
    match serde_json::from_str::<ElicitResult>(answer.get()) {
        Ok(ElicitResult { action }) if action == "accept" => Reply::Accept,
        Ok(ElicitResult { action }) if action == "decline" => Reply::Decline,
        _ => Reply::Cancel,
    }
}
