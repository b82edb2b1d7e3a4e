//! Asks the user of an MCP client to approve a call.
//!
//! A legacy client is asked by elicitation while its call waits. A modern client receives the
//! question as a result, with a sealed state that binds the answer: a retry by another caller, or
//! with another tool or other arguments, is rejected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use toolgate_core::config::Approver;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, Object, RpcError};

use super::request::{ClientInput, RequestHandler};
use super::to_raw;
use crate::approval::{
    Approval, ApprovalRequest, ApprovalScope, ApprovalState, Decider, MAX_CLIENT_ARGUMENT_BYTES,
    Ruling,
};
use crate::call::{CallError, Outcome, RequiredApproval, ToolCall};
use crate::store::StoreError;

/// Key of the gateway's question in `inputRequests`.
const INPUT_KEY: &str = "toolgate_approval";
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
        let Some(question) = self.question(&required, &error).await else {
            return if self.wait_with_progress(required.id).await {
                self.gateway().call(&self.caller, call).await.into()
            } else {
                CallReply::Failed(error)
            };
        };
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

    /// Returns the question to the client's user; `None` if the user cannot be asked, may not decide,
    /// or could not be shown all arguments.
    async fn question(&self, required: &RequiredApproval<'_>, error: &CallError) -> Option<Value> {
        if !self.context.can_approve() {
            return None;
        }
        let approval = match self.gateway().approvals().get(required.id).await {
            Ok(approval) => approval?,
            Err(error) => {
                tracing::error!(%error, approval = required.id, "cannot read approval");
                return None;
            }
        };
        let request = &approval.request;
        let may_decide = request.approvers.contains(Approver::Client);
        let is_short = request.arguments.get().len() <= MAX_CLIENT_ARGUMENT_BYTES;
        (may_decide && is_short).then(|| elicitation_params(request, error))
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
                scope: ApprovalScope::Once,
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
            .text(
                "requestState",
                &format!("{}{sealed}", ClientInput::STATE_PREFIX),
            );
        CallReply::InputRequired(to_raw(&result))
    }

    fn seal_state(&self, state: &QuestionState) -> Result<String, SealError> {
        let state = serde_json::to_string(state)?;
        Ok(self.gateway().store().seal(&state)?)
    }

    /// Unseals the state of a client's input, if it is that of an approval.
    fn unseal_state(&self, input: &ClientInput) -> Option<QuestionState> {
        let text = input.unseal(self.gateway().store())?;
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

/// Builds the parameters of `elicitation/create`. They show the arguments that the approval is for,
/// whole; for a script, those of the tool call that needs the approval, not the script itself.
fn elicitation_params(request: &ApprovalRequest, error: &CallError) -> Value {
    let ApprovalRequest { alias, rule, .. } = request;
    let origin = match error {
        CallError::ScriptSuspended(script) => {
            let call = error.required_approval();
            let call = call.and_then(|required| script.pending_call(required.id));
            call.map(|call| format!(" A script calls it at line {}.", call.line))
        }
        _ => None,
    };
    let origin = origin.unwrap_or_default();
    let arguments = show_arguments(&request.arguments);
    json!({
        "mode": "form",
        "message": format!("Run tool `{alias}`? It needs an approval ({rule}).{origin} Arguments: {arguments}"),
        "requestedSchema": {"type": "object", "properties": {}},
    })
}

/// Formats arguments so that nothing in them escapes the eye: without white space between tokens,
/// and with invisible characters as escapes.
fn show_arguments(arguments: &RawValue) -> String {
    let text = arguments.get();
    let mut shown = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for character in text.chars() {
        if !in_string && character.is_ascii_whitespace() {
            continue;
        }
        if character == '"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = character == '\\' && !is_escaped;
        if character.is_ascii() || is_visible(character) {
            shown.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// Returns whether a character outside ASCII takes up visible space and leaves the order of others
/// alone.
fn is_visible(character: char) -> bool {
    let is_hidden = character.is_control()
        || character.is_whitespace()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' | '\u{e000}'..='\u{f8ff}'
            | '\u{f0000}'..);
    !is_hidden
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
