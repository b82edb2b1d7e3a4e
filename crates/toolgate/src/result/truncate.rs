//! Truncates large results: the model gets the beginning, and the full text is stored under a
//! handle.

use serde_json::{Value, json};

use super::{Block, ToolResult};

/// Bytes stored of one result.
const MAX_STORED_BYTES: usize = 16 * 1024 * 1024;

/// A truncated result and its full text.
#[derive(Debug)]
pub(crate) struct TruncatedResult {
    pub(crate) result: ToolResult,
    /// The full text, up to [`MAX_STORED_BYTES`].
    pub(crate) full_text: String,
}

/// Truncates the text of a result; `None` if it is small enough. Images are never truncated.
pub(crate) fn truncate(
    result: &ToolResult,
    max_bytes: usize,
    handle: &str,
) -> Option<TruncatedResult> {
    if result.raw().get().len() <= max_bytes {
        return None;
    }
    let blocks = result.blocks();
    let length = |block: &Block<'_>| match block {
        Block::Text(text) => text.len(),
        Block::Image { .. } => 0,
        Block::Other(raw) => raw.get().len(),
    };
    if blocks.iter().map(length).sum::<usize>() <= max_bytes {
        return None;
    }
    let mut full_text = result.text();
    full_text.truncate(full_text.floor_char_boundary(MAX_STORED_BYTES));
    let cut = full_text.floor_char_boundary(max_bytes);
    let mut content = vec![json!({"type": "text", "text": &full_text[..cut]})];
    content.extend(blocks.iter().filter_map(|block| match block {
        Block::Image { mime_type, data } => {
            Some(json!({"type": "image", "mimeType": mime_type, "data": data}))
        }
        Block::Text(_) | Block::Other(_) => None,
    }));
    let total = full_text.len();
    content.push(json!({"type": "text", "text": format!(
        "[truncated to the first {cut} of {total} bytes; to read more, call `toolgate_read_result` with {}]",
        json!({"handle": handle, "offset": cut})
    )}));
    let mut truncated = json!({"content": content});
    if result.is_error() {
        truncated["isError"] = Value::Bool(true);
    }
    Some(TruncatedResult {
        result: ToolResult::from_value(&truncated),
        full_text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: &Value) -> ToolResult {
        ToolResult::from_value(value)
    }

    #[test]
    fn truncates_text_at_a_char_boundary_and_keeps_images() {
        let long = "é".repeat(1000);
        let large = result(&json!({"content": [
            {"type": "text", "text": long},
            {"type": "image", "mimeType": "image/png", "data": "A".repeat(5000)},
            {"type": "text", "text": "the end"},
        ], "structuredContent": {"x": "y".repeat(3000)}, "isError": true}));
        let TruncatedResult {
            result: cut,
            full_text,
        } = truncate(&large, 1001, "h1").unwrap();
        assert!(full_text.starts_with(&long) && full_text.ends_with("the end"));
        assert!(cut.is_error());
        let [
            Block::Text(text),
            Block::Image { data, .. },
            Block::Text(notice),
        ] = &cut.blocks()[..]
        else {
            panic!("three blocks: {cut:?}")
        };
        assert_eq!((text.len(), data.len()), (1000, 5000));
        assert!(
            notice.contains(r#"{"handle":"h1","offset":1000}"#),
            "{notice}"
        );
    }

    #[test]
    fn small_text_and_large_images_are_not_truncated() {
        let image = result(&json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "A".repeat(5000)},
        ]}));
        assert!(truncate(&image, 1024, "h").is_none());
        let small = result(&json!({"content": [{"type": "text", "text": "x"}]}));
        assert!(truncate(&small, 1024, "h").is_none());
    }
}
