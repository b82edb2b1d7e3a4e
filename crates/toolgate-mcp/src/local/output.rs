//! Results and errors of in-process tools, and the types that convert into them.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::schema::output_schema;
use super::to_result;
use crate::jsonrpc::RpcResult;

/// The output of an in-process tool.
#[derive(Debug)]
#[non_exhaustive]
pub enum LocalToolOutput {
    /// Plain text.
    Text(String),
    /// Structured content; its JSON is also returned as text.
    Structured(Value),
    /// A complete `CallToolResult`.
    Raw(Box<RawValue>),
}

/// The failure of an in-process tool, reported to the model as a result with `isError`.
///
/// Every error type and every string converts into it, so `?` works in tools.
pub struct ToolError(String);

/// Structured content whose type gives the tool its output schema. The value must serialize to a
/// JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// A type that an in-process tool can return.
pub trait IntoToolOutput {
    /// Returns the schema of the structured content, if every result has such content.
    fn output_schema() -> Option<Value> {
        None
    }

    /// Converts the value.
    fn into_tool_output(self) -> Result<LocalToolOutput, ToolError>;
}

impl IntoToolOutput for LocalToolOutput {
    fn into_tool_output(self) -> Result<LocalToolOutput, ToolError> {
        Ok(self)
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> Result<LocalToolOutput, ToolError> {
        Ok(LocalToolOutput::Text(self))
    }
}

impl IntoToolOutput for &'static str {
    fn into_tool_output(self) -> Result<LocalToolOutput, ToolError> {
        Ok(LocalToolOutput::Text(self.to_owned()))
    }
}

impl<T: Serialize + JsonSchema> IntoToolOutput for Json<T> {
    fn output_schema() -> Option<Value> {
        Some(output_schema::<T>())
    }

    fn into_tool_output(self) -> Result<LocalToolOutput, ToolError> {
        let value = serde_json::to_value(self.0)?;
        Ok(LocalToolOutput::Structured(value))
    }
}

impl LocalToolOutput {
    pub(super) fn into_result(self) -> RpcResult {
        match self {
            Self::Raw(result) => Ok(result),
            Self::Text(text) => to_result(&json!({"content": [{"type": "text", "text": text}]})),
            Self::Structured(value) => to_result(&json!({
                "content": [{"type": "text", "text": value.to_string()}],
                "structuredContent": value,
            })),
        }
    }
}

impl ToolError {
    /// Creates an error with a message for the model.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(super) fn into_result(self) -> RpcResult {
        to_result(&json!({"content": [{"type": "text", "text": self.0}], "isError": true}))
    }
}

// `ToolError` must not implement `Display`: this conversion would then overlap with the identity.
impl<E: fmt::Display> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
