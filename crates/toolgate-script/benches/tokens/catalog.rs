//! Tool catalog of a benchmark run: the tools that the tasks need, and unrelated filler tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolgate_core::ServerName;
use toolgate_core::catalog::{ItemKind, ServerListing, Tool};

/// A tool that no task uses.
#[derive(Clone, Debug)]
pub(crate) struct FillerTool {
    pub(crate) server: String,
    pub(crate) definition: Value,
}

/// Parses definitions: functions named `server-tool`, or objects with separate `server` and `tool`.
pub(crate) fn parse(text: &str) -> Vec<FillerTool> {
    let file: Value = serde_json::from_str(text).expect("the file contains JSON");
    let list = file
        .get("tools")
        .unwrap_or(&file)
        .as_array()
        .expect("the file contains an array of tools");
    list.iter().filter_map(parse_tool).collect()
}

fn parse_tool(tool: &Value) -> Option<FillerTool> {
    let (server, name, parts) = match tool.get("function") {
        Some(function) => {
            let (server, name) = function["name"].as_str()?.split_once('-')?;
            (server, name, (function, "parameters"))
        }
        None => (
            tool["server"].as_str()?,
            tool["tool"].as_str()?,
            (tool, "schema"),
        ),
    };
    let (from, schema) = parts;
    Some(FillerTool {
        server: server.to_owned(),
        definition: json!({"name": name, "description": from["description"], "inputSchema": from[schema]}),
    })
}

/// Returns all tools of a run.
pub(crate) fn tools(fillers: &[FillerTool]) -> Vec<Arc<Tool>> {
    let mut by_server: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    by_server.insert("crm", crm());
    by_server.insert("hr", hr());
    for tool in fillers {
        by_server
            .entry(&tool.server)
            .or_default()
            .push(tool.definition.clone());
    }
    by_server
        .into_iter()
        .flat_map(|(server, definitions)| list_tools(server, &definitions).tools)
        .collect()
}

fn list_tools(server: &str, definitions: &[Value]) -> ServerListing {
    let server = ServerName::parse(server).expect("the server name is valid");
    let mut listing = ServerListing::default();
    for definition in definitions {
        let raw = to_raw_value(definition).expect("the definition is valid JSON");
        listing.add(&server, ItemKind::Tool, &raw);
    }
    listing.into_sorted()
}

/// Encodes a tool for a chat completion request.
pub(crate) fn chat_function(tool: &Tool) -> Value {
    let view = tool.view();
    let schema = view.input_schema.map_or("{}", |schema| schema.get());
    let parameters: Value = serde_json::from_str(schema).expect("the schema is readable");
    json!({"type": "function", "function": {
        "name": format!("{}_{}", tool.id.server, tool.id.tool),
        "description": view.description,
        "parameters": parameters,
    }})
}

fn crm() -> Vec<Value> {
    let record = json!({"type": "object", "properties": {
        "id": {"type": "string"}, "name": {"type": "string"}, "owner": {"type": "string"},
        "status": {"enum": ["open", "won", "lost"]}, "amount": {"type": "integer"}, "updated": {"type": "string", "format": "date"},
    }, "required": ["id", "name", "owner", "status", "amount", "updated"]});
    vec![
        json!({"name": "get_record", "description": "Get one CRM record by its id.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "description": "Record id, such as R-0001"}}, "required": ["id"]},
            "outputSchema": record}),
        json!({"name": "get_dataset", "description": "Get all CRM records of a region.",
            "inputSchema": {"type": "object", "properties": {"name": {"type": "string", "enum": ["north", "south", "east", "west"], "description": "Region"}}, "required": ["name"]},
            "outputSchema": {"type": "object", "properties": {"records": {"type": "array", "items": record}}, "required": ["records"]}}),
        json!({"name": "next", "description": "Follow a cursor by one step.",
            "inputSchema": {"type": "object", "properties": {"cursor": {"type": "string", "description": "The first cursor is c0"}}, "required": ["cursor"]},
            "outputSchema": {"type": "object", "properties": {"cursor": {"type": "string"}, "value": {"type": "number"}, "done": {"type": "boolean"}}, "required": ["cursor", "value", "done"]}}),
    ]
}

fn hr() -> Vec<Value> {
    vec![
        json!({"name": "list_employees", "description": "List employees, of one team or of all.",
            "inputSchema": {"type": "object", "properties": {"team": {"type": "string", "description": "Only this team"}}},
            "outputSchema": {"type": "object", "properties": {"employees": {"type": "array", "items": {"type": "object",
                "properties": {"id": {"type": "string"}, "name": {"type": "string"}}, "required": ["id", "name"]}}}, "required": ["employees"]}}),
        json!({"name": "get_employee", "description": "Get everything about one employee.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "description": "Employee id, such as E-01"}}, "required": ["id"]},
            "outputSchema": {"type": "object", "properties": {
                "id": {"type": "string"}, "name": {"type": "string"}, "team": {"type": "string"}, "manager": {"type": "string"},
                "salary": {"type": "integer"}, "start": {"type": "string"}, "location": {"type": "string"}, "notes": {"type": "string"},
            }, "required": ["id", "name", "team", "manager", "salary", "start", "location", "notes"]}}),
    ]
}
