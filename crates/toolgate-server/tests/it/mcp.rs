//! `/mcp`: the gateway as an MCP server for clients of both eras.

use reqwest::header::HeaderMap;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

pub(crate) const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}"#;

async fn start_gate(extra: &str) -> TestGate {
    let toml = zoo("legacy", &[]) + &zoo("modern", &["--era", "modern"]) + extra;
    let gate = TestGate::start(&toml);
    for server in ["legacy", "modern"] {
        gate.wait_for_state(server, "healthy").await;
    }
    gate
}

pub(crate) fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name: reqwest::header::HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    headers
}

pub(crate) async fn read_json(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Sends a modern request with the headers that repeat its method and name.
pub(crate) async fn modern_request(
    gate: &TestGate,
    path: &str,
    method: &str,
    params: Value,
) -> (u16, Value) {
    modern_request_with_meta(gate, path, method, params, META).await
}

pub(crate) async fn modern_request_with_meta(
    gate: &TestGate,
    path: &str,
    method: &str,
    mut params: Value,
    meta: &str,
) -> (u16, Value) {
    params["_meta"] = serde_json::from_str(meta).unwrap();
    let name = params["name"].as_str().or(params["uri"].as_str());
    let mut pairs = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    pairs.extend(name.map(|name| ("mcp-name", name)));
    let sent = headers(&pairs);
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    read_json(gate.post(path, &body.to_string(), sent).await).await
}

/// A session of a legacy client.
pub(crate) struct LegacySession<'g> {
    gate: &'g TestGate,
    path: &'g str,
    id: String,
    key: Option<String>,
}

impl<'g> LegacySession<'g> {
    pub(crate) async fn open(gate: &'g TestGate, path: &'g str, key: Option<&str>) -> Self {
        Self::open_with(gate, path, key, ("2025-06-18", json!({}))).await
    }

    /// Opens a session with this protocol version and these capabilities.
    pub(crate) async fn open_with(
        gate: &'g TestGate,
        path: &'g str,
        key: Option<&str>,
        (version, capabilities): (&str, Value),
    ) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}});
        let key_header = key.map(|key| ("x-api-key", key));
        let sent = headers(&Vec::from_iter(key_header));
        let response = gate.post(path, &body.to_string(), sent).await;
        assert_eq!(response.status(), 200);
        let id = response.headers()["mcp-session-id"].to_str().unwrap();
        let id = id.to_owned();
        let (_, initialized) = read_json(response).await;
        assert_eq!(initialized["result"]["protocolVersion"], version);
        assert!(initialized["result"]["capabilities"]["tools"].is_object());
        Self {
            gate,
            path,
            id,
            key: key.map(str::to_owned),
        }
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let mut pairs = vec![("mcp-session-id", self.id.as_str())];
        pairs.extend(self.key.as_deref().map(|key| ("x-api-key", key)));
        headers(&pairs)
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> (u16, Value) {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let body = body.to_string();
        let response = self.gate.post(self.path, &body, self.headers());
        read_json(response.await).await
    }

    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let (status, answer) = self.request(method, params).await;
        assert_eq!((status, &answer["id"]), (200, &json!("a")), "{answer}");
        answer["result"].clone()
    }
}

