use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_core::catalog::{Kind, Offer};
use toolgate_core::name::ServerName;

use super::*;

fn tools(server: &str, definitions: &[Value]) -> Vec<Arc<catalog::Tool>> {
    let server = ServerName::parse(server).unwrap();
    let mut offer = Offer::default();
    for definition in definitions {
        let raw = serde_json::value::to_raw_value(definition).unwrap();
        offer.add(&server, Kind::Tool, &raw);
    }
    assert!(offer.problems.is_empty(), "{:?}", offer.problems);
    offer.sorted().tools
}

fn named(server: &str, names: &[&str]) -> Vec<Arc<catalog::Tool>> {
    let definitions: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    tools(server, &definitions)
}

#[test]
fn first() {
    let all = tools(
        "you-tube",
        &[
            json!({"name": "search", "description": "Search for videos. It is fast.", "inputSchema": {"type": "object",
            "properties": {"maxResults": {"type": "integer", "default": 5}, "query": {"type": "string"}, "from": {"type": "string"}}, "required": ["query"]}}),
        ],
    );
    let bindings = Bindings::new(&all);
    assert_eq!(
        bindings
            .read(Level::Server, "servers/you-tube.pyi", None, None)
            .unwrap(),
        "# you_tube.tool(name=value); more: getToolDocs(\"you_tube\", \"tool\")\n\
         def search(query: str, maxResults: int = 5, from_: str = None) -> Any:  # Search for videos\n"
    );
    assert_eq!(
        bindings.list(Level::Server),
        "servers/\n  you_tube.pyi  # search\n"
    );
    let _ = named("a", &["b"]);
}
