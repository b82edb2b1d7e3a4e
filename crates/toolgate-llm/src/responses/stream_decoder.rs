//! Decodes streamed responses.

use serde_json::{Value, json};
use toolgate_core::sse;

use super::response::{
    REASONING_SEPARATOR, UnknownItems, array_or_empty, call_start_event, decode_item,
    decode_message, decode_proof, reasoning_text, string_or_empty, unknown_item_error,
    unknown_part_error,
};
use super::{decode_usage, final_event};
use crate::chat::decode_error;
use crate::event::{
    ProviderError, ReasoningProof, ResponseDecodeError, TurnEvent, nameless_call_error,
};

/// Decodes a stream of server-sent events into turn events.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    started: bool,
    items: Vec<OpenItem>,
    /// Number of tool calls started so far.
    calls: usize,
    unknown_items: UnknownItems,
    /// Whether any raw item was emitted.
    emitted_raw: bool,
    done: bool,
}

/// An output item that has started.
#[derive(Debug)]
struct OpenItem {
    kind: ItemKind,
    /// Index in the output. Some servers omit it, others send a new item id with each event.
    output_index: Option<u64>,
    id: String,
    /// Event index of a tool call.
    call_index: usize,
    /// Proof sent when reasoning starts.
    proof: Option<ReasoningProof>,
    /// Current reasoning part: the name of its index member, and the index.
    part: Option<(&'static str, Option<u64>)>,
    /// Whether any content was emitted.
    emitted: bool,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    Call,
}

impl ResponsesDecoder {
    /// Passes dialect-specific items through as raw events instead of rejecting them.
    #[must_use]
    pub fn preserve_raw(mut self) -> Self {
        self.unknown_items = UnknownItems::Preserve;
        self
    }

