//! Where a run tells what happens while it happens: one stream over all its turns.
//!
//! Text goes out as it comes. Calls are held back until it is clear who runs them; those that are
//! left to the caller come at the end, like those of any answer.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;
use toolgate_core::config::Dialect;
use toolgate_llm::Wire as _;
use toolgate_llm::dialect::Encoder;
use toolgate_llm::event::{Event, Finish};
use toolgate_llm::prompt::Call;

use super::turn::Trouble;
use super::{End, Run};
use crate::call::{CallError, Outcome};
use crate::models::{AnswerBody, ModelAnswer, ModelError, Place};

/// Pieces that a slow caller may be behind before the model has to wait.
const BEHIND: usize = 16;
/// How often something is said while tools run.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) enum Sink {
    None,
    Stream(Box<Stream>),
}

pub(super) struct Stream {
    encoder: Encoder,
    out: mpsc::Sender<Bytes>,
    /// Whether anything was said in an earlier turn.
    said_before: bool,
    said: bool,
    /// Told when the model has begun to answer: from then on there is a stream.
    begun: Option<oneshot::Sender<()>>,
    /// Whether the caller wants to hear of each tool call.
    tells_calls: bool,
    /// Whether the dialect has reasoning that stands for itself.
    tells_reasoning: bool,
    /// Numbers of calls, which count through the run.
    calls: usize,
    id: String,
}

/// Hears of tool calls on behalf of a stream.
#[derive(Clone)]
pub(super) struct CallEar(Option<mpsc::Sender<Bytes>>);

/// Runs as a stream. A model that fails at once is answered as it would be without one.
pub(super) async fn streamed(
    mut run: Run,
    cancel: Place,
    guard: DropGuard,
) -> Result<ModelAnswer, ModelError> {
    let dialect = run.asked.request.dialect;
    let mut head = run.asked.head();
    head.id = dialect.new_id();
    let (out, pieces) = mpsc::channel(BEHIND);
    let (begun, has_begun) = oneshot::channel();
    let mut sink = Sink::Stream(Box::new(Stream {
        id: head.id.clone(),
        tells_reasoning: dialect == Dialect::Chat,
        encoder: dialect.encoder(head),
        out,
        said_before: false,
        said: false,
        begun: Some(begun),
        tells_calls: run.asked.tells_calls(),
        calls: 0,
    }));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    run.sign(&mut headers);
    let tasks = run.models.tasks().clone();
    let work = tasks.spawn(async move {
        let unfinished = run.unfinished();
        let work = async {
            let end = run.go(&mut sink).await;
            run.close(&end).await;
            match sink.has_begun() {
                true => {
                    sink.end(&run, &end).await;
                    None
                }
                false => Some(run.answer(end)),
            }
        };
        tokio::select! {
            answer = work => answer,
            () = cancel.token().cancelled() => {
                unfinished.cancelled().await;
                None
            }
        }
    });
    if has_begun.await.is_err() {
        let answer = work.await.ok().flatten();
        return answer.unwrap_or(Err(ModelError::Cancelled));
    }
    let pieces = stream::unfold((pieces, guard), |(mut pieces, guard)| async move {
        let piece = pieces.recv().await?;
        Some((piece, (pieces, guard)))
    });
    Ok(ModelAnswer {
        status: StatusCode::OK,
        headers,
        body: AnswerBody::Stream(pieces.boxed()),
    })
}

impl Sink {
    /// A new turn begins.
    pub(super) fn turn(&mut self) {
        if let Self::Stream(stream) = self {
            stream.said_before |= std::mem::take(&mut stream.said);
            if let Some(begun) = stream.begun.take() {
                // Whoever has left does not want to know.
                let _ = begun.send(());
            }
        }
    }

    pub(super) async fn put(&mut self, event: &Event) {
        if let Self::Stream(stream) = self {
            stream.put(event).await;
        }
    }

    pub(super) fn ear(&self) -> CallEar {
        CallEar(match self {
            Self::Stream(stream) if stream.tells_calls => Some(stream.out.clone()),
            _ => None,
        })
    }

