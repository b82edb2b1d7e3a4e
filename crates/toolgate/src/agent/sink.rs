//! Output of a run while it executes: hook events, and one response stream across all turns.
//!
//! Text is forwarded as it arrives. Tool calls are held back until it is clear who executes them;
//! those left to the caller are sent at the end, as in any model response.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use toolgate_core::config::Dialect;
use toolgate_llm::WireFormat as _;
use toolgate_llm::dialect::StreamEncoder;
use toolgate_llm::event::{FinishReason, ProviderError, TurnEvent};
use toolgate_llm::prompt::RequestedToolCall;

use super::call_output::preview_answer;
use super::event_sender::EventSender;
use super::resume::ResumeError;
use super::task::RunStream;
use super::turn::TurnError;
use super::{AgentRun, RunEnd};
use crate::call::{CallError, Outcome};
use crate::hook::RunEventKind;
use crate::models::ModelError;

/// Chunks buffered for a slow caller before reading from the model is paused.
const MAX_BUFFERED_CHUNKS: usize = 16;
const EVENTS_HEADER: &str = "x-toolgate-events";
/// Interval between SSE comments while nothing else is sent.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Delay before a resumed run starts its stream, so that immediate refusals get an error status.
const STREAM_START_DELAY: Duration = Duration::from_millis(200);

/// Receives the output of a run for the embedding program and, if requested, the caller's stream.
pub(super) struct RunSink {
    events: EventSender,
    stream: Option<Box<ResponseStream>>,
}

/// Streamed response to the caller, encoded in its dialect.
struct ResponseStream {
    encoder: StreamEncoder,
    out: mpsc::Sender<Bytes>,
    /// Whether an earlier turn produced text.
    has_earlier_text: bool,
    has_turn_text: bool,
    /// Fires when the model starts to respond, which commits the response to a stream.
    start_signal: Option<oneshot::Sender<()>>,
    /// Whether the caller asked for an event per tool call.
    sends_call_events: bool,
    /// Whether the dialect carries reasoning separately from the items it belongs to.
    sends_reasoning: bool,
    /// Events of this turn held back until the model produces text or the run ends.
    held_events: Vec<TurnEvent>,
    last_sent_at: Instant,
    /// Fields that SDKs require in every streamed object.
    event_template: Value,
    /// Index of the next call, counted across the whole run.
    next_call_index: usize,
    response_id: String,
}

/// Reports the start and end of tool calls to the hook and the stream.
#[derive(Clone)]
pub(super) struct CallHandler {
    events: EventSender,
    out: Option<(mpsc::Sender<Bytes>, Value)>,
}

/// Returns whether the caller asked for an event per tool call of a run.
fn wants_call_events(headers: &HeaderMap) -> bool {
    let events = headers.get(EVENTS_HEADER);
    events.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"on"))
}

impl RunSink {
    pub(super) fn for_run(run: &AgentRun) -> (Self, Option<RunStream>) {
        let events = EventSender::new(run.runs.engine().hooks(), &run.id);
        if !run.model_call.stream {
            let stream = None;
            return (Self { events, stream }, None);
        }
        let dialect = run.model_call.request.dialect;
        let mut head = run.model_call.response_head();
        head.id = dialect.new_response_id();
        let (out, chunks) = mpsc::channel(MAX_BUFFERED_CHUNKS);
        let (start_signal, started) = oneshot::channel();
        let event_template = match dialect {
            Dialect::Chat => json!({"id": head.id, "object": "chat.completion.chunk",
                "created": head.created, "model": head.model, "choices": []}),
            Dialect::Responses | Dialect::Messages => json!({}),
        };
        let stream = ResponseStream {
            response_id: head.id.clone(),
            event_template,
            sends_reasoning: dialect == Dialect::Chat,
            encoder: dialect.stream_encoder(head),
            out,
            has_earlier_text: false,
            has_turn_text: false,
            start_signal: Some(start_signal),
            sends_call_events: wants_call_events(&run.model_call.context.headers),
            held_events: Vec::new(),
            last_sent_at: Instant::now(),
            next_call_index: 0,
        };
        let stream = Some(Box::new(stream));
        let run_stream = RunStream { started, chunks };
        (Self { events, stream }, Some(run_stream))
    }

