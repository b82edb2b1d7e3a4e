//! Where a run tells what happens while it happens: one stream over all its turns.
//!
//! Text goes out as it comes. Calls are held back until it is clear who runs them; those that are
//! left to the caller come at the end, like those of any answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use toolgate_core::config::Dialect;
use toolgate_llm::Wire as _;
use toolgate_llm::dialect::Encoder;
use toolgate_llm::event::{Event, Failure, Finish};
use toolgate_llm::prompt::Call;

use super::event::{Happening, Teller};
use super::resume::ResumeError;
use super::task::Listening;
use super::turn::Trouble;
use super::{End, Run};
use crate::call::{CallError, Outcome};
use crate::models::ModelError;

/// Pieces that a slow caller may be behind before the model has to wait.
const BEHIND: usize = 16;
/// How often something is said while tools run.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What is refused is refused at once; what takes longer runs, and its caller is told.
const PROMPTLY: Duration = Duration::from_millis(200);

/// Whoever is told what happens: the program around us, and the caller where it wants a stream.
pub(super) struct Sink {
    teller: Teller,
    stream: Option<Box<Stream>>,
}

struct Stream {
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
    /// What the model did in this turn besides speaking, until it speaks or the run ends.
    held: Vec<Event>,
    /// When something was sent last.
    sent: Instant,
    /// What SDKs want to see in everything that comes in a stream.
    frame: Value,
    /// Numbers of calls, which count through the run.
    calls: usize,
    id: String,
}

/// Hears of tool calls on behalf of both.
#[derive(Clone)]
pub(super) struct CallEar {
    teller: Teller,
    out: Option<(mpsc::Sender<Bytes>, Value)>,
}

impl Sink {
    pub(super) fn of(run: &Run) -> (Self, Option<Listening>) {
        let teller = Teller::new(run.models.engine().hook(), &run.id);
        if !run.asked.stream {
            let stream = None;
            return (Self { teller, stream }, None);
        }
        let dialect = run.asked.request.dialect;
        let mut head = run.asked.head();
        head.id = dialect.new_id();
        let (out, pieces) = mpsc::channel(BEHIND);
        let (begun, has_begun) = oneshot::channel();
        let frame = match dialect {
            Dialect::Chat => json!({"id": head.id, "object": "chat.completion.chunk",
                "created": head.created, "model": head.model, "choices": []}),
            Dialect::Responses | Dialect::Messages => json!({}),
        };
        let stream = Stream {
            id: head.id.clone(),
            frame,
            tells_reasoning: dialect == Dialect::Chat,
            encoder: dialect.encoder(head),
            out,
            said_before: false,
            said: false,
            begun: Some(begun),
            tells_calls: run.asked.tells_calls(),
            held: Vec::new(),
            sent: Instant::now(),
            calls: 0,
        };
        let stream = Some(Box::new(stream));
        let listening = Listening {
            begun: has_begun,
            pieces,
        };
        (Self { teller, stream }, Some(listening))
    }

    pub(super) fn tell(&self, happening: Happening<'_>) {
        self.teller.tell(happening);
    }

    /// A new turn begins.
    pub(super) fn turn(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.said_before |= std::mem::take(&mut stream.said);
            // What led to calls that ran here stays here.
            stream.held.clear();
            stream.begin();
        }
    }

    pub(super) async fn put(&mut self, event: &Event) {
        if let Event::Text(text) = event {
            self.tell(Happening::Text(text));
        }
        if let Some(stream) = &mut self.stream {
            stream.put(event).await;
        }
    }

    pub(super) fn ear(&self) -> CallEar {
        let stream = self.stream.as_ref().filter(|stream| stream.tells_calls);
        CallEar {
            teller: self.teller.clone(),
            out: stream.map(|stream| (stream.out.clone(), stream.frame.clone())),
        }
    }

    /// Says after a while that the connection lives; for ever where nobody listens.
    pub(super) async fn keep_alive(&self) {
        match &self.stream {
            None => std::future::pending().await,
            Some(stream) => {
                tokio::time::sleep(KEEP_ALIVE).await;
                let _ = stream
                    .out
                    .send(Bytes::from_static(b": tools run\n\n"))
                    .await;
            }
        }
    }

    /// The same where there may be no stream yet: it begins if this lasts.
    pub(super) async fn begin_or_keep_alive(&mut self) {
        match &mut self.stream {
            Some(stream) if stream.begun.is_some() => {
                tokio::time::sleep(PROMPTLY).await;
                stream.begin();
            }
            _ => self.keep_alive().await,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.begun.is_none())
    }

    pub(super) async fn end(&mut self, run: &Run, end: &End) {
        if let Some(stream) = &mut self.stream {
            stream.end(run, end).await;
        }
    }

    /// A stream that has begun ends with the reason for which its run is not gone on with.
    pub(super) async fn refused(&mut self, run: &Run, error: &ResumeError) {
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.begun.is_none()) {
            let mut text = String::new();
            let failure = Failure {
                message: error.to_string(),
                ..ModelError::Cancelled.failure()
            };
            stream.encoder.note(json!({"run_id": run.id}));
            stream.encoder.put(&Event::Failed(failure), &mut text);
            stream.encoder.end(&mut text);
            stream.send(text).await;
        }
    }
}

