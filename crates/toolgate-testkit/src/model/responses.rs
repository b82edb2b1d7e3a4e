//! Wire format of OpenAI Responses.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::api::named_event;
use super::turn::{
    RequestInfo, ScriptedCall, ScriptedTurn, ScriptedUsage, split_fragments, split_words,
};

const CREATED: u64 = 1_700_000_000;

pub(crate) fn response_body(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Value {
    let completion = completion(turn);
    let items = output_items(turn, request);
    let output: Vec<Value> = items
        .iter()
        .map(|item| item.done_json(completion.status))
        .collect();
    let mut response = response(turn, request, completion.status, &output);
    response["usage"] = usage(turn.usage);
    response["completed_at"] = json!(CREATED);
    if let Some(reason) = completion.reason {
        response["incomplete_details"] = json!({ "reason": reason });
    }
    response
}

pub(crate) fn stream_events(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Vec<Bytes> {
    let mut events = EventLog {
        turn,
        events: Vec::new(),
    };
    let opening = response(turn, request, "in_progress", &[]);
    events.push("response.created", json!({ "response": opening }));
    events.push("response.in_progress", json!({ "response": opening }));
    let completion = completion(turn);
    for (index, item) in output_items(turn, request).iter().enumerate() {
        let added = json!({ "output_index": index, "item": item.added_json() });
        events.push("response.output_item.added", added);
        item.push_deltas(index, &mut events);
        let done = json!({ "output_index": index, "item": item.done_json(completion.status) });
        events.push("response.output_item.done", done);
    }
    events.push(
        completion.event,
        json!({ "response": response_body(turn, request) }),
    );
    events.events
}

/// Events so far, numbered in sequence.
struct EventLog<'a> {
    turn: &'a ScriptedTurn,
    events: Vec<Bytes>,
}

/// Final event and status of a response.
struct Completion {
    event: &'static str,
    status: &'static str,
    reason: Option<&'static str>,
}

/// An output item with its id.
enum OutputItem<'a> {
    Reasoning {
        id: String,
        text: &'a str,
        /// Whether the request asks for the encrypted reasoning.
        encrypted: bool,
    },
    Message(String, &'a str),
    Call(String, &'a ScriptedCall),
}

impl EventLog<'_> {
    fn push(&mut self, kind: &str, fields: Value) {
        let mut event = json!({ "type": kind, "sequence_number": self.events.len() });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.events
            .push(named_event(&self.turn.add_extra_fields(event)));
    }

    /// Adds an event about a position within an item.
    fn push_at(&mut self, kind: &str, position: &Value, fields: Value) {
        let mut event = position.clone();
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.push(kind, event);
    }
}

impl OutputItem<'_> {
    fn added_json(&self) -> Value {
        match self {
            Self::Reasoning { id, .. } => json!({ "id": id, "type": "reasoning", "summary": [] }),
            Self::Message(id, _) => message(id, "in_progress", &[]),
            Self::Call(id, call) => function_call(id, "in_progress", call, ""),
        }
    }

    fn done_json(&self, status: &str) -> Value {
        match self {
            Self::Reasoning {
                id,
                text,
                encrypted,
            } => {
                let mut item =
                    json!({ "id": id, "type": "reasoning", "summary": [summary_text(text)] });
                if *encrypted {
                    item["encrypted_content"] = json!(format!("encrypted-{id}"));
                }
                item
            }
            Self::Message(id, text) => message(id, status, &[output_text(text)]),
            Self::Call(id, call) => function_call(id, status, call, &call.arguments),
        }
    }

    /// Adds the events between `output_item.added` and `output_item.done`.
    fn push_deltas(&self, index: usize, events: &mut EventLog<'_>) {
        match self {
            Self::Reasoning { id, text, .. } => {
                let at = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
                let part = |text| json!({ "part": summary_text(text) });
                events.push_at("response.reasoning_summary_part.added", &at, part(""));
                for word in split_words(text) {
                    let delta = json!({ "delta": word });
                    events.push_at("response.reasoning_summary_text.delta", &at, delta);
                }
                let done = json!({ "text": text });
                events.push_at("response.reasoning_summary_text.done", &at, done);
                events.push_at("response.reasoning_summary_part.done", &at, part(text));
            }
            Self::Message(id, text) => {
                let at = json!({ "item_id": id, "output_index": index, "content_index": 0 });
                let part = |text| json!({ "part": output_text(text) });
                events.push_at("response.content_part.added", &at, part(""));
                for word in split_words(text) {
                    let delta = json!({ "delta": word, "logprobs": [] });
                    events.push_at("response.output_text.delta", &at, delta);
                }
                let done = json!({ "text": text, "logprobs": [] });
                events.push_at("response.output_text.done", &at, done);
                events.push_at("response.content_part.done", &at, part(text));
            }
            Self::Call(id, call) => {
                let at = json!({ "item_id": id, "output_index": index });
                for fragment in split_fragments(&call.arguments) {
                    let delta = json!({ "delta": fragment });
                    events.push_at("response.function_call_arguments.delta", &at, delta);
                }
                let done = json!({ "name": call.name, "arguments": call.arguments });
                events.push_at("response.function_call_arguments.done", &at, done);
            }
        }
    }
}

