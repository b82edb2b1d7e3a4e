//! Server entries as JSON, as the API accepts and changes them.
//!
//! Servers set through the API are stored as entries of `mcp.client_configs`, so they pass the same
//! checks as a file.

use serde_json::{Map, Value, json};

use super::Document;
use crate::secret::{mask_arguments, mask_url};

/// Placeholder for a masked secret.
const MASK: &str = "***";

/// Returns every server entry of a document, by name, in the format of `mcp.client_configs`.
pub fn from_document(document: &Document) -> Vec<(String, Value)> {
    let clients = document.value["mcp"]["client_configs"].as_array();
    let clients = clients.into_iter().flatten().filter_map(|client| {
        let name = client["name"].as_str()?.to_owned();
        Some((name, client.clone()))
    });
    let tables = document.value["mcp_servers"].as_object();
    let tables = tables.into_iter().flatten();
    clients
        .chain(tables.map(|(name, table)| (name.clone(), from_table(name, table))))
        .collect()
}

/// Converts a `[mcp_servers.NAME]` table to an entry of `mcp.client_configs`.
pub fn from_table(name: &str, table: &Value) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    let mut stdio = Map::new();
    let fields = table.as_object().cloned().unwrap_or_default();
    let is_stdio = fields.contains_key("command");
    let kind = match (is_stdio, fields.get("transport").and_then(Value::as_str)) {
        (true, _) => "stdio",
        (false, Some("sse")) => "sse",
        (false, _) => "http",
    };
    entry.insert("connection_type".to_owned(), kind.into());
    entry.insert("tools_to_execute".to_owned(), json!(["*"]));
    for (key, value) in fields {
        match key.as_str() {
            "command" | "args" | "cwd" => drop(stdio.insert(key, value)),
            "env" => drop(stdio.insert("envs".to_owned(), env_list(&value))),
            "url" => drop(entry.insert("connection_string".to_owned(), value)),
            "tls" => drop(entry.insert("tls_config".to_owned(), value)),
            "timeout" => drop(entry.insert("tool_execution_timeout".to_owned(), value)),
            "enabled" => drop(entry.insert("disabled".to_owned(), (value == false).into())),
            "transport" => {}
            _ => drop(entry.insert(key, value)),
        }
    }
    if is_stdio {
        entry.insert("stdio_config".to_owned(), stdio.into());
    }
    entry.into()
}

/// Applies a patch to an entry. `null` removes a key, and a masked value sent back unchanged keeps
/// the secret. Any other mask is an error, because it would be stored as the secret.
pub fn patch(entry: &Value, patch: &Map<String, Value>) -> Result<Value, MaskedSecretError> {
    let mut patched = entry.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            patched.shift_remove(key);
            continue;
        }
        let old = patched.get(key).cloned().unwrap_or_default();
        let new = unmask(key, &old, value);
        if new.to_string().contains(MASK) && !old.to_string().contains(MASK) {
            return Err(MaskedSecretError(key.clone()));
        }
        patched.insert(key.clone(), new);
    }
    Ok(patched.into())
}

/// Error returned when a patch contains a mask that does not match a stored secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` contains a masked secret (`{MASK}`) along with other changes; send the secret itself, or omit the key"
)]
pub struct MaskedSecretError(pub String);

/// Replaces masked values in `new` with the corresponding values of `old`.
fn unmask(key: &str, old: &Value, new: &Value) -> Value {
    match (key, new) {
        ("args", Value::Array(items)) => unmask_arguments(old, items),
        ("envs", Value::Array(items)) => items
            .iter()
            .map(|item| unmask_variable(old, item))
            .collect(),
        (_, Value::Object(fields)) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.clone(), unmask(key, &old[key], value)));
            Value::Object(fields.collect())
        }
        (_, Value::String(text)) => match old.as_str() {
            Some(old_text) if *text == MASK || *text == mask_url(old_text) => old.clone(),
            _ => new.clone(),
        },
        _ => new.clone(),
    }
}

