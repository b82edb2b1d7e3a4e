//! The response of a run that is not streamed, and the `toolgate` object that reports on any run.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::plural::count;
use toolgate_llm::event::{FinishReason, ProviderError};
use toolgate_llm::turn::{ModelTurn, TurnItem};
use toolgate_llm::{RequestBody, WireFormat as _};

use super::turn::TurnError;
use super::{AgentRun, RunEnd, RunState};
use crate::models::{IssuedResponse, ModelError, ModelResponse, ResponseBody};

/// Reason why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStopReason {
    Done,
    NeedsApproval,
    CallerTool,
    MaxDepth,
    /// The named limit was reached.
    Budget(&'static str),
    LoopGuard,
    Error,
    /// The run was cut off in the middle of a step and left in this state.
    Interrupted(RunState),
}

impl RunStopReason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NeedsApproval => "needs_approval",
            Self::CallerTool => "own_tool",
            Self::MaxDepth => "max_agent_depth",
            Self::Budget(_) => "budget",
            Self::LoopGuard => "loop_guard",
            Self::Interrupted(RunState::Cancelled) => "cancelled",
            Self::Error | Self::Interrupted(_) => "error",
        }
    }
}

impl AgentRun {
    /// Returns the finish reason of an answer that summarizes executed calls.
    pub(super) fn summary_finish_reason(&self, end: &RunEnd) -> FinishReason {
        let has_caller_tool = end.pending.iter().any(|pending| pending.is_caller_tool);
        match end.stop {
            // SDKs run the caller's own tools only if the reason says so.
            _ if has_caller_tool => FinishReason::ToolCalls,
            RunStopReason::CallerTool => FinishReason::ToolCalls,
            RunStopReason::MaxDepth | RunStopReason::LoopGuard => {
                self.last_turn().finish.unwrap_or(FinishReason::Stop)
            }
            _ => FinishReason::Stop,
        }
    }

    /// Counts and logs the end of the run.
    pub(super) fn report_end(&self, end: &RunEnd) {
        let stop_reason = end.stop.as_str();
        self.runs.count_end(stop_reason);
        let error = end.error.as_ref().map(|error| match error {
            TurnError::Status { failure, .. } => failure.message.clone(),
            TurnError::Error(error) => error.to_string(),
        });
        tracing::info!(
            run = self.id,
            stop_reason,
            caller = self.record.caller,
            model = self.record.model,
            turns = self.turns.len(),
            calls = self.executed.len(),
            pending = end.pending.len(),
            input_tokens = self.usage.input,
            output_tokens = self.usage.output,
            ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            error,
            "run ended"
        );
    }

    /// Builds the response of a run that was not streamed.
    pub(super) async fn build_response(&self, end: RunEnd) -> Result<ModelResponse, ModelError> {
        let note = self.run_note(&end);
        if let Some(error) = end.error {
            return self.error_response(error, &note);
        }
        let dialect = self.model_call.request.dialect;
        let last = self.last_output.as_ref();
        let raw = last.and_then(|output| output.raw.as_ref());
        let body = match raw.filter(|_| !self.needs_summary(&end)) {
            Some(raw) => raw.clone(),
            None => self.encode_response(&end).await,
        };
        let body = match RequestBody::parse(body) {
            Ok(body) => body,
            // Provider responses may violate the limits for request bodies; in that case they are encoded again.
            Err(_) => RequestBody::parse(self.encode_response(&end).await)?,
        };
        let usage = dialect.encode_usage(&self.usage).to_string();
        let mut edit = body.edit().set("toolgate", &note.to_string());
        if self.turn_count > 1 {
            edit = edit.set("usage", &usage);
        }
        let mut headers = last
            .map(|output| output.headers.clone())
            .unwrap_or_default();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        set_run_id(&mut headers, &self.id);
        Ok(ModelResponse {
            status: StatusCode::OK,
            headers,
            body: ResponseBody::Whole(edit.finish()),
        })
    }

    /// Encodes the final turn as a response and stores it for later reference.
    async fn encode_response(&self, end: &RunEnd) -> Bytes {
        let dialect = self.model_call.request.dialect;
        let mut head = self.model_call.response_head();
        head.id = dialect.new_response_id();
        let answer = dialect.encode_response(&head, &self.final_turn(end));
        self.store_response(&head.id, &answer).await;
        Bytes::from(answer)
    }

    /// Stores a response so that a Responses API caller can refer to it by the gateway's id.
    pub(super) async fn store_response(&self, id: &str, answer: &str) {
        let Some(last) = &self.last_output else {
            return;
        };
        if self.model_call.request.dialect == Dialect::Responses {
            let response = IssuedResponse {
                id,
                answer,
                provider_dialect: last.provider_dialect,
                provider_id: &last.turn.id,
            };
            let models = self.runs.models();
            models.store_response(&self.model_call, response).await;
        }
    }

    /// Returns whether the text must summarize executed calls because other calls are still open.
    pub(super) fn needs_summary(&self, end: &RunEnd) -> bool {
        let has_open_calls = match end.stop {
            RunStopReason::NeedsApproval
            | RunStopReason::CallerTool
            | RunStopReason::MaxDepth
            | RunStopReason::LoopGuard
            | RunStopReason::Budget(_) => true,
            RunStopReason::Done | RunStopReason::Error | RunStopReason::Interrupted(_) => false,
        };
        has_open_calls && !self.executed.is_empty()
    }

