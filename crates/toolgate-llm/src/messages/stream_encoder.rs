//! Encodes streamed responses.
//!
//! At most one content block is open at a time, and indexes continue across the turns of a stream.

use serde_json::{Value, json};

use super::response::empty_message;
use super::{encode_error, encode_usage, stop_reason, stop_sequence};
use crate::event::{FinishReason, ReasoningProof, TokenUsage, TurnEvent};
use crate::turn::ResponseHead;

/// Encodes events as a stream of content blocks.
#[derive(Debug)]
pub struct MessagesEncoder {
    head: ResponseHead,
    started: bool,
    /// Number of blocks started so far.
    block_count: usize,
    open: Option<OpenBlockKind>,
    /// Events held back until the open call ends, since other dialects interleave calls.
    deferred: Vec<TurnEvent>,
    usage: TokenUsage,
    finish: Option<FinishReason>,
    failed: bool,
    /// Value of the `toolgate` member of the last `message_delta`.
    pub(crate) note: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum OpenBlockKind {
    Text,
    /// Encoded as a text block, but separate from other text.
    Refusal,
    Thinking,
    /// The call with this event index.
    Call(usize),
}

impl MessagesEncoder {
    pub fn new(head: ResponseHead) -> Self {
        Self {
            head,
            started: false,
            block_count: 0,
            open: None,
            deferred: Vec::new(),
            usage: TokenUsage::default(),
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn encode(&mut self, event: &TurnEvent, out: &mut String) {
        if self.failed {
            return;
        }
        match event {
            // Delayed, since `message_start` carries the usage, which may come next.
            TurnEvent::Start { .. } => {}
            TurnEvent::Usage(usage) => {
                self.usage = *usage;
                self.start(out);
            }
            TurnEvent::Finish(finish) => {
                self.close_all_blocks(out);
                self.finish = Some(finish.clone());
            }
            TurnEvent::Error(error) => {
                self.failed = true;
                let mut body = encode_error(error);
                if let Some(note) = self.note.take() {
                    body["toolgate"] = note;
                }
                write_event("error", &body, out);
            }
            event => match self.open {
                Some(OpenBlockKind::Call(open)) if call_index(event) != Some(open) => {
                    self.deferred.push(event.clone());
                }
                _ => self.encode_content(event, out),
            },
        }
    }

    pub fn finish(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        self.close_all_blocks(out);
        let finish = self.finish.take().unwrap_or(FinishReason::Stop);
        let mut end = json!({"type": "message_delta", "delta": {
            "stop_reason": stop_reason(&finish), "stop_sequence": stop_sequence(&finish)},
            "usage": encode_usage(&self.usage)});
        if let Some(note) = self.note.take() {
            end["toolgate"] = note;
        }
        write_event("message_delta", &end, out);
        write_event("message_stop", &json!({"type": "message_stop"}), out);
    }

    fn start(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.started, true) {
            let message = empty_message(&self.head, &self.usage);
            let start = json!({"type": "message_start", "message": message});
            write_event("message_start", &start, out);
        }
    }

    fn encode_content(&mut self, event: &TurnEvent, out: &mut String) {
        match event {
            TurnEvent::Text(text) => {
                self.append_delta(OpenBlockKind::Text, "text_delta", "text", text, out)
            }
            TurnEvent::Refusal(text) => {
                self.append_delta(OpenBlockKind::Refusal, "text_delta", "text", text, out)
            }
            TurnEvent::Reasoning(text) => {
                self.append_delta(
                    OpenBlockKind::Thinking,
                    "thinking_delta",
                    "thinking",
                    text,
                    out,
                );
            }
            TurnEvent::ReasoningEnd(proof) => self.end_reasoning(proof.as_ref(), out),
            TurnEvent::CallStart { index, id, name } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin_block(&block, Some(OpenBlockKind::Call(*index)), out);
            }
            TurnEvent::CallDelta { index, arguments } => {
                // Ignores deltas of a call that never started.
                let open = OpenBlockKind::Call(*index);
                if self.open == Some(open) {
                    self.append_delta(open, "input_json_delta", "partial_json", arguments, out);
                }
            }
            TurnEvent::Raw(block) => {
                self.begin_block(block, None, out);
                self.write_block_stop(out);
            }
            TurnEvent::Annotation(citation) => {
                self.open_block(OpenBlockKind::Text, out);
                self.write_delta(
                    &json!({"type": "citations_delta", "citation": citation}),
                    out,
                );
            }
            TurnEvent::CallEnd { index } => {
                if self.open == Some(OpenBlockKind::Call(*index)) {
                    self.close_block(out);
                    self.encode_deferred(out);
                }
            }
            TurnEvent::Start { .. }
            | TurnEvent::ReasoningStart(_)
            | TurnEvent::Usage(_)
            | TurnEvent::Finish(_)
            | TurnEvent::Error(_) => {}
        }
    }

