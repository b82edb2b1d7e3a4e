//! Estimate of the tokens of a request, for providers that cannot count them.

use serde_json::Value;

/// Average number of ASCII characters in a token.
const CHARS_PER_TOKEN: usize = 4;
/// Typical tokens of an image or a page of a document.
const MEDIA_TOKENS: usize = 1600;
/// Length above which text without spaces is encoded media.
const MIN_MEDIA_BYTES: usize = 1024;

/// Estimates the input tokens of a request body in any dialect, with its tools.
pub fn estimate_tokens(body: &[u8]) -> u64 {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return 0;
    };
    // What only selects a model or limits the response is not part of the prompt.
    let members = ["system", "instructions", "messages", "input", "tools"];
    let tokens: usize = members.iter().map(|name| value_tokens(&body[*name])).sum();
    tokens as u64
}

fn value_tokens(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text_tokens(text),
        Value::Array(items) => items.iter().map(|item| 1 + value_tokens(item)).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| text_tokens(name) + value_tokens(value))
            .sum(),
    }
}

fn text_tokens(text: &str) -> usize {
    if text.starts_with("data:") || (text.len() >= MIN_MEDIA_BYTES && !text.contains([' ', '\n'])) {
        return MEDIA_TOKENS;
    }
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().filter(|char| !char.is_ascii()).count();
    ascii.div_ceil(CHARS_PER_TOKEN) + others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_grows_with_text_and_not_with_encoded_media() {
        let estimate = |content: &str| {
            let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": content}]});
            estimate_tokens(body.to_string().as_bytes())
        };
        let (short, long) = (estimate("hello"), estimate(&"hello you ".repeat(400)));
        assert!((1..20).contains(&short), "{short}");
        assert!((900..1200).contains(&long), "{long}");
        assert!(estimate("日本語の文章です") >= 8);
        let image = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
        assert!((1600..1700).contains(&estimate(&image)));
        assert_eq!(estimate_tokens(b"no JSON"), 0);
    }
}
