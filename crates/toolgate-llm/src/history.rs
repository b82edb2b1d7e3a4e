//! How a conversation goes on: what a model made in one turn, and what tools answered, as items of
//! the next request. Where a provider speaks the caller's dialect they are its own words, so that
//! nothing it wants to see again is lost.

use serde_json::{Map, Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::sse;

use crate::body::Body;
use crate::fields::BadField;
use crate::prompt::{Message, Part, Role};
use crate::turn::{Item, Turn};
use crate::{chat, messages, responses};

/// Gathers the words of a provider from a stream.
#[derive(Debug)]
pub struct Gathering {
    dialect: Dialect,
    /// Of a chat completion: the message; of a message: its blocks; of a response: its items.
    made: Vec<Value>,
    /// The input of the block that is being told, as text.
    input: String,
}

/// The member of a request that holds the conversation.
pub fn member(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat | Dialect::Messages => "messages",
        Dialect::Responses => "input",
    }
}

/// Messages as items of a conversation.
pub fn items(dialect: Dialect, said: &[Message]) -> Result<Vec<Value>, BadField> {
    match dialect {
        Dialect::Chat => chat::items(said),
        Dialect::Responses => responses::items(said),
        Dialect::Messages => messages::items(said),
    }
}

/// What a model made, as an item or items of a conversation.
pub fn of_turn(dialect: Dialect, turn: &Turn) -> Result<Vec<Value>, BadField> {
    let parts = turn.items.iter().filter_map(|item| match item {
        Item::Text(text) => Some(Part::Text(text.clone())),
        Item::Refusal(text) => Some(Part::Refusal(text.clone())),
        Item::Reasoning { .. } => Some(Part::Reasoning),
        Item::Call(call) => Some(Part::Call(call.clone())),
        Item::Raw(_) => None,
    });
    items(dialect, &[Message::new(Role::Assistant, parts.collect())])
}

/// The same from a whole answer in the same dialect, in its own words.
pub fn of_answer(dialect: Dialect, answer: &str) -> Vec<Value> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match dialect {
        Dialect::Chat => vec![said_again(answer["choices"][0]["message"].clone())],
        Dialect::Responses => list(&answer["output"]).into_iter().map(kept).collect(),
        Dialect::Messages => vec![json!({"role": "assistant", "content": answer["content"]})],
    }
}

/// A conversation with more items at its end, as JSON.
pub fn extended(dialect: Dialect, body: &Body, items: &[Value]) -> String {
    let more: Vec<String> = items.iter().map(ToString::to_string).collect();
    let more = more.join(",");
    let before = body.get(member(dialect)).unwrap_or("[]").trim();
    match before
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) if inner.trim().is_empty() => format!("[{more}]"),
        Some(inner) => format!("[{inner},{more}]"),
        // Responses takes a text for one message.
        None => format!(r#"[{{"role":"user","content":{before}}},{more}]"#),
    }
}

/// `tool_choice` for the turns after the first: what was forced once is free then.
pub fn free_choice(dialect: Dialect, body: &Body) -> Option<String> {
    let mut choice: Value = serde_json::from_str(body.get("tool_choice")?).ok()?;
    if choice["type"] == "allowed_tools" {
        // Chat has the mode one level deeper than Responses.
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
            let mut free = json!({"type": "auto"});
            if let Some(single) = choice.get("disable_parallel_tool_use") {
                free["disable_parallel_tool_use"] = single.clone();
            }
            free.to_string()
        }
    })
}