impl Stream {
    fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            // Whoever has left does not want to know.
            let _ = begun.send(());
        }
    }

    async fn put(&mut self, event: &Event) {
        let mut text = String::new();
        match event {
            Event::Text(_) => {
                self.put_held(&mut text);
                if self.said_before && !self.said {
                    self.encoder.put(&Event::Text("\n\n".to_owned()), &mut text);
                }
                self.said = true;
                self.encoder.put(event, &mut text);
            }
            // One answer begins once and ends once, whatever it is made of.
            Event::Start { .. } if !self.said_before => self.encoder.put(event, &mut text),
            Event::Refusal(_) => {
                self.put_held(&mut text);
                self.encoder.put(event, &mut text);
            }
            Event::Annotation(_) => self.encoder.put(event, &mut text),
            Event::Reasoning(_) if self.tells_reasoning => self.encoder.put(event, &mut text),
            // Elsewhere reasoning stands before the words or the calls that it led to, and providers
            // want it back with them alone.
            Event::ReasoningStart(_)
            | Event::Reasoning(_)
            | Event::ReasoningEnd(_)
            | Event::Raw(_) => {
                self.held.push(event.clone());
                if self.sent.elapsed() >= KEEP_ALIVE {
                    text.push_str(": the model thinks\n\n");
                }
            }
            _ => {}
        }
        self.send(text).await;
    }

    fn put_held(&mut self, text: &mut String) {
        for event in std::mem::take(&mut self.held) {
            self.encoder.put(&event, text);
        }
    }

    async fn end(&mut self, run: &Run, end: &End) {
        let mut text = String::new();
        if end.is_of_last_turn() {
            self.put_held(&mut text);
        }
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
            run.remember(&self.id, &answer).await;
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

    async fn send(&mut self, text: String) {
        if !text.is_empty() {
            self.sent = Instant::now();
            // Whoever has left has cancelled the run.
            let _ = self.out.send(text.into()).await;
        }
    }
}

impl CallEar {
    pub(super) fn began(&self, call: &Call) {
        let Call {
            id,
            name,
            arguments,
        } = call;
        self.teller.tell(Happening::CallStarted {
            id,
            name,
            arguments,
        });
        self.write("toolgate.tool_call.started", call, |event| {
            event["arguments"] = json!(arguments);
        });
    }

    pub(super) fn ended(&self, call: &Call, answer: &Result<Outcome, CallError>) {
        let outcome = match answer {
            Ok(outcome) if outcome.result.is_error() => "tool_error",
            Ok(_) => "ok",
            Err(error) => error.code(),
        };
        let Call { id, name, .. } = call;
        self.teller.tell(Happening::CallEnded { id, name, outcome });
        self.write("toolgate.tool_call.ended", call, |event| {
            event["outcome"] = json!(outcome);
        });
    }

    fn write(&self, kind: &str, call: &Call, more: impl FnOnce(&mut Value)) {
        if let Some((out, frame)) = &self.out {
            let mut event = frame.clone();
            event["type"] = json!(kind);
            event["call_id"] = json!(call.id);
            event["name"] = json!(call.name);
            more(&mut event);
            let text = format!("event: {kind}\ndata: {event}\n\n");
            // One who is behind misses it.
            let _ = out.try_send(text.into());
        }
    }
}
