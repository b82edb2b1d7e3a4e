//! Responses and items that callers of the Responses API may refer to by id (`previous_response_id`,
//! `item_reference`, `conversation`), each visible only to the key that received it.
//!
//! If the provider does not store a response, it is kept here, in memory and for a limited time. For
//! what the provider stores, the database has the id and its owner.

mod store;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde_json::{Value, json};
use toolgate_llm::FieldError;

use crate::caller::Caller;
use crate::store::{Store, StoreError};

use store::OwnerStore;
pub(crate) use store::{IssuedId, put_issued_ids};

const MAX_CACHE_BYTES: u64 = 64 * 1024 * 1024;
const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// Name of the caller's key, and the id of the entry.
type EntryKey = (Option<Arc<str>>, String);

/// What callers may refer to; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Conversations {
    entries: Cache<EntryKey, Arc<StoredEntry>>,
    owners: OwnerStore,
}

#[derive(Debug)]
enum StoredEntry {
    Item(Value),
    Conversation(Conversation),
    Provider(ProviderReference),
}

/// Conversation up to and including a response.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// Input and output items.
    items: Vec<Value>,
    /// Number of input items, which come first.
    input_count: usize,
    /// The response without its output.
    response: Value,
}

/// A response or item that a provider stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderReference {
    /// Its id at the provider.
    pub(crate) id: String,
    /// Name of the provider; `None` if it was not recorded.
    pub(crate) provider: Option<String>,
}

/// Where a response is stored.
#[derive(Debug)]
pub(crate) enum StoredResponse {
    AtProvider(ProviderReference),
    Here(Value),
}

/// Part of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponsePart {
    Response,
    /// List of the input items, the last one first.
    InputItems,
}

impl Conversation {
    /// Returns a part of the response as the Responses API shows it.
    fn part(&self, part: ResponsePart) -> Value {
        let (input, output) = self.items.split_at(self.input_count.min(self.items.len()));
        if part == ResponsePart::Response {
            let mut response = self.response.clone();
            response["output"] = Value::Array(output.to_vec());
            return response;
        }
        let items: Vec<Value> = input.iter().rev().cloned().collect();
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        json!({
            "object": "list",
            "first_id": id(items.first()),
            "last_id": id(items.last()),
            "has_more": false,
            "data": items,
        })
    }
}

impl Conversations {
    pub(crate) fn new(store: Store) -> Self {
        let weigh = |key: &EntryKey, entry: &Arc<StoredEntry>| {
            let size = match &**entry {
                StoredEntry::Item(item) => item.to_string().len(),
                StoredEntry::Provider(reference) => reference.id.len(),
                StoredEntry::Conversation(Conversation { items, .. }) => {
                    items.iter().map(|item| item.to_string().len()).sum()
                }
            };
            u32::try_from(size + key.1.len() + 64).unwrap_or(u32::MAX)
        };
        let entries = Cache::builder()
            .max_capacity(MAX_CACHE_BYTES)
            .weigher(weigh)
            .time_to_live(ENTRY_TTL)
            .support_invalidation_closures()
            .build();
        Self {
            entries,
            owners: OwnerStore::new(store),
        }
    }

