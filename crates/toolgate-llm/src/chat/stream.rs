//! Decodes and encodes streamed responses.

use serde_json::{Value, json};
use toolgate_core::sse;

use super::response::decode_reasoning;
use super::{
    decode_error, decode_finish_reason, decode_usage, encode_error, encode_usage, finish_reason,
};
use crate::event::{FinishReason, ResponseDecodeError, TokenUsage, TurnEvent, nameless_call_error};
use crate::turn::ResponseHead;

/// Decodes a stream of chunks into events.
#[derive(Debug, Default)]
pub struct ChatDecoder {
    started: bool,
    in_reasoning: bool,
    /// Indexes of the tool calls seen so far.
    calls: Vec<usize>,
    finished: bool,
    done: bool,
}

impl ChatDecoder {
    pub fn decode(
        &mut self,
        event: &sse::SseEvent,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        if event.data.is_empty() {
            return Ok(());
        }
        if event.data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(&event.data)?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            self.done = true;
            out.push(TurnEvent::Error(decode_error(error)));
            return Ok(());
        }
        if !self.started {
            self.started = true;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            out.push(TurnEvent::Start {
                id: text(&chunk["id"]),
                model: text(&chunk["model"]),
            });
        }
        let choices = chunk["choices"].as_array().map(Vec::as_slice);
        if let Some(choice) = choices.unwrap_or_default().first() {
            self.decode_delta(&choice["delta"], out)?;
            if let Some(reason) = choice["finish_reason"].as_str()
                && !self.finished
            {
                self.finished = true;
                self.end_reasoning(out);
                out.extend(
                    self.calls
                        .iter()
                        .map(|index| TurnEvent::CallEnd { index: *index }),
                );
                out.push(TurnEvent::Finish(decode_finish_reason(reason)));
            }
        }
        if chunk["usage"].is_object() {
            out.push(TurnEvent::Usage(decode_usage(&chunk["usage"])));
        }
        Ok(())
    }

    /// Returns whether the stream is complete. Some providers omit `[DONE]`, so a finish reason
    /// suffices.
    pub fn is_done(&self) -> bool {
        self.done || self.finished
    }

    fn decode_delta(
        &mut self,
        delta: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        if let Some(text) = decode_reasoning(delta) {
            self.in_reasoning = true;
            out.push(TurnEvent::Reasoning(text));
        }
        let non_empty = |name: &str| delta[name].as_str().filter(|text| !text.is_empty());
        if let Some(text) = non_empty("content") {
            self.end_reasoning(out);
            out.push(TurnEvent::Text(text.to_owned()));
        }
        if let Some(text) = non_empty("refusal") {
            self.end_reasoning(out);
            out.push(TurnEvent::Refusal(text.to_owned()));
        }
        let calls = delta["tool_calls"].as_array().map(Vec::as_slice);
        for call in calls.unwrap_or_default() {
            self.end_reasoning(out);
            self.decode_call(call, out)?;
        }
        Ok(())
    }

    fn decode_call(
        &mut self,
        call: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let function = &call["function"];
        // Providers that omit `index` send each call in a single chunk.
        let index = match call["index"].as_u64() {
            Some(index) => usize::try_from(index)
                .map_err(|_| ResponseDecodeError::new("`index` is too large"))?,
            None => self.calls.len(),
        };
        if !self.calls.contains(&index) {
            let name = text(&function["name"]);
            if name.is_empty() {
                return Err(nameless_call_error());
            }
            self.calls.push(index);
            // Some providers send no ids.
            let id = text(&call["id"]);
            out.push(TurnEvent::CallStart { index, id, name });
        }
        let arguments = text(&function["arguments"]);
        if !arguments.is_empty() {
            out.push(TurnEvent::CallDelta { index, arguments });
        }
        Ok(())
    }

    fn end_reasoning(&mut self, out: &mut Vec<TurnEvent>) {
        if std::mem::take(&mut self.in_reasoning) {
            out.push(TurnEvent::ReasoningEnd(None));
        }
    }
}

/// Encodes events as a stream of chunks.
#[derive(Debug)]
pub struct ChatEncoder {
    head: ResponseHead,
    started: bool,
    /// Event indexes of the tool calls; the position in this list is the index on the wire.
    calls: Vec<usize>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
    failed: bool,
    /// Value of the `toolgate` member of the last chunk.
    pub(crate) note: Option<Value>,
}

impl ChatEncoder {
    pub fn new(head: ResponseHead) -> Self {
        Self {
            head,
            started: false,
            calls: Vec::new(),
            usage: None,
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn encode(&mut self, event: &TurnEvent, out: &mut String) {
        match event {
            TurnEvent::Start { .. } => self.start(out),
            TurnEvent::Text(text) => self.write_delta(&json!({"content": text}), out),
            TurnEvent::Refusal(text) => self.write_delta(&json!({"refusal": text}), out),
            TurnEvent::Reasoning(text) => {
                self.write_delta(&json!({"reasoning_content": text}), out)
            }
            // Content specific to another dialect is rejected before it reaches this encoder.
            TurnEvent::ReasoningStart(_)
            | TurnEvent::ReasoningEnd(_)
            | TurnEvent::CallEnd { .. }
            | TurnEvent::Raw(_)
            | TurnEvent::Annotation(_) => {}
            TurnEvent::CallStart { index, id, name } => {
                self.calls.push(*index);
                let call = json!({"index": self.calls.len() - 1, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                self.write_delta(&json!({"tool_calls": [call]}), out);
            }
            TurnEvent::CallDelta { index, arguments } => {
                if let Some(index) = self.calls.iter().rposition(|known| known == index) {
                    let call = json!({"index": index, "function": {"arguments": arguments}});
                    self.write_delta(&json!({"tool_calls": [call]}), out);
                }
            }
            TurnEvent::Usage(usage) => self.usage = Some(*usage),
            TurnEvent::Finish(finish) => self.finish = Some(finish.clone()),
            TurnEvent::Error(error) => {
                self.failed = true;
                let mut body = encode_error(error);
                if let Some(note) = self.note.take() {
                    body["toolgate"] = note;
                }
                write_data(&body, out);
            }
        }
    }

    pub fn finish(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        let finish = self.finish.take().unwrap_or(FinishReason::Stop);
        let choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish_reason(&finish)});
        let mut last = self.build_chunk(&json!([choice]));
        if let Some(note) = self.note.take() {
            last["toolgate"] = note;
        }
        write_data(&last, out);
        if let Some(usage) = self.usage.filter(|_| self.head.stream_usage) {
            let mut chunk = self.build_chunk(&json!([]));
            chunk["usage"] = encode_usage(&usage);
            write_data(&chunk, out);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn start(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.started, true) {
            self.write_delta(&json!({"role": "assistant", "content": ""}), out);
        }
    }

    fn write_delta(&mut self, delta: &Value, out: &mut String) {
        self.start(out);
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        write_data(&self.build_chunk(&json!([choice])), out);
    }

    fn build_chunk(&self, choices: &Value) -> Value {
        json!({"id": self.head.id, "object": "chat.completion.chunk", "created": self.head.created,
            "model": self.head.model, "choices": choices})
    }
}

fn write_data(chunk: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&chunk.to_string());
    out.push_str("\n\n");
}
