//! Asks the user of an MCP client to approve a call.
//!
//! A legacy client is asked by elicitation while its call waits. A modern client receives the
//! question as a result, with a sealed state that binds the answer: a retry by another caller, or
//! with another tool or other arguments, is rejected.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, Object, RpcError};

use super::request::{ClientInput, RequestHandler};
use super::to_raw;
use crate::approval::{Approval, ApprovalScope, ApprovalState, Decider, Ruling};
use crate::call::{CallError, Outcome, RequiredApproval, ToolCall};
use crate::store::StoreError;

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
enum UserReply {
    Accept,
    Decline,
    /// Neither accepted nor declined: the approval stays pending.
    Cancel,
}

/// Outcome of a call, as the client receives it.
#[derive(Debug)]
pub(super) enum CallReply {
    /// The call ran.
    Finished(Outcome),
    /// The call did not run or has no result.
    Failed(CallError),
    /// The client's user must decide first; the result carries the question.
    InputRequired(Box<RawValue>),
    /// The request itself was invalid, or could not be processed.
    Rejected(RpcError),
}

/// Error returned when the state of a question cannot be sealed.
#[derive(Debug, thiserror::Error)]
enum SealError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Result<Outcome, CallError>> for CallReply {
    fn from(result: Result<Outcome, CallError>) -> Self {
        match result {
            Ok(outcome) => Self::Finished(outcome),
            Err(error) => Self::Failed(error),
        }
    }
}

impl RequestHandler {
    /// Calls a tool, asking the client's user for an approval where that is needed and possible.
    pub(super) async fn call_with_approval(&self, call: ToolCall) -> CallReply {
        if let Some(input) = &self.input
            && let Some(state) = self.unseal_state(input)
        {
            let reply = find_reply(input.responses.as_deref());
            return Box::pin(self.resume_with_reply(call, state, reply)).await;
        }
        self.call_or_ask(call).await
    }

    async fn call_or_ask(&self, call: ToolCall) -> CallReply {
        match self.gateway().call(&self.caller, call.clone()).await {
            Err(error) if error.required_approval().is_some() => {
                // The call is made again once it is approved.
                Box::pin(self.ask_for_approval(call.without_admission(), error)).await
            }
            result => result.into(),
        }
    }

    /// Obtains the approval that a call needs. Returns the call's error if there is none.
    async fn ask_for_approval(&self, call: ToolCall, error: CallError) -> CallReply {
        let Some(required) = error.required_approval() else {
            return CallReply::Failed(error);
        };
        if !self.context.can_approve() || !self.gateway().approvals().can_clients_approve() {
            return if self.wait_with_progress(required.id).await {
                self.gateway().call(&self.caller, call).await.into()
            } else {
                CallReply::Failed(error)
            };
        }
        let question = elicitation_params(&required, &call, &error);
        if self.era == Era::Modern {
            return self.input_required(&call, required.id, &question);
        }
        if !self.ask_legacy_client(&required, &question).await {
            return CallReply::Failed(error);
        }
        let next = self.gateway().call(&self.caller, call.clone()).await;
        if needs_another_approval(&next, required.id) {
            return Box::pin(self.call_or_ask(call)).await;
        }
        next.into()
    }

    /// Asks a legacy client's user. Returns whether the call can be repeated.
    async fn ask_legacy_client(&self, required: &RequiredApproval<'_>, question: &Value) -> bool {
        let (Some(handler), Ok(params)) = (&self.context.client_handler, to_raw_value(question))
        else {
            return false;
        };
        // An expired approval leaves no time to wait.
        let time_left = required
            .expires_at
            .duration_since(SystemTime::now())
            .unwrap_or(Duration::ZERO);
        tokio::select! {
            answer = handler.on_request("elicitation/create", Some(&params)) => {
                let reply = answer.map_or(UserReply::Cancel, |answer| parse_reply(&answer));
                self.decide(required.id, reply).await
            }
            // Another approver may decide first, and the approval may expire.
            decided = self.wait_for_decision(required.id, time_left) => decided,
        }
    }

