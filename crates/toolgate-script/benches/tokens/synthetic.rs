//! Synthetic catalog with names, descriptions and schemas like those of real servers.

use serde_json::{Map, Value, json};

use crate::catalog::FillerTool;

/// Servers and the objects they manage.
const SERVERS: [(&str, &[&str]); 24] = [
    (
        "github",
        &[
            "issue",
            "pull_request",
            "repository",
            "branch",
            "release",
            "workflow_run",
        ],
    ),
    ("slack", &["message", "channel", "thread", "user_profile"]),
    ("calendar", &["event", "calendar", "invitation"]),
    ("drive", &["file", "folder", "permission", "comment"]),
    ("jira", &["ticket", "sprint", "board", "worklog"]),
    ("postgres", &["table", "query", "index", "schema"]),
    ("browser", &["page", "element", "screenshot", "tab"]),
    ("filesystem", &["file", "directory", "file_info"]),
    ("weather", &["forecast", "alert"]),
    ("maps", &["route", "place", "distance_matrix"]),
    ("mail", &["mail", "draft", "label", "attachment"]),
    (
        "payments",
        &["invoice", "customer", "subscription", "refund", "payout"],
    ),
    (
        "monitoring",
        &["dashboard", "metric", "alert_rule", "incident"],
    ),
    (
        "kubernetes",
        &["pod", "deployment", "service", "config_map", "log"],
    ),
    ("wiki", &["page", "space", "revision"]),
    ("shop", &["product", "order", "inventory_level", "discount"]),
    ("finance", &["stock_price", "income_statement", "dividend"]),
    ("music", &["track", "playlist", "artist"]),
    ("papers", &["paper", "author", "citation"]),
    ("slides", &["slide", "chart", "presentation", "text_box"]),
    (
        "documents",
        &["document", "paragraph", "heading", "footnote"],
    ),
    ("crm_archive", &["contact", "deal", "note"]),
    ("translate", &["translation", "glossary"]),
    ("search", &["web_result", "news_article", "image_result"]),
];

const VERBS: [(&str, &str); 8] = [
    ("get", "Get one {} by its id. Fails if it does not exist."),
    (
        "list",
        "List every {} that you may see, newest first. Use the returned cursor to get the next page.",
    ),
    (
        "create",
        "Create a {}. Watchers are notified unless `notify` is false.",
    ),
    (
        "update",
        "Change some fields of a {}; omitted fields stay unchanged. Returns the {} after the change.",
    ),
    (
        "delete",
        "Delete a {}. This cannot be undone, so ask the user first.",
    ),
    (
        "search",
        "Search for a {} by words, with operators such as AND, OR and quotes. Returns the best matches with a score.",
    ),
    (
        "export",
        "Export each {} of a time span as CSV or JSON and return a link that is valid for an hour.",
    ),
    (
        "archive",
        "Move a {} to the archive, where it can be read but not changed.",
    ),
];

/// Generates `count` tools, deterministically.
pub(crate) fn generate_tools(count: usize) -> Vec<FillerTool> {
    (0..).flat_map(generate_round).take(count).collect()
}

/// Generates one tool per verb and object. Later rounds simulate other installations of the servers.
fn generate_round(number: usize) -> Vec<FillerTool> {
    let mut tools = Vec::new();
    for (place, (verb, text)) in VERBS.iter().enumerate() {
        for (server, objects) in SERVERS {
            let server = match number {
                0 => server.to_owned(),
                _ => format!(
                    "{server}_{}",
                    ["eu", "us", "staging", "legacy"][(number - 1) % 4]
                ),
            };
            for object in objects.iter().skip(place % 2).step_by(2) {
                tools.push(FillerTool {
                    server: server.clone(),
                    definition: json!({
                        "name": format!("{verb}_{object}"),
                        "description": text.replace("{}", &object.replace('_', " ")),
                        "inputSchema": schema(verb, object),
                    }),
                });
            }
        }
    }
    tools
}

fn schema(verb: &str, object: &str) -> Value {
    let id = json!({"type": "string", "description": format!("Id of the {object}")});
    let fields = json!({"type": "object", "description": "Fields to set", "properties": {
        "title": {"type": "string", "maxLength": 200},
        "body": {"type": "string", "description": "Markdown"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        "status": {"type": "string", "enum": ["open", "active", "done"]},
    }, "additionalProperties": false});
    let limit = json!({"type": "integer", "description": "Maximum number of results", "minimum": 1, "maximum": 100, "default": 20});
    let (properties, required) = match verb {
        "list" => (
            json!({"cursor": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "description": "Cursor of an earlier response"}, "limit": limit}),
            json!([]),
        ),
        "create" => (
            json!({"fields": fields, "notify": {"type": "boolean", "default": true}}),
            json!(["fields"]),
        ),
        "update" => (
            json!({format!("{object}_id"): id, "fields": fields}),
            json!([format!("{object}_id"), "fields"]),
        ),
        "search" => (
            json!({"query": {"type": "string", "description": "Search terms"}, "limit": limit, "sort": {"enum": ["score", "newest", "oldest"], "default": "score"}}),
            json!(["query"]),
        ),
        "export" => (
            json!({"since": {"type": "string", "format": "date-time"}, "until": {"type": "string", "format": "date-time"}, "format": {"type": "string", "enum": ["csv", "json"], "default": "csv"}}),
            json!(["since", "until"]),
        ),
        _ => (
            Value::Object(Map::from_iter([(format!("{object}_id"), id)])),
            json!([format!("{object}_id")]),
        ),
    };
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
