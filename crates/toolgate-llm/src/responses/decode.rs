//! Reads answers that come in pieces.

use serde_json::{Value, json};
use toolgate_core::sse;

use super::answer::{
    BETWEEN, Unknown, call_start, list, proof, reasoned, said, tell, text, unknown_item,
    unknown_part,
};
use super::{ending, usage};
use crate::chat::failure;
use crate::event::{BadAnswer, Event, Failure, Proof};

/// Reads a stream of events.
#[derive(Debug, Default)]
pub struct Decoder {
    started: bool,
    items: Vec<Item>,
    /// How many calls were begun.
    calls: usize,
    unknown: Unknown,
    /// Whether anything was told as it came.
    told_raw: bool,
    done: bool,
}

/// An item of the output that was begun.
#[derive(Debug)]
struct Item {
    kind: Kind,
    /// Its place in the output. Some servers tell none, others tell a new id each time.
    at: Option<u64>,
    id: String,
    /// The number of a call.
    call: usize,
    /// What is known of reasoning when it begins.
    proof: Option<Proof>,
    /// Which part of reasoning is being told: of which list, and which of them.
    part: Option<(&'static str, Option<u64>)>,
    /// Whether anything of it was told.
    told: bool,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call,
}

impl Decoder {
    /// One that hands on what only this dialect can say, as it came.
    #[must_use]
    pub fn keeping_raw(mut self) -> Self {
        self.unknown = Unknown::Kept;
        self
    }

    pub fn take(&mut self, event: &sse::Event, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        if event.data.is_empty() || event.data == "[DONE]" || self.done {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data)?;
        match data["type"].as_str().unwrap_or(&event.name) {
            "response.created" | "response.in_progress" | "response.queued" => {
                self.start(&data["response"], out);
            }
            "response.output_item.added" => match kind(&data["item"]) {
                Ok(kind) => drop(self.begin(kind, &data, &data["item"], out)),
                Err(error) => self.raw(None, error, out)?,
            },
            "response.output_item.done" => self.item_done(&data, out)?,
            "response.content_part.added" => match data["part"]["type"].as_str() {
                None | Some("output_text" | "refusal" | "reasoning_text") => {}
                other => return Err(unknown_part(other)),
            },
            "response.output_text.annotation.added" if self.unknown == Unknown::Kept => {
                out.push(Event::Annotation(data["annotation"].clone()));
            }
            "response.output_text.delta" => self.say(&data, Event::Text, out),
            "response.refusal.delta" => self.say(&data, Event::Refusal, out),
            "response.reasoning_summary_text.delta" => self.reason(&data, "summary_index", out),
            "response.reasoning_text.delta" => self.reason(&data, "content_index", out),
            "response.function_call_arguments.delta" => self.call(&data, out)?,
            "response.completed" => self.end(&data["response"], "completed", out)?,
            "response.incomplete" => self.end(&data["response"], "incomplete", out)?,
            "response.failed" => self.end(&data["response"], "failed", out)?,
            "response.cancelled" => self.end(&data["response"], "cancelled", out)?,
            kind if kind == "error" || !data["error"].is_null() => {
                self.done = true;
                out.push(Event::Failed(stream_failure(&data)));
            }
            // What is not known, such as a sign of life, does not matter unless it is content.
            kind if !data["delta"].is_null() && self.unknown == Unknown::Refused => {
                return Err(BadAnswer::new(format!("its stream holds a `{kind}`")));
            }
            _ => {}
        }
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    fn start(&mut self, response: &Value, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.started, true) {
            out.push(Event::Start {
                id: text(&response["id"]),
                model: text(&response["model"]),
            });
        }
    }

    /// Begins an item, and says where it stands.
    fn begin(&mut self, kind: Kind, data: &Value, item: &Value, out: &mut Vec<Event>) -> usize {
        self.start(&Value::Null, out);
        self.end_reasoning(out);
        let (id, call) = (text(&item["id"]), self.calls);
        match kind {
            Kind::Reasoning if !id.is_empty() => out.push(Event::ReasoningStart(id.clone())),
            Kind::Message | Kind::Reasoning => {}
            Kind::Call => {
                self.calls += 1;
                out.push(call_start(item, call));
            }
        }
        self.items.push(Item {
            kind,
            at: data["output_index"].as_u64(),
            id,
            call,
            proof: proof(item),
            part: None,
            told: false,
            ended: false,
        });
        self.items.len() - 1
    }

    /// Where the item that an event tells of stands: by its place, else its id, else it is the
    /// last that is open.
    fn find(&self, data: &Value, kind: Kind) -> Option<usize> {
        let find = |is: &dyn Fn(&Item) -> bool| {
            let mut items = self.items.iter();
            items.rposition(|item| item.kind == kind && is(item))
        };
        let at = data["output_index"].as_u64();
        let id = data["item_id"].as_str().or(data["item"]["id"].as_str());
        let id = id.filter(|id| !id.is_empty());
        let found = at.and_then(|at| find(&|item| item.at == Some(at)));
        let found = found.or_else(|| id.and_then(|id| find(&|item| item.id == id)));
        match at {
            None => found.or_else(|| find(&|item| !item.ended)),
            Some(_) => found,
        }
    }

