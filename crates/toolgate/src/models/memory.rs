//! What callers of the Responses API may refer to by id where the provider keeps nothing: answers
//! (`previous_response_id`) and single items (`item_reference`). For a while, in memory, for the
//! caller who got them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_llm::BadField;

use super::Asked;
use crate::caller::Caller;

const MOST_BYTES: u64 = 64 * 1024 * 1024;
const KEPT: Duration = Duration::from_secs(3600);

type Key = (Option<Arc<str>>, String);

#[derive(Clone, Debug)]
pub(super) struct Memory(Cache<Key, Arc<Kept>>);

#[derive(Debug)]
enum Kept {
    Item(Value),
    /// A conversation up to and including an answer.
    Conversation(Vec<Value>),
    /// The id under which the provider keeps an answer.
    Known(String),
}

impl Memory {
    pub(super) fn new() -> Self {
        let weigh = |key: &Key, kept: &Arc<Kept>| {
            let size = match &**kept {
                Kept::Item(item) => item.to_string().len(),
                Kept::Known(id) => id.len(),
                Kept::Conversation(items) => items.iter().map(|item| item.to_string().len()).sum(),
            };
            u32::try_from(size + key.1.len() + 64).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MOST_BYTES)
                .weigher(weigh)
                .time_to_live(KEPT)
                .build(),
        )
    }

    /// The request with what it refers to in the place of the references.
    pub(super) fn expanded<'a>(
        &self,
        caller: &Caller,
        body: &'a str,
    ) -> Result<Cow<'a, str>, BadField> {
        let refers = [
            "\"item_reference\"",
            "\"previous_response_id\"",
            "\"store\"",
        ];
        if !refers.iter().any(|word| body.contains(word)) {
            return Ok(Cow::Borrowed(body));
        }
        let Ok(mut value) = serde_json::from_str::<Value>(body) else {
            return Ok(Cow::Borrowed(body));
        };
        let mut items = input(&value);
        for (index, item) in items.iter_mut().enumerate() {
            if item["type"] == "item_reference" {
                let place = format!("input[{index}].id");
                *item = match &*self.recall(caller, &item["id"], &place)? {
                    Kept::Item(item) => item.clone(),
                    Kept::Conversation(_) | Kept::Known(_) => return Err(unknown(place)),
                };
            }
        }
        if let Some(previous) = value.get("previous_response_id").filter(|id| !id.is_null()) {
            let place = "previous_response_id";
            match &*self.recall(caller, previous, place)? {
                Kept::Conversation(before) => drop(items.splice(..0, before.iter().cloned())),
                Kept::Item(_) | Kept::Known(_) => return Err(unknown(place.to_owned())),
            }
        }
        if let Some(members) = value.as_object_mut() {
            members.shift_remove("previous_response_id");
            // It is kept here, so the provider need not.
            members.shift_remove("store");
            members.insert("input".to_owned(), Value::Array(items));
        }
        Ok(Cow::Owned(value.to_string()))
    }

    /// Lets an id of ours stand for one that the provider knows.
    pub(super) fn rename(&self, caller: &Caller, id: &str, known: &str) {
        self.put(caller, &json!(id), Kept::Known(known.to_owned()));
    }

    /// The provider's id, as JSON, for an answer that a caller knows by one of ours.
    pub(super) fn known(&self, caller: &Caller, id: &str) -> Option<String> {
        match &*self.0.get(&(caller.key().cloned(), id.to_owned()))? {
            Kept::Known(known) => Some(json!(known).to_string()),
            _ => None,
        }
    }

    /// Keeps an answer, unless the caller said that it should not be.
    pub(super) fn keep(&self, caller: &Caller, body: &str, answer: &str) {
        let Ok(answer) = serde_json::from_str::<Value>(answer) else {
            return;
        };
        let asked = self.expanded(caller, body);
        let asked: Value = asked
            .ok()
            .and_then(|asked| serde_json::from_str(&asked).ok())
            .unwrap_or_default();
        let wanted = serde_json::from_str::<Value>(body).unwrap_or_default();
        if wanted["store"] == false {
            return;
        }
        let made = answer["output"].as_array().cloned().unwrap_or_default();
        for item in &made {
            self.put(caller, &item["id"], Kept::Item(item.clone()));
        }
        let mut conversation = input(&asked);
        conversation.extend(made);
        self.put(caller, &answer["id"], Kept::Conversation(conversation));
    }

    fn put(&self, caller: &Caller, id: &Value, kept: Kept) {
        if let Some(id) = id.as_str() {
            let key = (caller.key().cloned(), id.to_owned());
            self.0.insert(key, Arc::new(kept));
        }
    }

    fn recall(&self, caller: &Caller, id: &Value, place: &str) -> Result<Arc<Kept>, BadField> {
        let id = id.as_str().unwrap_or_default().to_owned();
        let found = self.0.get(&(caller.key().cloned(), id));
        found.ok_or_else(|| unknown(place.to_owned()))
    }
}

/// The answer that a request refers to, if that may be one of ours at a provider that keeps answers.
pub(super) fn reference(asked: &Asked, spoken: Dialect) -> Option<String> {
    let both = (asked.request.dialect, spoken) == (Dialect::Responses, Dialect::Responses);
    let id = asked.body.string("previous_response_id").filter(|_| both)?;
    let digits = id.strip_prefix("resp_")?;
    let is_ours = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_ours.then_some(id)
}

fn unknown(field: String) -> BadField {
    BadField {
        field,
        problem: "names nothing that is remembered here; send the conversation itself".to_owned(),
    }
}

/// The items that a request brings; a text is one.
fn input(request: &Value) -> Vec<Value> {
    match &request["input"] {
        Value::Array(items) => items.clone(),
        Value::String(text) => vec![json!({"type": "message", "role": "user", "content": text})],
        _ => Vec::new(),
    }
}
