//! Output items of a response, as callers see them.

use serde_json::{Value, json};

use super::ResponseStatus;
use crate::event::ReasoningProof;
use crate::prompt::{RequestedToolCall, json_object};
use crate::turn::{ModelTurn, ResponseHead, TurnItem};

/// An item of a response's `output`.
#[derive(Debug)]
pub(super) struct OutputItem {
    pub(super) id: String,
    pub(super) content: OutputContent,
    /// `in_progress`, `completed` or `incomplete`.
    pub(super) status: &'static str,
    /// For a call: the caller's namespace of the tool, and the name within it.
    namespace: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) enum OutputContent {
    Message(Vec<OutputPart>),
    Reasoning {
        text: String,
        encrypted: Option<String>,
    },
    Call(RequestedToolCall),
    /// Dialect-specific item, unmodified.
    Raw(Value),
}

/// A part of a message.
#[derive(Debug)]
pub(super) struct OutputPart {
    pub(super) kind: PartKind,
    pub(super) text: String,
    /// Citations of a text.
    pub(super) annotations: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
}

impl OutputItem {
    /// Creates the item at an output index. Its id derives from the response id, so that a stream and
    /// a complete response use the same one.
    pub(super) fn new(head: &ResponseHead, index: usize, mut content: OutputContent) -> Self {
        let response_id = head.id.strip_prefix("resp_").unwrap_or(&head.id);
        let prefix = match &mut content {
            OutputContent::Message(_) => "msg",
            OutputContent::Reasoning { .. } => "rs",
            OutputContent::Raw(_) => "item",
            OutputContent::Call(call) => {
                // Some providers send no call ids, but callers need them to match results.
                if call.id.is_empty() {
                    call.id = format!("call_{response_id}_{index}");
                }
                "fc"
            }
        };
        let namespace = match &content {
            OutputContent::Call(call) => head.split_namespace(&call.name),
            _ => None,
        };
        Self {
            id: format!("{prefix}_{response_id}_{index}"),
            namespace: namespace.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            content,
            status: "in_progress",
        }
    }

    /// Sets the provider's own id, if any. Providers accept encrypted reasoning back only under its
    /// original id.
    pub(super) fn with_id(mut self, id: Option<&str>) -> Self {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            id.clone_into(&mut self.id);
        }
        self
    }

    /// Converts a turn into items. Only the last item can be incomplete.
    pub(super) fn from_turn(
        head: &ResponseHead,
        turn: &ModelTurn,
        status: ResponseStatus<'_>,
    ) -> Vec<Self> {
        let mut output: Vec<Self> = Vec::new();
        for item in &turn.items {
            let (content, id) = match item {
                TurnItem::Text(text) | TurnItem::Refusal(text) if text.is_empty() => continue,
                TurnItem::Text(text) => (OutputContent::message(PartKind::Text, text), None),
                TurnItem::Refusal(text) => (OutputContent::message(PartKind::Refusal, text), None),
                TurnItem::ToolCall(call) => (OutputContent::Call(call.clone()), None),
                TurnItem::Raw(item) => (OutputContent::Raw(item.clone()), item["id"].as_str()),
                TurnItem::Reasoning { text, proof } => {
                    let text = text.clone();
                    match proof {
                        Some(ReasoningProof::Encrypted { id, content }) => {
                            let encrypted = content.clone();
                            (
                                OutputContent::Reasoning { text, encrypted },
                                Some(id.as_str()),
                            )
                        }
                        // Proofs of other providers have no equivalent here.
                        _ if text.is_empty() => continue,
                        _ => {
                            let encrypted = None;
                            (OutputContent::Reasoning { text, encrypted }, None)
                        }
                    }
                }
            };
            match (output.last_mut().map(|last| &mut last.content), content) {
                (Some(OutputContent::Message(parts)), OutputContent::Message(more)) => {
                    parts.extend(more)
                }
                (_, content) => output.push(Self::new(head, output.len(), content).with_id(id)),
            }
        }
        for item in &mut output {
            item.status = "completed";
        }
        if let Some(last) = output.last_mut() {
            last.status = status.last_item_status();
        }
        output
    }

    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            OutputContent::Raw(item) => item.clone(),
            OutputContent::Message(parts) => {
                let content: Vec<Value> = parts.iter().map(OutputPart::to_json).collect();
                json!({"id": self.id, "type": "message", "status": self.status, "role": "assistant",
                    "content": content})
            }
            OutputContent::Reasoning { text, encrypted } => {
                let summary = if text.is_empty() {
                    json!([])
                } else {
                    json!([summary_part(text)])
                };
                json_object([
                    ("id", Some(json!(self.id))),
                    ("type", Some(json!("reasoning"))),
                    ("summary", Some(summary)),
                    ("encrypted_content", encrypted.as_deref().map(Value::from)),
                ])
            }
            OutputContent::Call(call) => {
                let mut value = json!({"id": self.id, "type": "function_call",
                    "status": self.status, "arguments": call.arguments, "call_id": call.id,
                    "name": call.name});
                if let Some((namespace, name)) = &self.namespace {
                    value["name"] = json!(name);
                    value["namespace"] = json!(namespace);
                }
                value
            }
        }
    }
}

impl OutputContent {
    fn message(kind: PartKind, text: &str) -> Self {
        Self::Message(vec![OutputPart::new(kind, text.to_owned())])
    }
}

impl OutputPart {
    pub(super) fn new(kind: PartKind, text: String) -> Self {
        Self {
            kind,
            text,
            annotations: Vec::new(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self.kind {
            PartKind::Text => {
                json!({"type": "output_text", "annotations": self.annotations, "logprobs": [],
                "text": self.text})
            }
            PartKind::Refusal => json!({"type": "refusal", "refusal": self.text}),
        }
    }
}

/// Returns a part of a reasoning summary.
pub(super) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}
