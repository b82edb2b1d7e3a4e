//! Turns of a conversation as the provider produced them.
//!
//! If the caller speaks another dialect, the conversation holds a translation of each turn, without what
//! only the provider understands: signatures and encrypted reasoning. In a request to a provider of the
//! same dialect, the original turns replace their translations.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::config::Dialect;

use crate::prompt::{MessageRole, Prompt, PromptMessage, PromptPart, RequestedToolCall};
use crate::turn::ModelTurn;

/// A turn with tool calls, in the dialect of its provider.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderTurn {
    pub dialect: Dialect,
    /// Conversation items.
    pub items: Vec<Value>,
    pub text: String,
    pub calls: Vec<RequestedToolCall>,
}

impl ProviderTurn {
    /// Returns the turn if it has tool calls and the provider can accept it back.
    pub fn new(dialect: Dialect, items: Vec<Value>, turn: &ModelTurn) -> Option<Self> {
        let turn = Self {
            dialect,
            items,
            text: turn.text(),
            calls: turn.tool_calls().cloned().collect(),
        };
        turn.is_acceptable().then_some(turn)
    }

    /// A provider refuses calls without ids, and reasoning that it neither stores nor receives encrypted.
    fn is_acceptable(&self) -> bool {
        let text = Value::from(self.items.clone()).to_string();
        let has_ids = |call: &RequestedToolCall| {
            !call.id.is_empty() && text.contains(&json!(call.id).to_string())
        };
        let is_complete =
            |item: &Value| item["type"] != "reasoning" || item["encrypted_content"].is_string();
        !self.calls.is_empty()
            && self.calls.iter().all(has_ids)
            && (self.dialect != Dialect::Responses || self.items.iter().all(is_complete))
    }

    /// Returns whether a message is the translation of this turn and of nothing else.
    fn is_translated_as(&self, message: &PromptMessage) -> bool {
        let text = message.parts.iter().filter_map(|part| match part {
            PromptPart::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let names = translated_calls(message).map(|call| &call.name);
        text.collect::<String>().trim() == self.text.trim()
            && names.eq(self.calls.iter().map(|call| &call.name))
    }

    fn raw_parts(&self) -> Vec<PromptPart> {
        let items: Vec<&Value> = match self.dialect {
            Dialect::Chat | Dialect::Responses => self.items.iter().collect(),
            Dialect::Messages => {
                let contents = self.items.iter().map(|item| &item["content"]);
                contents.filter_map(Value::as_array).flatten().collect()
            }
        };
        items.into_iter().cloned().map(PromptPart::Raw).collect()
    }

    /// Replaces a translation at the start of `messages`, and the ids of its results, which translation may
    /// have changed.
    fn restore(&self, messages: &mut [PromptMessage]) {
        let Some((message, following)) = messages.split_first_mut() else {
            return;
        };
        if !self.is_translated_as(message) {
            return;
        }
        let ids: Vec<(String, &str)> = translated_calls(message)
            .zip(&self.calls)
            .map(|(translated, own)| (translated.id.clone(), own.id.as_str()))
            .collect();
        message.parts = self.raw_parts();
        for message in following {
            if message.role == MessageRole::Assistant {
                return;
            }
            for part in &mut message.parts {
                if let PromptPart::ToolResult { id, .. } = part
                    && let Some((_, own)) = ids.iter().find(|(translated, _)| translated == id)
                {
                    (*own).clone_into(id);
                }
            }
        }
    }
}

/// Replaces the translations of the last turns with tool calls by the turns themselves, where they came from a
/// provider of this dialect. `turns` has an entry for each of them.
pub fn restore_turns(prompt: &mut Prompt, dialect: Dialect, turns: &[Option<Arc<ProviderTurn>>]) {
    let messages = &mut prompt.messages;
    let has_calls = |message: &PromptMessage| {
        message.role == MessageRole::Assistant && translated_calls(message).next().is_some()
    };
    let positions: Vec<usize> = (0..messages.len())
        .filter(|at| has_calls(&messages[*at]))
        .collect();
    let Some(first) = positions.len().checked_sub(turns.len()) else {
        return;
    };
    for (at, turn) in positions[first..].iter().zip(turns) {
        if let Some(turn) = turn.as_ref().filter(|turn| turn.dialect == dialect) {
            turn.restore(&mut messages[*at..]);
        }
    }
}

fn translated_calls(message: &PromptMessage) -> impl Iterator<Item = &RequestedToolCall> {
    message.parts.iter().filter_map(|part| match part {
        PromptPart::ToolCall(call) => Some(call),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> RequestedToolCall {
        RequestedToolCall {
            id: id.to_owned(),
            name: "add".to_owned(),
            arguments: "{}".to_owned(),
        }
    }

    fn translated(text: &str, id: &str) -> Prompt {
        let parts = vec![
            PromptPart::Text(text.to_owned()),
            PromptPart::ToolCall(call(id)),
        ];
        let result = PromptPart::ToolResult {
            id: id.to_owned(),
            parts: Vec::new(),
            is_error: false,
        };
        Prompt {
            messages: vec![
                PromptMessage::new(MessageRole::Assistant, parts),
                PromptMessage::new(MessageRole::User, vec![result]),
            ],
            ..Prompt::default()
        }
    }

    fn provider_turn(dialect: Dialect, item: Value) -> Option<Arc<ProviderTurn>> {
        let turn = ProviderTurn {
            dialect,
            items: vec![item],
            text: "Hm.".to_owned(),
            calls: vec![call("a:1")],
        };
        turn.is_acceptable().then(|| Arc::new(turn))
    }

    #[test]
    fn turn_replaces_its_translation_and_the_ids_of_its_results() {
        let message =
            json!({"role": "assistant", "reasoning_content": "r", "tool_calls": [{"id": "a:1"}]});
        let turn = provider_turn(Dialect::Chat, message.clone());
        let mut prompt = translated("Hm.", "a_1");
        restore_turns(&mut prompt, Dialect::Chat, std::slice::from_ref(&turn));
        assert_eq!(prompt.messages[0].parts, [PromptPart::Raw(message)]);
        let result = &prompt.messages[1].parts[0];
        assert!(matches!(result, PromptPart::ToolResult { id, .. } if id == "a:1"));
        // Another provider, or a message that contains something else, gets the translation.
        for (dialect, text) in [(Dialect::Messages, "Hm."), (Dialect::Chat, "Prefix. Hm.")] {
            let mut prompt = translated(text, "a_1");
            restore_turns(&mut prompt, dialect, std::slice::from_ref(&turn));
            assert_eq!(prompt, translated(text, "a_1"));
        }
    }

    #[test]
    fn turn_that_its_provider_would_refuse_is_not_kept() {
        let call = json!({"type": "function_call", "call_id": "b"});
        assert_eq!(provider_turn(Dialect::Responses, call), None);
        let bare = json!({"type": "reasoning", "id": "a:1"});
        assert_eq!(provider_turn(Dialect::Responses, bare), None);
        let encrypted = json!({"type": "reasoning", "id": "a:1", "encrypted_content": "x"});
        assert!(provider_turn(Dialect::Responses, encrypted).is_some());
    }
}
