//! Whole answers.

use serde_json::{Value, json};

use super::write::call_value;
use super::{failure, finish, finish_word, usage, usage_value};
use crate::event::{BadAnswer, Event, Finish};
use crate::prompt::object;
use crate::turn::{Head, Item, Turn};

/// The events of an answer.
pub fn events(body: &str) -> Result<Vec<Event>, BadAnswer> {
    let body: Value = serde_json::from_str(body)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
        return Ok(vec![Event::Failed(failure(error))]);
    }
    let mut events = vec![Event::Start {
        id: text(&body["id"]).unwrap_or_default(),
        model: text(&body["model"]).unwrap_or_default(),
    }];
    let choices = body["choices"].as_array().map(Vec::as_slice);
    let [choice] = choices.unwrap_or_default() else {
        return Err(BadAnswer::new("`choices` does not hold one choice"));
    };
    let message = &choice["message"];
    if let Some(reasoning) = reasoning(message) {
        events.extend([Event::Reasoning(reasoning), Event::ReasoningEnd(None)]);
    }
    let said = text(&message["content"]).filter(|text| !text.is_empty());
    events.extend(said.map(Event::Text));
    let refused = text(&message["refusal"]).filter(|text| !text.is_empty());
    events.extend(refused.map(Event::Refusal));
    let calls = message["tool_calls"].as_array().map(Vec::as_slice);
    for (index, call) in calls.unwrap_or_default().iter().enumerate() {
        let function = &call["function"];
        if function.is_null() {
            return Err(BadAnswer::new("a tool call is not of a function"));
        }
        let (id, name) = (text(&call["id"]), text(&function["name"]));
        let arguments = text(&function["arguments"]).unwrap_or_default();
        events.extend([
            Event::CallStart {
                index,
                id: id.unwrap_or_default(),
                name: name.unwrap_or_default(),
            },
            Event::CallDelta { index, arguments },
            Event::CallEnd { index },
        ]);
    }
    if body["usage"].is_object() {
        events.push(Event::Usage(usage(&body["usage"])));
    }
    let reason = choice["finish_reason"].as_str().unwrap_or("stop");
    events.push(Event::Finish(finish(reason)));
    Ok(events)
}

/// What providers with open weights call the reasoning of a model.
pub(super) fn reasoning(message: &Value) -> Option<String> {
    let found = message["reasoning_content"].as_str();
    let found = found.or(message["reasoning"].as_str());
    found.filter(|text| !text.is_empty()).map(str::to_owned)
}

pub fn answer(head: &Head, turn: &Turn) -> String {
    let joined = |pick: fn(&Item) -> Option<&str>| {
        let texts: Vec<&str> = turn.items.iter().filter_map(pick).collect();
        (!texts.is_empty()).then(|| Value::from(texts.concat()))
    };
    let said = joined(|item| match item {
        Item::Text(text) => Some(text),
        _ => None,
    });
    let refused = joined(|item| match item {
        Item::Refusal(text) => Some(text),
        _ => None,
    });
    let reasoned = joined(|item| match item {
        Item::Reasoning { text, .. } => Some(text)
            .filter(|text| !text.is_empty())
            .map(String::as_str),
        _ => None,
    });
    let calls: Vec<Value> = turn.calls().map(call_value).collect();
    let message = object([
        ("role", Some(json!("assistant"))),
        ("content", Some(said.unwrap_or_default())),
        ("refusal", Some(refused.unwrap_or_default())),
        ("reasoning_content", reasoned),
        (
            "tool_calls",
            (!calls.is_empty()).then_some(Value::Array(calls)),
        ),
    ]);
    let finish = turn.finish.as_ref().unwrap_or(&Finish::Stop);
    let body = object([
        ("id", Some(json!(head.id))),
        ("object", Some(json!("chat.completion"))),
        ("created", Some(json!(head.created))),
        ("model", Some(json!(head.model))),
        (
            "choices",
            Some(
                json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_word(finish)}]),
            ),
        ),
        ("usage", turn.usage.as_ref().map(usage_value)),
    ]);
    body.to_string()
}