    /// Waits for a decision for up to the configured time, reporting progress to the client.
    async fn wait_with_progress(&self, approval: &str) -> bool {
        let wait = self.gateway().approvals().wait_time();
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
                    if let Some(handler) = &self.context.client_handler {
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
        let mut events = self.gateway().approvals().subscribe();
        let decided = async {
            loop {
                let found = self
                    .gateway()
                    .approvals()
                    .get(approval)
                    .await
                    .ok()
                    .flatten();
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
        call: ToolCall,
        state: QuestionState,
        reply: UserReply,
    ) -> CallReply {
        if state != self.question_state(&call, &state.approval) {
            let message = "`requestState` belongs to another call";
            return CallReply::Rejected(RpcError::new(INVALID_PARAMS, message));
        }
        self.decide(&state.approval, reply).await;
        let retry = ToolCall {
            request: self.context_without_input(),
            ..call.clone()
        };
        let next = self.gateway().call(&self.caller, retry).await;
        if needs_another_approval(&next, &state.approval) {
            return self.call_or_ask(call).await;
        }
        next.into()
    }

    /// Applies the user's reply. Returns whether the call can be repeated.
    async fn decide(&self, approval: &str, reply: UserReply) -> bool {
        let ruling = match reply {
            UserReply::Accept => Ruling::Approve {
                scope: ApprovalScope::Once,
                arguments: None,
            },
            UserReply::Decline => Ruling::Deny {
                reason: Some("the user declined it in the client".to_owned()),
            },
            UserReply::Cancel => return false,
        };
        let decided = self
            .gateway()
            .approvals()
            .decide(approval, ruling, &Decider::Client)
            .await;
        if let Err(error) = decided {
            tracing::debug!(%error, approval, "rejected the client's decision");
        }
        true
    }

    /// Asks a modern client's user through a result.
    fn input_required(&self, call: &ToolCall, approval: &str, question: &Value) -> CallReply {
        let sealed = match self.seal_state(&self.question_state(call, approval)) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::error!(%error, approval, "cannot seal the state of an approval question");
                let message = "the gateway could not ask for the approval; try again";
                return CallReply::Rejected(RpcError::new(INTERNAL_ERROR, message));
            }
        };
        let requests = json!({INPUT_KEY: {"method": "elicitation/create", "params": question}});
        let result = Object::new()
            .text("resultType", "input_required")
            .raw("inputRequests", &requests.to_string())
            .text("requestState", &format!("{STATE_PREFIX}{sealed}"));
        CallReply::InputRequired(to_raw(&result))
    }

    fn seal_state(&self, state: &QuestionState) -> Result<String, SealError> {
        let state = serde_json::to_string(state)?;
        Ok(self.gateway().store().seal(&state)?)
    }

    /// Unseals the state of a client's input; `None` if this gateway did not seal it. A state with
    /// the prefix that cannot be unsealed may belong to an upstream Toolgate.
    fn unseal_state(&self, input: &ClientInput) -> Option<QuestionState> {
        let state: Cow<'_, str> = serde_json::from_str(input.state.as_deref()?.get()).ok()?;
        let sealed = state.strip_prefix(STATE_PREFIX)?;
        let text = self.gateway().store().unseal(sealed)?;
        serde_json::from_str(&text).ok()
    }

    fn question_state(&self, call: &ToolCall, approval: &str) -> QuestionState {
        QuestionState {
            approval: approval.to_owned(),
            caller: self.caller.key().map(|key| key.to_string()),
            tool: match &call.server {
                Some(server) => format!("{server}.{}", call.name),
                None => call.name.clone(),
            },
            // Invalid arguments match no question: such calls fail before they need an approval.
            digest: match &call.arguments {
                Ok(arguments) => arguments.digest(),
                Err(_) => String::new(),
            },
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
    required: &RequiredApproval<'_>,
    call: &ToolCall,
    error: &CallError,
) -> Value {
    let RequiredApproval {
        id, alias, because, ..
    } = required;
    let (arguments, origin) = match error {
        CallError::ScriptSuspended(script) => {
            let call = script.pending_call(id);
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
fn find_reply(responses: Option<&RawValue>) -> UserReply {
    let responses = responses
        .and_then(|raw| serde_json::from_str::<HashMap<String, &RawValue>>(raw.get()).ok());
    let reply = responses.and_then(|responses| responses.get(INPUT_KEY).copied());
    reply.map_or(UserReply::Cancel, parse_reply)
}

fn parse_reply(answer: &RawValue) -> UserReply {
    #[derive(Deserialize)]
    struct ElicitResult {
        action: String,
    }
    match serde_json::from_str::<ElicitResult>(answer.get()) {
        Ok(ElicitResult { action }) if action == "accept" => UserReply::Accept,
        Ok(ElicitResult { action }) if action == "decline" => UserReply::Decline,
        _ => UserReply::Cancel,
    }
}