    /// Replaces the references in a request with the items they refer to.
    pub(crate) fn expand_references<'a>(
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
                    StoredEntry::Conversation(_) | StoredEntry::Provider(_) => {
                        return Err(unknown_reference(field));
                    }
                };
            }
        }
        if let Some(previous) = value.get("previous_response_id").filter(|id| !id.is_null()) {
            let field = "previous_response_id";
            match &*self.lookup(caller, previous, field)? {
                StoredEntry::Conversation(before) => {
                    drop(items.splice(..0, before.items.iter().cloned()))
                }
                StoredEntry::Item(_) | StoredEntry::Provider(_) => {
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

    /// Maps a gateway id to the id under which the provider stores a response. The mapping survives a
    /// restart.
    pub(crate) async fn alias_response(
        &self,
        caller: &Caller,
        id: &str,
        provider_id: &str,
    ) -> Result<(), StoreError> {
        let reference = ProviderReference {
            id: provider_id.to_owned(),
            provider: None,
        };
        self.insert_reference(caller, id, reference);
        self.owners.put(id, key_name(caller), provider_id).await
    }

    /// Takes note of an id that a provider issued to the caller. It must be stored separately, see
    /// [`put_issued_ids`].
    pub(crate) fn add_issued_id(&self, caller: &Caller, id: &str, provider: &str) {
        let reference = ProviderReference {
            id: id.to_owned(),
            provider: Some(provider.to_owned()),
        };
        self.insert_reference(caller, id, reference);
    }

    /// Finds a response, or its input items, that the caller may refer to.
    pub(crate) async fn find_response(
        &self,
        caller: &Caller,
        id: &str,
        part: ResponsePart,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let cached = self.entries.get(&entry_key(caller, id));
        if let Some(StoredEntry::Conversation(conversation)) = cached.as_deref() {
            return Ok(Some(StoredResponse::Here(conversation.part(part))));
        }
        let Some(found) = self.find_reference(caller, id).await? else {
            return Ok(None);
        };
        // The provider of an id of the gateway is recorded with the provider's own id.
        let reference = if found.provider.is_none() && found.id != id {
            let own = self.find_reference(caller, &found.id).await?;
            own.unwrap_or(found)
        } else {
            found
        };
        Ok(Some(StoredResponse::AtProvider(reference)))
    }

    /// Forgets a response that was deleted.
    pub(crate) async fn delete_response(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<(), StoreError> {
        self.entries.invalidate(&entry_key(caller, id));
        self.owners.delete(id).await
    }

    /// Returns the provider's id of a stored response or item if the caller may refer to it.
    ///
    /// A key may refer only to what it received through this gateway. A caller without a key may refer
    /// to anything that no key received.
    pub(crate) async fn resolve_reference(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Option<String>, StoreError> {
        let reference = self.find_reference(caller, id).await?;
        Ok(reference.map(|reference| reference.id))
    }

    async fn find_reference(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Option<ProviderReference>, StoreError> {
        let cached = self.entries.get(&entry_key(caller, id));
        if let Some(StoredEntry::Provider(reference)) = cached.as_deref() {
            return Ok(Some(reference.clone()));
        }
        Ok(match self.owners.get(id).await? {
            Some(owned) if owned.belongs_to(key_name(caller)) => {
                let reference = ProviderReference {
                    id: owned.provider_id,
                    provider: owned.provider,
                };
                self.insert_reference(caller, id, reference.clone());
                Some(reference)
            }
            None if caller.key().is_none() => Some(ProviderReference {
                id: id.to_owned(),
                provider: None,
            }),
            _ => None,
        })
    }

    /// Returns whether the caller may use a conversation at a provider. The gateway does not create
    /// conversations, so one belongs to the key that uses it first.
    pub(crate) async fn claim_conversation(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<bool, StoreError> {
        // Kept apart from responses, whose ids cannot be claimed.
        let id = format!("conversation:{id}");
        if let Some(key) = key_name(caller)
            && !self.entries.contains_key(&entry_key(caller, &id))
        {
            match self.owners.get(&id).await? {
                None => self.owners.claim(&id, key).await?,
                Some(owned) if owned.belongs_to(Some(key)) => self.owners.renew(&id).await?,
                Some(_) => {}
            }
        }
        Ok(self.resolve_reference(caller, &id).await?.is_some())
    }

    /// Forgets what a key, by name, may refer to, so that a new key of the same name inherits nothing.
    /// The database tells by the time at which the spending of the key was reset.
    pub(crate) fn forget_caller(&self, key: &str) {
        let name = key.to_owned();
        let invalidated = self
            .entries
            .invalidate_entries_if(move |(caller, _), _| caller.as_deref() == Some(&name));
        if let Err(error) = invalidated {
            tracing::error!(%error, key, "failed to forget responses of a key");
        }
    }

    /// Deletes the owners of ids issued before a time.
    pub(crate) async fn delete_expired(&self, before: i64) -> Result<(), StoreError> {
        self.owners.delete_before(before).await
    }

    /// Stores a response and its items unless the caller sent `store: false`.
    pub(crate) fn store_response(&self, caller: &Caller, body: &str, response: &str) {
        let Ok(mut response) = serde_json::from_str::<Value>(response) else {
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
        let mut items = input_items(&expanded);
        let input_count = items.len();
        items.extend(output);
        if let Some(members) = response.as_object_mut() {
            members.shift_remove("output");
        }
        let id = response["id"].clone();
        let conversation = Conversation {
            items,
            input_count,
            response,
        };
        self.insert(caller, &id, StoredEntry::Conversation(conversation));
    }

    fn insert(&self, caller: &Caller, id: &Value, entry: StoredEntry) {
        if let Some(id) = id.as_str() {
            self.entries.insert(entry_key(caller, id), Arc::new(entry));
        }
    }

    fn insert_reference(&self, caller: &Caller, id: &str, reference: ProviderReference) {
        let entry = StoredEntry::Provider(reference);
        self.entries.insert(entry_key(caller, id), Arc::new(entry));
    }

    fn lookup(
        &self,
        caller: &Caller,
        id: &Value,
        field: &str,
    ) -> Result<Arc<StoredEntry>, FieldError> {
        let found = id
            .as_str()
            .and_then(|id| self.entries.get(&entry_key(caller, id)));
        found.ok_or_else(|| unknown_reference(field.to_owned()))
    }
}

fn entry_key(caller: &Caller, id: &str) -> EntryKey {
    (caller.key().cloned(), id.to_owned())
}

fn key_name(caller: &Caller) -> Option<&str> {
    caller.key().map(|key| &**key)
}

/// Error for a reference to something that does not exist for the caller.
pub(crate) fn unknown_reference(field: String) -> FieldError {
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