    /// Says after a while that the connection lives; for ever where nobody listens.
    pub(super) async fn keep_alive(&self) {
        match self {
            Self::None => std::future::pending().await,
            Self::Stream(stream) => {
                tokio::time::sleep(KEEP_ALIVE).await;
                let _ = stream
                    .out
                    .send(Bytes::from_static(b": tools run\n\n"))
                    .await;
            }
        }
    }

    fn has_begun(&self) -> bool {
        match self {
            Self::None => false,
            Self::Stream(stream) => stream.begun.is_none(),
        }
    }

    async fn end(&mut self, run: &Run, end: &End) {
        if let Self::Stream(stream) = self {
            stream.end(run, end).await;
        }
    }
}

impl Stream {
    async fn put(&mut self, event: &Event) {
        let mut text = String::new();
        match event {
            Event::Text(_) => {
                if self.said_before && !self.said {
                    self.encoder.put(&Event::Text("\n\n".to_owned()), &mut text);
                }
                self.said = true;
                self.encoder.put(event, &mut text);
            }
            // One answer begins once and ends once, whatever it is made of.
            Event::Start { .. } if !self.said_before => self.encoder.put(event, &mut text),
            Event::Refusal(_) => self.encoder.put(event, &mut text),
            // Elsewhere reasoning must be followed by the calls that it led to, which stay here.
            Event::Reasoning(_) if self.tells_reasoning => self.encoder.put(event, &mut text),
            _ => {}
        }
        self.send(text).await;
    }

    async fn end(&mut self, run: &Run, end: &End) {
        let mut text = String::new();
        for pending in &end.pending {
            self.call(&pending.call, &mut text);
        }
        self.encoder.put(&Event::Usage(run.usage), &mut text);
        if let Some(trouble) = &end.trouble {
            self.failed(run, end, trouble, &mut text);
        } else {
            let finish = match run.is_mixed(end) {
                true => Finish::Stop,
                false => run.last_turn().finish.unwrap_or(Finish::Stop),
            };
            self.encoder.put(&Event::Finish(finish), &mut text);
            self.encoder.note(run.note(end));
            self.encoder.end(&mut text);
            let mut head = run.asked.head();
            head.id.clone_from(&self.id);
            let answer = run
                .asked
                .request
                .dialect
                .answer(&head, &run.final_turn(end));
            run.remember(&self.id, &answer);
        }
        self.send(text).await;
    }

    fn failed(&mut self, run: &Run, end: &End, trouble: &Trouble, text: &mut String) {
        self.encoder.note(run.note(end));
        self.encoder.put(&Event::Failed(run.failure(trouble)), text);
        self.encoder.end(text);
    }

    fn call(&mut self, call: &Call, text: &mut String) {
        let index = self.calls;
        self.calls += 1;
        for event in [
            Event::CallStart {
                index,
                id: call.id.clone(),
                name: call.name.clone(),
            },
            Event::CallDelta {
                index,
                arguments: call.arguments.clone(),
            },
            Event::CallEnd { index },
        ] {
            self.encoder.put(&event, text);
        }
    }

    async fn send(&self, text: String) {
        if !text.is_empty() {
            // Whoever has left has cancelled the run.
            let _ = self.out.send(text.into()).await;
        }
    }
}

impl CallEar {
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn began(&self, call: &Call) {
        self.tell(
            &json!({"type": "toolgate.tool_call.started", "id": call.id, "name": call.name,
            "arguments": call.arguments}),
        );
    }

    pub(super) fn ended(&self, call: &Call, answer: &Result<Outcome, CallError>) {
        let outcome = match answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        self.tell(
            &json!({"type": "toolgate.tool_call.ended", "id": call.id, "name": call.name,
            "outcome": outcome}),
        );
    }

    fn tell(&self, event: &Value) {
        if let Some(out) = &self.0 {
            let kind = event["type"].as_str().unwrap_or_default();
            let text = format!("event: {kind}\ndata: {event}\n\n");
            // One who is behind misses it.
            let _ = out.try_send(text.into());
        }
    }
}
