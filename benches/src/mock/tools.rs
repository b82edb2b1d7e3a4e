//! Tools of the mock servers: about 1.2 KB each, like tools of real servers.

use serde_json::{Value, json};

/// Returns the raw name of a tool.
pub(crate) fn tool_name(number: usize) -> String {
    format!("tool_{number:05}")
}

/// Returns the tool as `tools/list` returns it.
pub(crate) fn definition(number: usize) -> String {
    json!({
        "name": tool_name(number),
        "title": format!("Search collection {number}"),
        "description": description(number),
        "inputSchema": schema(number),
        "annotations": {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
    })
    .to_string()
}

/// Returns the tool as it appears in a chat completion request, under the gateway's alias.
pub(crate) fn function_definition(server: &str, number: usize) -> String {
    json!({"type": "function", "function": {
        "name": format!("{server}_{}", tool_name(number)),
        "description": description(number),
        "parameters": schema(number),
    }})
    .to_string()
}

/// Arguments that are valid for every tool.
pub(crate) const ARGUMENTS: &str =
    r#"{"query":"open invoices","limit":10,"filter":{"status":"open","tags":["a","b"]}}"#;

fn description(number: usize) -> String {
    format!(
        "Searches collection {number} for records that fit a query and returns them, the best first. \
         Use it when the user asks about records of this collection; do not use it to change them. \
         Dates are in UTC."
    )
}

fn schema(number: usize) -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in plain words or with operators", "maxLength": 2000},
            "limit": {"type": "integer", "description": "How many records to return at most", "minimum": 1, "maximum": 100, "default": 10},
            "cursor": {"type": "string", "description": "Where an earlier answer ended"},
            "filter": {
                "type": "object",
                "description": format!("Narrows the records of collection {number}"),
                "properties": {
                    "status": {"type": "string", "enum": ["open", "closed", "archived"]},
                    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
                    "since": {"type": "string", "format": "date-time"},
                    "until": {"type": "string", "format": "date-time"},
                },
                "additionalProperties": false,
            },
        },
        "required": ["query"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_definition_has_realistic_size() {
        assert!((1100..1500).contains(&definition(7).len()));
    }
}
