//! Server entries as JSON, the way the API takes and changes them.
//!
//! What is set through the API is kept as entries of `mcp.client_configs`, so that it goes through
//! the same checks as a file.

use serde_json::{Map, Value, json};

use super::Document;

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

/// Changes an entry: `null` removes a key, a masked secret stays what it was.
pub fn patch(entry: &Value, patch: &Map<String, Value>) -> Value {
    let mut patched = entry.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            patched.shift_remove(key);
            continue;
        }
        let old = patched.get(key).cloned().unwrap_or_default();
        patched.insert(key.clone(), unmask(&old, value));
    }
    patched.into()
}

/// `new`, with masked parts taken from `old`.
fn unmask(old: &Value, new: &Value) -> Value {
    match new {
        Value::String(text) if text.contains(MASK) && !old.is_null() => old.clone(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.clone(), unmask(&old[key], value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(
            items
                .iter()
                .map(|item| unmask_variable(old, item))
                .collect(),
        ),
        other => other.clone(),
    }
}

/// `NAME=***` stays what it was in the old list.
fn unmask_variable(old: &Value, item: &Value) -> Value {
    let named = item.as_str().and_then(|text| text.strip_suffix(MASK));
    let before = named.and_then(|prefix| {
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
        let patched = patch(&entry, change.as_object().unwrap());
        let expected = json!({
            "name": "a", "headers": {"A": "s1", "C": "new"},
            "stdio_config": {"command": "z", "envs": ["T=s3", "N=1"]}, "tools_to_execute": ["r"],
        });
        assert_eq!(patched, expected);
    }
}
