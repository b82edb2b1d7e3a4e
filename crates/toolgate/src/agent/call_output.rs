//! Results of executed calls, and how the model receives them.

use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_llm::prompt::{
    MediaSource, MessageRole, PromptMessage, PromptPart, RequestedToolCall,
};
use toolgate_llm::{FieldError, history};

use crate::call::{CallError, Outcome};
use crate::result::Block;

/// Maximum length of a result in an event about its call.
const MAX_PREVIEW_CHARS: usize = 2000;

/// A call that was executed, or refused with a result for the model.
#[derive(Clone, Debug)]
pub(super) struct ExecutedCall {
    pub(super) call: RequestedToolCall,
    /// Turn that requested the call, counted from one.
    pub(super) turn: u32,
    pub(super) parts: Vec<PromptPart>,
    pub(super) is_error: bool,
    /// Whether the call did not run because its server was unavailable, busy or limited.
    pub(super) is_outage: bool,
    pub(super) ms: u64,
}

/// Content that answers a call.
#[derive(Clone, Debug)]
pub(super) struct CallOutput {
    pub(super) parts: Vec<PromptPart>,
    pub(super) is_error: bool,
    pub(super) is_outage: bool,
}

/// Encodes tool results as conversation items.
pub(super) fn answer_items(
    dialect: Dialect,
    parts: Vec<PromptPart>,
) -> Result<Vec<Value>, FieldError> {
    let message = PromptMessage {
        role: MessageRole::User,
        parts,
    };
    // Fall back to text for content the dialect cannot carry: providers reject calls without a result.
    history::encode_messages(dialect, std::slice::from_ref(&message)).or_else(|error| {
        tracing::warn!(%error, "sending tool result as text because the dialect cannot encode it");
        let parts = message.parts.into_iter().map(with_text_only).collect();
        let text_only = PromptMessage {
            role: MessageRole::User,
            parts,
        };
        history::encode_messages(dialect, &[text_only])
    })
}

impl CallOutput {
    pub(super) fn error(text: impl Into<String>) -> Self {
        Self {
            parts: vec![PromptPart::Text(text.into())],
            is_error: true,
            is_outage: false,
        }
    }

    /// Converts a call's outcome into content for the model.
    pub(super) fn from_answer(answer: &Result<Outcome, CallError>) -> Self {
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(error) => {
                return Self {
                    is_outage: error.is_outage(),
                    ..Self::error(error.to_string())
                };
            }
        };
        let parts = outcome
            .result
            .blocks()
            .into_iter()
            .map(|block| match block {
                Block::Text(text) => PromptPart::Text(text.into_owned()),
                Block::Image { mime_type, data } => PromptPart::Image {
                    source: MediaSource::Data {
                        media_type: mime_type.to_string(),
                        data: data.to_string(),
                    },
                    detail: None,
                },
                Block::Other(raw) => PromptPart::Text(raw.get().to_owned()),
            });
        Self {
            parts: parts.collect(),
            is_error: outcome.result.is_error(),
            is_outage: false,
        }
    }
}

fn parts_text(parts: &[PromptPart]) -> String {
    let texts = parts.iter().map(|part| match part {
        PromptPart::Text(text) => text.clone(),
        PromptPart::Image { source, .. } => match source {
            MediaSource::Data { media_type, .. } => format!("[{media_type}]"),
            MediaSource::Url(url) => url.clone(),
        },
        _ => String::new(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Reduces a tool result to text.
fn with_text_only(part: PromptPart) -> PromptPart {
    match part {
        PromptPart::ToolResult {
            id,
            parts,
            is_error,
        } => PromptPart::ToolResult {
            id,
            parts: vec![PromptPart::Text(parts_text(&parts))],
            is_error,
        },
        part => part,
    }
}

impl ExecutedCall {
    /// Returns whether the call itself failed, rather than the way to its server.
    pub(super) fn counts_as_failure(&self) -> bool {
        self.is_error && !self.is_outage
    }

    pub(super) fn to_answer_part(&self) -> PromptPart {
        PromptPart::ToolResult {
            id: self.call.id.clone(),
            parts: self.parts.clone(),
            is_error: self.is_error,
        }
    }

    /// Returns the result as text, with a placeholder for other content.
    pub(super) fn text(&self) -> String {
        parts_text(&self.parts)
    }

    pub(super) fn to_value(&self) -> Value {
        json!({
            "id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
            "result": self.text(),
            "is_error": self.is_error,
            "turn": self.turn,
            "ms": self.ms,
        })
    }
}

/// Returns the beginning of a call's result or error, to be shown while the run goes on.
pub(super) fn preview_answer(answer: &Result<Outcome, CallError>) -> String {
    let text = match answer {
        Ok(outcome) => outcome.result.text(),
        Err(error) => error.to_string(),
    };
    match text.char_indices().nth(MAX_PREVIEW_CHARS) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