    /// The item that an event tells of; it begins now if nobody said that it has begun.
    fn item(&mut self, kind: Kind, data: &Value, out: &mut Vec<Event>) -> &mut Item {
        let at = match self.find(data, kind) {
            Some(at) => at,
            None => self.begin(kind, data, &json!({"id": data["item_id"]}), out),
        };
        &mut self.items[at]
    }

    fn say(&mut self, data: &Value, event: fn(String) -> Event, out: &mut Vec<Event>) {
        let delta = text(&data["delta"]);
        if !delta.is_empty() {
            self.item(Kind::Message, data, out).told = true;
            out.push(event(delta));
        }
    }

    fn reason(&mut self, data: &Value, index: &'static str, out: &mut Vec<Event>) {
        let delta = text(&data["delta"]);
        if delta.is_empty() {
            return;
        }
        let item = self.item(Kind::Reasoning, data, out);
        item.told = true;
        let part = (index, data[index].as_u64());
        if item.part.replace(part).is_some_and(|last| last != part) {
            out.push(Event::Reasoning(BETWEEN.to_owned()));
        }
        out.push(Event::Reasoning(delta));
    }

    fn call(&mut self, data: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        let arguments = text(&data["delta"]);
        let Some(at) = self.find(data, Kind::Call) else {
            return Err(BadAnswer::new("a tool call has no name"));
        };
        if !arguments.is_empty() {
            let item = &mut self.items[at];
            item.told = true;
            let index = item.call;
            out.push(Event::CallDelta { index, arguments });
        }
        Ok(())
    }

    /// An item is complete; what was not told of it is told now.
    fn item_done(&mut self, data: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        let value = &data["item"];
        let kind = match kind(value) {
            Ok(kind) => kind,
            Err(error) => return self.raw(Some(value), error, out),
        };
        let at = match self.find(data, kind) {
            Some(at) => at,
            None => self.begin(kind, data, value, out),
        };
        let item = &mut self.items[at];
        let was_told = std::mem::replace(&mut item.told, true);
        let had_ended = std::mem::replace(&mut item.ended, true);
        match kind {
            Kind::Message if !was_told => said(value, self.unknown, out)?,
            Kind::Message => {}
            Kind::Reasoning => {
                let reasoned = Some(reasoned(value)).filter(|text| !was_told && !text.is_empty());
                out.extend(reasoned.map(Event::Reasoning));
                if !had_ended {
                    out.push(Event::ReasoningEnd(proof(value).or(item.proof.take())));
                }
            }
            Kind::Call => {
                let index = item.call;
                let arguments = text(&value["arguments"]);
                if !was_told && !arguments.is_empty() {
                    out.push(Event::CallDelta { index, arguments });
                }
                if !had_ended {
                    out.push(Event::CallEnd { index });
                }
            }
        }
        Ok(())
    }

    /// An item that only this dialect can say: nothing is told of it before it is complete.
    fn raw(
        &mut self,
        whole: Option<&Value>,
        error: BadAnswer,
        out: &mut Vec<Event>,
    ) -> Result<(), BadAnswer> {
        if self.unknown == Unknown::Refused {
            return Err(error);
        }
        self.start(&Value::Null, out);
        self.end_reasoning(out);
        self.told_raw |= whole.is_some();
        out.extend(whole.cloned().map(Event::Raw));
        Ok(())
    }

    fn end(
        &mut self,
        response: &Value,
        otherwise: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), BadAnswer> {
        self.start(response, out);
        if self.items.is_empty() && !self.told_raw {
            for item in list(&response["output"]) {
                tell(item, self.unknown, &mut self.calls, out)?;
            }
        }
        self.end_reasoning(out);
        let calls = self.items.iter();
        let calls = calls.filter(|item| item.kind == Kind::Call && !item.ended);
        out.extend(calls.map(|item| Event::CallEnd { index: item.call }));
        if response["usage"].is_object() {
            out.push(Event::Usage(usage(&response["usage"])));
        }
        // Some servers forget to say in the answer what the event says.
        let status = response["status"].as_str();
        let status = status.filter(|status| !matches!(*status, "in_progress" | "queued"));
        let status = status.unwrap_or(otherwise);
        out.push(ending(response, status, self.calls > 0)?);
        self.done = true;
        Ok(())
    }

    /// Reasoning ends when something else begins; some servers say so only at the very end.
    fn end_reasoning(&mut self, out: &mut Vec<Event>) {
        let items = self.items.iter_mut();
        for item in items.filter(|item| item.kind == Kind::Reasoning && !item.ended) {
            item.ended = true;
            out.push(Event::ReasoningEnd(item.proof.take()));
        }
    }
}

fn kind(item: &Value) -> Result<Kind, BadAnswer> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => Ok(Kind::Message),
        "reasoning" => Ok(Kind::Reasoning),
        "function_call" => Ok(Kind::Call),
        other => Err(unknown_item(other)),
    }
}

/// The error of an `error` event: in an object, or in members of the event itself.
fn stream_failure(data: &Value) -> Failure {
    match &data["error"] {
        Value::Null => Failure {
            kind: None,
            ..failure(data)
        },
        error => failure(error),
    }
}
