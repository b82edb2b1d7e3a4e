//! A catalog that is made up, with names, texts and schemas as real servers have them.

use serde_json::{Map, Value, json};

use crate::catalog::Ballast;

/// Servers and what they deal with.
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
    ("get", "Get one {} by its id. Fails if there is none."),
    (
        "list",
        "List every {} that you may see, the newest first. Use the cursor of an answer to go on.",
    ),
    (
        "create",
        "Create a {}. All who watch it are told, unless `notify` is false.",
    ),
    (
        "update",
        "Change some fields of a {}; those that are left out stay as they are. Returns the {} as it is now.",
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
        "Export each {} of a time span as CSV or JSON and return a link that is good for an hour.",
    ),
    (
        "archive",
        "Move a {} to the archive, where it can be read but not changed.",
    ),
];

/// That many tools, always the same.
pub(crate) fn tools(count: usize) -> Vec<Ballast> {
    (0..).flat_map(round).take(count).collect()
}

/// One tool of every verb and object; later rounds are other installations of the same servers.
fn round(number: usize) -> Vec<Ballast> {
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
                tools.push(Ballast {
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
    let fields = json!({"type": "object", "description": "What to set", "properties": {
        "title": {"type": "string", "maxLength": 200},
        "body": {"type": "string", "description": "Markdown"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        "status": {"type": "string", "enum": ["open", "active", "done"]},
    }, "additionalProperties": false});
    let limit = json!({"type": "integer", "description": "How many at most", "minimum": 1, "maximum": 100, "default": 20});
    let (properties, required) = match verb {
        "list" => (
            json!({"cursor": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "description": "Where an earlier answer ended"}, "limit": limit}),
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
            json!({"query": {"type": "string", "description": "What to look for"}, "limit": limit, "sort": {"enum": ["score", "newest", "oldest"], "default": "score"}}),
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
