//! Conversion of tool results into script values, and of script values for models.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolgate_script::protocol::ScriptCallResult;

use crate::call::{CallError, Outcome};
use crate::result::{Block, ToolResult, is_input_required};

/// Size of an error message passed to a script.
const MAX_ERROR_BYTES: usize = 4096;

/// Converts the outcome of a call for the script.
pub(super) fn to_script_answer(answer: &Result<Outcome, CallError>) -> ScriptCallResult {
    match answer {
        Ok(outcome) => result_to_answer(&outcome.result),
        Err(error) => ScriptCallResult::Error(truncate_error(error.to_string())),
    }
}

/// Prefers structured content, then text parsed as JSON, then plain text. Several blocks become a list
/// in which images and resources keep the server's description.
fn result_to_answer(result: &ToolResult) -> ScriptCallResult {
    if is_input_required(result.raw()) {
        let text = "the tool requests input, which a script cannot give; call the tool directly";
        return ScriptCallResult::Error(text.to_owned());
    }
    if result.is_error() {
        return ScriptCallResult::Error(truncate_error(result.text()));
    }
    if let Some(structured) = structured_content(result.raw()) {
        return ScriptCallResult::Value(structured);
    }
    let blocks = result.blocks();
    let value = match blocks.as_slice() {
        [] => RawValue::NULL.to_owned(),
        [Block::Text(text)] => text_to_json(text),
        several if several.iter().all(|block| matches!(block, Block::Text(_))) => {
            json_string(&result.text())
        }
        several => {
            let items: Vec<Value> = several.iter().map(block_to_value).collect();
            to_raw_value(&items).unwrap_or_else(|_| RawValue::NULL.to_owned())
        }
    };
    ScriptCallResult::Value(value)
}

fn structured_content(raw: &RawValue) -> Option<Box<RawValue>> {
    let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let structured = members.get("structuredContent").copied()?;
    (structured.get() != "null").then(|| structured.to_owned())
}

fn text_to_json(text: &str) -> Box<RawValue> {
    let parsed = serde_json::from_str::<&RawValue>(text.trim());
    parsed.map_or_else(|_| json_string(text), ToOwned::to_owned)
}

fn json_string(text: &str) -> Box<RawValue> {
    to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Converts a content block into a value that a script can inspect and pass on.
fn block_to_value(block: &Block<'_>) -> Value {
    match block {
        Block::Text(text) => json!(text),
        Block::Image { mime_type, data } => {
            json!({"type": "image", "mimeType": mime_type, "data": data})
        }
        // A block nested too deeply to be parsed is passed on as text.
        Block::Other(raw) => serde_json::from_str(raw.get()).unwrap_or_else(|_| json!(raw.get())),
    }
}

fn truncate_error(mut text: String) -> String {
    if text.len() > MAX_ERROR_BYTES {
        text.truncate(text.floor_char_boundary(MAX_ERROR_BYTES));
        text.push('…');
    }
    text
}

/// Replaces image and audio data with a placeholder, to keep base64 out of the conversation.
pub(super) fn without_binary_data(value: &RawValue) -> Cow<'_, RawValue> {
    if !value.get().contains("\"data\"") {
        return Cow::Borrowed(value);
    }
    let Ok(mut parsed) = serde_json::from_str::<Value>(value.get()) else {
        return Cow::Borrowed(value);
    };
    remove_binary_data(&mut parsed);
    to_raw_value(&parsed).map_or(Cow::Borrowed(value), Cow::Owned)
}

fn remove_binary_data(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_binary_data),
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str);
            let is_binary = matches!(kind, Some("image" | "audio"));
            if let (true, Some(Value::String(data))) = (is_binary, members.get_mut("data")) {
                *data = format!("[{} bytes of base64]", data.len());
            }
            members.values_mut().for_each(remove_binary_data);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script_value(result: &Value) -> String {
        match result_to_answer(&ToolResult::from_value(result)) {
            ScriptCallResult::Value(value) => value.get().to_owned(),
            ScriptCallResult::Error(error) => format!("! {error}"),
        }
    }

    #[test]
    fn results_become_structured_content_json_or_text() {
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
                "! the tool requests input, which a script cannot give; call the tool directly",
            ),
        ] {
            assert_eq!(script_value(&result), expected);
        }
    }

    #[test]
    fn image_data_is_replaced_for_models() {
        let value = to_raw_value(
            &json!({"shots": [{"type": "image", "data": "AAAABBBB"}], "data": "kept"}),
        );
        let value = value.unwrap();
        assert_eq!(
            without_binary_data(&value).get(),
            r#"{"shots":[{"type":"image","data":"[8 bytes of base64]"}],"data":"kept"}"#
        );
    }
}
