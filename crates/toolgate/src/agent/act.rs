//! The calls of one turn: run, or left to whoever must decide about them.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::policy::Verdict;
use toolgate_llm::history;
use toolgate_llm::prompt::{Call, Message, Part, Role, Source};

use super::sink::{CallEar, Sink};
use super::{Run, in_time};
use crate::call::{CallError, Outcome, Request, ToolCall, WaitingCall};
use crate::caller::Origin;
use crate::models::Asked;
use crate::result::Block;
use crate::store::StoreError;

/// Calls of one turn that run at once.
pub(super) const AT_ONCE: usize = 8;

/// A call that ran, or was refused with an answer for the model.
#[derive(Clone, Debug)]
pub(super) struct Executed {
    pub(super) call: Call,
    /// Counted from one.
    pub(super) turn: u32,
    pub(super) parts: Vec<Part>,
    pub(super) is_error: bool,
    pub(super) ms: u64,
}

/// A call that is left to somebody else.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) call: Call,
    /// Whether the caller brought the tool.
    pub(super) is_own: bool,
    /// The approval that it waits for.
    pub(super) approval: Option<String>,
    /// Of a script: the calls before which it waits, and those that it has made, in words.
    pub(super) inner: Vec<WaitingCall>,
    pub(super) made: String,
}

pub(super) struct Acted {
    pub(super) pending: Vec<Pending>,
    /// What the tools answered, as items of the conversation.
    pub(super) items: Vec<Value>,
}

/// What came of one call.
pub(super) enum Came {
    Ran(Executed),
    Waits(Pending),
    /// It was taken out.
    Late,
}

/// The next call that is done, while the sink says that it lives.
async fn next<S: futures_util::Stream + Unpin>(running: &mut S, sink: &Sink) -> Option<S::Item> {
    loop {
        tokio::select! {
            next = running.next() => return next,
            () = sink.keep_alive() => {}
        }
    }
}

impl Run {
    /// Runs what may run, at most so many at once; answers are in the order of the calls.
    pub(super) async fn act(
        &mut self,
        calls: Vec<Call>,
        asked: &Asked,
        sink: &mut Sink,
    ) -> Result<Acted, StoreError> {
        let request = self.request(asked);
        let deadline = self.deadline();
        let mut came = Vec::new();
        {
            let run = &*self;
            let running = calls.iter().cloned();
            let running = running.map(|call| run.one(call, &request, sink.ear()));
            let running: Vec<_> = running.map(Box::pin).collect();
            let mut running = stream::iter(running).buffered(AT_ONCE);
            while let Some(next) = in_time(deadline, next(&mut running, sink)).await {
                match next {
                    Some(one) => came.push(one),
                    None => break,
                }
            }
        }
        // Whatever else happens, what ran is known.
        let mut pending = Vec::new();
        let mut ran = Vec::new();
        let mut failed = None;
        for (call, one) in calls.iter().zip(came.iter_mut()) {
            match std::mem::replace(one, Ok(Came::Late)) {
                Ok(Came::Ran(executed)) => ran.push(executed),
                Ok(Came::Waits(waits)) => pending.push(waits),
                Ok(Came::Late) => {}
                Err(error) => {
                    ran.push(self.late(call));
                    failed = Some(error);
                }
            }
        }
        ran.extend(calls.iter().skip(came.len()).map(|call| self.late(call)));
        for executed in ran.iter().filter(|executed| executed.is_error) {
            self.guard.failed(&executed.call);
        }
        if let Some(error) = failed {
            self.executed.extend(ran);
            return Err(error);
        }
        let answered = ran.iter().map(Executed::answered).collect();
        let items = items(asked.request.dialect, answered);
        self.executed.extend(ran);
        Ok(Acted { pending, items })
    }

    /// The request on whose behalf the tools of a turn run.
    pub(super) fn request(&self, asked: &Asked) -> Arc<Request> {
        let member = history::member(asked.request.dialect);
        let conversation = asked.body.get(member).map(str::to_owned);
        Arc::new(Request {
            conversation: conversation
                .and_then(|text| RawValue::from_string(text).ok())
                .map(Arc::from),
            ..(*asked.context).clone()
        })
    }

    pub(super) async fn one(
        &self,
        call: Call,
        request: &Arc<Request>,
        ear: CallEar,
    ) -> Result<Came, StoreError> {
        if self.own.contains(&call.name) {
            return self.waits(Pending::new(call, true)).await;
        }
        let began = Instant::now();
        if let Some(refusal) = self.guard.refusal(&call) {
            let refused = self.executed(call, (vec![Part::Text(refusal)], true), began);
            self.journal.closed(&refused).await?;
            return Ok(Came::Ran(refused));
        }
        let caller = self.asked.caller.clone().through(Origin::Agent);
        let tool_call = tool_call(&call, request);
        let engine = self.models.engine();
        if engine.preview(&caller, &tool_call) == Verdict::Manual {
            return self.waits(Pending::new(call, false)).await;
        }
        self.journal.opened(&call).await?;
        ear.began(&call);
        let answer = engine.call(&caller, tool_call).await;
        ear.ended(&call, &answer);
        if let Some(error) = answer.as_ref().err().filter(|error| error.is_undecided()) {
            return self.waits(Pending::new(call, false).because(error)).await;
        }
        let executed = self.executed(call, parts(&answer), began);
        self.journal.closed(&executed).await?;
        Ok(Came::Ran(executed))
    }

