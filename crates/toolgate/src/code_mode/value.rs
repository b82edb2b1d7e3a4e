//! Tool results as scripts see them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolgate_script::protocol::Answer;

use crate::call::{CallError, Outcome};
use crate::result::{Block, ToolResult, asks_for_input};

/// Bytes of a failure that a script is told.
const LONGEST_ERROR: usize = 4096;

/// What a call came to, for the script.
pub(super) fn answer(answer: &Result<Outcome, CallError>) -> Answer {
    match answer {
        Ok(outcome) => of_result(&outcome.result),
        Err(error) => Answer::Error(shortened(error.to_string())),
    }
}

/// Structured content if there is some; else JSON, if the text is that; else the text. Several
/// blocks are a list, in which images and resources stand as the server described them.
fn of_result(result: &ToolResult) -> Answer {
    if asks_for_input(result.raw()) {
        let text = "the tool asks for input, which a script cannot give; call the tool itself";
        return Answer::Error(text.to_owned());
    }
    if result.is_error() {
        return Answer::Error(shortened(result.text()));
    }
    if let Some(structured) = structured(result.raw()) {
        return Answer::Value(structured);
    }
    let blocks = result.blocks();
    let value = match blocks.as_slice() {
        [] => RawValue::NULL.to_owned(),
        [Block::Text(text)] => of_text(text),
        several if several.iter().all(|block| matches!(block, Block::Text(_))) => {
            text(&result.text())
        }
        several => {
            let items: Vec<Value> = several.iter().map(described).collect();
            to_raw_value(&items).unwrap_or_else(|_| RawValue::NULL.to_owned())
        }
    };
    Answer::Value(value)
}

fn structured(raw: &RawValue) -> Option<Box<RawValue>> {
    let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let structured = members.get("structuredContent").copied()?;
    (structured.get() != "null").then(|| structured.to_owned())
}

fn of_text(said: &str) -> Box<RawValue> {
    let parsed = serde_json::from_str::<&RawValue>(said.trim());
    parsed.map_or_else(|_| text(said), ToOwned::to_owned)
}

fn text(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A block as a script can look at it and pass it on.
fn described(block: &Block<'_>) -> Value {
    match block {
        Block::Text(text) => json!(text),
        Block::Image { mime_type, data } => {
            json!({"type": "image", "mimeType": mime_type, "data": data})
        }
        Block::Other(raw) => serde_json::from_str(raw.get()).unwrap_or_default(),
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
        text.push('…');
    }
    text
}

/// A result without the bytes of images and sounds, which would fill a conversation as text.
pub(super) fn for_model(value: &RawValue) -> Cow<'_, RawValue> {
    if !value.get().contains("\"data\"") {
        return Cow::Borrowed(value);
    }
    let Ok(mut read) = serde_json::from_str::<Value>(value.get()) else {
        return Cow::Borrowed(value);
    };
    without_bytes(&mut read);
    to_raw_value(&read).map_or(Cow::Borrowed(value), Cow::Owned)
}

fn without_bytes(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_bytes),
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str);
            let has_bytes = matches!(kind, Some("image" | "audio"));
            if let (true, Some(Value::String(data))) = (has_bytes, members.get_mut("data")) {
                *data = format!("[{} bytes of base64]", data.len());
            }
            members.values_mut().for_each(without_bytes);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(result: &Value) -> String {
        match of_result(&ToolResult::from_value(result)) {
            Answer::Value(value) => value.get().to_owned(),
            Answer::Error(error) => format!("! {error}"),
        }
    }

    #[test]
    fn a_result_is_its_structure_or_its_json_or_its_text() {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        for (result, expected) in [
            (text("plain"), r#""plain""#),
            (
                text(r#"{"b": 1.50, "a": 12345678901234567890}"#),
                r#"{"b": 1.50, "a": 12345678901234567890}"#,
            ),
            (
                json!({"content": [{"type": "text", "text": "x"}], "structuredContent": {"n": 1}}),
                r#"{"n":1}"#,
            ),
            (json!({"content": []}), "null"),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                r#""a\nb""#,
            ),
            (
                json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]}),
                r#"[{"type":"image","mimeType":"image/png","data":"AAAA"}]"#,
            ),
            (
                json!({"isError": true, "content": [{"type": "text", "text": "no such file"}]}),
                "! no such file",
            ),
            (
                json!({"resultType": "input_required"}),
                "! the tool asks for input, which a script cannot give; call the tool itself",
            ),
        ] {
            assert_eq!(seen(&result), expected);
        }
    }

    #[test]
    fn a_model_gets_no_bytes_of_images() {
        let value = to_raw_value(
            &json!({"shots": [{"type": "image", "data": "AAAABBBB"}], "data": "kept"}),
        );
        let value = value.unwrap();
        assert_eq!(
            for_model(&value).get(),
            r#"{"shots":[{"type":"image","data":"[8 bytes of base64]"}],"data":"kept"}"#
        );
    }
}
