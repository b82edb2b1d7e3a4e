//! Answers that come in pieces.

use serde_json::{Value, json};
use toolgate_core::sse;

use super::answer::reasoning;
use super::{error, failure, finish, finish_word, usage, usage_value};
use crate::event::{BadAnswer, Event, Finish, Usage};
use crate::turn::Head;

/// Reads a stream of chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    started: bool,
    reasons: bool,
    /// The calls that were begun, by their index.
    calls: Vec<usize>,
    finished: bool,
    done: bool,
}

impl Decoder {
    pub fn take(&mut self, event: &sse::Event, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
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
            out.push(Event::Failed(failure(error)));
            return Ok(());
        }
        if !self.started {
            self.started = true;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            out.push(Event::Start {
                id: text(&chunk["id"]),
                model: text(&chunk["model"]),
            });
        }
        let choices = chunk["choices"].as_array().map(Vec::as_slice);
        if let Some(choice) = choices.unwrap_or_default().first() {
            self.delta(&choice["delta"], out)?;
            if let Some(reason) = choice["finish_reason"].as_str()
                && !self.finished
            {
                self.finished = true;
                self.end_reasoning(out);
                out.extend(
                    self.calls
                        .iter()
                        .map(|index| Event::CallEnd { index: *index }),
                );
                out.push(Event::Finish(finish(reason)));
            }
        }
        if chunk["usage"].is_object() {
            out.push(Event::Usage(usage(&chunk["usage"])));
        }
        Ok(())
    }

    /// Some providers end without `[DONE]`; the finish is what counts.
    pub fn is_done(&self) -> bool {
        self.done || self.finished
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        if let Some(text) = reasoning(delta) {
            self.reasons = true;
            out.push(Event::Reasoning(text));
        }
        let said = |name: &str| delta[name].as_str().filter(|text| !text.is_empty());
        if let Some(text) = said("content") {
            self.end_reasoning(out);
            out.push(Event::Text(text.to_owned()));
        }
        if let Some(text) = said("refusal") {
            self.end_reasoning(out);
            out.push(Event::Refusal(text.to_owned()));
        }
        let calls = delta["tool_calls"].as_array().map(Vec::as_slice);
        for call in calls.unwrap_or_default() {
            self.end_reasoning(out);
            self.call(call, out)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let function = &call["function"];
        // A provider that numbers nothing sends each call whole.
        let index = match call["index"].as_u64() {
            Some(index) => {
                usize::try_from(index).map_err(|_| BadAnswer::new("`index` is too large"))?
            }
            None => self.calls.len(),
        };
        if !self.calls.contains(&index) {
            if function["name"].is_null() {
                return Err(BadAnswer::new("a tool call has no name"));
            }
            self.calls.push(index);
            out.push(Event::CallStart {
                index,
                id: text(&call["id"]),
                name: text(&function["name"]),
            });
        }
        let arguments = text(&function["arguments"]);
        if !arguments.is_empty() {
            out.push(Event::CallDelta { index, arguments });
        }
        Ok(())
    }

    fn end_reasoning(&mut self, out: &mut Vec<Event>) {
        if std::mem::take(&mut self.reasons) {
            out.push(Event::ReasoningEnd(None));
        }
    }
}

/// Writes a stream of chunks.
#[derive(Debug)]
pub struct Encoder {
    head: Head,
    started: bool,
    /// Indexes of calls, as they were told; here they count from zero.
    calls: Vec<usize>,
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
            started: false,
            calls: Vec::new(),
            usage: None,
            finish: None,
            failed: false,
            note: None,
        }
    }

    pub fn put(&mut self, event: &Event, out: &mut String) {
        match event {
            Event::Start { .. } => self.start(out),
            Event::Text(text) => self.delta(&json!({"content": text}), out),
            Event::Refusal(text) => self.delta(&json!({"refusal": text}), out),
            Event::Reasoning(text) => self.delta(&json!({"reasoning_content": text}), out),
            // What only another dialect can say is refused before it comes here.
            Event::ReasoningStart(_)
            | Event::ReasoningEnd(_)
            | Event::CallEnd { .. }
            | Event::Raw(_)
            | Event::Annotation(_) => {}
            Event::CallStart { index, id, name } => {
                self.calls.push(*index);
                let call = json!({"index": self.calls.len() - 1, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                self.delta(&json!({"tool_calls": [call]}), out);
            }
            Event::CallDelta { index, arguments } => {
                if let Some(index) = self.calls.iter().rposition(|known| known == index) {
                    let call = json!({"index": index, "function": {"arguments": arguments}});
                    self.delta(&json!({"tool_calls": [call]}), out);
                }
            }
            Event::Usage(usage) => self.usage = Some(*usage),
            Event::Finish(finish) => self.finish = Some(finish.clone()),
            Event::Failed(failure) => {
                self.failed = true;
                let mut error = error(failure);
                if let Some(note) = self.note.take() {
                    error["toolgate"] = note;
                }
                data(&error, out);
            }
        }
    }

    pub fn end(&mut self, out: &mut String) {
        if self.failed {
            return;
        }
        self.start(out);
        let finish = self.finish.take().unwrap_or(Finish::Stop);
        let choice = json!({"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish_word(&finish)});
        let mut last = self.chunk(&json!([choice]));
        if let Some(note) = self.note.take() {
            last["toolgate"] = note;
        }
        data(&last, out);
        if let Some(usage) = self.usage.filter(|_| self.head.stream_usage) {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = usage_value(&usage);
            data(&chunk, out);
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn start(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.started, true) {
            self.delta(&json!({"role": "assistant", "content": ""}), out);
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut String) {
        self.start(out);
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
        data(&self.chunk(&json!([choice])), out);
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({"id": self.head.id, "object": "chat.completion.chunk", "created": self.head.created,
            "model": self.head.model, "choices": choices})
    }
}

fn data(chunk: &Value, out: &mut String) {
    out.push_str("data: ");
    out.push_str(&chunk.to_string());
    out.push_str("\n\n");
}
