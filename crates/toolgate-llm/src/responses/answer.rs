//! Whole answers.

use serde_json::Value;

use super::output::Output;
use super::{Status, ending, response, usage, within};
use crate::chat::failure;
use crate::event::{BadAnswer, Event, Proof};
use crate::turn::{Head, Turn};

/// What stands between the parts of reasoning, which are paragraphs.
pub(super) const BETWEEN: &str = "\n\n";

/// What becomes of what only this dialect can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unknown {
    #[default]
    Refused,
    Kept,
}

/// The events of an answer.
pub fn events(body: &str) -> Result<Vec<Event>, BadAnswer> {
    read(body, Unknown::Refused)
}

/// The same with what only this dialect can say, as it came.
pub fn events_with_raw(body: &str) -> Result<Vec<Event>, BadAnswer> {
    read(body, Unknown::Kept)
}

fn read(body: &str, unknown: Unknown) -> Result<Vec<Event>, BadAnswer> {
    let body: Value = serde_json::from_str(body)?;
    let Some(items) = body["output"].as_array() else {
        return match body.get("error").filter(|error| !error.is_null()) {
            Some(error) => Ok(vec![Event::Failed(failure(error))]),
            None => Err(BadAnswer::new("it has no `output`")),
        };
    };
    let mut events = vec![Event::Start {
        id: text(&body["id"]),
        model: text(&body["model"]),
    }];
    let mut calls = 0;
    for item in items {
        tell(item, unknown, &mut calls, &mut events)?;
    }
    if body["usage"].is_object() {
        events.push(Event::Usage(usage(&body["usage"])));
    }
    let status = body["status"].as_str().unwrap_or("completed");
    events.push(ending(&body, status, calls > 0)?);
    Ok(events)
}

/// Tells an item of the output that is complete. `calls` counts those that were told.
pub(super) fn tell(
    item: &Value,
    unknown: Unknown,
    calls: &mut usize,
    out: &mut Vec<Event>,
) -> Result<(), BadAnswer> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => said(item, unknown, out),
        "reasoning" => {
            let id = text(&item["id"]);
            if !id.is_empty() {
                out.push(Event::ReasoningStart(id));
            }
            let reasoned = reasoned(item);
            if !reasoned.is_empty() {
                out.push(Event::Reasoning(reasoned));
            }
            out.push(Event::ReasoningEnd(proof(item)));
            Ok(())
        }
        "function_call" => {
            let index = *calls;
            *calls += 1;
            let arguments = text(&item["arguments"]);
            out.extend([
                call_start(item, index),
                Event::CallDelta { index, arguments },
                Event::CallEnd { index },
            ]);
            Ok(())
        }
        _ if unknown == Unknown::Kept => {
            out.push(Event::Raw(item.clone()));
            Ok(())
        }
        other => Err(unknown_item(other)),
    }
}

/// Tells the parts of a message.
pub(super) fn said(
    message: &Value,
    unknown: Unknown,
    out: &mut Vec<Event>,
) -> Result<(), BadAnswer> {
    for part in list(&message["content"]) {
        let (words, event): (_, fn(String) -> Event) = match part["type"].as_str() {
            Some("output_text") => (&part["text"], Event::Text),
            Some("refusal") => (&part["refusal"], Event::Refusal),
            other => return Err(unknown_part(other)),
        };
        let words = text(words);
        if !words.is_empty() {
            out.push(event(words));
        }
        if unknown == Unknown::Kept {
            let annotations = list(&part["annotations"]).iter().cloned();
            out.extend(annotations.map(Event::Annotation));
        }
    }
    Ok(())
}

/// All that a reasoning item says: the reasoning itself from models with open weights, else a
/// summary of it.
pub(super) fn reasoned(item: &Value) -> String {
    let parts = list(&item["content"]).iter().chain(list(&item["summary"]));
    let texts = parts.filter_map(|part| part["text"].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join(BETWEEN)
}

pub(super) fn proof(item: &Value) -> Option<Proof> {
    let known = |value: &Value| Some(text(value)).filter(|text| !text.is_empty());
    let content = known(&item["encrypted_content"]);
    let id = known(&item["id"]);
    (id.is_some() || content.is_some()).then(|| Proof::Encrypted {
        id: id.unwrap_or_default(),
        content,
    })
}

pub(super) fn call_start(item: &Value, index: usize) -> Event {
    let id = item["call_id"].as_str().or(item["id"].as_str());
    let name = text(&item["name"]);
    let namespace = item["namespace"].as_str();
    Event::CallStart {
        index,
        id: id.unwrap_or_default().to_owned(),
        name: namespace.map_or(name.clone(), |namespace| within(namespace, &name)),
    }
}

pub(super) fn unknown_item(kind: &str) -> BadAnswer {
    BadAnswer::new(format!(
        "its output holds a `{kind}`, which cannot be said in another dialect"
    ))
}

pub(super) fn unknown_part(kind: Option<&str>) -> BadAnswer {
    BadAnswer::new(format!(
        "a message holds a part of type `{}`",
        kind.unwrap_or("null")
    ))
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn answer(head: &Head, turn: &Turn) -> String {
    let status = Status::of(turn.finish.as_ref(), turn.failure.as_ref());
    let output = Output::of(head, turn, status);
    response(head, status, &output, turn.usage.as_ref()).to_string()
}
