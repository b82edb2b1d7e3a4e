//! Fixture behaviour that the conformance suite does not cover: stdio, other streams, other orders.

use serde_json::{Value, json};
use toolgate_testkit::HttpZoo;

use crate::stdio_zoo::{META, StdioZoo, call, request};
use crate::wire::{EventStream, HttpReply, post, send};

const ALL_CAPABILITIES: &str = r#"{"capabilities":{"elicitation":{},"sampling":{},"roots":{}}}"#;
const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2025-11-25");
const NAME_ANSWER: &str = r#"{"action":"accept","content":{"name":"Eve"}}"#;

/// Builds a modern `tools/call` of a client that supports every request to it.
fn modern_call(id: u32, name: &str, more: &Value) -> String {
    let mut params = json!({ "name": name, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":
            { "elicitation": { "form": {} }, "sampling": {}, "roots": {} },
    }});
    let more = more.as_object().unwrap().clone();
    params.as_object_mut().unwrap().extend(more);
    request(id, "tools/call", &params.to_string())
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    assert!(text.is_some(), "{answer}");
    text.unwrap_or_default()
}

fn reply(request_message: &Value, result: &str) -> String {
    let id = &request_message["id"];
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[tokio::test]
async fn legacy_client_receives_requests_during_call() {
    let mut zoo = StdioZoo::start(&["--fixtures"]);
    let name = "test_input_required_result_multiple_inputs";
    let refused = zoo.exchange_json(&call(1, name, "{}")).await;
    assert_eq!(
        refused["result"]["isError"], true,
        "no capability was declared"
    );
    zoo.exchange(&request(1, "initialize", ALL_CAPABILITIES))
        .await;
    zoo.send(&call(1, name, "{}")).await;
    let mut requests = Vec::new();
    for _ in 0..3 {
        requests.push(parse(&zoo.next_line().await));
    }
    // Other requests are served meanwhile, and replies may arrive in any order.
    assert_eq!(zoo.exchange_json(&request(2, "ping", "{}")).await["id"], 2);
    for request_message in requests.iter().rev() {
        let result = match request_message["method"].as_str().unwrap() {
            "elicitation/create" => NAME_ANSWER,
            "roots/list" => r#"{"roots":[{"uri":"file:///r"}]}"#,
            _ => r#"{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m"}"#,
        };
        zoo.send(&reply(request_message, result)).await;
    }
    let answer = parse(&zoo.next_line().await);
    assert_eq!(text(&answer), r#"Hi Eve at [{"uri":"file:///r"}]"#);
    assert_eq!(answer["id"], 1);
}

#[tokio::test]
async fn legacy_client_can_refuse_or_cancel_request() {
    let mut zoo = StdioZoo::start(&["--fixtures"]);
    zoo.exchange(&request(1, "initialize", ALL_CAPABILITIES))
        .await;
    let name = "test_input_required_result_elicitation";
    let request_message = zoo.exchange_json(&call(2, name, "{}")).await;
    let error = format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#,
        request_message["id"]
    );
    let answer = zoo.exchange_json(&error).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(text(&answer).contains(r#"{"code":-1,"message":"no"}"#));
    let request_message = zoo.exchange_json(&call(3, name, "{}")).await;
    let answer = zoo.exchange_json(&reply(&request_message, "{}")).await;
    assert_eq!(answer["result"]["isError"], true);
    let request_message = zoo.exchange_json(&call(4, name, "{}")).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#;
    let note = zoo.exchange_json(cancel).await;
    assert_eq!(note["method"], "notifications/cancelled");
    assert_eq!(note["params"]["requestId"], request_message["id"]);
    zoo.send(&reply(&request_message, NAME_ANSWER)).await;
    assert_eq!(zoo.exchange_json(&request(5, "ping", "{}")).await["id"], 5);
}

#[tokio::test]
async fn waiting_call_is_cancelled_and_counted() {
    let mut zoo = StdioZoo::start(&["--fixtures"]);
    let params = r#"{"name":"test_wait_for_cancellation","_meta":{"progressToken":1}}"#;
    let note = zoo.exchange_json(&request(1, "tools/call", params)).await;
    assert_eq!(note["method"], "notifications/progress");
    let count = call(2, "test_count_cancellations", "{}");
    assert_eq!(text(&zoo.exchange_json(&count).await), "0");
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    while text(&zoo.exchange_json(&count).await) == "0" {}
}

#[tokio::test]
async fn modern_client_retries_with_input_and_state() {
    let mut zoo = StdioZoo::start(&["--fixtures", "--era", "modern"]);
    let name = "test_input_required_result_multi_round";
    let first = zoo.exchange_json(&modern_call(1, name, &json!({}))).await["result"].take();
    assert_eq!(first["resultType"], "input_required");
    let answers = json!({ "step1": parse(NAME_ANSWER), "step2": { "action": "decline" } });
    let stateless = zoo
        .exchange_json(&modern_call(2, name, &json!({ "inputResponses": answers })))
        .await;
    let requested = stateless["result"]["inputRequests"].as_object().unwrap();
    assert!(
        requested.contains_key("step1"),
        "without its state the call starts over"
    );
    let state = &first["requestState"];
    let more = json!({ "inputResponses": { "step1": parse(NAME_ANSWER) }, "requestState": state });
    let second = zoo.exchange_json(&modern_call(3, name, &more)).await["result"].take();
    assert!(second["inputRequests"]["step2"].is_object());
    let other = "test_input_required_result_request_state";
    let stolen = zoo.exchange_json(&modern_call(4, other, &more)).await;
    assert_eq!(stolen["error"]["code"], -32602);
    let answers = json!({ "step2": { "action": "accept", "content": { "color": "red" } } });
    let more = json!({ "inputResponses": answers, "requestState": second["requestState"] });
    let done = zoo.exchange_json(&modern_call(5, name, &more)).await;
    assert_eq!(text(&done), "Eve likes red.");
    assert_eq!(done["result"]["resultType"], "complete");
}

#[tokio::test]
async fn modern_client_can_be_asked_to_retry_without_input() {
    let mut zoo = StdioZoo::start(&["--fixtures", "--era", "dual"]);
    let name = "test_input_required_result_state_only";
    let first = zoo.exchange_json(&modern_call(1, name, &json!({}))).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"], Value::Null);
    let more = json!({ "requestState": first["result"]["requestState"] });
    let done = zoo.exchange_json(&modern_call(2, name, &more)).await;
    assert_eq!(text(&done), "Thank you for calling again.");
    assert!(text(&zoo.exchange_json(&call(3, name, "{}")).await).starts_with("Thank"));
}

#[tokio::test]
async fn resource_read_can_require_input() {
    let mut zoo = StdioZoo::start(&["--fixtures", "--era", "dual"]);
    let uri = json!({ "uri": "test://wants-input" });
    let read =
        |id, more: &Value| modern_call(id, "x", more).replace("tools/call", "resources/read");
    let read = |id, more: &Value| read(id, more).replace(r#""name":"x","#, "");
    let first = zoo.exchange_json(&read(1, &uri)).await;
    let mut more = json!({ "requestState": first["result"]["requestState"], "inputResponses":
        { "password": { "action": "accept", "content": { "word": "please" } } } });
    more["uri"] = uri["uri"].clone();
    let done = zoo.exchange_json(&read(2, &more)).await;
    assert_eq!(done["result"]["contents"][0]["text"], "You said please.");
    assert_eq!(done["result"]["cacheScope"], "private");
}

#[tokio::test]
async fn changes_reach_subscribed_clients() {
    let mut zoo = StdioZoo::start(&["--fixtures", "--era", "dual"]);
    zoo.exchange(&request(1, "initialize", ALL_CAPABILITIES))
        .await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let watched = r#"{"uri":"test://watched-resource"}"#;
    zoo.exchange(&request(2, "resources/subscribe", watched))
        .await;
    let params = format!(
        r#"{{{META},"notifications":{{"promptsListChanged":true,"resourceSubscriptions":["test://watched-resource"]}}}}"#
    );
    let ack = zoo
        .exchange_json(&request(3, "subscriptions/listen", &params))
        .await;
    assert_eq!(ack["params"]["notifications"]["promptsListChanged"], true);
    let listen_meta = json!({ "io.modelcontextprotocol/subscriptionId": 3 });
    for (trigger, method, both) in [
        ("resource_update", "notifications/resources/updated", true),
        ("prompt_change", "notifications/prompts/list_changed", true),
        ("tool_change", "notifications/tools/list_changed", false),
    ] {
        zoo.send(&call(4, &format!("test_trigger_{trigger}"), "{}"))
            .await;
        let legacy = parse(&zoo.next_line().await);
        assert_eq!(legacy["method"], method);
        assert_eq!(legacy["params"]["_meta"], Value::Null);
        if both {
            let modern = parse(&zoo.next_line().await);
            assert_eq!(modern["method"], method);
            assert_eq!(modern["params"]["_meta"], listen_meta);
        }
        assert_eq!(parse(&zoo.next_line().await)["id"], 4);
    }
    let list = zoo.exchange(&request(5, "tools/list", "{}")).await;
    assert!(list.contains("test_dynamic_tool"));
    let read = zoo.exchange(&request(6, "resources/read", watched)).await;
    assert!(read.contains("Changed 1 times."));
    zoo.exchange(&request(7, "resources/unsubscribe", watched))
        .await;
    zoo.send(&call(8, "test_trigger_resource_update", "{}"))
        .await;
    let only = parse(&zoo.next_line().await);
    assert_eq!(only["params"]["_meta"], listen_meta);
    assert_eq!(parse(&zoo.next_line().await)["id"], 8);
}

#[tokio::test]
async fn log_messages_respect_level() {
    let mut zoo = StdioZoo::start(&["--fixtures", "--era", "dual"]);
    let bad = zoo
        .exchange_json(&request(1, "logging/setLevel", r#"{"level":"loud"}"#))
        .await;
    assert_eq!(bad["error"]["code"], -32602);
    zoo.exchange(&request(2, "logging/setLevel", r#"{"level":"error"}"#))
        .await;
    let quiet = zoo.exchange_json(&call(3, "test_logging_tool", "{}")).await;
    assert_eq!(quiet["id"], 3);
    let quiet = modern_call(4, "test_logging_tool", &json!({}));
    assert_eq!(zoo.exchange_json(&quiet).await["id"], 4);
    let meta = r#""_meta":{"#;
    let level = format!(r#"{meta}"io.modelcontextprotocol/logLevel":"info","#);
    let loud = zoo.exchange_json(&quiet.replace(meta, &level)).await;
    assert_eq!(loud["method"], "notifications/message");
    assert_eq!(parse(&zoo.next_line().await)["id"], 4);
}

/// Initializes over HTTP and returns the session id.
async fn open_session(zoo: &HttpZoo) -> String {
    let reply: HttpReply = post(zoo, &[], &request(1, "initialize", ALL_CAPABILITIES)).await;
    reply.header("mcp-session-id").unwrap().to_owned()
}

#[tokio::test]
async fn only_the_requested_session_can_reply() {
    let zoo = HttpZoo::start(&["--fixtures"]);
    let (mine, other) = (open_session(&zoo).await, open_session(&zoo).await);
    let (mine, other) = (("Mcp-Session-Id", &*mine), ("Mcp-Session-Id", &*other));
    let call_message = call(2, "test_input_required_result_elicitation", "{}");
    let mut stream = EventStream::post(&zoo, &[mine, VERSION], &call_message).await;
    let request_message = parse(&stream.next().await);
    let foreign_reply = reply(&request_message, &NAME_ANSWER.replace("Eve", "Mallory"));
    assert_eq!(
        post(&zoo, &[other, VERSION], &foreign_reply).await.status,
        202
    );
    assert_eq!(post(&zoo, &[VERSION], &foreign_reply).await.status, 400);
    let own_reply = reply(&request_message, NAME_ANSWER);
    let accepted = post(&zoo, &[mine, VERSION], &own_reply).await;
    assert_eq!((accepted.status, accepted.text()), (202, ""));
    assert_eq!(text(&parse(&stream.next().await)), "Hello, Eve!");
}

#[tokio::test]
async fn json_responses_send_client_requests_on_get_stream() {
    let zoo = HttpZoo::start(&["--fixtures", "--json"]);
    let session = open_session(&zoo).await;
    let headers = [("Mcp-Session-Id", &*session), VERSION];
    let call_message = call(2, "test_input_required_result_elicitation", "{}");
    let without_stream = post(&zoo, &headers, &call_message).await.json();
    assert_eq!(
        without_stream["result"]["isError"], true,
        "there is no GET stream"
    );
    let mut stream = EventStream::open(&zoo, "/mcp", &headers).await;
    let replying = async {
        let request_message = parse(&stream.next().await);
        post(&zoo, &headers, &reply(&request_message, NAME_ANSWER)).await
    };
    let (answer, _) = tokio::join!(post(&zoo, &headers, &call_message), replying);
    assert_eq!(text(&answer.json()), "Hello, Eve!");
    send(&zoo, "DELETE", "/mcp", &headers, "").await;
    assert!(
        stream.ends_without_event().await,
        "the stream ends with its session"
    );
}

#[tokio::test]
async fn legacy_sse_sends_client_requests_on_its_stream() {
    let zoo = HttpZoo::start(&["--fixtures", "--sse-legacy"]);
    let mut events = EventStream::open(&zoo, "/sse", &[]).await;
    let address = events.next().await;
    send(
        &zoo,
        "POST",
        &address,
        &[],
        &request(1, "initialize", ALL_CAPABILITIES),
    )
    .await;
    assert_eq!(parse(&events.next().await)["id"], 1);
    let call_message = call(2, "test_input_required_result_elicitation", "{}");
    send(&zoo, "POST", &address, &[], &call_message).await;
    let request_message = parse(&events.next().await);
    send(
        &zoo,
        "POST",
        &address,
        &[],
        &reply(&request_message, NAME_ANSWER),
    )
    .await;
    assert_eq!(text(&parse(&events.next().await)), "Hello, Eve!");
}

#[tokio::test]
async fn foreign_origins_are_rejected() {
    let zoo = HttpZoo::start(&["--fixtures"]);
    let body = request(1, "initialize", ALL_CAPABILITIES);
    for (origin, status) in [
        ("http://localhost:1", 200),
        ("http://[::1]", 200),
        ("http://evil.example.com", 403),
        ("http://localhost.example.com", 403),
        ("null", 403),
    ] {
        let reply = post(&zoo, &[("Origin", origin)], &body).await;
        assert_eq!(reply.status, status, "{origin}");
    }
}