    fn end_reasoning(&mut self, proof: Option<&ReasoningProof>, out: &mut String) {
        match proof {
            Some(ReasoningProof::Signature(signature)) => {
                self.open_block(OpenBlockKind::Thinking, out);
                self.write_delta(
                    &json!({"type": "signature_delta", "signature": signature}),
                    out,
                );
                self.close_block(out);
            }
            Some(ReasoningProof::Redacted(redacted)) => {
                let block = json!({"type": "redacted_thinking", "data": redacted});
                self.begin_block(&block, None, out);
                self.write_block_stop(out);
            }
            // Reasoning with an OpenAI proof goes out unsigned.
            Some(ReasoningProof::Encrypted { .. }) | None => {
                if self.open == Some(OpenBlockKind::Thinking) {
                    self.close_block(out);
                }
            }
        }
    }

    /// Appends a delta to a block, starting the block if it is not open.
    fn append_delta(
        &mut self,
        kind: OpenBlockKind,
        delta: &str,
        member: &str,
        text: &str,
        out: &mut String,
    ) {
        if !text.is_empty() {
            self.open_block(kind, out);
            self.write_delta(&json!({"type": delta, member: text}), out);
        }
    }

    fn open_block(&mut self, kind: OpenBlockKind, out: &mut String) {
        if self.open == Some(kind) {
            return;
        }
        let block = match kind {
            OpenBlockKind::Text | OpenBlockKind::Refusal => json!({"type": "text", "text": ""}),
            OpenBlockKind::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            OpenBlockKind::Call(_) => return,
        };
        self.begin_block(&block, Some(kind), out);
    }

    fn begin_block(&mut self, block: &Value, kind: Option<OpenBlockKind>, out: &mut String) {
        self.start(out);
        self.close_block(out);
        let start = json!({"type": "content_block_start", "index": self.block_count, "content_block": block});
        write_event("content_block_start", &start, out);
        self.block_count += 1;
        self.open = kind;
    }

    fn write_delta(&self, delta: &Value, out: &mut String) {
        let delta =
            json!({"type": "content_block_delta", "index": self.last_index(), "delta": delta});
        write_event("content_block_delta", &delta, out);
    }

    fn close_block(&mut self, out: &mut String) {
        if self.open.take().is_some() {
            self.write_block_stop(out);
        }
    }

    fn write_block_stop(&self, out: &mut String) {
        let stop = json!({"type": "content_block_stop", "index": self.last_index()});
        write_event("content_block_stop", &stop, out);
    }

    /// Returns the index of the block started last.
    fn last_index(&self) -> usize {
        self.block_count.saturating_sub(1)
    }

    fn encode_deferred(&mut self, out: &mut String) {
        for event in std::mem::take(&mut self.deferred) {
            self.encode(&event, out);
        }
    }

    /// Closes all blocks at the end of a turn, including calls without an end event.
    fn close_all_blocks(&mut self, out: &mut String) {
        self.close_block(out);
        while !self.deferred.is_empty() {
            self.encode_deferred(out);
            self.close_block(out);
        }
    }
}

/// Returns the index of the call that an event continues or ends.
fn call_index(event: &TurnEvent) -> Option<usize> {
    match event {
        TurnEvent::CallDelta { index, .. } | TurnEvent::CallEnd { index } => Some(*index),
        _ => None,
    }
}

fn write_event(name: &str, data: &Value, out: &mut String) {
    out.push_str("event: ");
    out.push_str(name);
    out.push_str("\ndata: ");
    out.push_str(&data.to_string());
    out.push_str("\n\n");
}
