//! Images in tool messages, which OpenAI accepts only in user messages.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::body::RequestBody;

#[derive(Deserialize)]
struct MessageHead<'a> {
    #[serde(borrow, default)]
    role: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// Moves images in tool messages to a user message after them. Returns the new `messages`, or `None` if
/// there are no such images. Other messages keep their bytes.
pub fn move_tool_images(body: &RequestBody) -> Option<String> {
    let messages = body.get("messages")?;
    // Most requests have no images.
    memchr::memmem::find(messages.as_bytes(), b"image_url")?;
    let messages: Vec<&RawValue> = serde_json::from_str(messages).ok()?;
    let mut written: Vec<String> = Vec::with_capacity(messages.len() + 1);
    let mut images: Vec<Value> = Vec::new();
    let mut has_moved = false;
    for message in messages {
        let head = serde_json::from_str::<MessageHead<'_>>(message.get()).ok();
        let is_tool =
            |head: &MessageHead<'_>| head.role.is_some_and(|role| role.get() == "\"tool\"");
        let Some(head) = head.filter(is_tool) else {
            written.extend(take_user_message(&mut images));
            written.push(message.get().to_owned());
            continue;
        };
        match head.content.and_then(split_content) {
            Some(split) => {
                has_moved = true;
                images.extend(split.images);
                let mut message: Value = serde_json::from_str(message.get()).ok()?;
                message["content"] = split.text;
                written.push(message.to_string());
            }
            None => written.push(message.get().to_owned()),
        }
    }
    written.extend(take_user_message(&mut images));
    has_moved.then(|| format!("[{}]", written.join(",")))
}

/// The content of a tool message in two parts.
struct SplitContent {
    /// Content that may stay in the message.
    text: Value,
    images: Vec<Value>,
}

/// Splits content that has images.
fn split_content(content: &RawValue) -> Option<SplitContent> {
    let parts: Vec<Value> = serde_json::from_str(content.get()).ok()?;
    let (images, texts): (Vec<Value>, Vec<Value>) = parts
        .into_iter()
        .partition(|part| part["type"] == "image_url");
    if images.is_empty() {
        return None;
    }
    let text = if texts.is_empty() {
        json!("The result is in the next message.")
    } else {
        Value::Array(texts)
    };
    Some(SplitContent { text, images })
}

/// Returns the user message with the images collected so far, if there are any.
fn take_user_message(images: &mut Vec<Value>) -> Option<String> {
    if images.is_empty() {
        return None;
    }
    let content = std::mem::take(images);
    Some(json!({"role": "user", "content": content}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(messages: &str) -> Option<Value> {
        let body = RequestBody::parse(format!("{{\"messages\":{messages}}}").into()).unwrap();
        move_tool_images(&body).map(|messages| serde_json::from_str(&messages).unwrap())
    }

    #[test]
    fn images_move_behind_the_last_tool_message() {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
        let text = json!({"type": "text", "text": "a chart"});
        let messages = json!([
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "tool_call_id": "1", "content": [text, image]},
            {"role": "tool", "tool_call_id": "2", "content": "plain"},
            {"role": "tool", "tool_call_id": "3", "content": [image]},
            {"role": "user", "content": "go on"},
        ]);
        let expected = json!([
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "tool_call_id": "1", "content": [text]},
            {"role": "tool", "tool_call_id": "2", "content": "plain"},
            {"role": "tool", "tool_call_id": "3", "content": "The result is in the next message."},
            {"role": "user", "content": [image, image]},
            {"role": "user", "content": "go on"},
        ]);
        assert_eq!(moved(&messages.to_string()), Some(expected));
    }

    #[test]
    fn other_requests_are_left_alone() {
        for messages in [
            json!([]),
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]),
            json!([{"role": "tool", "content": "image_url"}]),
            json!([7, "image_url"]),
            json!("image_url"),
        ] {
            assert_eq!(moved(&messages.to_string()), None, "{messages}");
        }
    }
}
