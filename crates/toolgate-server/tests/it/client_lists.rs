//! Lists that depend on the capabilities of the client: a client sees the same through the gateway as if it
//! was connected to the server, as far as it may use it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::process::Command;
use toolgate_testkit::eventually;

use crate::client_process;
use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, server};
use crate::mcp::{LegacySession, META, modern_request_with_meta, names};
use crate::mcp_sdk::{env_file, node};

const EVERYTHING: &str = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
const UI: &str = "io.modelcontextprotocol/ui";

/// A server of the test environment that runs in Node.
fn node_server(name: &str, script: &str, args: &[&str]) -> String {
    let script = env_file(script);
    let args = [&[script.to_str().unwrap()], args].concat();
    server(name, node().to_str().unwrap(), &args)
}

async fn start_gate(toml: &str, server: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state(server, "healthy").await;
    gate
}

/// Runs an SDK that declares every capability, at a URL or with the command of a server.
async fn run_sdk(target: &str, kind: &str) -> Value {
    let home = tempfile::tempdir().unwrap();
    let mut client = Command::new(node());
    client
        .arg(env_file("node/capabilities.mjs"))
        .args([target, kind])
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", env!("PATH"));
    let results = client_process::run_client(&mut client).await;
    results.unwrap_or_else(|output| panic!("{kind}: {output}"))
}

#[tokio::test]
async fn real_clients_see_the_same_tools_as_directly() {
    let gate = start_gate(
        &node_server("everything", EVERYTHING, &["stdio"]),
        "everything",
    )
    .await;
    let script = env_file(EVERYTHING);
    let direct = json!([node(), script, "stdio"]).to_string();
    let legacy = run_sdk(&direct, "v1").await;
    let modern = run_sdk(&direct, "v2-legacy").await;
    assert_eq!(legacy["tools"].as_array().unwrap().len(), 19, "{legacy}");
    assert_eq!(modern["tools"].as_array().unwrap().len(), 17, "{modern}");
    let prefixed = |tools: &Value| -> Value {
        let tools = tools.as_array().unwrap().iter();
        tools
            .map(|tool| format!("everything_{}", tool.as_str().unwrap()))
            .collect()
    };
    for (kind, path, direct) in [
        ("v1", "/mcp/everything", &legacy),
        ("v1", "/mcp", &legacy),
        ("v2-legacy", "/mcp/everything", &modern),
        ("v2-2026-07-28", "/mcp/everything", &modern),
    ] {
        let through = run_sdk(&format!("{}{path}", gate.url), kind).await;
        let expected = if path == "/mcp" {
            prefixed(&direct["tools"])
        } else {
            direct["tools"].clone()
        };
        assert_eq!(through["tools"], expected, "{kind} at {path}");
        let sampled = through["sampled"]["content"][0]["text"].as_str();
        assert!(sampled.unwrap().contains("Paris"), "{kind}: {through}");
        // Outside of any call, the server asks legacy clients.
        assert_eq!(through["rootsAsked"], kind != "v2-2026-07-28", "{kind}");
    }
    // All connections that were opened for lists are closed, and the tools of others are as before.
    let listed = gate.json("/api/mcp/tools").await;
    assert_eq!(listed["tools"].as_array().unwrap().len(), 13, "{listed}");
}

