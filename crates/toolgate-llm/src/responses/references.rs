//! Ids by which requests of the Responses API refer to what a provider has stored, and the ids that a
//! provider issues.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::FieldError;
use crate::body::RequestBody;

/// Longest id that is taken note of.
const MAX_ID_BYTES: usize = 256;
/// Maximum number of ids that are taken note of in one response or event.
const MAX_IDS: usize = 1024;

/// The ids in a request that refer to what the provider has stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredReferences {
    /// The response that the request continues.
    pub previous_response: Option<String>,
    /// The conversation that the request belongs to.
    pub conversation: Option<String>,
    pub items: Vec<ItemReference>,
}

/// A reference to a single stored item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReference {
    /// Path of the id in the request.
    pub field: String,
    pub id: String,
}

#[derive(Deserialize)]
struct InputItem<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
    #[serde(default)]
    role: Option<IgnoredAny>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Conversation {
    Id(String),
    Object { id: String },
}

impl StoredReferences {
    /// Finds the references in a request.
    pub fn in_request(body: &RequestBody) -> Result<Self, FieldError> {
        let conversation = body.get("conversation").filter(|value| *value != "null");
        let conversation = match conversation.map(serde_json::from_str) {
            None => None,
            Some(Ok(Conversation::Id(id) | Conversation::Object { id })) => Some(id),
            Some(Err(_)) => {
                return Err(FieldError {
                    field: "conversation".to_owned(),
                    problem: "must be an id or an object with an `id`".to_owned(),
                });
            }
        };
        Ok(Self {
            previous_response: body.get_string("previous_response_id"),
            conversation,
            items: item_references(body)?,
        })
    }
}

fn item_references(body: &RequestBody) -> Result<Vec<ItemReference>, FieldError> {
    let input = body.get("input").filter(|input| input.starts_with('['));
    let Some(input) = input else {
        return Ok(Vec::new());
    };
    let unreadable = |field: String| FieldError {
        field,
        problem: "cannot be read".to_owned(),
    };
    let items: Vec<&RawValue> =
        serde_json::from_str(input).map_err(|_| unreadable("input".to_owned()))?;
    let mut references = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if !item.get().starts_with('{') {
            continue;
        }
        let InputItem { kind, role, id } =
            serde_json::from_str(item.get()).map_err(|_| unreadable(format!("input[{index}]")))?;
        let is_reference = match kind.as_deref() {
            // A reference need not have a type; a message without one has a role.
            None => role.is_none(),
            Some(kind) => kind == "item_reference",
        };
        if let Some(id) = id.filter(|_| is_reference) {
            references.push(ItemReference {
                field: format!("input[{index}].id"),
                id: id.into_owned(),
            });
        }
    }
    Ok(references)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuedIds {
    id: Option<String>,
    output: Vec<IssuedItem>,
    /// Set in events of a stream.
    response: Option<Box<Self>>,
    /// Set in events of a stream.
    item: Option<IssuedItem>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IssuedItem {
    id: Option<String>,
}

/// Returns the ids that a provider issues in a complete response: its own and those of its items.
pub fn issued_ids(response: &[u8]) -> Vec<String> {
    // Only an observer: a malformed response goes to the caller, who sees the error.
    let parsed: IssuedIds = serde_json::from_slice(response).unwrap_or_default();
    let nested = parsed.response.map(|nested| *nested).unwrap_or_default();
    let items = parsed.output.into_iter().chain(nested.output);
    let items = items.chain(parsed.item).filter_map(|item| item.id);
    let ids = parsed.id.into_iter().chain(nested.id).chain(items);
    let ids = ids.filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
    ids.take(MAX_IDS).collect()
}

/// Like [`issued_ids`], for the data of an event of a stream.
pub fn issued_ids_of_event(data: &[u8]) -> Vec<String> {
    // Most events are deltas, which issue nothing.
    let types = [
        "\"response.created\"",
        "\"response.output_item.added\"",
        "\"response.completed\"",
        "\"response.incomplete\"",
    ];
    let mut types = types.iter();
    if types.any(|kind| memmem::find(data, kind.as_bytes()).is_some()) {
        issued_ids(data)
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(body: &str) -> Result<StoredReferences, FieldError> {
        StoredReferences::in_request(&RequestBody::parse(body.to_owned().into()).unwrap())
    }

    #[test]
    fn references_are_found_in_every_form() {
        let found = references(
            r#"{"previous_response_id":"resp_\u0031","conversation":{"id":"conv_1"},"input":[
                {"role":"user","content":"hi","id":"msg_0"},
                {"type":"item_reference","id":"msg_1"},
                {"type":"item\u005freference","id":"msg_\u0032"},
                {"id":"msg_3"},
                {"type":null,"id":"msg_4"},
                {"type":"function_call","id":"fc_1","call_id":"c","name":"n","arguments":"{}"},
                "text"
            ]}"#,
        )
        .unwrap();
        assert_eq!(found.previous_response.as_deref(), Some("resp_1"));
        assert_eq!(found.conversation.as_deref(), Some("conv_1"));
        let items: Vec<(&str, &str)> = found
            .items
            .iter()
            .map(|item| (item.field.as_str(), item.id.as_str()))
            .collect();
        assert_eq!(
            items,
            [
                ("input[1].id", "msg_1"),
                ("input[2].id", "msg_2"),
                ("input[3].id", "msg_3"),
                ("input[4].id", "msg_4"),
            ]
        );
        let found = references(r#"{"conversation":"conv_2","input":"hi"}"#).unwrap();
        assert_eq!(found.conversation.as_deref(), Some("conv_2"));
        let none = r#"{"previous_response_id":null,"conversation":null,"input":[]}"#;
        assert_eq!(references(none).unwrap(), StoredReferences::default());
    }

    #[test]
    fn ambiguous_references_are_refused() {
        for (body, field) in [
            (
                r#"{"input":[{"type":"message","type":"item_reference","id":"a"}]}"#,
                "input[0]",
            ),
            (
                r#"{"input":["x",{"type":"item_reference","id":"a","id":"b"}]}"#,
                "input[1]",
            ),
            (r#"{"conversation":["conv_1"]}"#, "conversation"),
            (r#"{"conversation":{}}"#, "conversation"),
        ] {
            assert_eq!(references(body).unwrap_err().field, field, "{body}");
        }
    }

    #[test]
    fn issued_ids_are_found_in_responses_and_events() {
        let response = r#"{"id":"resp_1","output":[{"id":"rs_1"},{"type":"x"},{"id":"msg_1"}]}"#;
        assert_eq!(issued_ids(response.as_bytes()), ["resp_1", "rs_1", "msg_1"]);
        let completed = format!(r#"{{"type":"response.completed","response":{response}}}"#);
        for (event, ids) in [
            (completed.as_str(), &["resp_1", "rs_1", "msg_1"][..]),
            (
                r#"{"type":"response.created","response":{"id":"resp_2","output":[]}}"#,
                &["resp_2"],
            ),
            (
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_2"}}"#,
                &["msg_2"],
            ),
            (
                r#"{"type":"response.output_text.delta","item_id":"msg_2","delta":"x"}"#,
                &[],
            ),
            ("[DONE]", &[]),
        ] {
            assert_eq!(issued_ids_of_event(event.as_bytes()), ids, "{event}");
        }
        assert!(issued_ids(b"{\"id\":7}").is_empty());
    }
}
