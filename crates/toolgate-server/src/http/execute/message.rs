//! Results of tool calls as messages for a model.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use toolgate::result::Block;
use toolgate::{CallError, Outcome, ToolResult};
use utoipa::ToSchema;

/// A tool result in the Chat Completions format.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolMessage {
    /// Always `tool`.
    #[schema(value_type = String)]
    pub(crate) role: Cow<'static, str>,
    /// A string if all content is text, otherwise an array of parts.
    pub(crate) content: MessageContent,
    pub(crate) tool_call_id: String,
    /// Whether the call failed; omitted if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_error: bool,
    /// Set if a fallback server executed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) fallback: Option<Fallback>,
    /// Approval that the call needs or was executed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) approval: Option<ApprovalNote>,
    /// Handle for reading the full result at `/v1/mcp/results/{handle}`, if it was truncated. It expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) result_handle: Option<String>,
}

/// Approval that a call needs or was executed with.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ApprovalNote {
    pub(crate) id: String,
    /// When the pending approval expires; absent if the call was executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) expires_at: Option<String>,
    /// Whether the approver changed the arguments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) edited: bool,
}

/// The server that executed a call instead of the requested one.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Fallback {
    /// Server that executed the call.
    pub(crate) server: String,
    /// Server that was requested.
    pub(crate) instead_of: String,
}

/// A tool result in the Responses format.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FunctionCallOutput {
    #[serde(rename = "type")]
    kind: &'static str,
    call_id: String,
    /// A string if all content is text, otherwise an array of parts.
    output: CallOutput,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    fallback: Option<Fallback>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    approval: Option<ApprovalNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result_handle: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum CallOutput {
    Text(String),
    Parts(Vec<CallOutputPart>),
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CallOutputPart {
    InputText {
        text: String,
    },
    InputImage {
        /// A data URL.
        image_url: String,
    },
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Content)]
#[serde(untagged)]
pub(crate) enum MessageContent {
    Text(String),
    Parts(Vec<MessagePart>),
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Part)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MessagePart {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImageUrl {
    /// A data URL.
    pub(crate) url: String,
}

impl ToolMessage {
    /// Returns whether the content is text that starts with `prefix`.
    pub(crate) fn text_starts_with(&self, prefix: &str) -> bool {
        matches!(&self.content, MessageContent::Text(text) if text.starts_with(prefix))
    }

    pub(crate) fn new(tool_call_id: &str, outcome: &Result<Outcome, CallError>) -> Self {
        let message = match outcome {
            Ok(outcome) => Self::from_result(tool_call_id, &outcome.result),
            Err(error) => Self {
                content: MessageContent::Text(error.to_string()),
                is_error: true,
                ..Self::empty(tool_call_id)
            },
        };
        Self {
            fallback: fallback_note(outcome),
            approval: approval_note(outcome),
            result_handle: result_handle(outcome),
            ..message
        }
    }

    pub(crate) fn from_result(tool_call_id: &str, result: &ToolResult) -> Self {
        Self {
            content: MessageContent::new(result.blocks()),
            is_error: result.is_error(),
            ..Self::empty(tool_call_id)
        }
    }

    fn empty(tool_call_id: &str) -> Self {
        Self {
            role: "tool".into(),
            content: MessageContent::Text(String::new()),
            tool_call_id: tool_call_id.to_owned(),
            is_error: false,
            fallback: None,
            approval: None,
            result_handle: None,
        }
    }
}

impl FunctionCallOutput {
    pub(super) fn new(call_id: String, outcome: &Result<Outcome, CallError>) -> Self {
        let (output, is_error) = match outcome {
            Ok(outcome) => (CallOutput::new(&outcome.result), outcome.result.is_error()),
            Err(error) => (CallOutput::Text(error.to_string()), true),
        };
        Self {
            kind: "function_call_output",
            call_id,
            output,
            is_error,
            fallback: fallback_note(outcome),
            approval: approval_note(outcome),
            result_handle: result_handle(outcome),
        }
    }
}

impl CallOutput {
    fn new(result: &ToolResult) -> Self {
        let blocks = result.blocks();
        if !blocks
            .iter()
            .any(|block| matches!(block, Block::Image { .. }))
        {
            return Self::Text(result.text());
        }
        let parts = blocks
            .into_iter()
            .map(|block| match MessagePart::new(block) {
                MessagePart::Text { text } => CallOutputPart::InputText { text },
                MessagePart::ImageUrl { image_url } => CallOutputPart::InputImage {
                    image_url: image_url.url,
                },
            });
        Self::Parts(parts.collect())
    }
}

impl MessageContent {
    fn new(blocks: Vec<Block<'_>>) -> Self {
        let only_text = blocks.iter().all(|block| matches!(block, Block::Text(_)));
        let parts: Vec<MessagePart> = blocks.into_iter().map(MessagePart::new).collect();
        if !only_text {
            return Self::Parts(parts);
        }
        let texts = parts.into_iter().map(|part| match part {
            MessagePart::Text { text } => text,
            MessagePart::ImageUrl { image_url } => image_url.url,
        });
        Self::Text(texts.collect::<Vec<_>>().join("\n"))
    }
}

impl MessagePart {
    fn new(block: Block<'_>) -> Self {
        match block {
            Block::Text(text) => Self::Text {
                text: text.into_owned(),
            },
            Block::Image { mime_type, data } => Self::ImageUrl {
                image_url: ImageUrl {
                    url: format!("data:{mime_type};base64,{data}"),
                },
            },
            Block::Other(raw) => Self::Text {
                text: raw.get().to_owned(),
            },
        }
    }
}

fn approval_note(outcome: &Result<Outcome, CallError>) -> Option<ApprovalNote> {
    match outcome {
        Ok(outcome) => outcome.approval.as_ref().map(|approved| ApprovalNote {
            id: approved.id.clone(),
            expires_at: None,
            edited: approved.edited,
        }),
        Err(error) => error.required_approval().map(|needed| ApprovalNote {
            id: needed.id.to_owned(),
            expires_at: Some(humantime::format_rfc3339_millis(needed.expires_at).to_string()),
            edited: false,
        }),
    }
}

fn result_handle(outcome: &Result<Outcome, CallError>) -> Option<String> {
    outcome.as_ref().ok()?.handle.clone()
}

fn fallback_note(outcome: &Result<Outcome, CallError>) -> Option<Fallback> {
    let outcome = outcome.as_ref().ok()?;
    Some(Fallback {
        server: outcome.tool.server.to_string(),
        instead_of: outcome.fallback_for.as_ref()?.server.to_string(),
    })
}
