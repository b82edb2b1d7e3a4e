//! Server entries as JSON, the way the API takes and changes them.
//!
//! What is set through the API is kept as entries of `mcp.client_configs`, so that it goes through
//! the same checks as a file.

use serde_json::{Map, Value, json};

use super::Document;
use crate::secret::{mask_arguments, mask_url};

/// What stands for a secret that is not shown.
const MASK: &str = "***";

/// Every server entry of a document, by name, in the spelling of `mcp.client_configs`.
pub fn of(document: &Document) -> Vec<(String, Value)> {
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

/// A `[mcp_servers.NAME]` table as an entry of `mcp.client_configs`.
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
            "env" => drop(stdio.insert("envs".to_owned(), envs(&value))),
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

/// Changes an entry: `null` removes a key, and what is sent back as it was shown stays what it was.
/// A mask that stands for nothing known is an error: it would be taken for the secret.
pub fn patch(entry: &Value, patch: &Map<String, Value>) -> Result<Value, StillMasked> {
    let mut patched = entry.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            patched.shift_remove(key);
            continue;
        }
        let old = patched.get(key).cloned().unwrap_or_default();
        let new = unmask(key, &old, value);
        if new.to_string().contains(MASK) && !old.to_string().contains(MASK) {
            return Err(StillMasked(key.clone()));
        }
        patched.insert(key.clone(), new);
    }
    Ok(patched.into())
}

/// A masked secret was sent that is not the one that was shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` holds a masked secret (`{MASK}`) beside other changes; write the secret out, or leave the key away"
)]
pub struct StillMasked(pub String);

/// `new`, with what is shown of `old` taken for `old` itself.
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

/// Each argument that equals what is shown of an old one, first the one at its place.
fn unmask_arguments(old: &Value, items: &[Value]) -> Value {
    let old: Vec<String> = serde_json::from_value(old.clone()).unwrap_or_default();
    let shown = mask_arguments(&old);
    let unmasked = items.iter().enumerate().map(|(index, item)| {
        let is_shown = |at: usize| shown.get(at).map(String::as_str) == item.as_str();
        let masked = item.as_str().is_some_and(|text| text.contains(MASK));
        match masked && is_shown(index) {
            true => Value::from(old[index].as_str()),
            false => item.clone(),
        }
    });
    unmasked.collect()
}

/// `NAME=***` stays what it was in the old list.
fn unmask_variable(old: &Value, item: &Value) -> Value {
    let named = item.as_str().and_then(|text| text.strip_suffix(MASK));
    let before = named
        .filter(|prefix| prefix.ends_with('='))
        .and_then(|prefix| {
            let items = old.as_array().into_iter().flatten();
            items
                .filter_map(Value::as_str)
                .find(|text| text.starts_with(prefix))
        });
    before.map_or_else(|| item.clone(), Value::from)
}

fn envs(env: &Value) -> Value {
    let variables = env.as_object().into_iter().flatten();
    let shown = variables.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name}={text}"),
        None => format!(
            "{name}={}",
            value["ref"]
                .as_str()
                .map(|name| format!("env.{name}"))
                .unwrap_or_default()
        ),
    });
    shown.collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Format};

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
    fn a_table_means_the_same_as_an_entry() {
        let document = Document::parse("t", Format::Toml, TOML);
        let (direct, _) = Config::load(std::slice::from_ref(&document)).unwrap();
        let entries: Vec<Value> = of(&document).into_iter().map(|(_, entry)| entry).collect();
        let converted = Document::from_value("api", json!({"mcp": {"client_configs": entries}}));
        let (converted, findings) = Config::load(&[converted]).unwrap();
        assert_eq!(findings, []);
        assert_eq!(converted.servers, direct.servers);
    }

    #[test]
    fn patches_replace_remove_and_keep_masked_secrets() {
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
    fn what_was_shown_may_be_sent_back_and_other_masks_are_refused() {
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