/// What a caller may not use does not exist for it, whatever its client can do.
#[tokio::test]
async fn access_rules_apply_to_conditional_tools() {
    let toml = node_server("everything", EVERYTHING, &["stdio"])
        + "[keys.narrow]\nkey = \"narrow-has-a-long-key\"\ntools = [\"everything.echo\", \"everything.get-roots-list\"]\n"
        + "[keys.wide]\nkey = \"wide-has-a-long-key-too\"\n"
        + "[[permissions.rules]]\ntool = \"everything.trigger-sampling-request\"\naction = \"deny\"\n"
        + "[[permissions.rules]]\ntool = \"everything.trigger-url-elicitation\"\naction = \"ask\"\n";
    let gate = start_gate(&toml, "everything").await;
    let client = (
        "2025-11-25",
        json!({"roots": {}, "sampling": {}, "elicitation": {"url": {}}}),
    );
    let open = |key| LegacySession::open_with(&gate, "/mcp/everything", Some(key), client.clone());
    let narrow = open("narrow-has-a-long-key").await;
    let listed = narrow.result("tools/list", json!({})).await;
    assert_eq!(names(&listed, "tools", "name"), ["echo", "get-roots-list"]);
    let hidden = json!({"name": "trigger-elicitation-request", "arguments": {}});
    let (_, refused) = narrow.request("tools/call", hidden.clone()).await;
    let missing = json!({"name": "trigger-elicitation-requests", "arguments": {}});
    let (_, unknown) = narrow.request("tools/call", missing).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(
        refused["error"]["code"], unknown["error"]["code"],
        "{unknown}"
    );

    let wide = open("wide-has-a-long-key-too").await;
    let listed = wide.result("tools/list", json!({})).await;
    let listed = names(&listed, "tools", "name");
    assert!(listed.contains(&"get-roots-list".to_owned()), "{listed:?}");
    assert!(
        !listed.contains(&"trigger-sampling-request".to_owned()),
        "denied"
    );
    let asked =
        json!({"name": "trigger-url-elicitation", "arguments": {"url": "https://example.com"}});
    let answer = wide.result("tools/call", asked).await;
    let approval = &answer["_meta"]["toolgate/approval"]["id"];
    assert!(approval.is_string(), "{answer}");
    let path = format!("/api/approvals/{}", approval.as_str().unwrap());
    let decided = gate.post(&path, r#"{"decision":"deny"}"#, http::HeaderMap::new());
    assert!(decided.await.status().is_success());

    // A client without capabilities sees what the shared process lists.
    let plain = LegacySession::open(&gate, "/mcp/everything", Some("wide-has-a-long-key-too"));
    let plain = plain.await.result("tools/list", json!({})).await;
    assert_eq!(names(&plain, "tools", "name").len(), 13);
}

#[tokio::test]
async fn extensions_are_declared_in_both_directions() {
    let toml = node_server("ext", "node/extension_server.mjs", &[]);
    let gate = start_gate(&toml, "ext").await;
    // The gateway itself supports tasks.
    let tasks = "io.modelcontextprotocol/tasks";
    let expected = json!({UI: {}, "com.example/audit": {"level": 2}, tasks: {}});
    for path in ["/mcp/ext", "/mcp"] {
        let (_, found) =
            modern_request_with_meta(&gate, path, "server/discover", json!({}), META).await;
        let extensions = &found["result"]["capabilities"]["extensions"];
        assert_eq!(*extensions, expected, "{path}: {found}");
    }
    let plain = LegacySession::open(&gate, "/mcp/ext", None).await;
    let listed = plain.result("tools/list", json!({})).await;
    assert_eq!(names(&listed, "tools", "name"), ["show", "print"]);
    assert!(listed["tools"][0].get("_meta").is_none(), "{listed}");

    let capabilities = json!({"extensions": {UI: {"mimeTypes": ["text/html"]}, tasks: {}}});
    let declared = json!({"extensions": {UI: {"mimeTypes": ["text/html"]}}});
    let legacy = LegacySession::open_with(
        &gate,
        "/mcp/ext",
        None,
        ("2025-11-25", capabilities.clone()),
    );
    let legacy = legacy.await;
    let meta = META.replace(
        "Capabilities\":{}",
        &format!("Capabilities\":{capabilities}"),
    );
    for era in ["legacy", "modern"] {
        let request = async |method: &str, params: Value| match era {
            "legacy" => legacy.result(method, params).await,
            _ => {
                let answer =
                    modern_request_with_meta(&gate, "/mcp/ext", method, params, &meta).await;
                answer.1["result"].clone()
            }
        };
        let listed = request("tools/list", json!({})).await;
        assert_eq!(
            names(&listed, "tools", "name"),
            ["show", "refresh"],
            "{era}"
        );
        let shown = &listed["tools"][0]["_meta"]["ui"]["resourceUri"];
        assert_eq!(*shown, "ui://show", "{era}");
        for tool in ["show", "refresh"] {
            let called = request("tools/call", json!({"name": tool, "arguments": {}})).await;
            let text = called["content"][0]["text"].as_str().unwrap();
            let text: Value = serde_json::from_str(text).unwrap();
            assert_eq!(text["declared"], declared, "{era} {called}");
        }
        let read = request("resources/read", json!({"uri": "ui://show"})).await;
        let text = read["contents"][0]["text"].as_str().unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(text).unwrap(),
            declared,
            "{era}"
        );
    }
}

/// The server is asked once for all clients with the same capabilities, however they write them, and the
/// process that is asked ends.
#[tokio::test]
async fn server_is_asked_once_for_each_set_of_capabilities() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("marker").display().to_string();
    let toml = node_server("ext", "node/extension_server.mjs", &[&marker]);
    let gate = start_gate(&toml, "ext").await;
    let mut lists = BTreeSet::new();
    for capabilities in [
        format!(r#"{{"extensions":{{"{UI}":{{"a":1,"b":2}}}}}}"#),
        format!("{{ \"extensions\" : {{ \"{UI}\": {{ \"b\":2,\n\"a\":1 }} }} }}"),
    ] {
        let meta = META.replace(
            "Capabilities\":{}",
            &format!("Capabilities\":{capabilities}"),
        );
        let (_, listed) =
            modern_request_with_meta(&gate, "/mcp/ext", "tools/list", json!({}), &meta).await;
        lists.insert(listed["result"]["tools"].to_string());
    }
    assert_eq!(lists.len(), 1, "{lists:?}");
    assert!(
        lists.iter().all(|list| list.contains("refresh")),
        "{lists:?}"
    );
    eventually(
        "only the shared process is left",
        WAIT_TIMEOUT,
        async || (processes_with(&marker).len() == 1).then_some(()),
    )
    .await;
}

/// A client that knows a tool need not list it again, for example after the gateway was restarted.
#[tokio::test]
async fn calls_of_unlisted_tools_find_what_the_server_lists_for_the_client() {
    let gate = start_gate(&node_server("ext", "node/extension_server.mjs", &[]), "ext").await;
    let capabilities = json!({"extensions": {UI: {}}});
    let meta = META.replace(
        "Capabilities\":{}",
        &format!("Capabilities\":{capabilities}"),
    );
    let call = async |name: &str| {
        let params = json!({"name": name, "arguments": {}});
        modern_request_with_meta(&gate, "/mcp", "tools/call", params, &meta)
            .await
            .1
    };
    let called = call("ext_refresh").await;
    assert!(
        called["result"]["content"][0]["text"].is_string(),
        "{called}"
    );
    let absent = call("ext_print").await;
    assert_eq!(absent["error"]["code"], -32602, "{absent}");
}
