//! A complete model turn, assembled from its events.

use serde_json::Value;

use crate::event::{FinishReason, ProviderError, ReasoningProof, TokenUsage, TurnEvent};
use crate::prompt::RequestedToolCall;

/// Metadata of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    pub id: String,
    /// Model name as the caller wrote it.
    pub model: String,
    /// Unix timestamp in seconds.
    pub created: u64,
    /// Whether the caller requested usage at the end of a stream.
    pub stream_usage: bool,
    /// Namespaces in which the caller groups tools.
    pub namespaces: Vec<String>,
}

impl ResponseHead {
    /// Splits a qualified tool name into its namespace and the name within it.
    pub(crate) fn split_namespace<'a>(&'a self, tool: &'a str) -> Option<(&'a str, &'a str)> {
        self.namespaces.iter().find_map(|namespace| {
            let rest = tool.strip_prefix(namespace.as_str())?.strip_prefix("__")?;
            Some((namespace.as_str(), rest))
        })
    }
}

/// A model's output in one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelTurn {
    pub id: String,
    pub model: String,
    /// In the order in which the model produced them.
    pub items: Vec<TurnItem>,
    pub usage: Option<TokenUsage>,
    pub finish: Option<FinishReason>,
    pub error: Option<ProviderError>,
    /// Pairs of event index and position in `items`, one per tool call.
    call_positions: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TurnItem {
    Text(String),
    Refusal(String),
    Reasoning {
        text: String,
        proof: Option<ReasoningProof>,
    },
    ToolCall(RequestedToolCall),
    /// Dialect-specific item, unmodified.
    Raw(Value),
}

impl ModelTurn {
    pub fn from_events(events: &[TurnEvent]) -> Self {
        let mut turn = Self::default();
        events.iter().for_each(|event| turn.apply(event));
        turn
    }

    pub fn apply(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::Start { id, model } => {
                self.id.clone_from(id);
                self.model.clone_from(model);
            }
            TurnEvent::Text(more) => match self.items.last_mut() {
                Some(TurnItem::Text(text)) => text.push_str(more),
                _ => self.items.push(TurnItem::Text(more.clone())),
            },
            TurnEvent::Refusal(more) => match self.items.last_mut() {
                Some(TurnItem::Refusal(text)) => text.push_str(more),
                _ => self.items.push(TurnItem::Refusal(more.clone())),
            },
            TurnEvent::Reasoning(more) => match self.items.last_mut() {
                Some(TurnItem::Reasoning { text, proof: None }) => text.push_str(more),
                _ => self.items.push(TurnItem::Reasoning {
                    text: more.clone(),
                    proof: None,
                }),
            },
            TurnEvent::ReasoningEnd(ended) => match (self.items.last_mut(), ended) {
                (Some(TurnItem::Reasoning { proof, .. }), _) if proof.is_none() => {
                    proof.clone_from(ended);
                }
                (_, Some(_)) => self.items.push(TurnItem::Reasoning {
                    text: String::new(),
                    proof: ended.clone(),
                }),
                (_, None) => {}
            },
            TurnEvent::CallStart { index, id, name } => {
                self.call_positions.push((*index, self.items.len()));
                self.items.push(TurnItem::ToolCall(RequestedToolCall {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                }));
            }
            TurnEvent::CallDelta { index, arguments } => {
                let at = self
                    .call_positions
                    .iter()
                    .rfind(|(known, _)| known == index);
                if let Some((_, at)) = at
                    && let Some(TurnItem::ToolCall(call)) = self.items.get_mut(*at)
                {
                    call.arguments.push_str(arguments);
                }
            }
            TurnEvent::Raw(item) => self.items.push(TurnItem::Raw(item.clone())),
            TurnEvent::ReasoningStart(_) | TurnEvent::CallEnd { .. } | TurnEvent::Annotation(_) => {
            }
            TurnEvent::Usage(usage) => self.usage = Some(*usage),
            TurnEvent::Finish(finish) => self.finish = Some(finish.clone()),
            TurnEvent::Error(failure) => self.error = Some(failure.clone()),
        }
    }

    /// Concatenates all text items.
    pub fn text(&self) -> String {
        let texts = self.items.iter().filter_map(|item| match item {
            TurnItem::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns whether a raw item requires an answer from the caller.
    pub fn has_pending_caller_call(&self) -> bool {
        let raw = self.items.iter().filter_map(|item| match item {
            TurnItem::Raw(item) => Some(item),
            _ => None,
        });
        has_pending_caller_call(&raw.collect::<Vec<_>>())
    }

    pub fn tool_calls(&self) -> impl Iterator<Item = &RequestedToolCall> {
        self.items.iter().filter_map(|item| match item {
            TurnItem::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// Returns whether raw response items contain a dialect-specific call that the caller must answer.
/// Calls that the provider runs itself have an output item or no `call_id`.
pub fn has_pending_caller_call(items: &[&Value]) -> bool {
    let kind = |item: &Value| item["type"].as_str().unwrap_or_default().to_owned();
    let is_output = |item: &Value| kind(item).ends_with("_output");
    let has_output = |id: &Value| {
        let mut items = items.iter();
        items.any(|item| is_output(item) && item["call_id"] == *id)
    };
    items.iter().any(|item| {
        let is_call = item["call_id"].is_string() && kind(item) != "function_call";
        let is_pending = is_call && !is_output(item) && !has_output(&item["call_id"]);
        is_pending || kind(item) == "mcp_approval_request"
    })
}
