//! Decodes streamed responses.

use serde_json::Value;
use toolgate_core::sse;

use super::response::{
    UnknownBlocks, call_start_event, encode_arguments, non_empty_string, redacted_event,
    start_event, unknown_block_error,
};
use super::{UsageCounts, decode_error, decode_stop_reason};
use crate::event::{ReasoningProof, ResponseDecodeError, TurnEvent};

/// Decodes a stream of content blocks into events.
#[derive(Debug, Default)]
pub struct MessagesDecoder {
    started: bool,
    /// Blocks that have started but not ended, with the provider's index.
    open_blocks: Vec<(Option<u64>, OpenBlock)>,
    calls: usize,
    counts: UsageCounts,
    unknown_blocks: UnknownBlocks,
    finished: bool,
    done: bool,
}

#[derive(Debug)]
enum OpenBlock {
    Text,
    Thinking {
        signature: Option<String>,
    },
    /// Redacted thinking, complete in its start event.
    Redacted,
    /// Dialect-specific block; its input arrives as partial JSON.
    Raw {
        block: Value,
        input: String,
    },
    Call {
        index: usize,
        /// Arguments from the start event, used if no deltas follow.
        input: Option<String>,
    },
}

impl MessagesDecoder {
    /// Passes dialect-specific blocks through as raw events instead of rejecting them.
    #[must_use]
    pub fn preserve_raw(mut self) -> Self {
        self.unknown_blocks = UnknownBlocks::Preserve;
        self
    }

    pub fn decode(
        &mut self,
        event: &sse::SseEvent,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        // Some proxies end the stream with the `[DONE]` of another dialect.
        if event.data.is_empty() || event.data == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data)?;
        let kind = data["type"].as_str().unwrap_or(&event.name);
        if let Some(error) = decode_error(&data) {
            self.done = true;
            out.push(TurnEvent::Error(error));
            return Ok(());
        }
        match kind {
            "message_start" => {
                self.start(&data["message"], out);
                self.decode_usage(&data["message"]["usage"], out);
            }
            "content_block_start" => {
                self.start(&Value::Null, out);
                self.begin_block(&data, out)?;
            }
            "content_block_delta" => {
                self.start(&Value::Null, out);
                self.decode_delta(&data, out)?;
            }
            "content_block_stop" => {
                if let Some(at) = self.find_block(&data) {
                    let (_, block) = self.open_blocks.remove(at);
                    end_block(block, out);
                }
            }
            "message_delta" => self.decode_message_delta(&data, out),
            "message_stop" => {
                self.end_all_blocks(out);
                self.done = true;
            }
            "ping" => {}
            other => {
                let content = ["delta", "content", "content_block"];
                if content.iter().any(|name| !data[*name].is_null()) {
                    let problem = format!("unsupported event of type `{other}`");
                    return Err(ResponseDecodeError::new(problem));
                }
            }
        }
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    fn start(&mut self, message: &Value, out: &mut Vec<TurnEvent>) {
        if !std::mem::replace(&mut self.started, true) {
            out.push(start_event(message));
        }
    }

    /// Emits usage as it arrives, so that a stream that is cut off is still accounted for.
    fn decode_usage(&mut self, usage: &Value, out: &mut Vec<TurnEvent>) {
        if usage.is_object() {
            self.counts.update(usage);
            out.push(TurnEvent::Usage(self.counts.to_usage()));
        }
    }

    fn begin_block(
        &mut self,
        data: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let start = &data["content_block"];
        let block = match start["type"].as_str().unwrap_or_default() {
            "text" => {
                out.extend(non_empty_string(&start["text"]).map(TurnEvent::Text));
                OpenBlock::Text
            }
            "thinking" => {
                out.extend(non_empty_string(&start["thinking"]).map(TurnEvent::Reasoning));
                OpenBlock::Thinking {
                    signature: non_empty_string(&start["signature"]),
                }
            }
            "redacted_thinking" => {
                out.extend(redacted_event(start));
                OpenBlock::Redacted
            }
            "tool_use" => {
                let index = self.calls;
                self.calls += 1;
                out.push(call_start_event(index, start)?);
                OpenBlock::Call {
                    index,
                    input: Some(encode_arguments(&start["input"])),
                }
            }
            // Its input is set as a member later, so it must be an object.
            _ if self.unknown_blocks == UnknownBlocks::Preserve && start.is_object() => {
                OpenBlock::Raw {
                    block: start.clone(),
                    input: String::new(),
                }
            }
            other => return Err(unknown_block_error(other)),
        };
        self.open_blocks.push((data["index"].as_u64(), block));
        Ok(())
    }

