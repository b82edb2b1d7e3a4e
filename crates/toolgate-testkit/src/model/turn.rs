//! Content of one model turn, independent of the API.

use serde_json::{Map, Value};

/// One answer: reasoning, then text, then calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScriptedTurn {
    pub(crate) reasoning: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<ScriptedCall>,
    pub(crate) usage: ScriptedUsage,
    /// In terms of the Chat API; derived from the calls if absent.
    pub(crate) finish_reason: Option<String>,
    pub(crate) extra: Map<String, Value>,
}

/// A tool call of the model.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON, unless the script sets invalid arguments.
    pub(crate) arguments: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptedUsage {
    /// All input tokens, including cached ones.
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
}

/// The request that a turn answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestInfo<'a> {
    pub(crate) body: &'a Value,
    /// Counted from one; every id in the response derives from it.
    pub(crate) number: usize,
}

impl ScriptedTurn {
    /// Returns the finish reason in terms of the Chat API.
    pub(crate) fn finish_reason(&self) -> &str {
        match &self.finish_reason {
            Some(reason) => reason,
            None if self.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    /// Adds the extra fields to an object of the response.
    pub(crate) fn add_extra_fields(&self, mut value: Value) -> Value {
        if let Value::Object(fields) = &mut value {
            fields.extend(self.extra.clone());
        }
        value
    }
}

impl Default for ScriptedUsage {
    fn default() -> Self {
        Self {
            input: 11,
            cached: 0,
            output: 7,
        }
    }
}

impl RequestInfo<'_> {
    pub(crate) fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or("scripted")
    }
}

/// Returns whether the conversation in a request body has a tool result, for any API.
#[must_use]
pub fn has_tool_result(body: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let chat_or_messages = list(&body["messages"]).iter().any(|message| {
        let blocks = list(&message["content"]);
        message["role"] == "tool" || blocks.iter().any(|block| block["type"] == "tool_result")
    });
    let responses = list(&body["input"])
        .iter()
        .any(|item| item["type"] == "function_call_output");
    chat_or_messages || responses
}

/// Splits text into words, as it is streamed.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Splits arguments into fragments, as they are streamed, regardless of JSON tokens.
pub(crate) fn split_fragments(json: &str) -> impl Iterator<Item = String> {
    const FRAGMENT_CHARS: usize = 6;
    let chars: Vec<char> = json.chars().collect();
    let fragments: Vec<String> = chars
        .chunks(FRAGMENT_CHARS)
        .map(String::from_iter)
        .collect();
    fragments.into_iter()
}
