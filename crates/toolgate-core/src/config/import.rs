//! Imports servers from the settings of Claude Desktop, Claude Code, Cursor and VS Code.
//!
//! The result is in the format of `mcp.client_configs` and passes the same checks as a file.

use serde_json::{Map, Value, json};

use std::collections::HashSet;

use super::Document;
use crate::name::ServerName;

/// An imported server as an entry of `mcp.client_configs`.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedServer {
    pub name: String,
    pub entry: Value,
    /// Settings that could not be imported unchanged.
    pub notes: Vec<String>,
}

/// Error returned when a file contains nothing to import.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("not valid JSON: {0}")]
    NotJson(String),
    #[error("no servers found; expected `mcpServers` (Claude, Cursor) or `servers` (VS Code)")]
    NoServers,
}

/// Reads the servers of a settings file.
pub fn read_servers(document: &Document) -> Result<Vec<ImportedServer>, ImportError> {
    if let Some((location, message)) = &document.syntax_error {
        return Err(ImportError::NotJson(format!("{location}: {message}")));
    }
    let root = &document.value;
    let mut servers: Map<String, Value> = Map::new();
    let projects = root["projects"].as_object().into_iter().flatten();
    let mut sections: Vec<&Value> = projects
        .map(|(_, project)| &project["mcpServers"])
        .collect();
    sections.extend([
        &root["mcp"]["servers"],
        &root["servers"],
        &root["mcpServers"],
    ]);
    for section in sections {
        for (name, server) in section.as_object().into_iter().flatten() {
            servers.insert(name.clone(), server.clone());
        }
    }
    if servers.is_empty() {
        return Err(ImportError::NoServers);
    }
    let names = assign_names(servers.keys().map(String::as_str));
    Ok(servers
        .iter()
        .zip(names)
        .map(|((raw_name, server), name)| import_server(raw_name, name.to_string(), server))
        .collect())
}

/// Returns a valid, distinct server name for each raw name, in order. Names that are valid and
/// distinct already do not change.
fn assign_names<'a>(raw_names: impl Iterator<Item = &'a str>) -> Vec<ServerName> {
    let raw_names: Vec<&str> = raw_names.collect();
    let mut taken: HashSet<String> = HashSet::new();
    // Valid names come first, so that no renamed server takes one of them.
    let unchanged: Vec<Option<ServerName>> = raw_names
        .iter()
        .map(|raw_name| ServerName::parse(raw_name).ok())
        .map(|name| name.filter(|name| taken.insert(name.to_folded())))
        .collect();
    raw_names
        .iter()
        .zip(unchanged)
        .map(|(raw_name, unchanged)| {
            unchanged.unwrap_or_else(|| {
                let name = ServerName::derive(raw_name, |name| !taken.contains(&name.to_folded()));
                taken.insert(name.to_folded());
                name
            })
        })
        .collect()
}

fn import_server(raw_name: &str, name: String, server: &Value) -> ImportedServer {
    let mut notes = Vec::new();
    if name != raw_name {
        notes.push(format!("renamed from `{raw_name}`"));
    }
    let empty = Map::new();
    let fields = server.as_object().unwrap_or(&empty);
    let mut entry = json!({"name": name, "tools_to_execute": ["*"]});
    let mut unresolved = Vec::new();
    match fields.get("command") {
        Some(command) => {
            entry["connection_type"] = "stdio".into();
            entry["stdio_config"] = convert_stdio(command, fields, &mut notes, &mut unresolved);
        }
        None => {
            let is_sse = fields.get("type").and_then(Value::as_str) == Some("sse");
            entry["connection_type"] = if is_sse { "sse" } else { "http" }.into();
            if let Some(url) = fields.get("url").or_else(|| fields.get("serverUrl")) {
                entry["connection_string"] = convert_secret(url, &mut notes, &mut unresolved);
            }
            if let Some(headers) = fields.get("headers").and_then(Value::as_object) {
                let headers = headers.iter().map(|(name, text)| {
                    (
                        name.clone(),
                        convert_secret(text, &mut notes, &mut unresolved),
                    )
                });
                entry["headers"] = Value::Object(headers.collect());
            }
        }
    }
    if let Some(allowed) = fields
        .get("alwaysAllow")
        .or_else(|| fields.get("autoApprove"))
    {
        entry["tools_to_auto_execute"] = allowed.clone();
    }
    if fields.contains_key("envFile") {
        notes.push("`envFile` is not supported; list its variables in `envs`".to_owned());
    }
    if !unresolved.is_empty() {
        notes.push(format!(
            "disabled until {} is replaced by a value",
            unresolved.join(", ")
        ));
    }
    if !unresolved.is_empty() || fields.get("disabled") == Some(&Value::Bool(true)) {
        entry["disabled"] = true.into();
    }
    ImportedServer { name, entry, notes }
}

fn convert_stdio(
    command: &Value,
    fields: &Map<String, Value>,
    notes: &mut Vec<String>,
    unresolved: &mut Vec<String>,
) -> Value {
    let mut stdio = json!({"command": copy_literal(command, unresolved)});
    if let Some(args) = fields.get("args").and_then(Value::as_array) {
        stdio["args"] = args
            .iter()
            .map(|arg| copy_literal(arg, unresolved))
            .collect();
    }
    if let Some(cwd) = fields.get("cwd") {
        stdio["cwd"] = copy_literal(cwd, unresolved);
    }
    let env = fields
        .get("env")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let envs: Vec<String> = env
        .map(|(variable, text)| {
            format!(
                "{variable}={}",
                value_text(&convert_secret(text, notes, unresolved))
            )
        })
        .collect();
    if !envs.is_empty() {
        stdio["envs"] = envs.into();
    }
    stdio
}

