//! Large results: a model gets the beginning, the whole is kept under a handle.

use serde_json::{Value, json};

use super::{Block, ToolResult};

/// Bytes of one result that are kept.
const MOST_KEPT: usize = 16 * 1024 * 1024;

/// A result that was too large.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) result: ToolResult,
    /// All of its text.
    pub(crate) whole: String,
}

/// Cuts the text of a result; none if it is small enough. Images stay whole.
pub(crate) fn bound(result: &ToolResult, most: usize, handle: &str) -> Option<Bounded> {
    if result.raw().get().len() <= most {
        return None;
    }
    let blocks = result.blocks();
    let length = |block: &Block<'_>| match block {
        Block::Text(text) => text.len(),
        Block::Image { .. } => 0,
        Block::Other(raw) => raw.get().len(),
    };
    if blocks.iter().map(length).sum::<usize>() <= most {
        return None;
    }
    let mut whole = result.text();
    whole.truncate(whole.floor_char_boundary(MOST_KEPT));
    let cut = whole.floor_char_boundary(most);
    let mut content = vec![json!({"type": "text", "text": &whole[..cut]})];
    content.extend(blocks.iter().filter_map(|block| match block {
        Block::Image { mime_type, data } => {
            Some(json!({"type": "image", "mimeType": mime_type, "data": data}))
        }
        Block::Text(_) | Block::Other(_) => None,
    }));
    let total = whole.len();
    content.push(json!({"type": "text", "text": format!(
        "[the first {cut} of {total} bytes; for more call `toolgate_read_result` with {}]",
        json!({"handle": handle, "offset": cut})
    )}));
    let mut bounded = json!({"content": content});
    if result.is_error() {
        bounded["isError"] = Value::Bool(true);
    }
    Some(Bounded {
        result: ToolResult::from_value(&bounded),
        whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: &Value) -> ToolResult {
        ToolResult::from_value(value)
    }

    #[test]
    fn text_is_cut_at_a_character_and_images_stay() {
        let long = "é".repeat(1000);
        let large = result(&json!({"content": [
            {"type": "text", "text": long},
            {"type": "image", "mimeType": "image/png", "data": "A".repeat(5000)},
            {"type": "text", "text": "the end"},
        ], "structuredContent": {"x": "y".repeat(3000)}, "isError": true}));
        let Bounded { result: cut, whole } = bound(&large, 1001, "h1").unwrap();
        assert!(whole.starts_with(&long) && whole.ends_with("the end"));
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
    fn what_fits_is_left_alone() {
        let image = result(&json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "A".repeat(5000)},
        ]}));
        assert!(bound(&image, 1024, "h").is_none());
        let small = result(&json!({"content": [{"type": "text", "text": "x"}]}));
        assert!(bound(&small, 1024, "h").is_none());
    }
}