impl Gathering {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            made: Vec::new(),
            input: String::new(),
        }
    }

    pub fn take(&mut self, event: &sse::Event) {
        let Ok(event) = serde_json::from_str::<Value>(&event.data) else {
            return;
        };
        match self.dialect {
            Dialect::Chat => {
                if self.made.is_empty() {
                    self.made.push(json!({}));
                }
                if let (Some(Value::Object(message)), Value::Object(delta)) =
                    (self.made.first_mut(), &event["choices"][0]["delta"])
                {
                    merge(message, delta);
                }
            }
            Dialect::Responses => {
                if event["type"] == "response.output_item.done" {
                    self.made.push(kept(event["item"].clone()));
                }
            }
            Dialect::Messages => self.block(&event),
        }
    }

    /// The items, once the stream has ended.
    pub fn items(mut self) -> Vec<Value> {
        match self.dialect {
            Dialect::Chat => self.made.drain(..).map(said_again).collect(),
            Dialect::Responses => self.made,
            Dialect::Messages => vec![json!({"role": "assistant", "content": self.made})],
        }
    }

    fn block(&mut self, event: &Value) {
        let delta = &event["delta"];
        match event["type"].as_str() {
            Some("content_block_start") => {
                self.input.clear();
                self.made.push(event["content_block"].clone());
            }
            Some("content_block_delta") => {
                if let Some(json) = delta["partial_json"].as_str() {
                    self.input.push_str(json);
                }
                let Some(block) = self.made.last_mut() else {
                    return;
                };
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[name].as_str() {
                        let before = block[name].as_str().unwrap_or_default();
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
                if let Some(block) = self.made.last_mut()
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

/// A message of a chat completion as it is said again: without what only an answer has.
fn said_again(mut message: Value) -> Value {
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

/// An item of a response as it is said again; what only this dialect has is left as it is.
fn kept(mut item: Value) -> Value {
    let known = ["message", "reasoning", "function_call"];
    let is_known = item["type"]
        .as_str()
        .is_none_or(|kind| known.contains(&kind));
    if let Some(members) = item.as_object_mut().filter(|_| is_known) {
        members.shift_remove("status");
    }
    item
}

/// Adds a delta to a message: texts grow, lists are told by index, the rest is as it was told last.
fn merge(message: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, more) in delta {
        let whole = matches!(name.as_str(), "role" | "id" | "type" | "name" | "index");
        match (message.get_mut(name), more) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if !whole => text.push_str(more),
            (Some(Value::String(text)), Value::String(more)) => {
                // Some say it with every piece, some an empty one after the first.
                if text.is_empty() {
                    text.clone_from(more);
                }
            }
            (Some(Value::Object(before)), Value::Object(more)) => merge(before, more),
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
            (Some(Value::Object(known)), Value::Object(item)) => merge(known, item),
            _ => before.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn gathered(dialect: Dialect, events: &[Value]) -> Vec<Value> {
        let mut gathering = Gathering::new(dialect);
        for event in events {
            gathering.take(&sse::Event {
                data: event.to_string(),
                ..sse::Event::default()
            });
        }
        gathering.items()
    }

    #[test]
    fn pieces_become_the_message_that_they_are_of() {
        let delta = |delta: Value| json!({"choices": [{"delta": delta}]});
        let chat = gathered(
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
        let messages = gathered(
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
    fn conversations_go_on() {
        let body = |text: &'static str| Body::read(Bytes::from_static(text.as_bytes())).unwrap();
        let more = [json!({"n": 1}), json!(2)];
        let longer = |dialect, text| extended(dialect, &body(text), &more);
        assert_eq!(
            longer(Dialect::Chat, r#"{"messages": [ 1.0 ]}"#),
            r#"[ 1.0 ,{"n":1},2]"#
        );
        assert_eq!(longer(Dialect::Chat, "{}"), r#"[{"n":1},2]"#);
        assert_eq!(
            longer(Dialect::Responses, r#"{"input":"é"}"#),
            r#"[{"role":"user","content":"é"},{"n":1},2]"#
        );
        assert_eq!(
            free_choice(Dialect::Chat, &body(r#"{"tool_choice":"auto"}"#)),
            None
        );
        assert_eq!(
            free_choice(Dialect::Chat, &body(r#"{"tool_choice":"required"}"#)).as_deref(),
            Some("\"auto\"")
        );
        let forced =
            r#"{"tool_choice":{"type":"tool","name":"x","disable_parallel_tool_use":true}}"#;
        let free = r#"{"type":"auto","disable_parallel_tool_use":true}"#;
        assert_eq!(
            free_choice(Dialect::Messages, &body(forced)).as_deref(),
            Some(free)
        );
    }
}
