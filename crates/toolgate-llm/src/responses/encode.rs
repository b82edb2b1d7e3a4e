//! Writes answers in pieces.

use serde_json::{Value, json};

use super::output::{Made, Output, Said, Voice, summary};
use super::{Status, code, error, response};
use crate::event::{Event, Failure, Finish, Proof, Usage};
use crate::prompt::Call;
use crate::turn::Head;

/// Writes a stream of events. All numbers count on, however many turns are told.
#[derive(Debug)]
pub struct Encoder {
    head: Head,
    /// The number of the next event.
    sequence: u64,
    output: Vec<Output>,
    /// The place of the message or the reasoning that is being told.
    open: Option<usize>,
    /// The indexes of the calls that are being told, and their places. They may be told side by
    /// side, and beside the item that is open.
    calls: Vec<(usize, usize)>,
    usage: Option<Usage>,
    finish: Option<Finish>,
    failed: bool,
    /// What stands beside the end, as `toolgate`.
    pub(crate) note: Option<Value>,
}

impl Encoder {
    pub fn new(head: Head) -> Self {
        Self {
            head,
            sequence: 0,
            output: Vec::new(),
            open: None,
            calls: Vec::new(),
            usage: None,
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn put(&mut self, event: &Event, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        match event {
            Event::Start { .. } => self.close_all("completed", out),
            Event::Text(text) => self.say(Voice::Text, text, out),
            Event::Refusal(text) => self.say(Voice::Refusal, text, out),
            Event::ReasoningStart(id) => {
                self.reasoning(Some(id), out);
            }
            Event::Reasoning(text) => self.reason(text, out),
            Event::ReasoningEnd(proof) => self.reasoning_end(proof.as_ref(), out),
            Event::CallStart { index, id, name } => {
                self.close("completed", out);
                let call = Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                };
                let at = self.add(Made::Call(call), None, out);
                self.calls.push((*index, at));
            }
            Event::CallDelta { index, arguments } => self.call(*index, arguments, out),
            Event::Raw(item) => {
                self.close("completed", out);
                let at = self.add(Made::Raw(item.clone()), item["id"].as_str(), out);
                self.done(at, "completed", out);
            }
            Event::Annotation(annotation) => self.annotate(annotation, out),
            Event::CallEnd { index } => {
                let found = self.calls.iter().rposition(|(known, _)| known == index);
                if let Some(found) = found {
                    let (_, at) = self.calls.remove(found);
                    self.done(at, "completed", out);
                }
            }
            Event::Usage(usage) => self.usage = Some(*usage),
            Event::Finish(finish) => self.finish = Some(finish.clone()),
            Event::Failed(failure) => self.fail(failure, out),
        }
    }

    pub fn end(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        let finish = self.finish.take();
        let status = Status::of(finish.as_ref(), None);
        self.close_all(status.last_item(), out);
        let kind = format!("response.{}", status.word());
        self.tell_response(&kind, status, out);
    }

    fn start(&mut self, out: &mut String) {
        if self.sequence == 0 {
            self.tell_response("response.created", Status::InProgress, out);
            self.tell_response("response.in_progress", Status::InProgress, out);
        }
    }

    fn fail(&mut self, failure: &Failure, out: &mut String) {
        self.failed = true;
        for item in &mut self.output {
            if item.status == "in_progress" {
                item.status = "incomplete";
            }
        }
        // The API sends an object where its documentation has members; both are said.
        let members = json!({"code": code(failure), "message": failure.message, "param": null,
            "error": error(failure)["error"]});
        self.tell("error", members, out);
        self.tell_response("response.failed", Status::Failed(failure), out);
    }

    fn say(&mut self, voice: Voice, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        let open = self.open;
        let at = match open.filter(|at| matches!(self.output[*at].made, Made::Message(_))) {
            Some(at) => at,
            None => {
                self.close("completed", out);
                let at = self.add(Made::Message(Vec::new()), None, out);
                self.open = Some(at);
                at
            }
        };
        if self.said(at).is_none_or(|said| said.voice != voice) {
            self.part_done(at, out);
            let said = Said::new(voice, String::new());
            let part = json!({"part": said.value()});
            if let Made::Message(parts) = &mut self.output[at].made {
                parts.push(said);
            }
            self.tell_part("response.content_part.added", at, part, out);
        }
        if let Made::Message(parts) = &mut self.output[at].made
            && let Some(said) = parts.last_mut()
        {
            said.text.push_str(text);
        }
        let (kind, members) = match voice {
            Voice::Text => (
                "response.output_text.delta",
                json!({"delta": text, "logprobs": []}),
            ),
            Voice::Refusal => ("response.refusal.delta", json!({"delta": text})),
        };
        self.tell_part(kind, at, members, out);
    }

    /// Adds to the text that is being told where it was found.
    fn annotate(&mut self, annotation: &Value, out: &mut String) {
        let Some(at) = self.open else { return };
        let Made::Message(parts) = &mut self.output[at].made else {
            return;
        };
        let text = parts.last_mut().filter(|said| said.voice == Voice::Text);
        let Some(said) = text else { return };
        let members = json!({"annotation_index": said.annotations.len(), "annotation": annotation});
        said.annotations.push(annotation.clone());
        self.tell_part("response.output_text.annotation.added", at, members, out);
    }

    /// The last part of a message.
    fn said(&self, at: usize) -> Option<&Said> {
        match &self.output[at].made {
            Made::Message(parts) => parts.last(),
            _ => None,
        }
    }

    /// The place of the reasoning that is open; it is opened if none is, or if it has a new id.
    fn reasoning(&mut self, id: Option<&str>, out: &mut String) -> usize {
        let open = self.open.filter(|at| {
            let item = &self.output[*at];
            matches!(item.made, Made::Reasoning { .. }) && id.is_none_or(|id| id == item.id)
        });
        open.unwrap_or_else(|| {
            self.close("completed", out);
            let (text, encrypted) = (String::new(), None);
            let at = self.add(Made::Reasoning { text, encrypted }, id, out);
            self.open = Some(at);
            at
        })
    }

    fn reason(&mut self, more: &str, out: &mut String) {
        if more.is_empty() {
            return;
        }
        let at = self.reasoning(None, out);
        if let Made::Reasoning { text, .. } = &mut self.output[at].made {
            let is_first = text.is_empty();
            text.push_str(more);
            if is_first {
                let part = json!({"summary_index": 0, "part": summary("")});
                self.tell_item("response.reasoning_summary_part.added", at, part, out);
            }
        }
        let members = json!({"summary_index": 0, "delta": more});
        self.tell_item("response.reasoning_summary_text.delta", at, members, out);
    }

    fn reasoning_end(&mut self, proof: Option<&Proof>, out: &mut String) {
        let open = self.open;
        let open = open.filter(|at| matches!(self.output[*at].made, Made::Reasoning { .. }));
        if let Some(Proof::Encrypted { id, content }) = proof {
            let at = open.unwrap_or_else(|| self.reasoning(Some(id), out));
            let item = &mut self.output[at];
            // Under an id that is not its own it would be refused.
            let is_own = id.is_empty() || *id == item.id;
            if let (true, Made::Reasoning { encrypted, .. }) = (is_own, &mut item.made) {
                encrypted.clone_from(content);
            }
            self.close("completed", out);
        } else if open.is_some() {
            self.close("completed", out);
        }
    }

    fn call(&mut self, index: usize, more: &str, out: &mut String) {
        let found = self.calls.iter().rfind(|(known, _)| *known == index);
        let Some((_, at)) = found.copied().filter(|_| !more.is_empty()) else {
            return;
        };
        if let Made::Call(call) = &mut self.output[at].made {
            call.arguments.push_str(more);
        }
        let members = json!({"delta": more});
        self.tell_item("response.function_call_arguments.delta", at, members, out);
    }

    /// Begins an item, and says where it stands.
    fn add(&mut self, made: Made, id: Option<&str>, out: &mut String) -> usize {
        let at = self.output.len();
        let item = Output::new(&self.head, at, made).known(id);
        let members = json!({"output_index": at, "item": item.value()});
        self.output.push(item);
        self.tell("response.output_item.added", members, out);
        at
    }

    fn close(&mut self, status: &'static str, out: &mut String) {
        if let Some(at) = self.open.take() {
            self.done(at, status, out);
        }
    }

    fn close_all(&mut self, status: &'static str, out: &mut String) {
        self.close(status, out);
        for (_, at) in std::mem::take(&mut self.calls) {
            self.done(at, status, out);
        }
    }

    fn done(&mut self, at: usize, status: &'static str, out: &mut String) {
        self.part_done(at, out);
        let item = &mut self.output[at];
        item.status = status;
        let value = item.value();
        match &item.made {
            Made::Reasoning { text, .. } if !text.is_empty() => {
                let words = json!({"summary_index": 0, "text": text});
                let part = json!({"summary_index": 0, "part": summary(text)});
                self.tell_item("response.reasoning_summary_text.done", at, words, out);
                self.tell_item("response.reasoning_summary_part.done", at, part, out);
            }
            Made::Call(call) => {
                let members = json!({"name": call.name, "arguments": call.arguments});
                self.tell_item("response.function_call_arguments.done", at, members, out);
            }
            Made::Message(_) | Made::Reasoning { .. } | Made::Raw(_) => {}
        }
        let members = json!({"output_index": at, "item": value});
        self.tell("response.output_item.done", members, out);
    }

    /// Ends the last part of a message.
    fn part_done(&mut self, at: usize, out: &mut String) {
        let Some(said) = self.said(at) else { return };
        let part = json!({"part": said.value()});
        let (kind, words) = match said.voice {
            Voice::Text => (
                "response.output_text.done",
                json!({"text": said.text, "logprobs": []}),
            ),
            Voice::Refusal => ("response.refusal.done", json!({"refusal": said.text})),
        };
        self.tell_part(kind, at, words, out);
        self.tell_part("response.content_part.done", at, part, out);
    }

    fn tell_response(&mut self, kind: &str, status: Status<'_>, out: &mut String) {
        let mut response = response(&self.head, status, &self.output, self.usage.as_ref());
        if let Some(note) = self.note.take() {
            response["toolgate"] = note;
        }
        self.tell(kind, json!({"response": response}), out);
    }

    /// Tells of the last part of a message.
    fn tell_part(&mut self, kind: &str, at: usize, more: Value, out: &mut String) {
        let index = match &self.output[at].made {
            Made::Message(parts) => parts.len().saturating_sub(1),
            _ => 0,
        };
        let members = joined(json!({"content_index": index}), more);
        self.tell_item(kind, at, members, out);
    }

    fn tell_item(&mut self, kind: &str, at: usize, more: Value, out: &mut String) {
        let of = json!({"item_id": self.output[at].id, "output_index": at});
        self.tell(kind, joined(of, more), out);
    }

    fn tell(&mut self, kind: &str, more: Value, out: &mut String) {
        let event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        let event = joined(event, more);
        out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }
}

fn joined(mut object: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut object, more) {
        members.extend(more);
    }
    object
}
