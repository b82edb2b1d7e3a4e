//! Servers from the settings of Claude Desktop, Claude Code, Cursor and VS Code.

use serde_json::{Map, Value, json};

use super::Document;
use crate::name::{NameError, ServerName};

/// A server that was found, as an entry of `mcp.client_configs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub name: String,
    pub entry: Value,
    /// What could not be taken over as it was.
    pub notes: Vec<String>,
}

/// Why nothing can be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("it is not valid JSON: {0}")]
    NotJson(String),
    #[error("it has no servers; expected `mcpServers` (Claude, Cursor) or `servers` (VS Code)")]
    NoServers,
}

/// Reads the servers of a settings file.
pub fn read(document: &Document) -> Result<Vec<Imported>, ImportError> {
    if let Some((place, message)) = &document.syntax_error {
        return Err(ImportError::NotJson(format!("{place}: {message}")));
    }
    let root = &document.value;
    let mut servers: Map<String, Value> = Map::new();
    let projects = root["projects"].as_object().into_iter().flatten();
    let mut places: Vec<&Value> = projects
        .map(|(_, project)| &project["mcpServers"])
        .collect();
    places.extend([
        &root["mcp"]["servers"],
        &root["servers"],
        &root["mcpServers"],
    ]);
    for place in places {
        for (name, server) in place.as_object().into_iter().flatten() {
            servers.insert(name.clone(), server.clone());
        }
    }
    if servers.is_empty() {
        return Err(ImportError::NoServers);
    }
    Ok(servers
        .iter()
        .map(|(name, server)| import(name, server))
        .collect())
}

fn import(raw_name: &str, server: &Value) -> Imported {
    let mut notes = Vec::new();
    let name = match ServerName::parse(raw_name) {
        Err(NameError::Characters(_, fixed)) => {
            notes.push(format!("renamed from `{raw_name}`"));
            fixed
        }
        _ => raw_name.to_owned(),
    };
    let empty = Map::new();
    let fields = server.as_object().unwrap_or(&empty);
    let mut entry = json!({"name": name, "tools_to_execute": ["*"]});
    let mut open = Vec::new();
    match fields.get("command") {
        Some(command) => {
            entry["connection_type"] = "stdio".into();
            entry["stdio_config"] = stdio(command, fields, &mut notes, &mut open);
        }
        None => {
            let old = fields.get("type").and_then(Value::as_str) == Some("sse");
            entry["connection_type"] = if old { "sse" } else { "http" }.into();
            if let Some(url) = fields.get("url").or_else(|| fields.get("serverUrl")) {
                entry["connection_string"] = secret(url, &mut notes, &mut open);
            }
            if let Some(headers) = fields.get("headers").and_then(Value::as_object) {
                let headers = headers
                    .iter()
                    .map(|(name, text)| (name.clone(), secret(text, &mut notes, &mut open)));
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
        notes.push("`envFile` is not read; name its variables in `envs`".to_owned());
    }
    if !open.is_empty() {
        notes.push(format!("disabled until {} is written out", open.join(", ")));
    }
    if !open.is_empty() || fields.get("disabled") == Some(&Value::Bool(true)) {
        entry["disabled"] = true.into();
    }
    Imported { name, entry, notes }
}

fn stdio(
    command: &Value,
    fields: &Map<String, Value>,
    notes: &mut Vec<String>,
    open: &mut Vec<String>,
) -> Value {
    let mut stdio = json!({"command": plain(command, open)});
    if let Some(args) = fields.get("args").and_then(Value::as_array) {
        stdio["args"] = args.iter().map(|arg| plain(arg, open)).collect();
    }
    if let Some(cwd) = fields.get("cwd") {
        stdio["cwd"] = plain(cwd, open);
    }
    let env = fields
        .get("env")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let envs: Vec<String> = env
        .map(|(variable, text)| format!("{variable}={}", text_of(&secret(text, notes, open))))
        .collect();
    if !envs.is_empty() {
        stdio["envs"] = envs.into();
    }
    stdio
}

/// A value in which no variable can stand; one that has some is noted as open.
fn plain(raw: &Value, open: &mut Vec<String>) -> Value {
    if let Some(text) = raw.as_str().filter(|text| text.contains("${")) {
        open.push(format!("`{text}`"));
    }
    raw.clone()
}

/// A secret, with a reference to a variable in our spelling.
fn secret(raw: &Value, notes: &mut Vec<String>, open: &mut Vec<String>) -> Value {
    let Some(text) = raw.as_str() else {
        return raw.clone();
    };
    let inner = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let variable = match inner.map(|inner| inner.split_once(':').unwrap_or(("env", inner))) {
        Some(("env", name)) if is_variable(name) => name.to_owned(),
        Some(("input", name)) => {
            let variable = name
                .to_ascii_uppercase()
                .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            notes.push(format!(
                "`{text}` is asked for by VS Code; set the variable {variable}"
            ));
            variable
        }
        _ => return plain(raw, open),
    };
    format!("env.{variable}").into()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Format};

    fn imported(json: &str) -> Vec<Imported> {
        read(&Document::parse("f.json", Format::Json, json)).unwrap()
    }

    #[test]
    fn every_client_and_all_of_it_loads() {
        let claude = r#"{"mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "fs"], "env": {"TOKEN": "t", "KEY": "${KEY}"}},
            "my server": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "${env:AUTH}"}}
        }, "projects": {"/p": {"mcpServers": {"inner": {"type": "sse", "url": "http://h/sse"}}}}}"#;
        let found = imported(claude);
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
        let code = imported(vscode);
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
    fn variables_that_cannot_be_taken_over_leave_the_server_disabled() {
        for server in [
            r#"{"command": "x", "args": ["${workspaceFolder}"]}"#,
            r#"{"command": "x", "env": {"A": "${NOPE:-default}"}}"#,
            r#"{"url": "http://h", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#,
        ] {
            let found = imported(&format!(r#"{{"mcpServers": {{"a": {server}}}}}"#));
            assert_eq!(found[0].entry["disabled"], true, "{server}");
            assert!(
                found[0].notes[0].contains("disabled until `"),
                "{:?}",
                found[0].notes
            );
        }
        assert!(
            imported(r#"{"mcpServers": {"a": {}}}"#)[0]
                .entry
                .get("connection_string")
                .is_none()
        );
    }

    #[test]
    fn what_is_no_settings_file_is_told() {
        let error = |text| read(&Document::parse("f", Format::Json, text)).unwrap_err();
        assert_eq!(error("{}"), ImportError::NoServers);
        assert!(matches!(error("{"), ImportError::NotJson(_)));
    }
}
