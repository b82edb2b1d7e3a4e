//! The tools of the mock servers: some 1.2 KB each, as tools of real servers are.

use serde_json::{Value, json};

/// Raw name of a tool.
pub(crate) fn name(number: usize) -> String {
    format!("tool_{number:05}")
}

/// As `tools/list` gives it.
pub(crate) fn definition(number: usize) -> String {
    json!({
        "name": name(number),
        "title": format!("Search collection {number}"),
        "description": description(number),
        "inputSchema": schema(number),
        "annotations": {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
    })
    .to_string()
}

/// As a chat completion request carries it, under the name that the gateway gives it.
pub(crate) fn function(server: &str, number: usize) -> String {
    json!({"type": "function", "function": {
        "name": format!("{server}_{}", name(number)),
        "description": description(number),
        "parameters": schema(number),
    }})
    .to_string()
}

/// Arguments that fit every tool.
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
    fn a_tool_is_as_large_as_those_of_real_servers() {
        assert!((1100..1500).contains(&definition(7).len()));
    }
}