fn output_items<'a>(turn: &'a ScriptedTurn, request: RequestInfo<'_>) -> Vec<OutputItem<'a>> {
    let number = request.number;
    let mut items = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        let include = request.body["include"].as_array();
        items.push(OutputItem::Reasoning {
            id: format!("rs_{number}"),
            text: reasoning,
            encrypted: include
                .is_some_and(|names| names.contains(&json!("reasoning.encrypted_content"))),
        });
    }
    if let Some(text) = &turn.text {
        items.push(OutputItem::Message(format!("msg_{number}"), text));
    }
    items.extend(
        turn.calls
            .iter()
            .enumerate()
            .map(|(index, call)| OutputItem::Call(format!("fc_{number}_{index}"), call)),
    );
    items
}

fn completion(turn: &ScriptedTurn) -> Completion {
    let reason = match turn.finish_reason() {
        "length" => Some("max_output_tokens"),
        "content_filter" => Some("content_filter"),
        _ => None,
    };
    let (event, status) = match reason {
        Some(_) => ("response.incomplete", "incomplete"),
        None => ("response.completed", "completed"),
    };
    Completion {
        event,
        status,
        reason,
    }
}

/// Builds the response object, which echoes fields of the request.
fn response(
    turn: &ScriptedTurn,
    request: RequestInfo<'_>,
    status: &str,
    output: &[Value],
) -> Value {
    let mut response = json!({
        "id": format!("resp_{}", request.number),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": false,
        "completed_at": null,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "model": request.model(),
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": { "effort": null, "summary": null },
        "safety_identifier": null,
        "service_tier": "default",
        "store": true,
        "temperature": 1.0,
        "text": { "format": { "type": "text" }, "verbosity": "medium" },
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
        "user": null,
    });
    if let (Value::Object(response), Value::Object(fields)) = (&mut response, request.body) {
        echo_request_fields(fields, response);
    }
    turn.add_extra_fields(response)
}

fn echo_request_fields(fields: &Map<String, Value>, response: &mut Map<String, Value>) {
    const ECHOED_FIELDS: [&str; 15] = [
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "reasoning",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "user",
    ];
    for name in ECHOED_FIELDS {
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            response.insert(name.to_owned(), value.clone());
        }
    }
}

fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

fn function_call(id: &str, status: &str, call: &ScriptedCall, arguments: &str) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status,
        "call_id": call.id, "name": call.name, "arguments": arguments,
    })
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text })
}

fn summary_text(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn usage(usage: ScriptedUsage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": 0 },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.input + usage.output,
    })
}
