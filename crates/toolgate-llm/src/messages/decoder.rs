//! Reading answers that come in pieces.

use serde_json::Value;
use toolgate_core::sse;

use super::answer::{Unknown, arguments, call_start, redacted, said, start, unknown_block};
use super::{Counts, failure, finish};
use crate::event::{BadAnswer, Event, Proof};

/// Reads a stream of content blocks.
#[derive(Debug, Default)]
pub struct Decoder {
    started: bool,
    /// The blocks that were begun and not ended, with the number that the provider gave them.
    open: Vec<(Option<u64>, Block)>,
    calls: usize,
    counts: Counts,
    unknown: Unknown,
    finished: bool,
    done: bool,
}

#[derive(Debug)]
enum Block {
    Text,
    Thinking {
        signature: Option<String>,
    },
    /// All of it came at once.
    Redacted,
    /// Only this dialect can say it. Its input comes as text.
    Raw {
        block: Value,
        input: String,
    },
    Call {
        index: usize,
        /// What stands for the arguments if none come.
        input: Option<String>,
    },
}

impl Decoder {
    /// One that hands on what only this dialect can say, as it came.
    #[must_use]
    pub fn keeping_raw(mut self) -> Self {
        self.unknown = Unknown::Kept;
        self
    }

    pub fn take(&mut self, event: &sse::Event, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        // Some that stand between end a stream in the manner of another dialect.
        if event.data.is_empty() || event.data == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data)?;
        let kind = data["type"].as_str().unwrap_or(&event.name);
        if let Some(failure) = failure(&data) {
            self.done = true;
            out.push(Event::Failed(failure));
            return Ok(());
        }
        match kind {
            "message_start" => {
                self.start(&data["message"], out);
                self.usage(&data["message"]["usage"], out);
            }
            "content_block_start" => {
                self.start(&Value::Null, out);
                self.begin(&data, out)?;
            }
            "content_block_delta" => {
                self.start(&Value::Null, out);
                self.delta(&data, out)?;
            }
            "content_block_stop" => {
                if let Some(at) = self.find(&data) {
                    let (_, block) = self.open.remove(at);
                    end(block, out);
                }
            }
            "message_delta" => self.message_delta(&data, out),
            "message_stop" => {
                self.end_all(out);
                self.done = true;
            }
            "ping" => {}
            other => {
                let content = ["delta", "content", "content_block"];
                if content.iter().any(|name| !data[*name].is_null()) {
                    let problem = format!("an event is of the type `{other}`");
                    return Err(BadAnswer::new(problem));
                }
            }
        }
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    fn start(&mut self, message: &Value, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.started, true) {
            out.push(start(message));
        }
    }

    /// What the input costs is told first, so that a stream that breaks off is accounted for.
    fn usage(&mut self, usage: &Value, out: &mut Vec<Event>) {
        if usage.is_object() {
            self.counts.take(usage);
            out.push(Event::Usage(self.counts.usage()));
        }
    }

    fn begin(&mut self, data: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        let start = &data["content_block"];
        let block = match start["type"].as_str().unwrap_or_default() {
            "text" => {
                out.extend(said(&start["text"]).map(Event::Text));
                Block::Text
            }
            "thinking" => {
                out.extend(said(&start["thinking"]).map(Event::Reasoning));
                Block::Thinking {
                    signature: said(&start["signature"]),
                }
            }
            "redacted_thinking" => {
                out.extend(redacted(start));
                Block::Redacted
            }
            "tool_use" => {
                let index = self.calls;
                self.calls += 1;
                out.push(call_start(index, start));
                Block::Call {
                    index,
                    input: Some(arguments(&start["input"])),
                }
            }
            _ if self.unknown == Unknown::Kept => Block::Raw {
                block: start.clone(),
                input: String::new(),
            },
            other => return Err(unknown_block(other)),
        };
        self.open.push((data["index"].as_u64(), block));
        Ok(())
    }

    fn delta(&mut self, data: &Value, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        let at = self.find(data);
        let open = at.and_then(|at| self.open.get_mut(at));
        let delta = &data["delta"];
        match (delta["type"].as_str().unwrap_or_default(), open) {
            ("text_delta", _) => out.extend(said(&delta["text"]).map(Event::Text)),
            ("thinking_delta", _) => out.extend(said(&delta["thinking"]).map(Event::Reasoning)),
            ("signature_delta", Some((_, Block::Thinking { signature }))) => {
                *signature = said(&delta["signature"]);
            }
            ("input_json_delta", Some((_, Block::Call { index, input }))) => {
                if let Some(arguments) = said(&delta["partial_json"]) {
                    *input = None;
                    let index = *index;
                    out.push(Event::CallDelta { index, arguments });
                }
            }
            ("input_json_delta", Some((_, Block::Raw { input, .. }))) => {
                input.push_str(&said(&delta["partial_json"]).unwrap_or_default());
            }
            (_, Some((_, Block::Raw { .. }))) => {}
            // Where a text was found; it cannot be asked for in another dialect.
            ("citations_delta", _) => {
                let found = Some(&delta["citation"]).filter(|_| self.unknown == Unknown::Kept);
                out.extend(found.cloned().map(Event::Annotation));
            }
            (kind, _) => {
                let problem = format!("a delta of the type `{kind}` is in no block of its kind");
                return Err(BadAnswer::new(problem));
            }
        }
        Ok(())
    }

    fn message_delta(&mut self, data: &Value, out: &mut Vec<Event>) {
        self.start(&Value::Null, out);
        let finish = finish(&data["delta"]).filter(|_| !self.finished);
        if finish.is_some() {
            self.end_all(out);
        }
        self.usage(&data["usage"], out);
        if let Some(finish) = finish {
            self.finished = true;
            out.push(Event::Finish(finish));
        }
    }

    /// The open block that an event is about; the last one, if it does not say.
    fn find(&self, data: &Value) -> Option<usize> {
        match data["index"].as_u64() {
            Some(index) => self
                .open
                .iter()
                .rposition(|(known, _)| *known == Some(index)),
            None => self.open.len().checked_sub(1),
        }
    }

    fn end_all(&mut self, out: &mut Vec<Event>) {
        for (_, block) in std::mem::take(&mut self.open) {
            end(block, out);
        }
    }
}

fn end(block: Block, out: &mut Vec<Event>) {
    match block {
        Block::Text | Block::Redacted => {}
        Block::Raw { mut block, input } => {
            if let Ok(input) = serde_json::from_str::<Value>(&input) {
                block["input"] = input;
            }
            out.push(Event::Raw(block));
        }
        Block::Thinking { signature } => {
            out.push(Event::ReasoningEnd(signature.map(Proof::Signature)));
        }
        Block::Call { index, input } => {
            out.extend(input.map(|arguments| Event::CallDelta { index, arguments }));
            out.push(Event::CallEnd { index });
        }
    }
}