pub(crate) fn names(result: &Value, list: &str, key: &str) -> Vec<String> {
    let items = result[list].as_array().unwrap().iter();
    items
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn both_eras_see_all_servers_combined() {
    let gate = start_gate("").await;
    let legacy = LegacySession::open(&gate, "/mcp", None).await;
    let tools = legacy.result("tools/list", json!({})).await;
    let listed_names = names(&tools, "tools", "name");
    assert!(
        listed_names.contains(&"legacy_add".to_owned())
            && listed_names.contains(&"modern_add".to_owned())
    );
    assert!(listed_names.is_sorted());
    assert!(tools.get("resultType").is_none() && tools.get("ttlMs").is_none());
    let (status, answer) = modern_request(&gate, "/mcp", "tools/list", json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let result = &answer["result"];
    assert_eq!(names(result, "tools", "name"), listed_names);
    assert_eq!(
        (&result["resultType"], &result["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    for server in ["legacy", "modern"] {
        let params = json!({"name": format!("{server}_add"), "arguments": {"a": 1, "b": 2}});
        let result = legacy.result("tools/call", params.clone()).await;
        assert_eq!(result["content"][0]["text"], "3");
        let (_, answer) = modern_request(&gate, "/mcp", "tools/call", params).await;
        assert_eq!(answer["result"]["content"][0]["text"], "3");
        assert_eq!(answer["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn single_server_endpoint_keeps_raw_names_and_bytes() {
    let gate = start_gate("").await;
    let legacy = LegacySession::open(&gate, "/mcp/legacy", None).await;
    let tools = legacy.result("tools/list", json!({})).await;
    assert!(names(&tools, "tools", "name").contains(&"add".to_owned()));
    let odd = r#"{"z": 18446744073709551617, "a":[1e400, 0.1,-0.0],"unknown":{"b":1,"a":2}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{odd}}}}}"#
    );
    let response = gate.post("/mcp/legacy", &body, legacy.headers()).await;
    let text = response.text().await.unwrap();
    assert!(text.contains(&format!(r#""arguments":{odd}"#)), "{text}");
    let resources = legacy.result("resources/list", json!({})).await;
    let uris = names(&resources, "resources", "uri");
    assert!(uris.contains(&"zoo://text".to_owned()), "{uris:?}");
    let read = legacy
        .result("resources/read", json!({"uri": "zoo://text"}))
        .await;
    assert_eq!(read["contents"][0]["uri"], "zoo://text");
    let (status, _) = modern_request(&gate, "/mcp/nobody", "tools/list", json!({})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn resources_and_prompts_route_to_their_server() {
    let gate = start_gate("").await;
    let legacy = LegacySession::open(&gate, "/mcp", None).await;
    let resources = legacy.result("resources/list", json!({})).await;
    let uris = names(&resources, "resources", "uri");
    for server in ["legacy", "modern"] {
        let uri = format!("toolgate://{server}/zoo://text");
        assert!(uris.contains(&uri), "{uris:?}");
        let read = legacy.result("resources/read", json!({"uri": uri})).await;
        assert_eq!(read["contents"][0]["uri"], uri);
        let name = format!("{server}.greet");
        let params = json!({"name": name, "arguments": {"who": "Ada"}});
        let prompt = legacy.result("prompts/get", params).await;
        assert_eq!(
            prompt["messages"][0]["content"]["text"],
            "Say hello to Ada."
        );
    }
    let (status, missing) = modern_request(
        &gate,
        "/mcp",
        "resources/read",
        json!({"uri": "toolgate://legacy/zoo://nothing"}),
    )
    .await;
    assert_eq!(
        (status, missing["error"]["code"].as_i64()),
        (200, Some(-32602))
    );
}

#[tokio::test]
async fn session_belongs_to_its_key_and_can_be_deleted() {
    let keys = "[keys.alice]\nkey = \"alice-has-a-long-key\"\ntools = [\"legacy.echo\"]\n[keys.bob]\nkey = \"bob-has-a-long-key-too\"\n";
    let gate = gate_with_keys(keys).await;
    let alice = LegacySession::open(&gate, "/mcp", Some("alice-has-a-long-key")).await;
    let tools = alice.result("tools/list", json!({})).await;
    assert_eq!(names(&tools, "tools", "name"), ["legacy_echo"]);
    let (_, hidden) = alice
        .request(
            "tools/call",
            json!({"name": "modern_echo", "arguments": {}}),
        )
        .await;
    assert_eq!(hidden["error"]["code"], -32602);
    let bob = LegacySession {
        key: Some("bob-has-a-long-key-too".to_owned()),
        id: alice.id.clone(),
        ..alice
    };
    let (status, _) = bob.request("tools/list", json!({})).await;
    assert_eq!(status, 404, "the session of another key is unknown");
    let anonymous = gate.post("/mcp", "{}", HeaderMap::new()).await;
    assert_eq!(anonymous.status(), 401);
    let alice = LegacySession {
        key: Some("alice-has-a-long-key".to_owned()),
        ..bob
    };
    let end = gate
        .client
        .request(Method::DELETE, format!("{}/mcp", gate.url))
        .headers(alice.headers());
    assert_eq!(end.send().await.unwrap().status(), 200);
    let (status, _) = alice.request("ping", json!({})).await;
    assert_eq!(status, 404, "the session has ended");
}

async fn gate_with_keys(keys: &str) -> TestGate {
    let toml = zoo("legacy", &[]) + &zoo("modern", &[]) + keys;
    let gate = TestGate::start(&toml);
    for server in ["legacy", "modern"] {
        gate.wait_for_state(server, "healthy").await;
    }
    gate
}

#[tokio::test]
async fn tool_lists_are_per_caller_and_follow_rules() {
    let [wide, narrow] = ["w".repeat(43), "n".repeat(43)];
    let keys = format!(
        "[roles.narrow]\ntools = [\"legacy.*\"]\n[keys.wide]\nkey = {wide:?}\n[keys.narrow]\nkey = {narrow:?}\nroles = [\"narrow\"]\n"
    );
    let gate = gate_with_keys(&keys).await;
    // Each list is fetched twice, so that the second may come from a cache.
    let list_tools = async |key: &str| {
        let sent = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
            ("authorization", &format!("Bearer {key}")),
        ]);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{META}}}}}"#
        );
        let modern = async || {
            let (_, listed) = read_json(gate.post("/mcp", &body, sent.clone()).await).await;
            names(&listed["result"], "tools", "name")
        };
        let legacy = LegacySession::open(&gate, "/mcp", Some(key)).await;
        let raw = LegacySession::open(&gate, "/mcp/legacy", Some(key)).await;
        let mut all = Vec::new();
        for _ in 0..2 {
            let before = modern().await;
            let listed = legacy.result("tools/list", json!({})).await;
            let own = raw.result("tools/list", json!({})).await;
            let own = names(&own, "tools", "name");
            let is_of = |name: &String| before.contains(&format!("legacy_{name}"));
            all = modern().await;
            // The rules may change between the two.
            if before == all {
                assert_eq!(names(&listed, "tools", "name"), all);
                assert!(own.iter().all(is_of));
            }
        }
        all
    };
    let has =
        |listed_names: &[String], name: &str| listed_names.iter().any(|listed| listed == name);
    let (all, own) = (list_tools(&wide).await, list_tools(&narrow).await);
    assert!(has(&all, "legacy_add") && has(&all, "modern_add"));
    assert!(has(&own, "legacy_add") && !has(&own, "modern_add"));
    let deny = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"deny\"\n";
    let toml = zoo("legacy", &[]) + &zoo("modern", &[]) + &keys + deny;
    std::fs::write(gate.folder.path().join("toolgate.toml"), toml).unwrap();
    for key in [&wide, &narrow] {
        eventually(
            "denied tools are no longer listed",
            WAIT_TIMEOUT,
            async || {
                let listed_names = list_tools(key).await;
                (!has(&listed_names, "legacy_add") && has(&listed_names, "legacy_echo"))
                    .then_some(())
            },
        )
        .await;
    }
}

#[tokio::test]
async fn progress_precedes_the_answer() {
    let gate = start_gate("").await;
    let legacy = LegacySession::open(&gate, "/mcp/legacy", None).await;
    let body = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {
        "name": "progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "mine"}}});
    let response = gate
        .post("/mcp/legacy", &body.to_string(), legacy.headers())
        .await;
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    let text = response.text().await.unwrap();
    assert!(kind.starts_with("text/event-stream"), "{kind}: {text}");
    let messages: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(messages.len(), 4, "{text}");
    for message in &messages[..3] {
        assert_eq!(message["params"]["progressToken"], "mine");
    }
    assert_eq!(messages[3]["id"], 5);
}

#[tokio::test]
async fn session_is_notified_of_list_changes() {
    let gate = start_gate("").await;
    let legacy = LegacySession::open(&gate, "/mcp", None).await;
    let mut stream = gate
        .client
        .get(format!("{}/mcp", gate.url))
        .headers(legacy.headers())
        .send()
        .await
        .unwrap();
    assert_eq!(stream.status(), 200);
    let toml = zoo("legacy", &["--tools", "1"]) + &zoo("modern", &["--era", "modern"]);
    std::fs::write(gate.folder.path().join("toolgate.toml"), toml).unwrap();
    let mut received = String::new();
    let reading = async {
        while !received.contains("notifications/tools/list_changed") {
            let chunk = stream.chunk().await.unwrap().expect("the stream ended");
            received.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, reading).await.unwrap();
    eventually("the new tool is listed", WAIT_TIMEOUT, async || {
        let tools = legacy.result("tools/list", json!({})).await;
        let listed_names = names(&tools, "tools", "name");
        listed_names
            .contains(&"legacy_tool_0001".to_owned())
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn invalid_requests_have_code_and_status() {
    let gate = start_gate("").await;
    let post = async |body: &str, sent: &[(&str, &str)]| {
        let response = gate.post("/mcp", body, headers(sent)).await;
        let (status, answer) = read_json(response).await;
        (status, answer["error"]["code"].as_i64())
    };
    assert_eq!(post("{", &[]).await, (400, Some(-32700)));
    assert_eq!(post("[]", &[]).await, (400, Some(-32600)));
    assert_eq!(post("{}", &[]).await, (400, Some(-32600)));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(post(list, &[]).await, (400, Some(-32600)), "no session");
    let unknown_session = [("mcp-session-id", "nobody")];
    assert_eq!(post(list, &unknown_session).await, (404, Some(-32600)));
    let (status, answer) = modern_request(&gate, "/mcp", "no/such", json!({})).await;
    assert_eq!(
        (status, answer["error"]["code"].as_i64()),
        (404, Some(-32601))
    );
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": {"_meta": serde_json::from_str::<Value>(META).unwrap()}});
    let sent = [("mcp-protocol-version", "2026-07-28")];
    assert_eq!(post(&body.to_string(), &sent).await, (400, Some(-32020)));
    assert_eq!(gate.get("/mcp").await.status(), 405);
}

const ASK: &str = "[[permissions.rules]]\ntool = \"*.add\"\naction = \"ask\"\napproval_by = [\"admin\", \"client\"]\n";

#[tokio::test]
async fn modern_client_approves_call_by_elicitation() {
    let gate = start_gate(ASK).await;
    let meta = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
    let call_tool = async |params: Value| {
        let (_, answer) =
            modern_request_with_meta(&gate, "/mcp/legacy", "tools/call", params, &meta).await;
        answer
    };
    let call = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    let pending = call_tool(call.clone()).await;
    let result = &pending["result"];
    assert_eq!(result["resultType"], "input_required", "{pending}");
    let question = &result["inputRequests"]["toolgate_approval"];
    assert_eq!(question["method"], "elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(
        message.contains("legacy_add") && message.contains("\"a\":1"),
        "{message}"
    );
    let retry = |arguments: Value, action: &str, state: &str| {
        json!({"name": "add", "arguments": arguments, "requestState": state,
            "inputResponses": {"toolgate_approval": {"action": action, "content": {}}}})
    };
    let state = result["requestState"].as_str().unwrap().to_owned();
    let other = call_tool(retry(json!({"a": 1, "b": 3}), "accept", &state)).await;
    assert_eq!(other["error"]["code"], -32602, "other arguments: {other}");
    // The state is base64url: changing a character in the middle invalidates the signature.
    let middle = state.len() / 2;
    let other = if &state[middle..=middle] == "A" {
        "B"
    } else {
        "A"
    };
    let forged = format!("{}{other}{}", &state[..middle], &state[middle + 1..]);
    let forged = call_tool(retry(json!({"a": 1, "b": 2}), "accept", &forged)).await;
    let result_type = &forged["result"]["resultType"];
    assert_eq!(result_type, "input_required", "{forged}");
    let ran = call_tool(retry(json!({"a": 1, "b": 2}), "accept", &state)).await;
    assert_eq!(ran["result"]["content"][0]["text"], "3", "{ran}");
    let again = call_tool(retry(json!({"a": 1, "b": 2}), "accept", &state)).await;
    assert_eq!(
        again["result"]["isError"], true,
        "an approval works once: {again}"
    );

    let pending = call_tool(json!({"name": "add", "arguments": {"a": 5, "b": 5}})).await;
    let state = pending["result"]["requestState"].as_str().unwrap();
    let denied = call_tool(retry(json!({"a": 5, "b": 5}), "decline", state)).await;
    let text = denied["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("declined"), "{text}");
    let (_, plain) = modern_request(&gate, "/mcp/legacy", "tools/call", call).await;
    let has_id = plain["result"]["_meta"]["toolgate/approval"]["id"].is_string();
    assert!(
        has_id,
        "a client without elicitation gets the approval id: {plain}"
    );
}

#[tokio::test]
async fn legacy_client_approves_call_by_elicitation() {
    let gate = start_gate(ASK).await;
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "1"}}});
    let response = gate.post("/mcp", &body.to_string(), HeaderMap::new()).await;
    let session = response.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    for (action, expected) in [("accept", "3"), ("decline", "declined")] {
        let sent = || headers(&[("mcp-session-id", &session)]);
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call",
            "params": {"name": "legacy_add", "arguments": {"a": 1, "b": 2}}});
        let mut stream = gate.post("/mcp", &call.to_string(), sent()).await;
        let mut received = String::new();
        while !received.contains("elicitation/create") || !received.ends_with("\n\n") {
            let chunk = stream.chunk().await.unwrap().expect("the stream ended");
            received.push_str(&String::from_utf8_lossy(&chunk));
        }
        let data = received
            .lines()
            .find_map(|line| line.strip_prefix("data: "));
        let question: Value = serde_json::from_str(data.unwrap()).unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action, "content": {}}});
        let accepted = gate.post("/mcp", &answer.to_string(), sent()).await;
        assert_eq!(accepted.status(), 202);
        let rest = stream.text().await.unwrap();
        assert!(rest.contains(expected), "{action}: {rest}");
    }
}

#[tokio::test]
async fn virtual_servers_expose_selected_tools() {
    let toml = "[virtual_servers.some]\ntools = [\"legacy.e*\", \"modern.add\"]\n";
    let gate = start_gate(toml).await;
    let some = LegacySession::open(&gate, "/mcp/v/some", None).await;
    let tools = some.result("tools/list", json!({})).await;
    let listed_names = names(&tools, "tools", "name");
    assert_eq!(
        listed_names,
        ["legacy_echo", "legacy_empty", "legacy_env", "modern_add"]
    );
    let (_, hidden) = some
        .request("tools/call", json!({"name": "legacy_add", "arguments": {}}))
        .await;
    assert_eq!(hidden["error"]["code"], -32602);
    let put = gate
        .client
        .put(format!("{}/api/virtual-servers/one", gate.url))
        .body(r#"{"tools": ["modern.add"]}"#);
    assert_eq!(put.send().await.unwrap().status(), 200);
    let (_, answer) = modern_request(&gate, "/mcp/v/one", "tools/list", json!({})).await;
    assert_eq!(names(&answer["result"], "tools", "name"), ["modern_add"]);
    let all = gate.json("/api/virtual-servers").await;
    assert_eq!(names(&all, "virtual_servers", "source"), ["api", "file"]);
    let (status, _) = modern_request(&gate, "/mcp/v/none", "tools/list", json!({})).await;
    assert_eq!(status, 404);
}

/// Unknown fields in both directions and both eras.
#[tokio::test]
async fn unknown_fields_pass_through_single_server() {
    let gate = start_gate("").await;
    let odd = r#"{"modern":{"n":-0.0,"big":18446744073709551617},"z":[1e400],"a":"é"}"#;
    for server in ["legacy", "modern"] {
        let path = format!("/mcp/{server}");
        let session = LegacySession::open(&gate, &path, None).await;
        let call = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{odd},"_meta":{meta}}}}}"#
            )
        };
        let legacy = gate.post(&path, &call("{}"), session.headers()).await;
        let sent = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "echo"),
        ]);
        let modern = gate.post(&path, &call(META), sent).await;
        for answer in [legacy, modern] {
            let text = answer.text().await.unwrap();
            assert!(text.contains(&format!(r#""arguments":{odd}"#)), "{text}");
            assert!(text.contains(r#""x-zoo":-0.0"#), "{text}");
        }
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
        let listed = gate.post(&path, list, session.headers()).await;
        let listed = listed.text().await.unwrap();
        let raw = include_str!("../../../toolgate-testkit/src/zoo/catalog.json");
        let raw: Value = serde_json::from_str(raw).unwrap();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        for tool in raw["tools"].as_array().unwrap() {
            let tools = listed["result"]["tools"].as_array().unwrap();
            assert!(tools.contains(tool), "{tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_get_no_wrong_answers_while_servers_crash() {
    let gate = start_gate("").await;
    let run_client = async |number: usize| {
        let path = if number.is_multiple_of(2) {
            "/mcp"
        } else {
            "/mcp/legacy"
        };
        let session = LegacySession::open(&gate, path, None).await;
        let tool = if path == "/mcp" { "legacy_add" } else { "add" };
        let mut correct = 0;
        for round in 0..4 {
            if number.is_multiple_of(40) && round == 1 {
                let die = if path == "/mcp" { "legacy_die" } else { "die" };
                session
                    .request("tools/call", json!({"name": die, "arguments": {}}))
                    .await;
            }
            let params = json!({"name": tool, "arguments": {"a": number, "b": round}});
            let (status, answer) = session.request("tools/call", params).await;
            assert_eq!(status, 200, "{answer}");
            let result = &answer["result"];
            if result["isError"] != true && answer.get("error").is_none() {
                assert_eq!(result["content"][0]["text"], (number + round).to_string());
                correct += 1;
            }
        }
        correct
    };
    let answered = futures_util::future::join_all((0..200).map(run_client)).await;
    let correct: usize = answered.into_iter().sum();
    assert!(correct > 0);
    let session = LegacySession::open(&gate, "/mcp", None).await;
    eventually("the server has restarted", WAIT_TIMEOUT, async || {
        let params = json!({"name": "legacy_add", "arguments": {"a": 1, "b": 2}});
        let (_, answer) = session.request("tools/call", params).await;
        (answer["result"]["content"][0]["text"] == "3").then_some(())
    })
    .await;
}

/// `toolgate mcp`, as a desktop client starts it.
#[tokio::test]
async fn stdio_command_supports_both_eras() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("toolgate.toml"), zoo("zoo", &[])).unwrap();
    let mut command = tokio::process::Command::from(crate::gate::toolgate(folder.path()));
    let mut child = command
        .arg("mcp")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for (message, expected) in [
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}}),
            "2025-06-18",
        ),
        (
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "zoo_add", "arguments": {"a": 20, "b": 22}}}),
            "42",
        ),
        (
            json!({"jsonrpc": "2.0", "id": 3, "method": "server/discover", "params": {"_meta": serde_json::from_str::<Value>(META).unwrap()}}),
            "supportedVersions",
        ),
        (json!({"jsonrpc": "2.0", "id": 4}), "-32600"),
    ] {
        let line = format!("{message}\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(WAIT_TIMEOUT, lines.next_line())
            .await
            .unwrap();
        let answer = answer.unwrap().expect("stdout ended");
        assert!(answer.contains(expected), "{answer}");
    }
    drop(stdin);
    let exit = tokio::time::timeout(WAIT_TIMEOUT, child.wait())
        .await
        .unwrap();
    assert!(exit.unwrap().success(), "it exits when its input ends");
}

#[tokio::test]
async fn call_waits_for_approval_when_configured() {
    let rules = format!("[permissions]\napproval_wait = \"30s\"\n{ASK}");
    let gate = start_gate(&rules).await;
    let legacy = LegacySession::open(&gate, "/mcp/legacy", None).await;
    let params = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    let approve = async {
        let id = eventually("the call waits for approval", WAIT_TIMEOUT, async || {
            let pending = gate.json("/api/approvals").await;
            pending["approvals"][0]["id"].as_str().map(str::to_owned)
        });
        let path = format!("/api/approvals/{}", id.await);
        let body = r#"{"decision": "approve"}"#;
        let decided = gate.post(&path, body, HeaderMap::new()).await;
        assert_eq!(decided.status(), 200);
    };
    let (result, ()) = tokio::join!(legacy.result("tools/call", params), approve);
    assert_eq!(result["content"][0]["text"], "3", "{result}");
}
