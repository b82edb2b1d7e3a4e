//! Masks the secrets in entries as the user wrote them, for the audit trail.
//!
//! Unlike the views of the API, these entries are not parsed, so whatever may be a secret is masked: by
//! the name of its key, or because it is in a table of headers or variables.

use serde_json::{Map, Value};
use toolgate_core::secret::{Secret, mask_arguments};
use url::Url;

/// Tables all of whose values may be secrets.
const SECRET_TABLES: [&str; 4] = ["headers", "env", "envs", "variables"];
/// Parts of the names of keys that hold secrets.
const SECRET_NAMES: [&str; 8] = [
    "key", "token", "secret", "password", "sha256", "auth", "value", "cookie",
];
/// Keys that hold URLs, which may contain a password.
const URL_NAMES: [&str; 3] = ["url", "connection_string", "base_url"];

/// Returns an entry with its secrets masked.
pub(crate) fn mask_entry(entry: &Value) -> Value {
    match entry {
        Value::Object(entries) => Value::Object(mask_object(entries)),
        Value::Array(items) => items.iter().map(mask_entry).collect(),
        other => other.clone(),
    }
}

fn mask_object(entries: &Map<String, Value>) -> Map<String, Value> {
    let masked = entries.iter().map(|(name, value)| {
        let folded = name.to_lowercase();
        let masked = if SECRET_TABLES.contains(&folded.as_str()) {
            mask_texts(value)
        } else if folded == "args" {
            mask_command(value)
        } else if URL_NAMES.contains(&folded.as_str()) {
            mask_url(value)
        } else if SECRET_NAMES.iter().any(|part| folded.contains(part)) && value.is_string() {
            mask_texts(value)
        } else {
            mask_entry(value)
        };
        (name.clone(), masked)
    });
    masked.collect()
}

/// Masks all texts in a value; references to variables stay.
fn mask_texts(value: &Value) -> Value {
    match value {
        Value::String(text) => Secret::parse(text).to_masked_string().into(),
        Value::Array(items) => items.iter().map(mask_texts).collect(),
        Value::Object(entries) => {
            let masked = entries
                .iter()
                .map(|(name, value)| (name.clone(), mask_texts(value)));
            Value::Object(masked.collect())
        }
        other => other.clone(),
    }
}

fn mask_command(value: &Value) -> Value {
    let Value::Array(items) = value else {
        return mask_texts(value);
    };
    let texts: Option<Vec<String>> = items
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect();
    match texts {
        Some(texts) => mask_arguments(&texts).into(),
        None => mask_texts(value),
    }
}

/// Masks the password and the query of a URL.
fn mask_url(value: &Value) -> Value {
    let Value::String(text) = value else {
        return mask_texts(value);
    };
    let Ok(mut url) = Url::parse(text) else {
        return mask_texts(value);
    };
    if url.password().is_some() {
        // Fails only for URLs that cannot have a password.
        let _ = url.set_password(Some("***"));
    }
    if url.query().is_some() {
        url.set_query(Some("***"));
    }
    String::from(url).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_are() {
        let entry = json!({
            "name": "github",
            "url": "https://user:hunter2@host/mcp?token=hunter2",
            "headers": {"Authorization": "Bearer hunter2", "X-Ref": "env.TOKEN"},
            "env": ["A=hunter2"],
            "connection": {"api_key": "hunter2", "args": ["--token", "hunter2"]},
            "keys": [{"value": "hunter2", "weight": 1}],
            "sha256": "hunter2",
            "rate_limit": "5/min",
            "tools": ["a.*"],
        });
        let masked = mask_entry(&entry);
        assert!(!masked.to_string().contains("hunter2"), "{masked}");
        assert_eq!(masked["name"], "github");
        assert_eq!(masked["headers"]["X-Ref"], "env.TOKEN");
        assert_eq!(masked["rate_limit"], "5/min");
        assert_eq!(masked["tools"], json!(["a.*"]));
        assert_eq!(masked["keys"][0]["weight"], 1);
    }
}
