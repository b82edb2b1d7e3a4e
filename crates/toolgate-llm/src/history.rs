//! Conversation history: encodes a model's turn and the tool results as items of the next request.
//! If the provider speaks the caller's dialect, its own JSON is reused, so that nothing it expects
//! back (signatures, encrypted reasoning) is lost.

use serde_json::{Map, Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::sse;

use crate::body::RequestBody;
use crate::fields::FieldError;
use crate::prompt::{MessageRole, PromptMessage, PromptPart};
use crate::turn::{ModelTurn, TurnItem};
use crate::{chat, messages, responses};

/// Collects a provider's raw output items from a stream.
#[derive(Debug)]
pub struct HistoryCollector {
    dialect: Dialect,
    /// Chat: the message. Messages: the content blocks. Responses: the output items.
    items: Vec<Value>,
    /// Partial JSON of the current block's input.
    input: String,
}

/// Returns the request member that holds the conversation.
pub fn conversation_field(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat | Dialect::Messages => "messages",
        Dialect::Responses => "input",
    }
}

/// Encodes messages as conversation items.
pub fn encode_messages(
    dialect: Dialect,
    messages: &[PromptMessage],
) -> Result<Vec<Value>, FieldError> {
    match dialect {
        Dialect::Chat => chat::encode_messages(messages),
        Dialect::Responses => responses::encode_messages(messages),
        Dialect::Messages => messages::encode_messages(messages),
    }
}

/// Encodes a model's turn as conversation items.
pub fn items_from_turn(dialect: Dialect, turn: &ModelTurn) -> Result<Vec<Value>, FieldError> {
    let parts = turn.items.iter().filter_map(|item| match item {
        TurnItem::Text(text) => Some(PromptPart::Text(text.clone())),
        TurnItem::Refusal(text) => Some(PromptPart::Refusal(text.clone())),
        TurnItem::Reasoning { .. } => Some(PromptPart::Reasoning),
        TurnItem::ToolCall(call) => Some(PromptPart::ToolCall(call.clone())),
        TurnItem::Raw(_) => None,
    });
    encode_messages(
        dialect,
        &[PromptMessage::new(MessageRole::Assistant, parts.collect())],
    )
}

/// Extracts the conversation items of a complete response in the same dialect, unmodified where
/// possible. A response without a message has no items.
pub fn items_from_response(dialect: Dialect, response: &str) -> Vec<Value> {
    let mut response: Value = match serde_json::from_str(response) {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(%error, "leaving an unreadable response out of the conversation");
            return Vec::new();
        }
    };
    match dialect {
        Dialect::Chat => match response.pointer_mut("/choices/0/message").map(Value::take) {
            Some(message @ Value::Object(_)) => vec![to_request_message(message)],
            _ => Vec::new(),
        },
        Dialect::Responses => match response.get_mut("output").map(Value::take) {
            Some(Value::Array(items)) => items.into_iter().map(to_request_item).collect(),
            _ => Vec::new(),
        },
        Dialect::Messages => match response.get_mut("content").map(Value::take) {
            None | Some(Value::Null) => Vec::new(),
            Some(content) => vec![json!({"role": "assistant", "content": content})],
        },
    }
}

/// Returns the conversation as JSON with `items` appended.
pub fn append_items(dialect: Dialect, body: &RequestBody, items: &[Value]) -> String {
    let appended: Vec<String> = items.iter().map(ToString::to_string).collect();
    let appended = appended.join(",");
    let before = body.get(conversation_field(dialect)).unwrap_or("[]").trim();
    match before
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) if inner.trim().is_empty() => format!("[{appended}]"),
        Some(inner) => format!("[{inner},{appended}]"),
        // Responses accepts a plain string in place of a single user message.
        None => format!(r#"[{{"role":"user","content":{before}}},{appended}]"#),
    }
}

/// Returns a relaxed `tool_choice` for the turns after the first, if the caller forced a call.
/// Forcing every turn would keep the model calling tools forever.
pub fn relax_tool_choice(dialect: Dialect, body: &RequestBody) -> Option<String> {
    let mut choice: Value = serde_json::from_str(body.get("tool_choice")?).ok()?;
    if choice["type"] == "allowed_tools" {
        // Chat nests the mode one level deeper than Responses.
        let mode = match dialect {
            Dialect::Chat => choice.pointer_mut("/allowed_tools/mode")?,
            Dialect::Responses | Dialect::Messages => choice.get_mut("mode")?,
        };
        let forced = *mode == "required";
        *mode = json!("auto");
        return forced.then(|| choice.to_string());
    }
    let forced = match (&choice, dialect) {
        (Value::String(word), _) => word == "required",
        (Value::Object(_), Dialect::Messages) => {
            choice["type"] == "any" || choice["type"] == "tool"
        }
        (Value::Object(_), _) => true,
        _ => false,
    };
    forced.then(|| match dialect {
        Dialect::Chat | Dialect::Responses => "\"auto\"".to_owned(),
        Dialect::Messages => {
            let mut relaxed = json!({"type": "auto"});
            if let Some(single) = choice.get("disable_parallel_tool_use") {
                relaxed["disable_parallel_tool_use"] = single.clone();
            }
            relaxed.to_string()
        }
    })
}