/// Copies a value in which variables are not supported, and records any it contains as unresolved.
fn copy_literal(raw: &Value, unresolved: &mut Vec<String>) -> Value {
    if let Some(text) = raw.as_str().filter(|text| text.contains("${")) {
        unresolved.push(format!("`{text}`"));
    }
    raw.clone()
}

/// Converts a secret; a variable reference becomes `env.NAME`.
fn convert_secret(raw: &Value, notes: &mut Vec<String>, unresolved: &mut Vec<String>) -> Value {
    let Some(text) = raw.as_str() else {
        return raw.clone();
    };
    let inner = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let variable = match inner.map(|inner| inner.split_once(':').unwrap_or(("env", inner))) {
        Some(("env", name)) if is_variable_name(name) => name.to_owned(),
        Some(("input", name)) => {
            let variable = name
                .to_ascii_uppercase()
                .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            notes.push(format!(
                "VS Code prompts for `{text}`; set the environment variable `{variable}`"
            ));
            variable
        }
        _ => return copy_literal(raw, unresolved),
    };
    format!("env.{variable}").into()
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn value_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigFormat};

    fn import(json: &str) -> Vec<ImportedServer> {
        read_servers(&Document::parse("f.json", ConfigFormat::Json, json)).unwrap()
    }

    #[test]
    fn servers_of_every_client_import_and_load() {
        let claude = r#"{"mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "fs"], "env": {"TOKEN": "t", "KEY": "${KEY}"}},
            "my server": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "${env:AUTH}"}}
        }, "projects": {"/p": {"mcpServers": {"inner": {"type": "sse", "url": "http://h/sse"}}}}}"#;
        let found = import(claude);
        let names: Vec<&str> = found.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["inner", "filesystem", "my_server"]);
        assert_eq!(found[0].entry["connection_type"], "sse");
        assert_eq!(
            found[1].entry["stdio_config"]["envs"],
            json!(["TOKEN=t", "KEY=env.KEY"])
        );
        assert_eq!(found[2].entry["headers"]["Authorization"], "env.AUTH");
        assert_eq!(found[2].notes, ["renamed from `my server`"]);

        let vscode = r#"{
            // VS Code allows comments
            "inputs": [{"id": "api-key", "type": "promptString"}],
            "servers": {"a": {"type": "stdio", "command": "x", "env": {"K": "${input:api-key}"}, "envFile": ".env"}},
        }"#;
        let code = import(vscode);
        assert_eq!(
            code[0].entry["stdio_config"]["envs"],
            json!(["K=env.API_KEY"])
        );
        assert_eq!(code[0].notes.len(), 2);

        let entries: Vec<Value> = found
            .into_iter()
            .chain(code)
            .map(|server| server.entry)
            .collect();
        let document = Document::from_value("import", json!({"mcp": {"client_configs": entries}}));
        let (config, findings) = Config::load(&[document]).unwrap();
        assert_eq!((config.servers.len(), findings.len()), (4, 0));
    }

    #[test]
    fn unusable_names_are_replaced_by_distinct_valid_ones() {
        let long = "x".repeat(70);
        let raw_names = [
            "a b",
            "a_b",
            "A-B",
            "Toolgate",
            "",
            &long,
            &format!("{long}y"),
            "ok",
        ];
        let servers: Map<String, Value> = raw_names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"command": "x"})))
            .collect();
        let found = import(&json!({"mcpServers": servers}).to_string());
        let names: Vec<&str> = found.iter().map(|server| server.name.as_str()).collect();
        let cut = "x".repeat(62);
        assert_eq!(
            names,
            [
                "a_b_2",
                "a_b",
                "A-B_3",
                "Toolgate_2",
                "server",
                &"x".repeat(64),
                &format!("{cut}_2"),
                "ok"
            ]
        );
        assert_eq!(found[3].notes, ["renamed from `Toolgate`"]);
        assert_eq!(found[7].notes, [""; 0]);
        let entries: Vec<Value> = found.into_iter().map(|server| server.entry).collect();
        let document = Document::from_value("import", json!({"mcp": {"client_configs": entries}}));
        let (config, findings) = Config::load(&[document]).unwrap();
        assert_eq!((config.servers.len(), findings.len()), (raw_names.len(), 0));
    }

    #[test]
    fn server_with_unsupported_variables_is_disabled() {
        for server in [
            r#"{"command": "x", "args": ["${workspaceFolder}"]}"#,
            r#"{"command": "x", "env": {"A": "${NOPE:-default}"}}"#,
            r#"{"url": "http://h", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#,
        ] {
            let found = import(&format!(r#"{{"mcpServers": {{"a": {server}}}}}"#));
            assert_eq!(found[0].entry["disabled"], true, "{server}");
            assert!(
                found[0].notes[0].contains("disabled until `"),
                "{:?}",
                found[0].notes
            );
        }
        assert!(
            import(r#"{"mcpServers": {"a": {}}}"#)[0]
                .entry
                .get("connection_string")
                .is_none()
        );
    }

    #[test]
    fn other_files_are_rejected() {
        let error =
            |text| read_servers(&Document::parse("f", ConfigFormat::Json, text)).unwrap_err();
        assert_eq!(error("{}"), ImportError::NoServers);
        assert!(matches!(error("{"), ImportError::NotJson(_)));
    }
}
