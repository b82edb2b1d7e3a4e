//! Encodes streamed responses.

use serde_json::{Value, json};

use super::output::{OutputContent, OutputItem, OutputPart, PartKind, summary_part};
use super::{ResponseStatus, build_response, encode_error, error_code};
use crate::event::{FinishReason, ProviderError, ReasoningProof, TokenUsage, TurnEvent};
use crate::prompt::RequestedToolCall;
use crate::turn::ResponseHead;

/// Encodes events as a stream. Sequence numbers and output indexes continue across turns.
#[derive(Debug)]
pub struct ResponsesEncoder {
    head: ResponseHead,
    /// Sequence number of the next event.
    sequence: u64,
    output: Vec<OutputItem>,
    /// Output index of the open message or reasoning item.
    open_item: Option<usize>,
    /// Event index and output index of the open call.
    open_call: Option<(usize, usize)>,
    /// Events held back until the open call ends, since SDKs expect one item after another.
    deferred: Vec<TurnEvent>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
    failed: bool,
    /// Value of the `toolgate` member of the next response object.
    pub(crate) note: Option<Value>,
}

impl ResponsesEncoder {
    pub fn new(head: ResponseHead) -> Self {
        Self {
            head,
            sequence: 0,
            output: Vec::new(),
            open_item: None,
            open_call: None,
            deferred: Vec::new(),
            usage: None,
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn encode(&mut self, event: &TurnEvent, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        match event {
            TurnEvent::Start { .. } => self.close_all_items("completed", out),
            TurnEvent::Usage(usage) => self.usage = Some(*usage),
            TurnEvent::Finish(finish) => self.finish = Some(finish.clone()),
            TurnEvent::Error(error) => self.fail(error, out),
            event => match self.open_call {
                Some((open, _)) if call_index(event) != Some(open) => {
                    self.deferred.push(event.clone());
                }
                _ => self.encode_content(event, out),
            },
        }
    }

    fn encode_content(&mut self, event: &TurnEvent, out: &mut String) {
        match event {
            TurnEvent::Text(text) => self.append_text(PartKind::Text, text, out),
            TurnEvent::Refusal(text) => self.append_text(PartKind::Refusal, text, out),
            TurnEvent::ReasoningStart(id) => {
                self.open_reasoning(Some(id), out);
            }
            TurnEvent::Reasoning(text) => self.append_reasoning(text, out),
            TurnEvent::ReasoningEnd(proof) => self.end_reasoning(proof.as_ref(), out),
            TurnEvent::CallStart { index, id, name } => {
                self.close_item("completed", out);
                let call = RequestedToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                };
                let at = self.begin_item(OutputContent::Call(call), None, out);
                self.open_call = Some((*index, at));
            }
            TurnEvent::CallDelta { index, arguments } => {
                self.append_arguments(*index, arguments, out)
            }
            TurnEvent::CallEnd { .. } => {
                if let Some((_, at)) = self.open_call.take() {
                    self.finish_item(at, "completed", out);
                    self.encode_deferred(out);
                }
            }
            TurnEvent::Raw(item) => {
                self.close_item("completed", out);
                let at =
                    self.begin_item(OutputContent::Raw(item.clone()), item["id"].as_str(), out);
                self.finish_item(at, "completed", out);
            }
            TurnEvent::Annotation(annotation) => self.append_annotation(annotation, out),
            TurnEvent::Start { .. }
            | TurnEvent::Usage(_)
            | TurnEvent::Finish(_)
            | TurnEvent::Error(_) => {}
        }
    }

    /// Encodes the events that were held back, until another call is open.
    fn encode_deferred(&mut self, out: &mut String) {
        for event in std::mem::take(&mut self.deferred) {
            self.encode(&event, out);
        }
    }

    pub fn finish(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        let finish = self.finish.take();
        let status = ResponseStatus::from_outcome(finish.as_ref(), None);
        self.close_all_items(status.last_item_status(), out);
        let kind = format!("response.{}", status.as_str());
        self.write_response_event(&kind, status, out);
    }

    fn start(&mut self, out: &mut String) {
        if self.sequence == 0 {
            self.write_response_event("response.created", ResponseStatus::InProgress, out);
            self.write_response_event("response.in_progress", ResponseStatus::InProgress, out);
        }
    }

    fn fail(&mut self, error: &ProviderError, out: &mut String) {
        self.failed = true;
        for item in &mut self.output {
            if item.status == "in_progress" {
                item.status = "incomplete";
            }
        }
        // The API sends an `error` object, but documents top-level members; send both.
        let members = json!({"code": error_code(error), "message": error.message, "param": null,
            "error": encode_error(error)["error"]});
        self.write_event("error", members, out);
        self.write_response_event("response.failed", ResponseStatus::Failed(error), out);
    }

    fn append_text(&mut self, kind: PartKind, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        let open = self.open_item;
        let at =
            match open.filter(|at| matches!(self.output[*at].content, OutputContent::Message(_))) {
                Some(at) => at,
                None => {
                    self.close_item("completed", out);
                    let at = self.begin_item(OutputContent::Message(Vec::new()), None, out);
                    self.open_item = Some(at);
                    at
                }
            };
        if self.last_part(at).is_none_or(|part| part.kind != kind) {
            self.finish_part(at, out);
            let part = OutputPart::new(kind, String::new());
            let added = json!({"part": part.to_json()});
            if let OutputContent::Message(parts) = &mut self.output[at].content {
                parts.push(part);
            }
            self.write_part_event("response.content_part.added", at, added, out);
        }
        if let OutputContent::Message(parts) = &mut self.output[at].content
            && let Some(part) = parts.last_mut()
        {
            part.text.push_str(text);
        }
        let (event, members) = match kind {
            PartKind::Text => (
                "response.output_text.delta",
                json!({"delta": text, "logprobs": []}),
            ),
            PartKind::Refusal => ("response.refusal.delta", json!({"delta": text})),
        };
        self.write_part_event(event, at, members, out);
    }

    /// Appends a citation to the open text.
    fn append_annotation(&mut self, annotation: &Value, out: &mut String) {
        let Some(at) = self.open_item else { return };
        let OutputContent::Message(parts) = &mut self.output[at].content else {
            return;
        };
        let text = parts.last_mut().filter(|part| part.kind == PartKind::Text);
        let Some(part) = text else { return };
        let members = json!({"annotation_index": part.annotations.len(), "annotation": annotation});
        part.annotations.push(annotation.clone());
        self.write_part_event("response.output_text.annotation.added", at, members, out);
    }

    /// Returns the last part of a message.
    fn last_part(&self, at: usize) -> Option<&OutputPart> {
        match &self.output[at].content {
            OutputContent::Message(parts) => parts.last(),
            _ => None,
        }
    }

    /// Returns the index of the open reasoning item, starting one if none is open or the id differs.
    fn open_reasoning(&mut self, id: Option<&str>, out: &mut String) -> usize {
        let open = self.open_item.filter(|at| {
            let item = &self.output[*at];
            matches!(item.content, OutputContent::Reasoning { .. })
                && id.is_none_or(|id| id == item.id)
        });
        open.unwrap_or_else(|| {
            self.close_item("completed", out);
            let (text, encrypted) = (String::new(), None);
            let at = self.begin_item(OutputContent::Reasoning { text, encrypted }, id, out);
            self.open_item = Some(at);
            at
        })
    }

    fn append_reasoning(&mut self, more: &str, out: &mut String) {
        if more.is_empty() {
            return;
        }
        let at = self.open_reasoning(None, out);
        if let OutputContent::Reasoning { text, .. } = &mut self.output[at].content {
            let is_first = text.is_empty();
            text.push_str(more);
            if is_first {
                let part = json!({"summary_index": 0, "part": summary_part("")});
                self.write_item_event("response.reasoning_summary_part.added", at, part, out);
            }
        }
        let members = json!({"summary_index": 0, "delta": more});
        self.write_item_event("response.reasoning_summary_text.delta", at, members, out);
    }

    fn end_reasoning(&mut self, proof: Option<&ReasoningProof>, out: &mut String) {
        let open = self.open_item;
        let open =
            open.filter(|at| matches!(self.output[*at].content, OutputContent::Reasoning { .. }));
        if let Some(ReasoningProof::Encrypted { id, content }) = proof {
            let at = open.unwrap_or_else(|| self.open_reasoning(Some(id), out));
            let item = &mut self.output[at];
            // The provider rejects encrypted reasoning under a different id.
            let is_own = id.is_empty() || *id == item.id;
            if let (true, OutputContent::Reasoning { encrypted, .. }) = (is_own, &mut item.content)
            {
                encrypted.clone_from(content);
            }
            self.close_item("completed", out);
        } else if open.is_some() {
            self.close_item("completed", out);
        }
    }

    fn append_arguments(&mut self, index: usize, more: &str, out: &mut String) {
        let open = self.open_call.filter(|(known, _)| *known == index);
        let Some((_, at)) = open.filter(|_| !more.is_empty()) else {
            return;
        };
        if let OutputContent::Call(call) = &mut self.output[at].content {
            call.arguments.push_str(more);
        }
        let members = json!({"delta": more});
        self.write_item_event("response.function_call_arguments.delta", at, members, out);
    }

    /// Starts an item and returns its output index.
    fn begin_item(&mut self, content: OutputContent, id: Option<&str>, out: &mut String) -> usize {
        let at = self.output.len();
        let item = OutputItem::new(&self.head, at, content).with_id(id);
        let members = json!({"output_index": at, "item": item.to_json()});
        self.output.push(item);
        self.write_event("response.output_item.added", members, out);
        at
    }

    fn close_item(&mut self, status: &'static str, out: &mut String) {
        if let Some(at) = self.open_item.take() {
            self.finish_item(at, status, out);
        }
    }

    fn close_all_items(&mut self, status: &'static str, out: &mut String) {
        while let Some((_, at)) = self.open_call.take() {
            self.finish_item(at, status, out);
            self.encode_deferred(out);
        }
        self.close_item(status, out);
    }

    fn finish_item(&mut self, at: usize, status: &'static str, out: &mut String) {
        self.finish_part(at, out);
        let item = &mut self.output[at];
        item.status = status;
        let value = item.to_json();
        match &item.content {
            OutputContent::Reasoning { text, .. } if !text.is_empty() => {
                let text_done = json!({"summary_index": 0, "text": text});
                let part = json!({"summary_index": 0, "part": summary_part(text)});
                self.write_item_event("response.reasoning_summary_text.done", at, text_done, out);
                self.write_item_event("response.reasoning_summary_part.done", at, part, out);
            }
            OutputContent::Call(call) => {
                let members = json!({"name": call.name, "arguments": call.arguments});
                self.write_item_event("response.function_call_arguments.done", at, members, out);
            }
            OutputContent::Message(_) | OutputContent::Reasoning { .. } | OutputContent::Raw(_) => {
            }
        }
        let members = json!({"output_index": at, "item": value});
        self.write_event("response.output_item.done", members, out);
    }

    /// Completes the last part of a message.
    fn finish_part(&mut self, at: usize, out: &mut String) {
        let Some(part) = self.last_part(at) else {
            return;
        };
        let done = json!({"part": part.to_json()});
        let (event, members) = match part.kind {
            PartKind::Text => (
                "response.output_text.done",
                json!({"text": part.text, "logprobs": []}),
            ),
            PartKind::Refusal => ("response.refusal.done", json!({"refusal": part.text})),
        };
        self.write_part_event(event, at, members, out);
        self.write_part_event("response.content_part.done", at, done, out);
    }

    fn write_response_event(&mut self, kind: &str, status: ResponseStatus<'_>, out: &mut String) {
        let mut response = build_response(&self.head, status, &self.output, self.usage.as_ref());
        if let Some(note) = self.note.take() {
            response["toolgate"] = note;
        }
        self.write_event(kind, json!({"response": response}), out);
    }

    /// Writes an event about the last part of a message.
    fn write_part_event(&mut self, kind: &str, at: usize, more: Value, out: &mut String) {
        let index = match &self.output[at].content {
            OutputContent::Message(parts) => parts.len().saturating_sub(1),
            _ => 0,
        };
        let members = merge_members(json!({"content_index": index}), more);
        self.write_item_event(kind, at, members, out);
    }

    fn write_item_event(&mut self, kind: &str, at: usize, more: Value, out: &mut String) {
        let ids = json!({"item_id": self.output[at].id, "output_index": at});
        self.write_event(kind, merge_members(ids, more), out);
    }

    fn write_event(&mut self, kind: &str, more: Value, out: &mut String) {
        let event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        let event = merge_members(event, more);
        out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }
}

/// Returns the index of the call that an event belongs to.
fn call_index(event: &TurnEvent) -> Option<usize> {
    match event {
        TurnEvent::CallDelta { index, .. } | TurnEvent::CallEnd { index } => Some(*index),
        _ => None,
    }
}

fn merge_members(mut object: Value, more: Value) -> Value {
    if let (Value::Object(members), Value::Object(more)) = (&mut object, more) {
        members.extend(more);
    }
    object
}