impl HistoryCollector {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            items: Vec::new(),
            input: String::new(),
        }
    }

    pub fn push(&mut self, event: &sse::SseEvent) {
        let Ok(event) = serde_json::from_str::<Value>(&event.data) else {
            return;
        };
        match self.dialect {
            Dialect::Chat => {
                if self.items.is_empty() {
                    self.items.push(json!({}));
                }
                if let (Some(Value::Object(message)), Value::Object(delta)) =
                    (self.items.first_mut(), &event["choices"][0]["delta"])
                {
                    merge_delta(message, delta);
                }
            }
            Dialect::Responses => {
                if event["type"] == "response.output_item.done" {
                    self.items.push(to_request_item(event["item"].clone()));
                }
            }
            Dialect::Messages => self.push_block_event(&event),
        }
    }

    /// Returns the items once the stream has ended.
    pub fn into_items(mut self) -> Vec<Value> {
        match self.dialect {
            Dialect::Chat => self.items.drain(..).map(to_request_message).collect(),
            Dialect::Responses => self.items,
            Dialect::Messages => vec![json!({"role": "assistant", "content": self.items})],
        }
    }

    fn push_block_event(&mut self, event: &Value) {
        let delta = &event["delta"];
        match event["type"].as_str() {
            Some("content_block_start") => {
                self.input.clear();
                // Members are set below, which panics on anything but an object.
                self.items.push(match &event["content_block"] {
                    block @ Value::Object(_) => block.clone(),
                    _ => json!({}),
                });
            }
            Some("content_block_delta") => {
                if let Some(json) = delta["partial_json"].as_str() {
                    self.input.push_str(json);
                }
                let Some(block) = self.items.last_mut() else {
                    return;
                };
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[name].as_str() {
                        let before = block[name].as_str().unwrap_or("");
                        block[name] = format!("{before}{more}").into();
                    }
                }
                if let Some(citation) = delta.get("citation") {
                    match block["citations"].as_array_mut() {
                        Some(citations) => citations.push(citation.clone()),
                        None => block["citations"] = json!([citation]),
                    }
                }
            }
            Some("content_block_stop") => {
                if let Some(block) = self.items.last_mut()
                    && !self.input.is_empty()
                {
                    block["input"] =
                        serde_json::from_str(&self.input).unwrap_or_else(|_| json!({}));
                }
            }
            _ => {}
        }
    }
}

/// Converts a chat response message into a request message by dropping response-only members.
fn to_request_message(mut message: Value) -> Value {
    if let Some(members) = message.as_object_mut() {
        members.retain(|name, value| !value.is_null() || name == "content");
        members.entry("role").or_insert_with(|| json!("assistant"));
        members.shift_remove("annotations");
        if let Some(calls) = members.get_mut("tool_calls").and_then(Value::as_array_mut) {
            for call in calls.iter_mut().filter_map(Value::as_object_mut) {
                call.shift_remove("index");
                call.entry("type").or_insert_with(|| json!("function"));
            }
        }
    }
    message
}

/// Converts a response item into a request item; unknown item types stay unchanged.
fn to_request_item(mut item: Value) -> Value {
    let known = ["message", "reasoning", "function_call"];
    let is_known = item["type"]
        .as_str()
        .is_none_or(|kind| known.contains(&kind));
    if let Some(members) = item.as_object_mut().filter(|_| is_known) {
        members.shift_remove("status");
    }
    item
}

/// Merges a delta into a message: strings are appended, array items are matched by `index`, and
/// other values are replaced.
fn merge_delta(message: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, more) in delta {
        let is_atomic = matches!(name.as_str(), "role" | "id" | "type" | "name" | "index");
        match (message.get_mut(name), more) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if !is_atomic => text.push_str(more),
            (Some(Value::String(text)), Value::String(more)) => {
                // Some providers repeat these in every chunk, others send empty ones after the first.
                if text.is_empty() {
                    text.clone_from(more);
                }
            }
            (Some(Value::Object(before)), Value::Object(more)) => merge_delta(before, more),
            (Some(Value::Array(before)), Value::Array(more)) => merge_list(before, more),
            (None, Value::Array(more)) => {
                let mut list = Vec::new();
                merge_list(&mut list, more);
                message.insert(name.clone(), Value::Array(list));
            }
            _ => drop(message.insert(name.clone(), more.clone())),
        }
    }
}