    /// Returns the last turn as sent to the caller.
    pub(super) fn final_turn(&self, end: &RunEnd) -> ModelTurn {
        let mut turn = self.last_turn();
        turn.usage = Some(self.usage);
        if self.needs_summary(end) {
            let model_text = turn.text();
            let summary = self.executed_summary(end);
            let text = if model_text.is_empty() {
                summary
            } else {
                format!("{model_text}\n\n{summary}")
            };
            let keeps_reasoning = end.answers_with_last_turn();
            turn.items
                .retain(|item| keeps_reasoning || !is_reasoning_or_raw(item));
            turn.items = replace_text_and_calls(turn.items, text, end);
            turn.finish = Some(self.summary_finish_reason(end));
        }
        turn
    }

    /// Summarizes the executed calls in the wording of Bifrost's documentation, which clients may parse.
    pub(super) fn executed_summary(&self, end: &RunEnd) -> String {
        let mut results = Map::new();
        for executed in &self.executed {
            let name = &executed.call.name;
            let mut key = name.clone();
            let mut count = 1;
            while results.contains_key(&key) {
                count += 1;
                key = format!("{name}#{count}");
            }
            results.insert(key, executed.text().into());
        }
        let results = Value::Object(results);
        let explanation = self.limit_explanation(end.stop);
        let next = explanation.unwrap_or_else(|| "Now I shall call these tools next...".to_owned());
        format!("The Output from allowed tools calls is - {results}\n\n{next}")
    }

    /// Builds the `toolgate` object included in every response of a run.
    pub(super) fn run_note(&self, end: &RunEnd) -> Value {
        let mut note = json!({
            "run_id": self.id,
            "iterations": self.iterations(),
            "stop_reason": end.stop.as_str(),
            "turns": self.turns,
            "executed": self.executed.iter().map(super::ExecutedCall::to_value).collect::<Vec<_>>(),
            "pending": end.pending.iter().map(super::PendingToolCall::to_value).collect::<Vec<_>>(),
        });
        if let RunStopReason::Budget(limit) = end.stop {
            note["budget"] = json!(limit);
        }
        if !self.missing_servers.is_empty() {
            note["missing_servers"] = json!(self.missing_servers);
        }
        if let Some(explanation) = self.limit_explanation(end.stop) {
            note["explanation"] = json!(explanation);
        }
        note
    }

    /// Builds the response to a failed model call. Once a tool has run, the response tells SDKs not to
    /// retry, since that would repeat its effects.
    fn error_response(&self, error: TurnError, note: &Value) -> Result<ModelResponse, ModelError> {
        let dialect = self.model_call.request.dialect;
        if self.executed.is_empty() {
            return match error {
                TurnError::Error(error) => Err(error),
                TurnError::Status {
                    status,
                    mut headers,
                    body,
                    ..
                } => {
                    set_run_id(&mut headers, &self.id);
                    Ok(ModelResponse {
                        status,
                        headers,
                        body: ResponseBody::Whole(body),
                    })
                }
            };
        }
        let failure = self.describe_error(&error);
        let mut error = dialect.encode_error(&failure);
        error["toolgate"] = note.clone();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
        set_run_id(&mut headers, &self.id);
        Ok(ModelResponse {
            status: StatusCode::FAILED_DEPENDENCY,
            headers,
            body: ResponseBody::Whole(error.to_string().into()),
        })
    }

    /// Describes a failure, including the provider's status and message.
    pub(super) fn describe_error(&self, error: &TurnError) -> ProviderError {
        let (status, failure) = match error {
            TurnError::Error(error) => (error.status(), error.to_provider_error()),
            TurnError::Status {
                status, failure, ..
            } => (*status, failure.clone()),
        };
        let executed = self.executed.len() as u64;
        let calls = count(executed, "tool call", "tool calls");
        let was_cancelled = matches!(
            error,
            TurnError::Error(ModelError::Cancelled | ModelError::Refused(_))
        );
        ProviderError {
            message: match executed {
                0 => failure.message,
                _ if was_cancelled => format!(
                    "{} after {calls} had started; see `toolgate.executed`",
                    failure.message
                ),
                _ => format!(
                    "the model failed ({}: {}) after {calls} had run; see `toolgate.executed`",
                    status.as_u16(),
                    failure.message
                ),
            },
            ..failure
        }
    }
}

/// Replaces the text of a turn and keeps only the pending calls. Reasoning stays in place, because
/// providers require it back together with the calls that follow it.
fn replace_text_and_calls(items: Vec<TurnItem>, text: String, end: &RunEnd) -> Vec<TurnItem> {
    let mut text = Some(TurnItem::Text(text));
    let mut replaced = Vec::new();
    for item in items {
        match item {
            item if is_reasoning_or_raw(&item) => replaced.push(item),
            _ => replaced.extend(text.take()),
        }
    }
    replaced.extend(text);
    let pending = end.pending.iter();
    replaced.extend(pending.map(|pending| TurnItem::ToolCall(pending.call.clone())));
    replaced
}

fn is_reasoning_or_raw(item: &TurnItem) -> bool {
    matches!(item, TurnItem::Reasoning { .. } | TurnItem::Raw(_))
}

/// Sets the response header that identifies the run.
pub(super) fn set_run_id(headers: &mut HeaderMap, run: &str) {
    if let Ok(id) = HeaderValue::from_str(run) {
        headers.insert("x-toolgate-run-id", id);
    }
}
