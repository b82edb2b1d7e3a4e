//! Endpoints of OpenAI's API whose requests are passed on unchanged except for the model's name.

use serde_json::Value;

use crate::event::{TokenUsage, parse_token_count};

/// An endpoint whose requests are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Embeddings of texts.
    Embeddings,
    /// Text completions, the predecessor of chat completions.
    Completions,
    /// Classification of harmful content.
    Moderations,
    /// Ranking of documents by relevance, as Cohere and Jina offer it.
    Rerank,
    /// Images from a text.
    ImageGenerations,
    /// Changes of an image.
    ImageEdits,
    /// Variations of an image.
    ImageVariations,
    /// Speech from a text.
    Speech,
    /// Text from speech.
    Transcriptions,
    /// English text from speech.
    Translations,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 10] = [
        Self::Embeddings,
        Self::Completions,
        Self::Moderations,
        Self::Rerank,
        Self::ImageGenerations,
        Self::ImageEdits,
        Self::ImageVariations,
        Self::Speech,
        Self::Transcriptions,
        Self::Translations,
    ];

    /// Returns the path relative to a provider's base URL, which is also its name in records.
    pub fn path(self) -> &'static str {
        match self {
            Self::Embeddings => "embeddings",
            Self::Completions => "completions",
            Self::Moderations => "moderations",
            Self::Rerank => "rerank",
            Self::ImageGenerations => "images/generations",
            Self::ImageEdits => "images/edits",
            Self::ImageVariations => "images/variations",
            Self::Speech => "audio/speech",
            Self::Transcriptions => "audio/transcriptions",
            Self::Translations => "audio/translations",
        }
    }

    /// Returns whether providers charge nothing for it.
    pub fn is_free(self) -> bool {
        self == Self::Moderations
    }
}

/// Reads the tokens that a response or an event of any endpoint reports in `usage`.
pub fn decode_usage(body: &[u8]) -> Option<TokenUsage> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let usage = body.get("usage").filter(|usage| usage.is_object())?;
    let count = |names: [&str; 2]| {
        let mut counts = names.iter().map(|name| parse_token_count(&usage[name]));
        counts.find_map(|count| count)
    };
    let (input, output) = (
        count(["input_tokens", "prompt_tokens"]),
        count(["output_tokens", "completion_tokens"]),
    );
    let total = parse_token_count(&usage["total_tokens"]);
    // A duration, for example, has no tokens.
    input.or(output).or(total)?;
    let output = output.unwrap_or(0);
    let details = usage
        .get("input_tokens_details")
        .or(usage.get("prompt_tokens_details"));
    let cached = details.and_then(|details| parse_token_count(&details["cached_tokens"]));
    Some(TokenUsage {
        // Providers that rank documents report only a total.
        input: input.unwrap_or_else(|| total.unwrap_or(0).saturating_sub(output)),
        output,
        cached: cached.unwrap_or(0),
        ..TokenUsage::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_every_spelling() {
        for (body, expected) in [
            (
                r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#,
                Some((7, 0)),
            ),
            (
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#,
                Some((3, 2)),
            ),
            (
                r#"{"usage":{"input_tokens":4,"output_tokens":9,"total_tokens":13}}"#,
                Some((4, 9)),
            ),
            (r#"{"usage":{"total_tokens":12}}"#, Some((12, 0))),
            (r#"{"usage":{"type":"duration","seconds":3}}"#, None),
            (r#"{"usage":null}"#, None),
            (r#"{"results":[]}"#, None),
            ("not JSON", None),
        ] {
            let usage = decode_usage(body.as_bytes());
            assert_eq!(
                usage.map(|usage| (usage.input, usage.output)),
                expected,
                "{body}"
            );
        }
    }
}