fn merge_list(before: &mut Vec<Value>, more: &[Value]) {
    for item in more {
        let index = item.get("index").filter(|index| index.is_u64());
        let same = |known: &&mut Value| index.is_some() && known.get("index") == index;
        match (before.iter_mut().find(same), item) {
            (Some(Value::Object(known)), Value::Object(item)) => merge_delta(known, item),
            _ => before.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn collect(dialect: Dialect, events: &[Value]) -> Vec<Value> {
        let mut collector = HistoryCollector::new(dialect);
        for event in events {
            collector.push(&sse::SseEvent {
                data: event.to_string(),
                ..sse::SseEvent::default()
            });
        }
        collector.into_items()
    }

    #[test]
    fn collector_rebuilds_message_from_stream() {
        let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
        let chat = collect(
            Dialect::Chat,
            &[
                delta(json!({"role": "assistant", "content": "", "reasoning_content": "h"})),
                delta(json!({"content": "a", "reasoning_content": "m"})),
                delta(
                    json!({"content": "b", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}, "extra_content": {"sig": "x"}}]}),
                ),
                delta(
                    json!({"tool_calls": [{"index": 0, "id": "", "function": {"arguments": "}"}}, {"index": 1, "id": "d", "function": {"name": "g", "arguments": ""}}]}),
                ),
                json!({"choices": [], "usage": {}}),
            ],
        );
        assert_eq!(
            chat,
            [
                json!({"role": "assistant", "content": "ab", "reasoning_content": "hm", "tool_calls": [
                {"id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"sig": "x"}, "type": "function"},
                {"id": "d", "function": {"name": "g", "arguments": ""}, "type": "function"}]})
            ]
        );
        let start = |block: Value| json!({"type": "content_block_start", "content_block": block});
        let more = |delta: Value| json!({"type": "content_block_delta", "delta": delta});
        let stop = json!({"type": "content_block_stop"});
        let messages = collect(
            Dialect::Messages,
            &[
                start(json!({"type": "thinking", "thinking": "", "signature": ""})),
                more(json!({"type": "thinking_delta", "thinking": "hm"})),
                more(json!({"type": "signature_delta", "signature": "s"})),
                stop.clone(),
                start(json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})),
                more(json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
                more(json!({"type": "input_json_delta", "partial_json": "1}"})),
                stop,
            ],
        );
        assert_eq!(
            messages,
            [json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]})]
        );
    }

    #[test]
    fn collector_survives_malformed_blocks() {
        let start = json!({"type": "content_block_start", "content_block": "x"});
        let delta = json!({"type": "content_block_delta",
            "delta": {"text": "a", "citation": 1, "partial_json": "{}"}});
        let stop = json!({"type": "content_block_stop"});
        let items = collect(Dialect::Messages, &[start, delta, stop]);
        assert_eq!(items[0]["content"][0]["text"], "a");
    }

    #[test]
    fn response_without_a_message_has_no_items() {
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
            for response in ["", "{}", r#"{"error":{}}"#, "[]", r#"{"choices":[]}"#] {
                let items = items_from_response(dialect, response);
                assert_eq!(items, [] as [Value; 0], "{dialect:?} {response}");
            }
        }
        let chat = r#"{"choices":[{"message":{"content":"a","refusal":null}}]}"#;
        assert_eq!(
            items_from_response(Dialect::Chat, chat),
            [json!({"content": "a", "role": "assistant"})]
        );
    }

    #[test]
    fn append_items_extends_conversation_and_tool_choice_is_relaxed() {
        let body =
            |text: &'static str| RequestBody::parse(Bytes::from_static(text.as_bytes())).unwrap();
        let more = [json!({"n": 1}), json!(2)];
        let append = |dialect, text| append_items(dialect, &body(text), &more);
        assert_eq!(
            append(Dialect::Chat, r#"{"messages": [ 1.0 ]}"#),
            r#"[ 1.0 ,{"n":1},2]"#
        );
        assert_eq!(append(Dialect::Chat, "{}"), r#"[{"n":1},2]"#);
        assert_eq!(
            append(Dialect::Responses, r#"{"input":"é"}"#),
            r#"[{"role":"user","content":"é"},{"n":1},2]"#
        );
        assert_eq!(
            relax_tool_choice(Dialect::Chat, &body(r#"{"tool_choice":"auto"}"#)),
            None
        );
        assert_eq!(
            relax_tool_choice(Dialect::Chat, &body(r#"{"tool_choice":"required"}"#)).as_deref(),
            Some("\"auto\"")
        );
        let forced =
            r#"{"tool_choice":{"type":"tool","name":"x","disable_parallel_tool_use":true}}"#;
        let relaxed = r#"{"type":"auto","disable_parallel_tool_use":true}"#;
        assert_eq!(
            relax_tool_choice(Dialect::Messages, &body(forced)).as_deref(),
            Some(relaxed)
        );
    }
}
