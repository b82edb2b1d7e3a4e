//! Tools of a request that the provider itself runs, out of the gateway's sight.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::RequestBody;

/// Types of tools that the caller runs. Dated types, such as `bash_20250124`, count by their prefix.
const CALLER_RUN: [&str; 10] = [
    "function",
    "custom",
    "namespace",
    "local_shell",
    "apply_patch",
    "computer",
    "bash",
    "text_editor",
    "memory",
    // Searches the definitions in the request; runs nothing.
    "tool_search",
];
/// Members of a request that let the provider run something, and what.
const MEMBERS: [(&str, &str); 3] = [
    ("web_search_options", "web_search"),
    ("mcp_servers", "mcp"),
    ("plugins", "plugins"),
];

#[derive(Deserialize)]
struct ToolType<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<Cow<'a, str>>,
}

/// Returns the types of the tools that the provider runs, without duplicates. An unknown type counts
/// as one of them.
pub fn provider_run_tools(body: &RequestBody) -> Vec<String> {
    let tools: Vec<&RawValue> = body
        .get("tools")
        .and_then(|tools| serde_json::from_str(tools).ok())
        .unwrap_or_default();
    let types = tools.into_iter().filter_map(|tool| {
        let head: ToolType<'_> = serde_json::from_str(tool.get()).ok()?;
        let kind = head.kind?;
        (!is_caller_run(&kind)).then(|| kind.into_owned())
    });
    let members = MEMBERS.iter().filter_map(|(member, what)| {
        let value = body.get(member)?;
        (!matches!(value, "null" | "[]" | "false")).then(|| (*what).to_owned())
    });
    let mut found: Vec<String> = types.chain(members).collect();
    found.sort();
    found.dedup();
    found
}

fn is_caller_run(kind: &str) -> bool {
    CALLER_RUN.iter().any(|known| {
        let rest = kind.strip_prefix(known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Vec<String> {
        provider_run_tools(&RequestBody::parse(body.to_owned().into()).unwrap())
    }

    #[test]
    fn tools_of_the_caller_are_not_reported() {
        for body in [
            r#"{"model":"m"}"#,
            r#"{"tools":[{"type":"function","function":{"name":"a"}},{"name":"b","input_schema":{}}]}"#,
            r#"{"tools":[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"computer_use_preview"},{"type":"custom","name":"c"}]}"#,
            r#"{"tools":[],"mcp_servers":[],"web_search_options":null}"#,
        ] {
            assert_eq!(found(body), [""; 0], "{body}");
        }
    }

    #[test]
    fn tools_of_the_provider_are_reported_once() {
        assert_eq!(
            found(
                r#"{"tools":[{"type":"mcp","server_url":"https://a"},{"type":"mcp"},{"type":"code_interpreter"},{"type":"bashful"}]}"#
            ),
            ["bashful", "code_interpreter", "mcp"]
        );
        assert_eq!(
            found(
                r#"{"web_search_options":{},"mcp_servers":[{"url":"https://a"}],"plugins":[{"id":"web"}]}"#
            ),
            ["mcp", "plugins", "web_search"]
        );
        assert_eq!(
            found(r#"{"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#),
            ["web_search_20250305"]
        );
    }
}