    /// Runs a call because whoever may decide about it said so.
    pub(super) async fn explicit(
        &self,
        call: Call,
        request: &Arc<Request>,
        ear: &CallEar,
    ) -> Result<Executed, CallError> {
        let began = Instant::now();
        ear.began(&call);
        let tool_call = tool_call(&call, request);
        let answer = self
            .models
            .engine()
            .call(&self.asked.caller, tool_call)
            .await;
        ear.ended(&call, &answer);
        match answer {
            Err(error) if error.is_undecided() => Err(error),
            answer => Ok(self.executed(call, parts(&answer), began)),
        }
    }

    /// A call of which nobody knows what came of it.
    pub(super) fn late(&self, call: &Call) -> Executed {
        let text = "the run had to end while the call was under way: its outcome is unknown, it may have run";
        let answer = (vec![Part::Text(text.to_owned())], true);
        self.executed(call.clone(), answer, Instant::now())
    }

    async fn waits(&self, pending: Pending) -> Result<Came, StoreError> {
        self.journal.waits(&pending).await?;
        Ok(Came::Waits(pending))
    }

    fn executed(
        &self,
        call: Call,
        (parts, is_error): (Vec<Part>, bool),
        began: Instant,
    ) -> Executed {
        Executed {
            call,
            turn: self.iterations,
            parts,
            is_error,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// What tools answered, as items of the conversation.
pub(super) fn items(dialect: Dialect, parts: Vec<Part>) -> Vec<Value> {
    let message = Message {
        role: Role::User,
        parts,
    };
    // What a dialect cannot say is said in words: a call without an answer would be refused.
    history::items(dialect, std::slice::from_ref(&message)).unwrap_or_else(|error| {
        tracing::warn!(%error, "what a tool answered is told as text");
        let parts = message.parts.into_iter().map(in_words).collect();
        let told = Message {
            role: Role::User,
            parts,
        };
        history::items(dialect, &[told]).unwrap_or_default()
    })
}

/// A tool's answer as a model is told it.
fn parts(answer: &Result<Outcome, CallError>) -> (Vec<Part>, bool) {
    let outcome = match answer {
        Ok(outcome) => outcome,
        Err(error) => return (vec![Part::Text(error.to_string())], true),
    };
    let parts = outcome
        .result
        .blocks()
        .into_iter()
        .map(|block| match block {
            Block::Text(text) => Part::Text(text.into_owned()),
            Block::Image { mime_type, data } => Part::Image {
                source: Source::Data {
                    media_type: mime_type.to_string(),
                    data: data.to_string(),
                },
                detail: None,
            },
            Block::Other(raw) => Part::Text(raw.get().to_owned()),
        });
    (parts.collect(), outcome.result.is_error())
}

fn text(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { source, .. } => match source {
            Source::Data { media_type, .. } => format!("[{media_type}]"),
            Source::Url(url) => url.clone(),
        },
        _ => String::new(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// An answer without anything but text.
fn in_words(part: Part) -> Part {
    match part {
        Part::Answered {
            id,
            parts,
            is_error,
        } => Part::Answered {
            id,
            parts: vec![Part::Text(text(&parts))],
            is_error,
        },
        part => part,
    }
}

impl Executed {
    pub(super) fn answered(&self) -> Part {
        Part::Answered {
            id: self.call.id.clone(),
            parts: self.parts.clone(),
            is_error: self.is_error,
        }
    }

    /// Its result as one text; what is no text is named.
    pub(super) fn text(&self) -> String {
        text(&self.parts)
    }

    pub(super) fn value(&self) -> Value {
        json!({
            "id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
            "result": self.text(),
            "is_error": self.is_error,
            "turn": self.turn,
            "ms": self.ms,
        })
    }
}

/// A model's call as the engine takes it.
pub(super) fn tool_call(call: &Call, request: &Arc<Request>) -> ToolCall {
    ToolCall::parse(&call.name, &call.arguments)
        .known_as(&call.id)
        .of(request)
}

impl Pending {
    pub(super) fn new(call: Call, is_own: bool) -> Self {
        Self {
            call,
            is_own,
            approval: None,
            inner: Vec::new(),
            made: String::new(),
        }
    }

    pub(super) fn because(self, error: &CallError) -> Self {
        Self {
            approval: error.needed().map(|needed| needed.id.to_owned()),
            ..match error {
                CallError::ScriptWaits(waits) => Self {
                    inner: waits.calls.clone(),
                    made: waits.made.clone(),
                    ..self
                },
                _ => self,
            }
        }
    }

    pub(super) fn value(&self) -> Value {
        let mut value = json!({
            "id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
        });
        if let Some(approval) = &self.approval {
            value["approval_id"] = json!(approval);
        }
        if let Some(inner) = self.inner_value() {
            value["inner"] = inner;
        }
        value
    }

    /// The calls before which a script waits.
    pub(super) fn inner_value(&self) -> Option<Value> {
        let inner = self.inner.iter();
        (!self.inner.is_empty()).then(|| inner.map(inner_value).collect())
    }
}

/// A call before which a script waits.
fn inner_value(call: &WaitingCall) -> Value {
    let mut value = json!({
        "tool": call.tool.to_string(),
        "arguments": call.arguments.get(),
        "line": call.line,
    });
    if let Some(approval) = &call.approval {
        value["approval_id"] = json!(approval);
    }
    value
}