/// Restores each masked argument that equals the masked old argument at the same index.
fn unmask_arguments(old: &Value, items: &[Value]) -> Value {
    let old: Vec<String> = serde_json::from_value(old.clone()).unwrap_or_default();
    let masked = mask_arguments(&old);
    let unmasked = items.iter().enumerate().map(|(index, item)| {
        let equals_masked = |at: usize| masked.get(at).map(String::as_str) == item.as_str();
        let has_mask = item.as_str().is_some_and(|text| text.contains(MASK));
        if has_mask && equals_masked(index) {
            Value::from(old[index].as_str())
        } else {
            item.clone()
        }
    });
    unmasked.collect()
}

/// Restores the old value of `NAME=***`.
fn unmask_variable(old: &Value, item: &Value) -> Value {
    let prefix = item.as_str().and_then(|text| text.strip_suffix(MASK));
    let previous = prefix
        .filter(|prefix| prefix.ends_with('='))
        .and_then(|prefix| {
            let items = old.as_array().into_iter().flatten();
            items
                .filter_map(Value::as_str)
                .find(|text| text.starts_with(prefix))
        });
    previous.map_or_else(|| item.clone(), Value::from)
}

fn env_list(env: &Value) -> Value {
    let variables = env.as_object().into_iter().flatten();
    let list = variables.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!(
            "{name}={}",
            value["ref"]
                .as_str()
                .map(|name| format!("env.{name}"))
                .unwrap_or_default()
        ),
    });
    list.collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigFormat};

    const TOML: &str = r#"
        [mcp_servers.a]
        command = "x"
        args = ["1"]
        env = { TOKEN = "env.T", MODE = "y" }
        timeout = "5s"
        enabled = false
        tools_to_auto_execute = ["r"]
        [mcp_servers.b]
        url = "http://h/"
        headers = { Authorization = "Bearer s" }
        max_in_flight = 3
    "#;

    #[test]
    fn table_is_equivalent_to_an_entry() {
        let document = Document::parse("t", ConfigFormat::Toml, TOML);
        let (direct, _) = Config::load(std::slice::from_ref(&document)).unwrap();
        let entries: Vec<Value> = from_document(&document)
            .into_iter()
            .map(|(_, entry)| entry)
            .collect();
        let converted = Document::from_value("api", json!({"mcp": {"client_configs": entries}}));
        let (converted, findings) = Config::load(&[converted]).unwrap();
        assert_eq!(findings, []);
        assert_eq!(converted.servers, direct.servers);
    }

    #[test]
    fn patch_replaces_removes_and_keeps_masked_secrets() {
        let entry = json!({
            "name": "a", "disabled": true, "headers": {"A": "s1", "B": "s2"},
            "stdio_config": {"command": "x", "envs": ["T=s3", "M=y"]},
        });
        let change = json!({
            "disabled": null, "tools_to_execute": ["r"], "headers": {"A": "***", "C": "new"},
            "stdio_config": {"command": "z", "envs": ["T=***", "N=1"]},
        });
        let patched = patch(&entry, change.as_object().unwrap()).unwrap();
        let expected = json!({
            "name": "a", "headers": {"A": "s1", "C": "new"},
            "stdio_config": {"command": "z", "envs": ["T=s3", "N=1"]}, "tools_to_execute": ["r"],
        });
        assert_eq!(patched, expected);
    }

    #[test]
    fn masked_values_can_be_sent_back_and_other_masks_are_rejected() {
        let entry = json!({
            "connection_string": "http://u:p@h/mcp?k=v",
            "stdio_config": {"command": "x", "args": ["stdio", "--api-key", "S1", "--token=S2", "a"]},
        });
        let shown = json!({
            "connection_string": "http://***@h/mcp?***",
            "stdio_config": {"command": "x", "args": ["stdio", "--api-key", "***", "--token=***", "b"]},
        });
        let patched = patch(&entry, shown.as_object().unwrap()).unwrap();
        assert_eq!(patched["connection_string"], entry["connection_string"]);
        assert_eq!(
            patched["stdio_config"]["args"],
            json!(["stdio", "--api-key", "S1", "--token=S2", "b"])
        );
        for wrong in [
            json!({"connection_string": "http://other/mcp?***"}),
            json!({"stdio_config": {"command": "x", "args": ["new", "stdio", "--api-key", "***"]}}),
        ] {
            assert!(
                patch(&entry, wrong.as_object().unwrap()).is_err(),
                "{wrong}"
            );
        }
    }
}