    pub(super) fn send_event(&self, kind: RunEventKind<'_>) {
        self.events.send(kind);
    }

    /// Starts a new turn, and the stream if it has not started yet.
    pub(super) fn start_turn(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.has_earlier_text |= std::mem::take(&mut stream.has_turn_text);
            // Reasoning that led to calls executed here is not sent to the caller.
            stream.held_events.clear();
            stream.start();
        }
    }

    pub(super) async fn write(&mut self, event: &TurnEvent) {
        if let TurnEvent::Text(text) = event {
            self.send_event(RunEventKind::Text(text));
        }
        if let Some(stream) = &mut self.stream {
            stream.write(event).await;
        }
    }

    pub(super) fn call_handler(&self) -> CallHandler {
        let stream = self
            .stream
            .as_ref()
            .filter(|stream| stream.sends_call_events);
        CallHandler {
            events: self.events.clone(),
            out: stream.map(|stream| (stream.out.clone(), stream.event_template.clone())),
        }
    }

    /// Sends a keep-alive after the interval; never completes without a stream.
    pub(super) async fn keep_alive(&self) {
        match &self.stream {
            None => std::future::pending().await,
            Some(stream) => {
                tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
                let _ = stream
                    .out
                    .send(Bytes::from_static(b": tools running\n\n"))
                    .await;
            }
        }
    }

    /// Like [`Self::keep_alive`], but first starts the stream if it has not started yet.
    pub(super) async fn start_or_keep_alive(&mut self) {
        match &mut self.stream {
            Some(stream) if stream.start_signal.is_some() => {
                tokio::time::sleep(STREAM_START_DELAY).await;
                stream.start();
            }
            _ => self.keep_alive().await,
        }
    }

    pub(super) fn has_started(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.start_signal.is_none())
    }

    pub(super) async fn finish(&mut self, run: &AgentRun, end: &RunEnd) {
        if let Some(stream) = &mut self.stream {
            stream.finish(run, end).await;
        }
    }

    /// Ends a started stream with the reason why the run could not be resumed.
    pub(super) async fn finish_with_refusal(&mut self, run: &AgentRun, error: &ResumeError) {
        if let Some(stream) = self
            .stream
            .as_mut()
            .filter(|stream| stream.start_signal.is_none())
        {
            let mut text = String::new();
            let error = ProviderError {
                message: error.to_string(),
                ..ModelError::Cancelled.to_provider_error()
            };
            stream.encoder.set_note(json!({"run_id": run.id}));
            stream.encoder.encode(&TurnEvent::Error(error), &mut text);
            stream.encoder.finish(&mut text);
            stream.send(text).await;
        }
    }
}

impl ResponseStream {
    fn start(&mut self) {
        if let Some(start_signal) = self.start_signal.take() {
            // The receiver is gone if the caller disconnected.
            let _ = start_signal.send(());
        }
    }

    async fn write(&mut self, event: &TurnEvent) {
        let mut text = String::new();
        match event {
            TurnEvent::Text(_) => {
                self.write_held_events(&mut text);
                if self.has_earlier_text && !self.has_turn_text {
                    self.encoder
                        .encode(&TurnEvent::Text("\n\n".to_owned()), &mut text);
                }
                self.has_turn_text = true;
                self.encoder.encode(event, &mut text);
            }
            // All turns together form one response, which starts and ends once.
            TurnEvent::Start { .. } if !self.has_earlier_text => {
                self.encoder.encode(event, &mut text)
            }
            TurnEvent::Refusal(_) => {
                self.write_held_events(&mut text);
                self.encoder.encode(event, &mut text);
            }
            TurnEvent::Annotation(_) => self.encoder.encode(event, &mut text),
            TurnEvent::Reasoning(_) if self.sends_reasoning => {
                self.encoder.encode(event, &mut text)
            }
            // Other dialects bind reasoning to the text or calls that follow it, and providers accept it
            // back only together with them.
            TurnEvent::ReasoningStart(_)
            | TurnEvent::Reasoning(_)
            | TurnEvent::ReasoningEnd(_)
            | TurnEvent::Raw(_) => {
                self.held_events.push(event.clone());
                if self.last_sent_at.elapsed() >= KEEP_ALIVE_INTERVAL {
                    text.push_str(": model is reasoning\n\n");
                }
            }
            _ => {}
        }
        self.send(text).await;
    }