    pub fn decode(
        &mut self,
        event: &sse::SseEvent,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        if event.data.is_empty() || event.data == "[DONE]" || self.done {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data)?;
        match data["type"].as_str().unwrap_or(&event.name) {
            "response.created" | "response.in_progress" | "response.queued" => {
                self.start(&data["response"], out);
            }
            "response.output_item.added" => match item_kind(&data["item"]) {
                Ok(kind) => {
                    self.begin_item(kind, &data, &data["item"], out)?;
                }
                Err(error) => self.push_raw_item(None, error, out)?,
            },
            "response.output_item.done" => self.finish_item(&data, out)?,
            "response.content_part.added" => match data["part"]["type"].as_str() {
                None | Some("output_text" | "refusal" | "reasoning_text") => {}
                other => return Err(unknown_part_error(other)),
            },
            "response.output_text.annotation.added"
                if self.unknown_items == UnknownItems::Preserve =>
            {
                out.push(TurnEvent::Annotation(data["annotation"].clone()));
            }
            "response.output_text.delta" => self.decode_text_delta(&data, TurnEvent::Text, out)?,
            "response.refusal.delta" => self.decode_text_delta(&data, TurnEvent::Refusal, out)?,
            "response.reasoning_summary_text.delta" => {
                self.decode_reasoning_delta(&data, "summary_index", out)?
            }
            "response.reasoning_text.delta" => {
                self.decode_reasoning_delta(&data, "content_index", out)?
            }
            "response.function_call_arguments.delta" => self.decode_arguments_delta(&data, out)?,
            "response.completed" => self.finish(&data["response"], "completed", out)?,
            "response.incomplete" => self.finish(&data["response"], "incomplete", out)?,
            "response.failed" => self.finish(&data["response"], "failed", out)?,
            "response.cancelled" => self.finish(&data["response"], "cancelled", out)?,
            kind if kind == "error" || !data["error"].is_null() => {
                self.done = true;
                out.push(TurnEvent::Error(decode_stream_error(&data)));
            }
            // Unknown events, such as keep-alives, are harmless unless they carry content.
            kind if !data["delta"].is_null() && self.unknown_items == UnknownItems::Reject => {
                return Err(ResponseDecodeError::new(format!(
                    "unsupported stream event of type `{kind}`"
                )));
            }
            _ => {}
        }
        Ok(())
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    fn start(&mut self, response: &Value, out: &mut Vec<TurnEvent>) {
        if !std::mem::replace(&mut self.started, true) {
            out.push(TurnEvent::Start {
                id: string_or_empty(&response["id"]),
                model: string_or_empty(&response["model"]),
            });
        }
    }

    /// Starts an item and returns its position in `items`.
    fn begin_item(
        &mut self,
        kind: ItemKind,
        data: &Value,
        item: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<usize, ResponseDecodeError> {
        self.start(&Value::Null, out);
        self.end_reasoning(out);
        let (id, call_index) = (string_or_empty(&item["id"]), self.calls);
        match kind {
            ItemKind::Reasoning if !id.is_empty() => {
                out.push(TurnEvent::ReasoningStart(id.clone()))
            }
            ItemKind::Message | ItemKind::Reasoning => {}
            ItemKind::Call => {
                self.calls += 1;
                out.push(call_start_event(item, call_index)?);
            }
        }
        self.items.push(OpenItem {
            kind,
            output_index: data["output_index"].as_u64(),
            id,
            call_index,
            proof: decode_proof(item),
            part: None,
            emitted: false,
            ended: false,
        });
        Ok(self.items.len() - 1)
    }

    /// Finds the item that an event refers to: by output index, then by id, then the last open one
    /// if the event has no output index.
    fn find_item(&self, data: &Value, kind: ItemKind) -> Option<usize> {
        let find = |is: &dyn Fn(&OpenItem) -> bool| {
            let mut items = self.items.iter();
            items.rposition(|item| item.kind == kind && is(item))
        };
        let at = data["output_index"].as_u64();
        let id = data["item_id"].as_str().or(data["item"]["id"].as_str());
        let id = id.filter(|id| !id.is_empty());
        let found = at.and_then(|at| find(&|item| item.output_index == Some(at)));
        let found = found.or_else(|| id.and_then(|id| find(&|item| item.id == id)));
        match at {
            None => found.or_else(|| find(&|item| !item.ended)),
            Some(_) => found,
        }
    }

    /// Returns the item that an event refers to, starting it if no start event was sent.
    fn find_or_begin_item(
        &mut self,
        kind: ItemKind,
        data: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<&mut OpenItem, ResponseDecodeError> {
        let at = match self.find_item(data, kind) {
            Some(at) => at,
            None => self.begin_item(kind, data, &json!({"id": data["item_id"]}), out)?,
        };
        Ok(&mut self.items[at])
    }

    fn decode_text_delta(
        &mut self,
        data: &Value,
        event: fn(String) -> TurnEvent,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let delta = string_or_empty(&data["delta"]);
        if !delta.is_empty() {
            self.find_or_begin_item(ItemKind::Message, data, out)?
                .emitted = true;
            out.push(event(delta));
        }
        Ok(())
    }

    fn decode_reasoning_delta(
        &mut self,
        data: &Value,
        index: &'static str,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let delta = string_or_empty(&data["delta"]);
        if delta.is_empty() {
            return Ok(());
        }
        let item = self.find_or_begin_item(ItemKind::Reasoning, data, out)?;
        item.emitted = true;
        let part = (index, data[index].as_u64());
        if item.part.replace(part).is_some_and(|last| last != part) {
            out.push(TurnEvent::Reasoning(REASONING_SEPARATOR.to_owned()));
        }
        out.push(TurnEvent::Reasoning(delta));
        Ok(())
    }

    fn decode_arguments_delta(
        &mut self,
        data: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let arguments = string_or_empty(&data["delta"]);
        let Some(at) = self.find_item(data, ItemKind::Call) else {
            // The name is in the start event, which is missing.
            return Err(nameless_call_error());
        };
        if !arguments.is_empty() {
            let item = &mut self.items[at];
            item.emitted = true;
            let index = item.call_index;
            out.push(TurnEvent::CallDelta { index, arguments });
        }
        Ok(())
    }

    /// Completes an item, emitting content that no delta carried.
    fn finish_item(
        &mut self,
        data: &Value,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        let value = &data["item"];
        let kind = match item_kind(value) {
            Ok(kind) => kind,
            Err(error) => return self.push_raw_item(Some(value), error, out),
        };
        let at = match self.find_item(data, kind) {
            Some(at) => at,
            None => self.begin_item(kind, data, value, out)?,
        };
        let item = &mut self.items[at];
        let was_emitted = std::mem::replace(&mut item.emitted, true);
        let had_ended = std::mem::replace(&mut item.ended, true);
        match kind {
            ItemKind::Message if !was_emitted => decode_message(value, self.unknown_items, out)?,
            ItemKind::Message => {}
            ItemKind::Reasoning => {
                let reasoning =
                    Some(reasoning_text(value)).filter(|text| !was_emitted && !text.is_empty());
                out.extend(reasoning.map(TurnEvent::Reasoning));
                if !had_ended {
                    out.push(TurnEvent::ReasoningEnd(
                        decode_proof(value).or(item.proof.take()),
                    ));
                }
            }
            ItemKind::Call => {
                let index = item.call_index;
                let arguments = string_or_empty(&value["arguments"]);
                if !was_emitted && !arguments.is_empty() {
                    out.push(TurnEvent::CallDelta { index, arguments });
                }
                if !had_ended {
                    out.push(TurnEvent::CallEnd { index });
                }
            }
        }
        Ok(())
    }

    /// Handles a dialect-specific item, which is emitted only once it is complete.
    fn push_raw_item(
        &mut self,
        item: Option<&Value>,
        error: ResponseDecodeError,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        if self.unknown_items == UnknownItems::Reject {
            return Err(error);
        }
        self.start(&Value::Null, out);
        self.end_reasoning(out);
        self.emitted_raw |= item.is_some();
        out.extend(item.cloned().map(TurnEvent::Raw));
        Ok(())
    }

    fn finish(
        &mut self,
        response: &Value,
        default_status: &str,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        self.start(response, out);
        if self.items.is_empty() && !self.emitted_raw {
            for item in array_or_empty(&response["output"]) {
                decode_item(item, self.unknown_items, &mut self.calls, out)?;
            }
        }
        self.end_reasoning(out);
        let calls = self.items.iter();
        let calls = calls.filter(|item| item.kind == ItemKind::Call && !item.ended);
        out.extend(calls.map(|item| TurnEvent::CallEnd {
            index: item.call_index,
        }));
        if response["usage"].is_object() {
            out.push(TurnEvent::Usage(decode_usage(&response["usage"])));
        }
        // Some servers do not update the status in the final response object.
        let status = response["status"].as_str();
        let status = status.filter(|status| !matches!(*status, "in_progress" | "queued"));
        let status = status.unwrap_or(default_status);
        out.push(final_event(response, status, self.calls > 0)?);
        self.done = true;
        Ok(())
    }

    /// Ends open reasoning when another item starts; some servers send its end only at the very end.
    fn end_reasoning(&mut self, out: &mut Vec<TurnEvent>) {
        let items = self.items.iter_mut();
        for item in items.filter(|item| item.kind == ItemKind::Reasoning && !item.ended) {
            item.ended = true;
            out.push(TurnEvent::ReasoningEnd(item.proof.take()));
        }
    }
}

fn item_kind(item: &Value) -> Result<ItemKind, ResponseDecodeError> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => Ok(ItemKind::Message),
        "reasoning" => Ok(ItemKind::Reasoning),
        "function_call" => Ok(ItemKind::Call),
        other => Err(unknown_item_error(other)),
    }
}

/// Decodes an `error` event, whose error is an object or the event itself.
fn decode_stream_error(data: &Value) -> ProviderError {
    match &data["error"] {
        Value::Null => ProviderError {
            kind: None,
            ..decode_error(data)
        },
        error => decode_error(error),
    }
}
