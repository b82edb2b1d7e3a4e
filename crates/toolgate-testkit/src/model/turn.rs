//! What a model says in one turn, whatever the API it is asked over.

use serde_json::{Map, Value};

/// One answer: thoughts, then text, then calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    pub(crate) reasoning: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<Call>,
    pub(crate) usage: Usage,
    /// In the words of the Chat API; without it, what follows from the rest.
    pub(crate) finish: Option<String>,
    pub(crate) extra: Map<String, Value>,
}

/// One tool that the model wants to be called.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON, unless the script wants it broken.
    pub(crate) arguments: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// All of the input, with what was cached.
    pub(crate) input: u64,
    pub(crate) cached: u64,
    pub(crate) output: u64,
}

/// The request that a turn answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) body: &'a Value,
    /// Counted from one; every id in the answer is made of it.
    pub(crate) number: usize,
}

impl Turn {
    /// Why the turn ended, in the words of the Chat API.
    pub(crate) fn finish(&self) -> &str {
        match &self.finish {
            Some(finish) => finish,
            None if self.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    /// Adds the extra fields to an object that is part of the answer.
    pub(crate) fn dress(&self, mut value: Value) -> Value {
        if let Value::Object(fields) = &mut value {
            fields.extend(self.extra.clone());
        }
        value
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            input: 11,
            cached: 0,
            output: 7,
        }
    }
}

impl Ask<'_> {
    pub(crate) fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or("scripted")
    }
}

/// Whether a tool was already called in this conversation, whichever API it is told in.
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

/// Text as it is streamed: a word a piece.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Arguments as they are streamed: pieces that respect neither names nor values.
pub(crate) fn shreds(json: &str) -> impl Iterator<Item = String> {
    const SHRED: usize = 6;
    let letters: Vec<char> = json.chars().collect();
    let shreds: Vec<String> = letters.chunks(SHRED).map(String::from_iter).collect();
    shreds.into_iter()
}