    fn decode_delta(
        &mut self,
        data: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let at = self.find_block(data);
        let open = at.and_then(|at| self.open_blocks.get_mut(at));
        let delta = &data["delta"];
        match (delta["type"].as_str().unwrap_or_default(), open) {
            ("text_delta", _) => out.extend(non_empty_string(&delta["text"]).map(TurnEvent::Text)),
            ("thinking_delta", _) => {
                out.extend(non_empty_string(&delta["thinking"]).map(TurnEvent::Reasoning))
            }
            ("signature_delta", Some((_, OpenBlock::Thinking { signature }))) => {
                *signature = non_empty_string(&delta["signature"]);
            }
            ("input_json_delta", Some((_, OpenBlock::Call { index, input }))) => {
                if let Some(arguments) = non_empty_string(&delta["partial_json"]) {
                    *input = None;
                    let index = *index;
                    out.push(TurnEvent::CallDelta { index, arguments });
                }
            }
            ("input_json_delta", Some((_, OpenBlock::Raw { input, .. }))) => {
                input.push_str(delta["partial_json"].as_str().unwrap_or(""));
            }
            (_, Some((_, OpenBlock::Raw { .. }))) => {}
            // Callers of another dialect cannot request citations, so they are dropped.
            ("citations_delta", _) => {
                let citation = Some(&delta["citation"])
                    .filter(|_| self.unknown_blocks == UnknownBlocks::Preserve);
                out.extend(citation.cloned().map(TurnEvent::Annotation));
            }
            (kind, _) => {
                let problem = format!("delta of type `{kind}` outside a matching content block");
                return Err(ResponseDecodeError::new(problem));
            }
        }
        Ok(())
    }

    fn decode_message_delta(&mut self, data: &Value, out: &mut Vec<TurnEvent>) {
        self.start(&Value::Null, out);
        let finish = decode_stop_reason(&data["delta"]).filter(|_| !self.finished);
        if finish.is_some() {
            self.end_all_blocks(out);
        }
        self.decode_usage(&data["usage"], out);
        if let Some(finish) = finish {
            self.finished = true;
            out.push(TurnEvent::Finish(finish));
        }
    }

    /// Returns the open block that an event refers to, or the last one if it has no index.
    fn find_block(&self, data: &Value) -> Option<usize> {
        match data["index"].as_u64() {
            Some(index) => self
                .open_blocks
                .iter()
                .rposition(|(known, _)| *known == Some(index)),
            None => self.open_blocks.len().checked_sub(1),
        }
    }

    fn end_all_blocks(&mut self, out: &mut Vec<TurnEvent>) {
        for (_, block) in std::mem::take(&mut self.open_blocks) {
            end_block(block, out);
        }
    }
}

fn end_block(block: OpenBlock, out: &mut Vec<TurnEvent>) {
    match block {
        OpenBlock::Text | OpenBlock::Redacted => {}
        OpenBlock::Raw { mut block, input } => {
            if let Ok(input) = serde_json::from_str::<Value>(&input) {
                block["input"] = input;
            }
            out.push(TurnEvent::Raw(block));
        }
        OpenBlock::Thinking { signature } => {
            out.push(TurnEvent::ReasoningEnd(
                signature.map(ReasoningProof::Signature),
            ));
        }
        OpenBlock::Call { index, input } => {
            out.extend(input.map(|arguments| TurnEvent::CallDelta { index, arguments }));
            out.push(TurnEvent::CallEnd { index });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(events: &[&str]) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
        let mut decoder = MessagesDecoder::default().preserve_raw();
        let mut out = Vec::new();
        for data in events {
            let event = sse::SseEvent {
                data: (*data).to_owned(),
                ..sse::SseEvent::default()
            };
            decoder.decode(&event, &mut out)?;
        }
        Ok(out)
    }

    #[test]
    fn malformed_block_is_an_error() {
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
        let stop = r#"{"type":"content_block_stop","index":0}"#;
        for block in [r#""x""#, "7", r#"{"type":"tool_use","id":"t"}"#] {
            let start =
                format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
            assert!(decode(&[&start, delta, stop]).is_err(), "{block}");
        }
    }
}
