//! Responses and items that Responses API callers may refer to by id (`previous_response_id`,
//! `item_reference`) when the provider does not store them. Entries live in memory for a limited time
//! and are visible only to the caller that received them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_llm::FieldError;

use super::ModelCall;
use crate::caller::Caller;

const MAX_CACHE_BYTES: u64 = 64 * 1024 * 1024;
const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// Name of the caller's key, and the id of the entry.
type EntryKey = (Option<Arc<str>>, String);

/// Cache of referable entries; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Conversations(Cache<EntryKey, Arc<StoredEntry>>);

#[derive(Debug)]
enum StoredEntry {
    Item(Value),
    /// Conversation up to and including a response.
    Conversation(Vec<Value>),
    /// Id under which the provider stores a response.
    ProviderId(String),
}

impl Conversations {
    pub(super) fn new() -> Self {
        let weigh = |key: &EntryKey, entry: &Arc<StoredEntry>| {
            let size = match &**entry {
                StoredEntry::Item(item) => item.to_string().len(),
                StoredEntry::ProviderId(id) => id.len(),
                StoredEntry::Conversation(items) => {
                    items.iter().map(|item| item.to_string().len()).sum()
                }
            };
            u32::try_from(size + key.1.len() + 64).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MAX_CACHE_BYTES)
                .weigher(weigh)
                .time_to_live(ENTRY_TTL)
                .build(),
        )
    }

    /// Replaces the references in a request with the items they refer to.
    pub(super) fn expand_references<'a>(
        &self,
        caller: &Caller,
        body: &'a str,
    ) -> Result<Cow<'a, str>, FieldError> {
        let reference_keys = [
            "\"item_reference\"",
            "\"previous_response_id\"",
            "\"store\"",
        ];
        if !reference_keys.iter().any(|key| body.contains(key)) {
            return Ok(Cow::Borrowed(body));
        }
        let Ok(mut value) = serde_json::from_str::<Value>(body) else {
            return Ok(Cow::Borrowed(body));
        };
        let mut items = input_items(&value);
        for (index, item) in items.iter_mut().enumerate() {
            if item["type"] == "item_reference" {
                let field = format!("input[{index}].id");
                *item = match &*self.lookup(caller, &item["id"], &field)? {
                    StoredEntry::Item(item) => item.clone(),
                    StoredEntry::Conversation(_) | StoredEntry::ProviderId(_) => {
                        return Err(unknown_reference(field));
                    }
                };
            }
        }
        if let Some(previous) = value.get("previous_response_id").filter(|id| !id.is_null()) {
            let field = "previous_response_id";
            match &*self.lookup(caller, previous, field)? {
                StoredEntry::Conversation(before) => {
                    drop(items.splice(..0, before.iter().cloned()))
                }
                StoredEntry::Item(_) | StoredEntry::ProviderId(_) => {
                    return Err(unknown_reference(field.to_owned()));
                }
            }
        }
        if let Some(members) = value.as_object_mut() {
            members.shift_remove("previous_response_id");
            // The response is stored here, so the provider need not store it.
            members.shift_remove("store");
            members.insert("input".to_owned(), Value::Array(items));
        }
        Ok(Cow::Owned(value.to_string()))
    }

    /// Maps a gateway id to the provider's id of a response.
    pub(super) fn alias_response(&self, caller: &Caller, id: &str, provider_id: &str) {
        self.insert(
            caller,
            &json!(id),
            StoredEntry::ProviderId(provider_id.to_owned()),
        );
    }

    /// Returns the provider's id, as JSON, for a response known to the caller by a gateway id.
    pub(super) fn provider_response_id(&self, caller: &Caller, id: &str) -> Option<String> {
        match &*self.0.get(&(caller.key().cloned(), id.to_owned()))? {
            StoredEntry::ProviderId(provider_id) => Some(json!(provider_id).to_string()),
            _ => None,
        }
    }

    /// Stores a response and its items unless the caller sent `store: false`.
    pub(super) fn store_response(&self, caller: &Caller, body: &str, response: &str) {
        let Ok(response) = serde_json::from_str::<Value>(response) else {
            return;
        };
        let Ok(request) = serde_json::from_str::<Value>(body) else {
            return;
        };
        if request["store"] == false {
            return;
        }
        let output = response["output"].as_array().cloned().unwrap_or_default();
        for item in &output {
            self.insert(caller, &item["id"], StoredEntry::Item(item.clone()));
        }
        // An earlier part may have expired meanwhile. A conversation without it must not be stored: a
        // request that refers to it gets an error, not an answer that ignores what came before.
        let Ok(expanded) = self.expand_references(caller, body) else {
            return;
        };
        let Ok(expanded) = serde_json::from_str(&expanded) else {
            return;
        };
        let mut conversation = input_items(&expanded);
        conversation.extend(output);
        self.insert(
            caller,
            &response["id"],
            StoredEntry::Conversation(conversation),
        );
    }

    fn insert(&self, caller: &Caller, id: &Value, entry: StoredEntry) {
        if let Some(id) = id.as_str() {
            let key = (caller.key().cloned(), id.to_owned());
            self.0.insert(key, Arc::new(entry));
        }
    }

    fn lookup(
        &self,
        caller: &Caller,
        id: &Value,
        field: &str,
    ) -> Result<Arc<StoredEntry>, FieldError> {
        let found = id
            .as_str()
            .and_then(|id| self.0.get(&(caller.key().cloned(), id.to_owned())));
        found.ok_or_else(|| unknown_reference(field.to_owned()))
    }
}

/// Returns the previous response a request refers to if its id has the gateway's format and both sides
/// speak the Responses dialect.
pub(super) fn referenced_response(
    model_call: &ModelCall,
    provider_dialect: Dialect,
) -> Option<String> {
    let is_responses =
        (model_call.request.dialect, provider_dialect) == (Dialect::Responses, Dialect::Responses);
    let id = model_call
        .body
        .get_string("previous_response_id")
        .filter(|_| is_responses)?;
    let digits = id.strip_prefix("resp_")?;
    let is_gateway_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_gateway_id.then_some(id)
}

fn unknown_reference(field: String) -> FieldError {
    FieldError {
        field,
        problem: "refers to an unknown or expired id; send the whole conversation instead"
            .to_owned(),
    }
}

/// Input items of a request; plain text counts as one user message.
fn input_items(request: &Value) -> Vec<Value> {
    match &request["input"] {
        Value::Array(items) => items.clone(),
        Value::String(text) => vec![json!({"type": "message", "role": "user", "content": text})],
        _ => Vec::new(),
    }
}
