//! Environment variables that a configuration file refers to.
//!
//! The references are found through the JSON Schema of the configuration, in which secrets are marked,
//! so that a new setting cannot be forgotten here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::check;
use super::document::{Document, escape_step};
use crate::secret::Secret;

/// A reference to a variable of the gateway's environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableReference {
    /// JSON pointer of the value that refers to the variable.
    pub pointer: String,
    pub name: String,
}

/// Returns all references to environment variables in a document, including those in its overlays.
pub fn variable_references(document: &Document) -> BTreeSet<VariableReference> {
    let mut references = BTreeSet::new();
    if let Some(schema) = check::compiled_schema() {
        find_references(&document.value, schema, "", &mut references);
    }
    references
}

fn find_references(
    value: &Value,
    schema: &Value,
    pointer: &str,
    references: &mut BTreeSet<VariableReference>,
) {
    let mut add = |pointer: String, secret: Secret| {
        if let Secret::Env(name) = secret {
            references.insert(VariableReference { pointer, name });
        }
    };
    if schema["x-secret"] == true {
        // A value of another type is reported by the check against the schema.
        if let Ok(secret) = serde_json::from_value(value.clone()) {
            add(pointer.to_owned(), secret);
        }
        return;
    }
    if schema["x-variables"] == true {
        let entries = value.as_array().into_iter().flatten().enumerate();
        for (index, entry) in entries {
            if let Some(entry) = entry.as_str() {
                add(format!("{pointer}/{index}"), Secret::of_variable(entry).1);
            }
        }
        return;
    }
    for branch in ["anyOf", "oneOf", "allOf"] {
        for schema in schema[branch].as_array().into_iter().flatten() {
            find_references(value, schema, pointer, references);
        }
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let property = schema["properties"].get(key);
                let schema = property.unwrap_or(&schema["additionalProperties"]);
                let pointer = format!("{pointer}/{}", escape_step(key));
                find_references(value, schema, &pointer, references);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{index}");
                find_references(item, &schema["items"], &pointer, references);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Config;

    /// Every setting that may hold a secret, with a reference to a variable of its own.
    fn document() -> Document {
        let value = json!({
            "admin_key": "env.V1",
            "mcp": {"client_configs": [
                {"name": "a", "connection_type": "stdio",
                 "stdio_config": {"command": "x", "envs": ["V2", "N=env.V3", "N2=literal"]}},
                {"name": "b", "connection_type": "http", "connection_string": {"ref": "V4"},
                 "headers": {"h": {"env_var": "env.V5", "value": ""}},
                 "tls_config": {"ca_cert_pem": "env.V6"}},
            ]},
            "mcp_servers": {
                "c": {"command": "x", "env": {"N": "env.V7", "N2": "literal"}},
                "d": {"url": "env.V8", "headers": {"h": {"value": "env.V9"}}},
            },
            "keys": {"k": {"key": "env.V10"}},
            "audit": {"seal_key": "env.V11"},
            "store": {"key": "env.V17", "key_command_env": ["V18", "N=env.V19", "N2=literal"]},
            "providers": {
                "p": {"base_url": "http://x.example", "api_key": "env.V12", "proxy": "env.V13",
                      "keys": [{"value": "env.V14"}], "headers": {"h": "env.V15"}},
            },
            "environments": {"test": {"mcp_servers": {"e": {"command": "x", "env": {"N": "env.V16"}}}}},
            "permissions": {"rules": [{"tool": "env.get", "action": "deny"}]},
        });
        Document::from_value("f", value)
    }

    #[test]
    fn references_are_found_in_every_setting_that_holds_a_secret() {
        let found = variable_references(&document());
        let mut names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
        names.sort_by_key(|name| name[1..].parse::<u32>().unwrap());
        let expected: Vec<String> = (1..=19).map(|index| format!("V{index}")).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn project_file_uses_only_variables_that_the_own_file_allows() {
        let errors = |allowed: &[String]| -> Vec<String> {
            let own = Document::from_value("own", json!({"project_env": allowed}));
            let loaded = Config::load(&[own, document().into_project()]);
            let findings = loaded.map_or_else(|invalid| invalid.0, |(_, findings)| findings);
            let messages = findings.into_iter().map(|finding| finding.message);
            messages
                .filter(|message| message.contains("`project_env`"))
                .collect()
        };
        let all: Vec<String> = (1..=19).map(|index| format!("V{index}")).collect();
        assert_eq!(errors(&all), Vec::<String>::new());
        assert_eq!(errors(&[]).len(), all.len(), "{:?}", errors(&[]));
        for left_out in &all {
            let others = all.iter().filter(|name| *name != left_out).cloned();
            let errors = errors(&others.collect::<Vec<_>>());
            assert_eq!(errors.len(), 1, "{left_out}: {errors:?}");
            assert!(errors[0].contains(&format!("`{left_out}`")), "{errors:?}");
        }
    }

    #[test]
    fn project_file_can_neither_allow_variables_nor_use_those_of_presets() {
        for value in [
            json!({"project_env": ["A"]}),
            json!({"providers": {"openai": {"base_url": "http://evil.example"}}}),
        ] {
            let own = Document::from_value("own", value.clone());
            assert!(Config::load(std::slice::from_ref(&own)).is_ok(), "{value}");
            let invalid = Config::load(&[own.into_project()]).unwrap_err();
            assert!(invalid.to_string().contains("`project_env`"), "{invalid}");
        }
    }
}
