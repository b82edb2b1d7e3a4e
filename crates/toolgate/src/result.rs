//! Results of tool calls, preserved byte for byte.

pub(crate) mod sanitize;
pub(crate) mod truncate;

use std::borrow::Cow;

use serde::Deserialize;
pub use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_contain};

/// A `CallToolResult`, byte for byte as the server sent it.
#[derive(Clone, Debug)]
pub struct ToolResult {
    raw: Box<RawValue>,
    /// Parsed once, because it is needed several times per result.
    is_error: bool,
}

/// One block of a result's content.
#[derive(Debug)]
pub enum Block<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// An image.
    Image {
        /// MIME type.
        mime_type: Cow<'a, str>,
        /// Base64.
        data: Cow<'a, str>,
    },
    /// Any other block, unchanged.
    Other(&'a RawValue),
}

/// The known members of a result, each parsed independently of the others.
#[derive(Default)]
struct View<'a> {
    content: Option<&'a RawValue>,
    structured_content: Option<&'a RawValue>,
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockView<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    mime_type: Option<Cow<'a, str>>,
}

impl ToolResult {
    /// Wraps the JSON of a `CallToolResult`.
    pub fn new(raw: Box<RawValue>) -> Self {
        let is_error = parse_view(&raw).is_error;
        Self { raw, is_error }
    }

    pub(crate) fn from_value(value: &serde_json::Value) -> Self {
        let raw = serde_json::value::to_raw_value(value);
        Self::new(raw.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Returns the JSON.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }

    /// Returns the JSON.
    pub fn into_raw(self) -> Box<RawValue> {
        self.raw
    }

    /// Returns whether the tool reported a failure.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Returns the structured content as JSON.
    pub fn structured_content(&self) -> Option<&RawValue> {
        parse_view(&self.raw).structured_content
    }

    /// Returns the content blocks, or the structured content if there are none.
    pub fn blocks(&self) -> Vec<Block<'_>> {
        if !self.raw.get().starts_with('{') {
            return vec![Block::Other(&self.raw)];
        }
        let view = parse_view(&self.raw);
        let content =
            view.content.map(
                |raw| match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
                    Ok(blocks) => blocks.into_iter().map(parse_block).collect(),
                    Err(_) => vec![Block::Other(raw)],
                },
            );
        let content: Vec<Block<'_>> = content.unwrap_or_default();
        match (content.is_empty(), view.structured_content) {
            (true, Some(structured)) => vec![Block::Text(structured.get().into())],
            _ => content,
        }
    }

    /// Returns all content as plain text.
    pub fn text(&self) -> String {
        let texts: Vec<String> = self
            .blocks()
            .into_iter()
            .map(|block| match block {
                Block::Text(text) => text.into_owned(),
                Block::Image { mime_type, data } => {
                    format!("[{mime_type}, {} bytes in base64]", data.len())
                }
                Block::Other(raw) => raw.get().to_owned(),
            })
            .collect();
        texts.join("\n")
    }
}

/// Parses the known members. A result that is not an object counts as an error, with its JSON as
/// content.
fn parse_view(raw: &RawValue) -> View<'_> {
    let Some(members) = Members::parse(raw.get()) else {
        return View {
            is_error: true,
            ..View::default()
        };
    };
    View {
        content: members.get("content").filter(|raw| raw.get() != "null"),
        structured_content: members.get("structuredContent"),
        is_error: members
            .get("isError")
            .is_some_and(|raw| raw.get() == "true"),
    }
}

/// Returns whether a result is a modern server's request for input.
pub(crate) fn is_input_required(result: &RawValue) -> bool {
    // Cheap pre-check, since few results need to be parsed.
    if !may_contain(result.get(), "input_required") {
        return false;
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head<'a> {
        #[serde(borrow)]
        result_type: Cow<'a, str>,
    }
    let head = serde_json::from_str::<Head<'_>>(result.get());
    head.is_ok_and(|head| head.result_type == "input_required")
}

fn parse_block(raw: &RawValue) -> Block<'_> {
    match serde_json::from_str::<BlockView<'_>>(raw.get()) {
        Ok(BlockView {
            kind,
            text: Some(text),
            ..
        }) if kind == "text" => Block::Text(text),
        Ok(BlockView {
            kind,
            data: Some(data),
            mime_type: Some(mime_type),
            ..
        }) if kind == "image" => Block::Image { mime_type, data },
        _ => Block::Other(raw),
    }
}

/// Creates an error result with advice for the model.
pub(crate) fn error_result(text: &str) -> ToolResult {
    ToolResult::from_value(
        &serde_json::json!({"isError": true, "content": [{"type": "text", "text": text}]}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(json: &str) -> ToolResult {
        ToolResult::new(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn blocks_of_every_kind_are_preserved() {
        let result = result(
            r#"{"content":[{"type":"text","text":"a\nb"},{"type":"image","mimeType":"image/png","data":"AA=="},{"type":"x-new","n":-0.0}],"isError":true}"#,
        );
        assert!(result.is_error());
        let [
            Block::Text(text),
            Block::Image { data, .. },
            Block::Other(other),
        ] = &result.blocks()[..]
        else {
            panic!("three blocks")
        };
        assert_eq!(
            (&**text, &**data, other.get()),
            ("a\nb", "AA==", r#"{"type":"x-new","n":-0.0}"#)
        );
    }

    #[test]
    fn structured_content_replaces_missing_text() {
        assert_eq!(
            result(r#"{"content":[],"structuredContent":{"n":1e400}}"#).text(),
            r#"{"n":1e400}"#
        );
        assert_eq!(result(r#"{"content":[]}"#).text(), "");
        assert_eq!(
            result(r#"{"content":[{"type":"text","text":"hi"}],"isError":null}"#).text(),
            "hi"
        );
        for odd in [r#"{"content":"it broke","isError":true}"#, "null", "[]"] {
            assert!(
                result(odd).is_error() && !result(odd).text().is_empty(),
                "{odd}"
            );
        }
    }
}
