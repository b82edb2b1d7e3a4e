//! The tools of a run: those that the tasks need, and all the others that are in the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolgate_core::ServerName;
use toolgate_core::catalog::{Kind, Offer, Tool};

/// A tool that no task needs.
#[derive(Clone, Debug)]
pub(crate) struct Ballast {
    pub(crate) server: String,
    pub(crate) definition: Value,
}

/// Reads definitions as functions named `server-tool`, or as objects with server and tool apart.
pub(crate) fn parse(text: &str) -> Vec<Ballast> {
    let file: Value = serde_json::from_str(text).expect("a file of JSON");
    let list = file
        .get("tools")
        .unwrap_or(&file)
        .as_array()
        .expect("an array of tools");
    list.iter().filter_map(one).collect()
}

fn one(tool: &Value) -> Option<Ballast> {
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
    Some(Ballast {
        server: server.to_owned(),
        definition: json!({"name": name, "description": from["description"], "inputSchema": from[schema]}),
    })
}

/// All tools of a run, by server.
pub(crate) fn tools(ballast: &[Ballast]) -> Vec<Arc<Tool>> {
    let mut by_server: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    by_server.insert("crm", crm());
    by_server.insert("hr", hr());
    for tool in ballast {
        by_server
            .entry(&tool.server)
            .or_default()
            .push(tool.definition.clone());
    }
    by_server
        .into_iter()
        .flat_map(|(server, definitions)| offer(server, &definitions).tools)
        .collect()
}

fn offer(server: &str, definitions: &[Value]) -> Offer {
    let server = ServerName::parse(server).expect("the name of a server");
    let mut offer = Offer::default();
    for definition in definitions {
        let raw = to_raw_value(definition).expect("JSON");
        offer.add(&server, Kind::Tool, &raw);
    }
    offer.sorted()
}

/// A tool as a chat completion request carries it.
pub(crate) fn function(tool: &Tool) -> Value {
    let view = tool.view();
    let schema = view.input_schema.map_or("{}", |schema| schema.get());
    json!({"type": "function", "function": {
        "name": format!("{}_{}", tool.id.server, tool.id.tool),
        "description": view.description,
        "parameters": serde_json::from_str::<Value>(schema).unwrap_or_default(),
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
