//! What a provider stores can be referred to only by the key that received it.

use reqwest::StatusCode;
use serde_json::{Value, json};
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::caller::{ALICE, BOB};
use crate::gate::{TestGate, zoo};
use crate::mcp::headers;
use crate::models::{PATHS, provider, request};

const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

/// Sends a request with a key, or without one if it is empty.
async fn send(gate: &TestGate, key: &str, body: &Value) -> (StatusCode, String) {
    let headers = match key {
        "" => headers(&[]),
        key => headers(&[("x-api-key", key)]),
    };
    let response = gate.post(PATHS[1].1, &body.to_string(), headers).await;
    (response.status(), response.text().await.unwrap())
}

/// Returns the last object of a response, streamed or not.
fn response_object(text: &str) -> Value {
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let last: Value = serde_json::from_str(events.next_back().unwrap()).unwrap();
    last["response"].clone()
}

/// The ways to refer to a response.
fn referring_requests(response: &Value) -> [(&'static str, Value); 3] {
    let item = response["output"][0]["id"].clone();
    let plain = request("responses", "there/m", false);
    let with = |name: &str, value: Value| {
        let mut body = plain.clone();
        body[name] = value;
        body
    };
    [
        (
            "previous_response_id",
            with("previous_response_id", response["id"].clone()),
        ),
        (
            "input[0].id",
            with("input", json!([{"type": "item_reference", "id": item}])),
        ),
        ("input[0].id", with("input", json!([{"id": item}]))),
    ]
}

#[tokio::test]
async fn only_the_key_that_received_a_response_can_refer_to_it() {
    for stream in [false, true] {
        // With a tool that runs automatically, the request is a run.
        for agent in ["", "tools_to_auto_execute = [\"*\"]\n"] {
            let model = ScriptedModel::start(vec![Reply::text("hello")]);
            let toml = provider("there", &model, "responses") + &zoo("zoo", &[]) + agent + KEYS;
            let mut gate = TestGate::start(&toml);
            gate.wait_for_state("zoo", "healthy").await;
            let what = format!("stream {stream}, {agent}");
            let (status, text) = send(&gate, ALICE, &request("responses", "there/m", stream)).await;
            assert_eq!(status, 200, "{what}: {text}");
            let response = response_object(&text);
            let mut requests = referring_requests(&response).to_vec();
            if stream && !agent.is_empty() {
                // The items of a streamed run have ids of the gateway, which no provider knows.
                requests.truncate(1);
            }
            for (field, body) in &requests {
                let turns = model.turns().len();
                let (status, text) = send(&gate, BOB, body).await;
                assert_eq!(status, 400, "{what}, {body}: {text}");
                assert!(text.contains(*field), "{what}: {text}");
                assert_eq!(model.turns().len(), turns, "nothing is sent");
                let (status, text) = send(&gate, ALICE, body).await;
                assert_eq!(status, 200, "{what}, {body}: {text}");
            }
            gate.restart().await;
            for (_, body) in &requests {
                assert_eq!(send(&gate, BOB, body).await.0, 400, "{what}");
                let (status, text) = send(&gate, ALICE, body).await;
                assert_eq!(status, 200, "{what}, after a restart: {text}");
            }
        }
    }
}

#[tokio::test]
async fn request_that_refers_to_own_responses_is_passed_on_unchanged() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let gate = TestGate::start(&(provider("there", &model, "responses") + KEYS));
    let (_, text) = send(&gate, ALICE, &request("responses", "there/m", false)).await;
    for (_, mut body) in referring_requests(&response_object(&text)) {
        assert_eq!(send(&gate, ALICE, &body).await.0, 200);
        body["model"] = json!("m");
        assert_eq!(model.turns().last().unwrap().body, body);
    }
}

#[tokio::test]
async fn key_cannot_refer_to_what_it_did_not_receive_and_a_new_key_inherits_nothing() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let toml = provider("there", &model, "responses") + KEYS;
    let gate = TestGate::start(&toml);
    let unknown = json!({"id": "resp_of_nobody", "output": [{"id": "msg_of_nobody"}]});
    for (_, body) in referring_requests(&unknown) {
        let (status, text) = send(&gate, ALICE, &body).await;
        assert_eq!(status, 400, "{text}");
    }
    let created = gate
        .caller()
        .post("/api/keys", &json!({"name": "carol"}))
        .await;
    let created = created.expect_status(201);
    let carol = created["key"].as_str().unwrap();
    let (_, text) = send(&gate, carol, &request("responses", "there/m", false)).await;
    let own = referring_requests(&response_object(&text));
    assert_eq!(send(&gate, carol, &own[0].1).await.0, 200);
    gate.caller()
        .delete("/api/keys/carol")
        .await
        .expect_status(200);
    let created = gate
        .caller()
        .post("/api/keys", &json!({"name": "carol"}))
        .await;
    let created = created.expect_status(201);
    let carol = created["key"].as_str().unwrap();
    for (_, body) in &own {
        let (status, text) = send(&gate, carol, body).await;
        assert_eq!(status, 400, "{text}");
    }
}

#[tokio::test]
async fn conversation_belongs_to_the_key_that_used_it_first() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let mut gate = TestGate::start(&(provider("there", &model, "responses") + KEYS));
    let mut body = request("responses", "there/m", false);
    for (conversation, first, second) in [
        (json!("conv_1"), ALICE, BOB),
        (json!({"id": "conv_2"}), BOB, ALICE),
    ] {
        body["conversation"] = conversation;
        for _ in 0..2 {
            let (status, text) = send(&gate, first, &body).await;
            assert_eq!(status, 200, "{text}");
            let (status, text) = send(&gate, second, &body).await;
            assert_eq!(status, 400, "{text}");
            assert!(text.contains("conversation"), "{text}");
            gate.restart().await;
        }
    }
    // Claiming an id as a conversation gives no access to a response of that id.
    body["conversation"] = json!("resp_of_nobody");
    assert_eq!(send(&gate, ALICE, &body).await.0, 200);
    let mut body = request("responses", "there/m", false);
    body["previous_response_id"] = json!("resp_of_nobody");
    let (status, text) = send(&gate, ALICE, &body).await;
    assert_eq!(status, 400, "{text}");
}

#[tokio::test]
async fn callers_without_keys_may_refer_to_any_response_that_belongs_to_no_key() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let gate = TestGate::start(&provider("there", &model, "responses"));
    let unknown = json!({"id": "resp_from_elsewhere", "output": [{"id": "msg_from_elsewhere"}]});
    for (_, body) in referring_requests(&unknown) {
        let (status, text) = send(&gate, "", &body).await;
        assert_eq!(status, 200, "{text}");
    }
}
