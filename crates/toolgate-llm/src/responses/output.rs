//! The items of an answer, as they are told to a caller.

use serde_json::{Value, json};

use super::Status;
use crate::event::Proof;
use crate::prompt::{Call, object};
use crate::turn::{Head, Item, Turn};

/// An item of the output.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) id: String,
    pub(super) made: Made,
    /// `in_progress`, `completed` or `incomplete`.
    pub(super) status: &'static str,
    /// Of a call: the namespace in which the caller wraps the tool, and its name there.
    namespace: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) enum Made {
    Message(Vec<Said>),
    Reasoning {
        text: String,
        encrypted: Option<String>,
    },
    Call(Call),
    /// As it came.
    Raw(Value),
}

/// A part of a message.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) voice: Voice,
    pub(super) text: String,
    /// Where a text was found.
    pub(super) annotations: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Text,
    Refusal,
}

impl Output {
    /// An item at a place of the output. Its id is made of the answer's, so that it is the same in
    /// a stream and in a whole answer.
    pub(super) fn new(head: &Head, at: usize, mut made: Made) -> Self {
        let of = head.id.strip_prefix("resp_").unwrap_or(&head.id);
        let prefix = match &mut made {
            Made::Message(_) => "msg",
            Made::Reasoning { .. } => "rs",
            Made::Raw(_) => "item",
            Made::Call(call) => {
                // Some providers number no calls, but callers tell them apart by this.
                if call.id.is_empty() {
                    call.id = format!("call_{of}_{at}");
                }
                "fc"
            }
        };
        let namespace = match &made {
            Made::Call(call) => head.namespace(&call.name),
            _ => None,
        };
        Self {
            id: format!("{prefix}_{of}_{at}"),
            namespace: namespace.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            made,
            status: "in_progress",
        }
    }

    /// An item under the id by which its provider knows it, if there is one: only under that one
    /// is encrypted reasoning taken back.
    pub(super) fn known(mut self, id: Option<&str>) -> Self {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            id.clone_into(&mut self.id);
        }
        self
    }

    /// All that a turn made. Only the last item can have been cut off.
    pub(super) fn of(head: &Head, turn: &Turn, status: Status<'_>) -> Vec<Self> {
        let mut output: Vec<Self> = Vec::new();
        for item in &turn.items {
            let (made, id) = match item {
                Item::Text(text) | Item::Refusal(text) if text.is_empty() => continue,
                Item::Text(text) => (Made::said(Voice::Text, text), None),
                Item::Refusal(text) => (Made::said(Voice::Refusal, text), None),
                Item::Call(call) => (Made::Call(call.clone()), None),
                Item::Raw(item) => (Made::Raw(item.clone()), item["id"].as_str()),
                Item::Reasoning { text, proof } => {
                    let text = text.clone();
                    match proof {
                        Some(Proof::Encrypted { id, content }) => {
                            let encrypted = content.clone();
                            (Made::Reasoning { text, encrypted }, Some(id.as_str()))
                        }
                        // What proves it to another provider cannot be said here.
                        _ if text.is_empty() => continue,
                        _ => {
                            let encrypted = None;
                            (Made::Reasoning { text, encrypted }, None)
                        }
                    }
                }
            };
            match (output.last_mut().map(|last| &mut last.made), made) {
                (Some(Made::Message(said)), Made::Message(more)) => said.extend(more),
                (_, made) => output.push(Self::new(head, output.len(), made).known(id)),
            }
        }
        for item in &mut output {
            item.status = "completed";
        }
        if let Some(last) = output.last_mut() {
            last.status = status.last_item();
        }
        output
    }

    pub(super) fn value(&self) -> Value {
        match &self.made {
            Made::Raw(item) => item.clone(),
            Made::Message(said) => {
                let content: Vec<Value> = said.iter().map(Said::value).collect();
                json!({"id": self.id, "type": "message", "status": self.status, "role": "assistant",
                    "content": content})
            }
            Made::Reasoning { text, encrypted } => {
                let summary = match text.is_empty() {
                    true => json!([]),
                    false => json!([summary(text)]),
                };
                object([
                    ("id", Some(json!(self.id))),
                    ("type", Some(json!("reasoning"))),
                    ("summary", Some(summary)),
                    ("encrypted_content", encrypted.as_deref().map(Value::from)),
                ])
            }
            Made::Call(call) => {
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

impl Made {
    fn said(voice: Voice, text: &str) -> Self {
        Self::Message(vec![Said::new(voice, text.to_owned())])
    }
}

impl Said {
    pub(super) fn new(voice: Voice, text: String) -> Self {
        Self {
            voice,
            text,
            annotations: Vec::new(),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self.voice {
            Voice::Text => {
                json!({"type": "output_text", "annotations": self.annotations, "logprobs": [],
                "text": self.text})
            }
            Voice::Refusal => json!({"type": "refusal", "refusal": self.text}),
        }
    }
}

/// A part of the summary of reasoning.
pub(super) fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}
