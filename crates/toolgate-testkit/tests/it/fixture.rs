//! The fixtures where the conformance suite does not look: stdio, other streams, other orders.

use serde_json::{Value, json};
use toolgate_testkit::HttpZoo;

use crate::pipe::{META, Pipe, call, request};
use crate::wire::{Events, Reply, post, send};

const ABLE: &str = r#"{"capabilities":{"elicitation":{},"sampling":{},"roots":{}}}"#;
const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2025-11-25");
const NAME: &str = r#"{"action":"accept","content":{"name":"Eve"}}"#;

/// A modern request of a client that answers everything.
fn modern(id: u32, name: &str, more: &Value) -> String {
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

fn reply(question: &Value, result: &str) -> String {
    let id = &question["id"];
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[tokio::test]
async fn a_legacy_client_is_asked_while_the_call_waits() {
    let mut zoo = Pipe::start(&["--fixtures"]);
    let name = "test_input_required_result_multiple_inputs";
    let refused = zoo.ask_value(&call(1, name, "{}")).await;
    assert_eq!(refused["result"]["isError"], true, "nothing was declared");
    zoo.ask(&request(1, "initialize", ABLE)).await;
    zoo.send(&call(1, name, "{}")).await;
    let mut questions = Vec::new();
    for _ in 0..3 {
        questions.push(value(&zoo.line().await));
    }
    // Other requests go on, and answers may come in any order.
    assert_eq!(zoo.ask_value(&request(2, "ping", "{}")).await["id"], 2);
    for question in questions.iter().rev() {
        let result = match question["method"].as_str().unwrap() {
            "elicitation/create" => NAME,
            "roots/list" => r#"{"roots":[{"uri":"file:///r"}]}"#,
            _ => r#"{"role":"assistant","content":{"type":"text","text":"Hi"},"model":"m"}"#,
        };
        zoo.send(&reply(question, result)).await;
    }
    let answer = value(&zoo.line().await);
    assert_eq!(text(&answer), r#"Hi Eve at [{"uri":"file:///r"}]"#);
    assert_eq!(answer["id"], 1);
}

#[tokio::test]
async fn a_legacy_client_may_refuse_or_cancel() {
    let mut zoo = Pipe::start(&["--fixtures"]);
    zoo.ask(&request(1, "initialize", ABLE)).await;
    let name = "test_input_required_result_elicitation";
    let question = zoo.ask_value(&call(2, name, "{}")).await;
    let error = format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#,
        question["id"]
    );
    let answer = zoo.ask_value(&error).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(text(&answer).contains(r#"{"code":-1,"message":"no"}"#));
    let question = zoo.ask_value(&call(3, name, "{}")).await;
    let answer = zoo.ask_value(&reply(&question, "{}")).await;
    assert_eq!(answer["result"]["isError"], true);
    let question = zoo.ask_value(&call(4, name, "{}")).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#;
    let note = zoo.ask_value(cancel).await;
    assert_eq!(note["method"], "notifications/cancelled");
    assert_eq!(note["params"]["requestId"], question["id"]);
    zoo.send(&reply(&question, NAME)).await;
    assert_eq!(zoo.ask_value(&request(5, "ping", "{}")).await["id"], 5);
}

#[tokio::test]
async fn a_call_waits_to_be_cancelled_and_the_next_one_tells() {
    let mut zoo = Pipe::start(&["--fixtures"]);
    let params = r#"{"name":"test_wait_for_cancellation","_meta":{"progressToken":1}}"#;
    let note = zoo.ask_value(&request(1, "tools/call", params)).await;
    assert_eq!(note["method"], "notifications/progress");
    let count = call(2, "test_count_cancellations", "{}");
    assert_eq!(text(&zoo.ask_value(&count).await), "0");
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    while text(&zoo.ask_value(&count).await) == "0" {}
}

#[tokio::test]
async fn a_modern_client_calls_again_with_answers_and_state() {
    let mut zoo = Pipe::start(&["--fixtures", "--era", "modern"]);
    let name = "test_input_required_result_multi_round";
    let first = zoo.ask_value(&modern(1, name, &json!({}))).await["result"].take();
    assert_eq!(first["resultType"], "input_required");
    let answers = json!({ "step1": value(NAME), "step2": { "action": "decline" } });
    let stateless = zoo
        .ask_value(&modern(2, name, &json!({ "inputResponses": answers })))
        .await;
    let asked = stateless["result"]["inputRequests"].as_object().unwrap();
    assert!(asked.contains_key("step1"), "without its state it is new");
    let state = &first["requestState"];
    let more = json!({ "inputResponses": { "step1": value(NAME) }, "requestState": state });
    let second = zoo.ask_value(&modern(3, name, &more)).await["result"].take();
    assert!(second["inputRequests"]["step2"].is_object());
    let other = "test_input_required_result_request_state";
    let stolen = zoo.ask_value(&modern(4, other, &more)).await;
    assert_eq!(stolen["error"]["code"], -32602);
    let answers = json!({ "step2": { "action": "accept", "content": { "color": "red" } } });
    let more = json!({ "inputResponses": answers, "requestState": second["requestState"] });
    let done = zoo.ask_value(&modern(5, name, &more)).await;
    assert_eq!(text(&done), "Eve likes red.");
    assert_eq!(done["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_modern_client_may_be_asked_nothing_but_to_call_again() {
    let mut zoo = Pipe::start(&["--fixtures", "--era", "dual"]);
    let name = "test_input_required_result_state_only";
    let first = zoo.ask_value(&modern(1, name, &json!({}))).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    assert_eq!(first["result"]["inputRequests"], Value::Null);
    let more = json!({ "requestState": first["result"]["requestState"] });
    let done = zoo.ask_value(&modern(2, name, &more)).await;
    assert_eq!(text(&done), "Thank you for calling again.");
    assert!(text(&zoo.ask_value(&call(3, name, "{}")).await).starts_with("Thank"));
}

#[tokio::test]
async fn a_resource_may_need_an_answer() {
    let mut zoo = Pipe::start(&["--fixtures", "--era", "dual"]);
    let uri = json!({ "uri": "test://wants-input" });
    let read = |id, more: &Value| modern(id, "x", more).replace("tools/call", "resources/read");
    let read = |id, more: &Value| read(id, more).replace(r#""name":"x","#, "");
    let first = zoo.ask_value(&read(1, &uri)).await;
    let mut more = json!({ "requestState": first["result"]["requestState"], "inputResponses":
        { "password": { "action": "accept", "content": { "word": "please" } } } });
    more["uri"] = uri["uri"].clone();
    let done = zoo.ask_value(&read(2, &more)).await;
    assert_eq!(done["result"]["contents"][0]["text"], "You said please.");
    assert_eq!(done["result"]["cacheScope"], "private");
}

#[tokio::test]
async fn changes_reach_those_who_want_to_hear_of_them() {
    let mut zoo = Pipe::start(&["--fixtures", "--era", "dual"]);
    zoo.ask(&request(1, "initialize", ABLE)).await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    let watched = r#"{"uri":"test://watched-resource"}"#;
    zoo.ask(&request(2, "resources/subscribe", watched)).await;
    let params = format!(
        r#"{{{META},"notifications":{{"promptsListChanged":true,"resourceSubscriptions":["test://watched-resource"]}}}}"#
    );
    let ack = zoo
        .ask_value(&request(3, "subscriptions/listen", &params))
        .await;
    assert_eq!(ack["params"]["notifications"]["promptsListChanged"], true);
    let listening = json!({ "io.modelcontextprotocol/subscriptionId": 3 });
    for (trigger, method, both) in [
        ("resource_update", "notifications/resources/updated", true),
        ("prompt_change", "notifications/prompts/list_changed", true),
        ("tool_change", "notifications/tools/list_changed", false),
    ] {
        zoo.send(&call(4, &format!("test_trigger_{trigger}"), "{}"))
            .await;
        let legacy = value(&zoo.line().await);
        assert_eq!(legacy["method"], method);
        assert_eq!(legacy["params"]["_meta"], Value::Null);
        if both {
            let modern = value(&zoo.line().await);
            assert_eq!(modern["method"], method);
            assert_eq!(modern["params"]["_meta"], listening);
        }
        assert_eq!(value(&zoo.line().await)["id"], 4);
    }
    let list = zoo.ask(&request(5, "tools/list", "{}")).await;
    assert!(list.contains("test_dynamic_tool"));
    let read = zoo.ask(&request(6, "resources/read", watched)).await;
    assert!(read.contains("Changed 1 times."));
    zoo.ask(&request(7, "resources/unsubscribe", watched)).await;
    zoo.send(&call(8, "test_trigger_resource_update", "{}"))
        .await;
    let only = value(&zoo.line().await);
    assert_eq!(only["params"]["_meta"], listening);
    assert_eq!(value(&zoo.line().await)["id"], 8);
}

#[tokio::test]
async fn logs_respect_the_level() {
    let mut zoo = Pipe::start(&["--fixtures", "--era", "dual"]);
    let bad = zoo
        .ask_value(&request(1, "logging/setLevel", r#"{"level":"loud"}"#))
        .await;
    assert_eq!(bad["error"]["code"], -32602);
    zoo.ask(&request(2, "logging/setLevel", r#"{"level":"error"}"#))
        .await;
    let quiet = zoo.ask_value(&call(3, "test_logging_tool", "{}")).await;
    assert_eq!(quiet["id"], 3);
    let quiet = modern(4, "test_logging_tool", &json!({}));
    assert_eq!(zoo.ask_value(&quiet).await["id"], 4);
    let meta = r#""_meta":{"#;
    let level = format!(r#"{meta}"io.modelcontextprotocol/logLevel":"info","#);
    let loud = zoo.ask_value(&quiet.replace(meta, &level)).await;
    assert_eq!(loud["method"], "notifications/message");
    assert_eq!(value(&zoo.line().await)["id"], 4);
}

/// Initializes over HTTP and gives the session.
async fn session(zoo: &HttpZoo) -> String {
    let reply: Reply = post(zoo, &[], &request(1, "initialize", ABLE)).await;
    reply.header("mcp-session-id").unwrap().to_owned()
}

#[tokio::test]
async fn only_the_client_that_was_asked_can_answer() {
    let zoo = HttpZoo::start(&["--fixtures"]);
    let (mine, other) = (session(&zoo).await, session(&zoo).await);
    let (mine, other) = (("Mcp-Session-Id", &*mine), ("Mcp-Session-Id", &*other));
    let asking = call(2, "test_input_required_result_elicitation", "{}");
    let mut stream = Events::post(&zoo, &[mine, VERSION], &asking).await;
    let question = value(&stream.next().await);
    let stranger = reply(&question, &NAME.replace("Eve", "Mallory"));
    assert_eq!(post(&zoo, &[other, VERSION], &stranger).await.status, 202);
    assert_eq!(post(&zoo, &[VERSION], &stranger).await.status, 400);
    let friend = reply(&question, NAME);
    let accepted = post(&zoo, &[mine, VERSION], &friend).await;
    assert_eq!((accepted.status, accepted.text()), (202, ""));
    assert_eq!(text(&value(&stream.next().await)), "Hello, Eve!");
}

#[tokio::test]
async fn without_a_stream_of_its_own_the_question_goes_to_the_get_stream() {
    let zoo = HttpZoo::start(&["--fixtures", "--json"]);
    let session = session(&zoo).await;
    let headers = [("Mcp-Session-Id", &*session), VERSION];
    let asking = call(2, "test_input_required_result_elicitation", "{}");
    let alone = post(&zoo, &headers, &asking).await.value();
    assert_eq!(alone["result"]["isError"], true, "there is no GET stream");
    let mut stream = Events::open(&zoo, "/mcp", &headers).await;
    let answered = async {
        let question = value(&stream.next().await);
        post(&zoo, &headers, &reply(&question, NAME)).await
    };
    let (answer, _) = tokio::join!(post(&zoo, &headers, &asking), answered);
    assert_eq!(text(&answer.value()), "Hello, Eve!");
    send(&zoo, "DELETE", "/mcp", &headers, "").await;
    assert!(stream.ended().await, "the stream ends with its session");
}

#[tokio::test]
async fn the_oldest_transport_asks_on_its_one_stream() {
    let zoo = HttpZoo::start(&["--fixtures", "--sse-legacy"]);
    let mut events = Events::open(&zoo, "/sse", &[]).await;
    let address = events.next().await;
    send(&zoo, "POST", &address, &[], &request(1, "initialize", ABLE)).await;
    assert_eq!(value(&events.next().await)["id"], 1);
    let asking = call(2, "test_input_required_result_elicitation", "{}");
    send(&zoo, "POST", &address, &[], &asking).await;
    let question = value(&events.next().await);
    send(&zoo, "POST", &address, &[], &reply(&question, NAME)).await;
    assert_eq!(text(&value(&events.next().await)), "Hello, Eve!");
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let zoo = HttpZoo::start(&["--fixtures"]);
    let body = request(1, "initialize", ABLE);
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
