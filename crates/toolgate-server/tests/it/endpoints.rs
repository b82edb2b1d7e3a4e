//! How the endpoints for MCP clients present servers: order, instructions, and URIs in metadata.

use serde_json::{Value, json};

use crate::gate::{TestGate, zoo};
use crate::mcp::{LegacySession, modern_request, names};

const ALICE: &str = "alice-has-a-long-key";
const BOB: &str = "bob-has-a-long-key-too";

/// Writes what a server lists to a file.
fn write_listing(folder: &tempfile::TempDir, listing: &Value) -> String {
    let file = folder.path().join("listing.json");
    std::fs::write(&file, listing.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn endpoint_of_a_single_server_keeps_its_order() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let resource = |name: &str| json!({"uri": format!("test://{name}"), "name": name});
    let listing = json!({
        "tools": [tool("zebra"), tool("ape"), tool("lion")], "results": {},
        "resources": [resource("z"), resource("a")],
        "prompts": [{"name": "second"}, {"name": "first"}],
    });
    let folder = tempfile::tempdir().unwrap();
    let file = write_listing(&folder, &listing);
    let gate = TestGate::start(&zoo("zoo", &["--tools-from", &file]));
    gate.wait_for_state("zoo", "healthy").await;
    let session = LegacySession::open(&gate, "/mcp/zoo", None).await;
    let tools = session.result("tools/list", json!({})).await;
    assert_eq!(names(&tools, "tools", "name"), ["zebra", "ape", "lion"]);
    let resources = session.result("resources/list", json!({})).await;
    assert_eq!(names(&resources, "resources", "name"), ["z", "a"]);
    let prompts = session.result("prompts/list", json!({})).await;
    assert_eq!(names(&prompts, "prompts", "name"), ["second", "first"]);
    let all = LegacySession::open(&gate, "/mcp", None).await;
    let tools = all.result("tools/list", json!({})).await;
    let listed = names(&tools, "tools", "name");
    assert!(listed.is_sorted(), "{listed:?}");
}

#[tokio::test]
async fn user_interface_of_a_tool_can_be_read_behind_the_gateway() {
    let uri = "ui://clock/main.html";
    let listing = json!({
        "tools": [{"name": "clock", "inputSchema": {"type": "object"},
            "_meta": {"ui": {"resourceUri": uri}, "ui/resourceUri": uri, "see": ["test://help", "test://other"]}}],
        "results": {"clock": {"content": [], "_meta": {"ui": {"resourceUri": uri}}}},
        "resources": [{"uri": "test://help", "name": "help"}],
    });
    let folder = tempfile::tempdir().unwrap();
    let file = write_listing(&folder, &listing);
    let gate = TestGate::start(&zoo("zoo", &["--tools-from", &file]));
    gate.wait_for_state("zoo", "healthy").await;
    let session = LegacySession::open(&gate, "/mcp", None).await;
    let qualified = format!("toolgate://zoo/{uri}");
    let tools = session.result("tools/list", json!({})).await;
    let clock = tools["tools"].as_array().unwrap().iter();
    let clock = clock
        .clone()
        .find(|tool| tool["name"] == "zoo_clock")
        .unwrap();
    assert_eq!(
        clock["_meta"],
        json!({"ui": {"resourceUri": qualified}, "ui/resourceUri": qualified,
            "see": ["toolgate://zoo/test://help", "test://other"]})
    );
    let result = session
        .result("tools/call", json!({"name": "zoo_clock"}))
        .await;
    assert_eq!(result["_meta"]["ui"]["resourceUri"], qualified);
    let single = LegacySession::open(&gate, "/mcp/zoo", None).await;
    let tools = single.result("tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["_meta"]["ui"]["resourceUri"], uri);
}

#[tokio::test]
async fn instructions_of_all_visible_servers_are_joined() {
    let toml = zoo("ape", &["--instructions", "Feed it."])
        + &zoo(
            "lion",
            &["--instructions", &"Do not feed it. ".repeat(1000)],
        )
        + "is_code_mode_client = true\n"
        + &format!("[keys.alice]\nkey = \"{ALICE}\"\n")
        + &format!("[keys.bob]\nkey = \"{BOB}\"\ntools = [\"lion.*\"]\n");
    let gate = TestGate::start(&toml);
    gate.wait_for_state("ape", "healthy").await;
    gate.wait_for_state("lion", "healthy").await;
    let instructions = async |key: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        let sent = crate::mcp::headers(&[("x-api-key", key)]);
        let response = gate.post("/mcp", &body.to_string(), sent).await;
        let (_, answer) = crate::mcp::read_json(response).await;
        answer["result"]["instructions"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let of_alice = instructions(ALICE).await;
    assert!(of_alice.contains("# ape\n> Feed it."), "{of_alice}");
    assert!(of_alice.contains("# lion\n> Do not feed it."), "{of_alice}");
    assert!(of_alice.contains("executeToolCode"), "{of_alice}");
    assert!(of_alice.len() < 4096, "{}", of_alice.len());
    let of_bob = instructions(BOB).await;
    assert!(
        !of_bob.contains("ape") && of_bob.contains("# lion"),
        "{of_bob}"
    );
    let (status, _) = modern_request(&gate, "/mcp", "server/discover", json!({})).await;
    assert_eq!(status, 401, "callers without a key learn nothing");
}
