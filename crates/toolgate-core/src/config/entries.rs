//! Server entries as JSON, as the API accepts and changes them.
//!
//! Servers set through the API are stored as entries of `mcp.client_configs`, so they pass the same
//! checks as a file.

use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::Document;
use crate::secret::{Secret, mask_arguments, mask_url};

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
    // A server that is not a table is not an entry; loading the document reports it.
    let tables = tables.into_iter().flatten().filter_map(|(name, table)| {
        let entry = from_table(name, table.as_object()?);
        Some((name.clone(), entry))
    });
    clients.chain(tables).collect()
}

/// Converts a `[mcp_servers.NAME]` table to an entry of `mcp.client_configs`. Values of the wrong
/// type are copied, so that the check of the entry reports them.
fn from_table(name: &str, fields: &Map<String, Value>) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    let mut stdio = Map::new();
    let is_stdio = fields.contains_key("command");
    let kind = match (is_stdio, fields.get("transport").and_then(Value::as_str)) {
        (true, _) => "stdio",
        (false, Some("sse")) => "sse",
        (false, _) => "http",
    };
    entry.insert("connection_type".to_owned(), kind.into());
    entry.insert("tools_to_execute".to_owned(), json!(["*"]));
    for (key, value) in fields {
        let (target, key, value) = match key.as_str() {
            "transport" => continue,
            "command" | "args" | "cwd" | "env_groups" | "sandbox" => {
                (&mut stdio, key.as_str(), value.clone())
            }
            "env" => (&mut stdio, "envs", env_list(value)),
            "url" => (&mut entry, "connection_string", value.clone()),
            "tls" => (&mut entry, "tls_config", value.clone()),
            "timeout" => (&mut entry, "tool_execution_timeout", value.clone()),
            "enabled" => (&mut entry, "disabled", negate(value)),
            key => (&mut entry, key, value.clone()),
        };
        target.insert(key.to_owned(), value);
    }
    if is_stdio {
        entry.insert("stdio_config".to_owned(), stdio.into());
    }
    entry.into()
}

/// Applies a patch to an entry. `null` removes a key, and a masked value sent back unchanged keeps
/// the secret. Any other mask is an error, because it would be stored as the secret.
pub fn patch(entry: &Value, patch: &Map<String, Value>) -> Result<Value, PatchError> {
    let mut patched = entry.as_object().ok_or(PatchError::NotAnObject)?.clone();
    for (key, value) in patch {
        if value.is_null() {
            patched.shift_remove(key);
            continue;
        }
        let old = patched.get(key).cloned().unwrap_or(Value::Null);
        let new = unmask(key, &old, value);
        if new.to_string().contains(MASK) && !old.to_string().contains(MASK) {
            return Err(PatchError::MaskedSecret(key.clone()));
        }
        patched.insert(key.clone(), new);
    }
    Ok(patched.into())
}

/// Error returned when a patch cannot be applied to an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch contains a mask that does not match a stored secret.
    #[error(
        "`{0}` contains a masked secret (`{MASK}`) along with other changes; send the secret itself, or omit the key"
    )]
    MaskedSecret(String),
    #[error("the stored entry is not a JSON object; replace the whole entry")]
    NotAnObject,
}

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
        (_, Value::String(text)) if is_masked_form(text, old) => old.clone(),
        _ => new.clone(),
    }
}

/// Returns whether `text` is the form in which the secret `old`, a string or an object, is shown.
fn is_masked_form(text: &str, old: &Value) -> bool {
    match Secret::deserialize(old) {
        Ok(Secret::Literal(value)) => text == MASK || text == mask_url(&value),
        Ok(Secret::Env(_)) => text == MASK,
        // Not a secret, so it is never masked.
        Err(_) => false,
    }
}

/// Restores each masked argument that equals the masked old argument at the same index.
fn unmask_arguments(old: &Value, items: &[Value]) -> Value {
    // Arguments that are absent or invalid have no secrets to restore.
    let old = Vec::<String>::deserialize(old).unwrap_or_default();
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

/// Converts a table of variables, whose values are secrets in any spelling, to `NAME=value` items.
fn env_list(env: &Value) -> Value {
    let Some(variables) = env.as_object() else {
        return env.clone();
    };
    let item = |(name, value): (&String, &Value)| match Secret::deserialize(value) {
        Ok(Secret::Literal(text)) => format!("{name}={text}").into(),
        Ok(Secret::Env(variable)) => format!("{name}=env.{variable}").into(),
        Err(_) => value.clone(),
    };
    variables.iter().map(item).collect()
}

fn negate(value: &Value) -> Value {
    match value {
        Value::Bool(boolean) => (!boolean).into(),
        other => other.clone(),
    }
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
        argument_check = "strict"
        tools.t = { argument_check = "off" }
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
    fn every_spelling_of_a_variable_survives_conversion() {
        let toml = r#"
            [mcp_servers.a]
            command = "x"
            [mcp_servers.a.env]
            TEXT = "t"
            NAME = "env.N"
            VALUE = { value = "v", type = "plain_text" }
            REF = { ref = "R", type = "env" }
            VARIABLE = { value = "", env_var = "env.V", from_env = true }
        "#;
        let document = Document::parse("t", ConfigFormat::Toml, toml);
        let (_, entry) = from_document(&document).remove(0);
        assert_eq!(
            entry["stdio_config"]["envs"],
            json!([
                "TEXT=t",
                "NAME=env.N",
                "VALUE=v",
                "REF=env.R",
                "VARIABLE=env.V"
            ])
        );
    }

    #[test]
    fn invalid_values_are_copied_so_that_the_check_reports_them() {
        let table = json!({"command": "x", "env": {"A": 5}, "enabled": "yes"});
        let entry = from_table("a", table.as_object().unwrap());
        assert_eq!(entry["stdio_config"]["envs"], json!([5]));
        assert_eq!(entry["disabled"], "yes");
        let table = json!({"mcp_servers": {"a": "text"}});
        assert_eq!(from_document(&Document::from_value("t", table)), []);
        assert_eq!(
            patch(&json!("text"), &Map::new()),
            Err(PatchError::NotAnObject)
        );
    }

    #[test]
    fn masked_secret_objects_can_be_sent_back() {
        let entry = json!({
            "connection_string": {"value": "http://u:p@h/mcp"},
            "headers": {"A": {"value": "s1"}, "B": {"ref": "X"}},
        });
        let shown = json!({
            "connection_string": "http://***@h/mcp", "headers": {"A": "***", "B": "env.X"},
        });
        let patched = patch(&entry, shown.as_object().unwrap()).unwrap();
        assert_eq!(patched["connection_string"], entry["connection_string"]);
        assert_eq!(
            patched["headers"],
            json!({"A": {"value": "s1"}, "B": "env.X"})
        );
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
