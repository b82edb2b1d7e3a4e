//! Describes what a project file does, for the person who decides whether to trust it.
//!
//! Every command, URL and reference to a variable is listed, wherever in the file it is; all other
//! settings follow as they are written. Secrets are masked.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use toolgate_core::config::{Document, variable_references};
use toolgate_core::secret::mask_url;

use super::ProjectFile;
use crate::configuration::mask_entry;

/// Settings that are described line by line.
const DESCRIBED_SETTINGS: [&str; 3] = ["mcp_servers", "permissions", "mcp"];

/// Returns a description of several lines.
pub(crate) fn summarize(project: &ProjectFile) -> String {
    let document = &project.document;
    let mut commands = Vec::new();
    let mut urls = Vec::new();
    visit(&mask_entry(&document.value), "", &mut |pointer, value| {
        let key = document.location(pointer).key;
        match value {
            Value::Object(entry) if entry.contains_key("command") => {
                commands.push(format!("{key}: {}", describe_command(entry)));
            }
            Value::String(text) if text.contains("://") => {
                urls.push(format!("{key}: {}", Value::from(mask_url(text))));
            }
            _ => {}
        }
    });
    let variables = variable_references(document);
    let variables = variables.iter().map(|reference| {
        let key = document.location(&reference.pointer).key;
        format!("{} ({key})", Value::from(reference.name.as_str()))
    });
    let mut text = format!("{} (SHA-256 {})", project.path.display(), project.hash);
    add_section(&mut text, "runs", &commands);
    add_section(&mut text, "connects to", &urls);
    add_section(&mut text, "reads variables", &variables.collect::<Vec<_>>());
    add_section(&mut text, "rules", &describe_rules(document));
    add_section(&mut text, "other settings", &describe_others(document));
    text
}

fn add_section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "\n{title}:");
    for line in lines {
        let _ = write!(text, "\n  {line}");
    }
}

/// Calls `found` for a value and everything in it.
fn visit(value: &Value, pointer: &str, found: &mut impl FnMut(&str, &Value)) {
    found(pointer, value);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let step = key.replace('~', "~0").replace('/', "~1");
                visit(value, &format!("{pointer}/{step}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(item, &format!("{pointer}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Writes a command and its arguments as JSON texts: a line break in one cannot imitate another line.
fn describe_command(entry: &Map<String, Value>) -> String {
    let arguments = entry.get("args").and_then(Value::as_array);
    let words = entry.get("command").into_iter();
    let words = words.chain(arguments.into_iter().flatten());
    let words: Vec<String> = words.map(Value::to_string).collect();
    let folder = entry.get("cwd").map(|folder| format!(" in {folder}"));
    let settings = ["sandbox", "env_groups"].into_iter().filter_map(|key| {
        let value = entry.get(key)?;
        Some(format!(" with {key} = {value}"))
    });
    words.join(" ") + &folder.unwrap_or_default() + &settings.collect::<String>()
}

/// Lists the permission rules, one per line, and the other permission settings.
fn describe_rules(document: &Document) -> Vec<String> {
    let masked = mask_entry(&document.value["permissions"]);
    let settings = masked.as_object().into_iter().flatten();
    let describe = |(key, value): (&String, &Value)| match value {
        Value::Array(rules) => rules.iter().map(Value::to_string).collect(),
        other => vec![format!("{key} = {other}")],
    };
    settings.flat_map(describe).collect()
}

fn describe_others(document: &Document) -> Vec<String> {
    let mut others = document.value.clone();
    let Some(settings) = others.as_object_mut() else {
        return Vec::new();
    };
    let mut mcp = settings.shift_remove("mcp").unwrap_or_default();
    if let Some(mcp) = mcp.as_object_mut() {
        mcp.shift_remove("client_configs");
    }
    let mut lines = Vec::new();
    for (prefix, value) in [("mcp.", &mcp), ("", &others)] {
        let masked = mask_entry(value);
        for (key, value) in masked.as_object().into_iter().flatten() {
            if !DESCRIBED_SETTINGS.contains(&key.as_str()) {
                lines.push(format!("{prefix}{key} = {value}"));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use toolgate_core::config::ConfigFormat;

    use super::*;

    #[test]
    fn summary_lists_what_a_file_does_and_masks_secrets() {
        let text = r#"
            host = "0.0.0.0"
            [mcp]
            blocked_tools = ["b.*"]
            [[mcp.client_configs]]
            name = "a"
            connection_type = "stdio"
            stdio_config = { command = "run\nme", args = ["--token", "s3cret", "."], envs = ["GITHUB_TOKEN"], cwd = "/srv" }
            [mcp_servers.b]
            url = "https://user:s3cret@b.example/mcp?key=s3cret"
            headers = { Authorization = "env.B_TOKEN", Other = "s3cret" }
            [environments.prod.mcp_servers.c]
            command = "hidden"
            [permissions]
            default = "ask"
            [[permissions.rules]]
            tool = "a.*"
            action = "allow"
            [keys.k]
            key = "s3cret"
        "#;
        let project = ProjectFile {
            document: Document::parse("toolgate.toml", ConfigFormat::Toml, text),
            path: "/x/toolgate.toml".into(),
            hash: "abc".to_owned(),
        };
        let summary = summarize(&project);
        for expected in [
            "/x/toolgate.toml (SHA-256 abc)",
            r#"mcp.client_configs[0].stdio_config: "run\nme" "--token" "***" "." in "/srv""#,
            r#"environments.prod.mcp_servers.c: "hidden""#,
            "mcp_servers.b.url: \"https://***@b.example/mcp?***\"",
            r#""GITHUB_TOKEN" (mcp.client_configs[0].stdio_config.envs[0])"#,
            r#""B_TOKEN" (mcp_servers.b.headers.Authorization)"#,
            r#"{"tool":"a.*","action":"allow"}"#,
            r#"default = "ask""#,
            r#"mcp.blocked_tools = ["b.*"]"#,
            r#"host = "0.0.0.0""#,
        ] {
            assert!(summary.contains(expected), "{expected}\nin\n{summary}");
        }
        assert!(!summary.contains("s3cret"), "{summary}");
    }
}
