//! OpenAI Responses.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::api::named;
use super::turn::{Ask, Call, Turn, Usage, shreds, words};

const CREATED: u64 = 1_700_000_000;

pub(crate) fn whole(turn: &Turn, ask: Ask<'_>) -> Value {
    let end = end(turn);
    let items = items(turn, ask);
    let output: Vec<Value> = items.iter().map(|item| item.done(end.status)).collect();
    let mut response = response(turn, ask, end.status, &output);
    response["usage"] = usage(turn.usage);
    response["completed_at"] = json!(CREATED);
    if let Some(reason) = end.reason {
        response["incomplete_details"] = json!({ "reason": reason });
    }
    response
}

pub(crate) fn events(turn: &Turn, ask: Ask<'_>) -> Vec<Bytes> {
    let mut events = Events {
        turn,
        told: Vec::new(),
    };
    let opening = response(turn, ask, "in_progress", &[]);
    events.tell("response.created", json!({ "response": opening }));
    events.tell("response.in_progress", json!({ "response": opening }));
    let end = end(turn);
    for (index, item) in items(turn, ask).iter().enumerate() {
        let added = json!({ "output_index": index, "item": item.opening() });
        events.tell("response.output_item.added", added);
        item.stream(index, &mut events);
        let done = json!({ "output_index": index, "item": item.done(end.status) });
        events.tell("response.output_item.done", done);
    }
    events.tell(end.event, json!({ "response": whole(turn, ask) }));
    events.told
}

/// The events so far; each gets the next number.
struct Events<'a> {
    turn: &'a Turn,
    told: Vec<Bytes>,
}

/// How the response ends.
struct End {
    event: &'static str,
    status: &'static str,
    reason: Option<&'static str>,
}

/// One item of the output, with its id.
enum Item<'a> {
    Reasoning(String, &'a str),
    Message(String, &'a str),
    Call(String, &'a Call),
}

impl Events<'_> {
    fn tell(&mut self, kind: &str, fields: Value) {
        let mut event = json!({ "type": kind, "sequence_number": self.told.len() });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.told.push(named(&self.turn.dress(event)));
    }

    /// The same, about a place in an item.
    fn tell_at(&mut self, kind: &str, place: &Value, fields: Value) {
        let mut told = place.clone();
        if let (Value::Object(told), Value::Object(fields)) = (&mut told, fields) {
            told.extend(fields);
        }
        self.tell(kind, told);
    }
}

impl Item<'_> {
    fn opening(&self) -> Value {
        match self {
            Self::Reasoning(id, _) => json!({ "id": id, "type": "reasoning", "summary": [] }),
            Self::Message(id, _) => message(id, "in_progress", &[]),
            Self::Call(id, call) => function_call(id, "in_progress", call, ""),
        }
    }

    fn done(&self, status: &str) -> Value {
        match self {
            Self::Reasoning(id, text) => {
                json!({ "id": id, "type": "reasoning", "summary": [summary_text(text)] })
            }
            Self::Message(id, text) => message(id, status, &[output_text(text)]),
            Self::Call(id, call) => function_call(id, status, call, &call.arguments),
        }
    }

    /// The events between `output_item.added` and `output_item.done`.
    fn stream(&self, index: usize, events: &mut Events<'_>) {
        match self {
            Self::Reasoning(id, text) => {
                let at = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
                let part = |text| json!({ "part": summary_text(text) });
                events.tell_at("response.reasoning_summary_part.added", &at, part(""));
                for word in words(text) {
                    let delta = json!({ "delta": word });
                    events.tell_at("response.reasoning_summary_text.delta", &at, delta);
                }
                let done = json!({ "text": text });
                events.tell_at("response.reasoning_summary_text.done", &at, done);
                events.tell_at("response.reasoning_summary_part.done", &at, part(text));
            }
            Self::Message(id, text) => {
                let at = json!({ "item_id": id, "output_index": index, "content_index": 0 });
                let part = |text| json!({ "part": output_text(text) });
                events.tell_at("response.content_part.added", &at, part(""));
                for word in words(text) {
                    let delta = json!({ "delta": word, "logprobs": [] });
                    events.tell_at("response.output_text.delta", &at, delta);
                }
                let done = json!({ "text": text, "logprobs": [] });
                events.tell_at("response.output_text.done", &at, done);
                events.tell_at("response.content_part.done", &at, part(text));
            }
            Self::Call(id, call) => {
                let at = json!({ "item_id": id, "output_index": index });
                for shred in shreds(&call.arguments) {
                    let delta = json!({ "delta": shred });
                    events.tell_at("response.function_call_arguments.delta", &at, delta);
                }
                let done = json!({ "name": call.name, "arguments": call.arguments });
                events.tell_at("response.function_call_arguments.done", &at, done);
            }
        }
    }
}

fn items<'a>(turn: &'a Turn, ask: Ask<'_>) -> Vec<Item<'a>> {
    let number = ask.number;
    let mut items = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        items.push(Item::Reasoning(format!("rs_{number}"), reasoning));
    }
    if let Some(text) = &turn.text {
        items.push(Item::Message(format!("msg_{number}"), text));
    }
    items.extend(
        turn.calls
            .iter()
            .enumerate()
            .map(|(index, call)| Item::Call(format!("fc_{number}_{index}"), call)),
    );
    items
}

fn end(turn: &Turn) -> End {
    let reason = match turn.finish() {
        "length" => Some("max_output_tokens"),
        "content_filter" => Some("content_filter"),
        _ => None,
    };
    let (event, status) = match reason {
        Some(_) => ("response.incomplete", "incomplete"),
        None => ("response.completed", "completed"),
    };
    End {
        event,
        status,
        reason,
    }
}

/// The response itself, which repeats what was asked for.
fn response(turn: &Turn, ask: Ask<'_>, status: &str, output: &[Value]) -> Value {
    let mut response = json!({
        "id": format!("resp_{}", ask.number),
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
        "model": ask.model(),
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
    if let (Value::Object(response), Value::Object(asked)) = (&mut response, ask.body) {
        repeat(asked, response);
    }
    turn.dress(response)
}

fn repeat(asked: &Map<String, Value>, response: &mut Map<String, Value>) {
    const REPEATED: [&str; 15] = [
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
    for name in REPEATED {
        if let Some(value) = asked.get(name).filter(|value| !value.is_null()) {
            response.insert(name.to_owned(), value.clone());
        }
    }
}

fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({ "id": id, "type": "message", "status": status, "role": "assistant", "content": content })
}

fn function_call(id: &str, status: &str, call: &Call, arguments: &str) -> Value {
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

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": 0 },
        "output_tokens": usage.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.input + usage.output,
    })
}