    fn write_held_events(&mut self, text: &mut String) {
        for event in std::mem::take(&mut self.held_events) {
            self.encoder.encode(&event, text);
        }
    }

    async fn finish(&mut self, run: &AgentRun, end: &RunEnd) {
        let mut text = String::new();
        if end.answers_with_last_turn() {
            self.write_held_events(&mut text);
        }
        if end.error.is_none() && run.needs_summary(end) {
            self.write_summary(&run.executed_summary(end), &mut text);
        }
        for pending in &end.pending {
            self.write_call(&pending.call, &mut text);
        }
        self.encoder.encode(&TurnEvent::Usage(run.usage), &mut text);
        if let Some(error) = &end.error {
            self.write_failure(run, end, error, &mut text);
        } else {
            let finish = if run.needs_summary(end) {
                run.summary_finish_reason(end)
            } else {
                run.last_turn().finish.unwrap_or(FinishReason::Stop)
            };
            self.encoder.encode(&TurnEvent::Finish(finish), &mut text);
            self.encoder.set_note(run.run_note(end));
            self.encoder.finish(&mut text);
            let mut head = run.model_call.response_head();
            head.id.clone_from(&self.response_id);
            let answer = run
                .model_call
                .request
                .dialect
                .encode_response(&head, &run.final_turn(end));
            run.store_response(&self.response_id, &answer).await;
        }
        self.send(text).await;
    }

    /// Writes the results of executed calls as text: callers send only that back with the conversation.
    fn write_summary(&mut self, summary: &str, text: &mut String) {
        let has_text = self.has_earlier_text || self.has_turn_text;
        let separator = if has_text { "\n\n" } else { "" };
        let summary = TurnEvent::Text(format!("{separator}{summary}"));
        self.encoder.encode(&summary, text);
    }

    fn write_failure(
        &mut self,
        run: &AgentRun,
        end: &RunEnd,
        error: &TurnError,
        text: &mut String,
    ) {
        self.encoder.set_note(run.run_note(end));
        self.encoder
            .encode(&TurnEvent::Error(run.describe_error(error)), text);
        self.encoder.finish(text);
    }

    fn write_call(&mut self, call: &RequestedToolCall, text: &mut String) {
        let index = self.next_call_index;
        self.next_call_index += 1;
        for event in [
            TurnEvent::CallStart {
                index,
                id: call.id.clone(),
                name: call.name.clone(),
            },
            TurnEvent::CallDelta {
                index,
                arguments: call.arguments.clone(),
            },
            TurnEvent::CallEnd { index },
        ] {
            self.encoder.encode(&event, text);
        }
    }

    async fn send(&mut self, text: String) {
        if !text.is_empty() {
            self.last_sent_at = Instant::now();
            // A closed channel means the caller disconnected, which cancels the run.
            let _ = self.out.send(text.into()).await;
        }
    }
}

impl CallHandler {
    pub(super) fn on_call_started(&self, call: &RequestedToolCall) {
        let RequestedToolCall {
            id,
            name,
            arguments,
        } = call;
        self.events.send(RunEventKind::CallStarted {
            id,
            name,
            arguments,
        });
        self.write("toolgate.tool_call.started", call, |event| {
            event["arguments"] = json!(arguments);
        });
    }

    pub(super) fn on_call_ended(
        &self,
        call: &RequestedToolCall,
        answer: &Result<Outcome, CallError>,
    ) {
        let outcome = match answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        let RequestedToolCall { id, name, .. } = call;
        self.events
            .send(RunEventKind::CallEnded { id, name, outcome });
        self.write("toolgate.tool_call.ended", call, |event| {
            event["outcome"] = json!(outcome);
            event["result"] = json!(preview_answer(answer));
        });
    }

    fn write(&self, kind: &str, call: &RequestedToolCall, add_fields: impl FnOnce(&mut Value)) {
        if let Some((out, event_template)) = &self.out {
            let mut event = event_template.clone();
            event["type"] = json!(kind);
            event["call_id"] = json!(call.id);
            event["name"] = json!(call.name);
            add_fields(&mut event);
            let text = format!("event: {kind}\ndata: {event}\n\n");
            // These events are optional: drop them rather than wait for a slow caller.
            let _ = out.try_send(text.into());
        }
    }
}
