//! Writing answers that come in pieces.
//!
//! One content block is open at a time, and their indexes count through all turns of a stream.

use serde_json::{Value, json};

use super::answer::message;
use super::{error, finish_sequence, finish_word, usage_value};
use crate::event::{Event, Finish, Proof, Usage};
use crate::turn::Head;

/// Writes a stream of content blocks.
#[derive(Debug)]
pub struct Encoder {
    head: Head,
    started: bool,
    /// How many blocks were begun.
    blocks: usize,
    open: Option<Open>,
    /// What came while a call was open and is not of that call: other dialects interleave calls.
    held: Vec<Event>,
    usage: Usage,
    finish: Option<Finish>,
    failed: bool,
    /// What stands beside the end, as `toolgate`.
    pub(crate) note: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Open {
    Text,
    /// A text as well here, but one of its own.
    Refusal,
    Thinking,
    /// The call with this index in the events.
    Call(usize),
}

impl Encoder {
    pub fn new(head: Head) -> Self {
        Self {
            head,
            started: false,
            blocks: 0,
            open: None,
            held: Vec::new(),
            usage: Usage::default(),
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn put(&mut self, event: &Event, out: &mut String) {
        if self.failed {
            return;
        }
        match event {
            // What the input costs may come next, and is told with the start.
            Event::Start { .. } => {}
            Event::Usage(usage) => {
                self.usage = *usage;
                self.start(out);
            }
            Event::Finish(finish) => {
                self.close_all(out);
                self.finish = Some(finish.clone());
            }
            Event::Failed(failure) => {
                self.failed = true;
                let mut error = error(failure);
                if let Some(note) = self.note.take() {
                    error["toolgate"] = note;
                }
                data("error", &error, out);
            }
            event => match self.open {
                Some(Open::Call(open)) if call(event) != Some(open) => {
                    self.held.push(event.clone());
                }
                _ => self.content(event, out),
            },
        }
    }

    pub fn end(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        self.close_all(out);
        let finish = self.finish.take().unwrap_or(Finish::Stop);
        let mut end = json!({"type": "message_delta", "delta": {
            "stop_reason": finish_word(&finish), "stop_sequence": finish_sequence(&finish)},
            "usage": usage_value(&self.usage)});
        if let Some(note) = self.note.take() {
            end["toolgate"] = note;
        }
        data("message_delta", &end, out);
        data("message_stop", &json!({"type": "message_stop"}), out);
    }

    fn start(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.started, true) {
            let message = message(&self.head, &self.usage);
            let start = json!({"type": "message_start", "message": message});
            data("message_start", &start, out);
        }
    }

    fn content(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::Text(text) => self.add(Open::Text, "text_delta", "text", text, out),
            Event::Refusal(text) => self.add(Open::Refusal, "text_delta", "text", text, out),
            Event::Reasoning(text) => {
                self.add(Open::Thinking, "thinking_delta", "thinking", text, out);
            }
            Event::ReasoningEnd(proof) => self.end_reasoning(proof.as_ref(), out),
            Event::CallStart { index, id, name } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin(&block, Some(Open::Call(*index)), out);
            }
            Event::CallDelta { index, arguments } => {
                // A call that was never begun has no block.
                let open = Open::Call(*index);
                if self.open == Some(open) {
                    self.add(open, "input_json_delta", "partial_json", arguments, out);
                }
            }
            Event::Raw(block) => {
                self.begin(block, None, out);
                self.stop(out);
            }
            Event::Annotation(citation) => {
                self.open_block(Open::Text, out);
                self.delta(
                    &json!({"type": "citations_delta", "citation": citation}),
                    out,
                );
            }
            Event::CallEnd { index } => {
                if self.open == Some(Open::Call(*index)) {
                    self.close(out);
                    self.put_held(out);
                }
            }
            Event::Start { .. }
            | Event::ReasoningStart(_)
            | Event::Usage(_)
            | Event::Finish(_)
            | Event::Failed(_) => {}
        }
    }

    fn end_reasoning(&mut self, proof: Option<&Proof>, out: &mut String) {
        match proof {
            Some(Proof::Signature(signature)) => {
                self.open_block(Open::Thinking, out);
                self.delta(
                    &json!({"type": "signature_delta", "signature": signature}),
                    out,
                );
                self.close(out);
            }
            Some(Proof::Redacted(redacted)) => {
                let block = json!({"type": "redacted_thinking", "data": redacted});
                self.begin(&block, None, out);
                self.stop(out);
            }
            // What only OpenAI can prove is shown without proof.
            Some(Proof::Encrypted { .. }) | None => {
                if self.open == Some(Open::Thinking) {
                    self.close(out);
                }
            }
        }
    }

    /// Appends to a block, which is begun if it is not open.
    fn add(&mut self, kind: Open, delta: &str, member: &str, text: &str, out: &mut String) {
        if !text.is_empty() {
            self.open_block(kind, out);
            self.delta(&json!({"type": delta, member: text}), out);
        }
    }

    fn open_block(&mut self, kind: Open, out: &mut String) {
        if self.open == Some(kind) {
            return;
        }
        let block = match kind {
            Open::Text | Open::Refusal => json!({"type": "text", "text": ""}),
            Open::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Open::Call(_) => return,
        };
        self.begin(&block, Some(kind), out);
    }

    fn begin(&mut self, block: &Value, kind: Option<Open>, out: &mut String) {
        self.start(out);
        self.close(out);
        let start =
            json!({"type": "content_block_start", "index": self.blocks, "content_block": block});
        data("content_block_start", &start, out);
        self.blocks += 1;
        self.open = kind;
    }

    fn delta(&self, delta: &Value, out: &mut String) {
        let delta = json!({"type": "content_block_delta", "index": self.last(), "delta": delta});
        data("content_block_delta", &delta, out);
    }

    fn close(&mut self, out: &mut String) {
        if self.open.take().is_some() {
            self.stop(out);
        }
    }

    fn stop(&self, out: &mut String) {
        let stop = json!({"type": "content_block_stop", "index": self.last()});
        data("content_block_stop", &stop, out);
    }

    /// The index of the block that was begun last.
    fn last(&self) -> usize {
        self.blocks.saturating_sub(1)
    }

    fn put_held(&mut self, out: &mut String) {
        for event in std::mem::take(&mut self.held) {
            self.put(&event, out);
        }
    }

    /// A turn is over: calls that nobody ended are complete as well.
    fn close_all(&mut self, out: &mut String) {
        self.close(out);
        while !self.held.is_empty() {
            self.put_held(out);
            self.close(out);
        }
    }
}

/// The call that an event goes on with or ends.
fn call(event: &Event) -> Option<usize> {
    match event {
        Event::CallDelta { index, .. } | Event::CallEnd { index } => Some(*index),
        _ => None,
    }
}

fn data(name: &str, data: &Value, out: &mut String) {
    out.push_str("event: ");
    out.push_str(name);
    out.push_str("\ndata: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}
