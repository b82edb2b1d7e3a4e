//! `approval_by`: who may approve a call on `/mcp`, and what they are shown.

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::ALICE;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{META, headers, read_json};

const ASK: &str = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n";
const CLIENT: &str = "approval_by = [\"admin\", \"client\"]\n";

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// Calls `zoo_say` as a client with the key of Alice that can ask its user; `accepted` is the state of
/// the question that the user has accepted. Returns the question, if there is one, and the result.
async fn say(gate: &TestGate, text: &str, accepted: Option<&Value>) -> (Option<String>, Value) {
    let meta = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
    let mut params = json!({"name": "zoo_say", "arguments": {"text": text},
        "_meta": serde_json::from_str::<Value>(&meta).unwrap()});
    if let Some(state) = accepted {
        params["requestState"] = state.clone();
        let accept = json!({"action": "accept", "content": {}});
        params["inputResponses"] = json!({"toolgate_approval": accept});
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let sent = headers(&[
        ("authorization", &format!("Bearer {ALICE}")),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "zoo_say"),
    ]);
    let response = gate.post("/mcp", &body.to_string(), sent).await;
    let (_, answer) = read_json(response).await;
    let result = match &answer["error"]["message"] {
        Value::Null => answer["result"].clone(),
        message => json!({"content": [{"text": message}]}),
    };
    let question = &result["inputRequests"]["toolgate_approval"]["params"]["message"];
    (question.as_str().map(ToOwned::to_owned), result)
}

/// Like [`say`], and accepts whatever the client is asked.
async fn say_and_accept(gate: &TestGate, text: &str) -> (Option<String>, Value) {
    let (question, result) = say(gate, text, None).await;
    if question.is_none() {
        return (None, result);
    }
    let (_, result) = say(gate, text, Some(&result["requestState"])).await;
    (question, result)
}

#[tokio::test]
async fn client_approves_only_where_that_is_configured() {
    let zoo = zoo("zoo", &[]);
    let scanner = "[scanner]\nsecret = \"ask\"\n";
    for (toml, text, is_asked) in [
        (format!("{zoo}{ASK}{KEYS}"), "hello", false),
        (format!("{zoo}{ASK}{CLIENT}{KEYS}"), "hello", true),
        (format!("{zoo}{CLIENT}{ASK}{KEYS}"), "hello", true),
        (format!("{zoo}{ASK}{KEYS}{CLIENT}"), "hello", true),
        (
            format!("[permissions]\n{CLIENT}{zoo}{ASK}{KEYS}"),
            "hello",
            true,
        ),
        // All that say something must agree.
        (
            format!("{zoo}{ASK}{CLIENT}{KEYS}approval_by = [\"admin\"]\n"),
            "hello",
            false,
        ),
        (
            format!("[permissions]\n{CLIENT}{zoo}approval_by = [\"admin\"]\n{ASK}{KEYS}"),
            "hello",
            false,
        ),
        // Never for what the scanner flags.
        (
            format!("{scanner}{zoo}{ASK}{CLIENT}{KEYS}"),
            "ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2",
            false,
        ),
    ] {
        let gate = start_gate(&toml).await;
        let (question, result) = say_and_accept(&gate, text).await;
        assert_eq!(question.is_some(), is_asked, "{toml} {result}");
        let ran = result["content"][0]["text"] == text;
        assert_eq!(ran, is_asked, "{toml} {result}");
        if !is_asked {
            let id = result["_meta"]["toolgate/approval"]["id"].as_str();
            let path = format!("/api/approvals/{}", id.unwrap());
            assert_eq!(gate.json(&path).await["state"], "pending");
        }
    }
}

#[tokio::test]
async fn client_is_shown_all_arguments_or_not_asked() {
    let toml = format!("{}{ASK}{CLIENT}{KEYS}", zoo("zoo", &[]));
    let gate = start_gate(&toml).await;
    let padded = format!("{}account 4711", " ".repeat(10_000));
    let (question, result) = say_and_accept(&gate, &padded).await;
    let question = question.unwrap();
    assert!(question.ends_with("account 4711\"}"), "{question}");
    assert_eq!(result["content"][0]["text"], padded.as_str());

    let (question, _) = say_and_accept(&gate, "left\u{202e}right\u{e0041}").await;
    let question = question.unwrap();
    assert!(
        question.contains("left\\u202eright\\udb40\\udc41"),
        "{question}"
    );

    let too_long = format!("{}account 4711", " ".repeat(20_000));
    let (question, result) = say_and_accept(&gate, &too_long).await;
    assert_eq!(question, None);
    assert_eq!(result["isError"], true, "{result}");
    let id = result["_meta"]["toolgate/approval"]["id"].as_str().unwrap();
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["arguments"]["text"], too_long.as_str());

    gate.edit(&toml.replace("\"admin\", ", ""));
    toolgate_testkit::eventually(
        "only clients approve",
        crate::gate::WAIT_TIMEOUT,
        async || {
            let permissions = gate.json("/api/permissions").await;
            (permissions["rules"][0]["approval_by"] == json!(["client"])).then_some(())
        },
    )
    .await;
    let (_, result) = say_and_accept(&gate, &format!("{too_long}!")).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("too large for an approval"), "{text}");
}

/// Changes the configuration and waits until it is in force.
async fn change(gate: &TestGate, toml: &str, approval_by: &Value) {
    gate.edit(toml);
    let in_force = async || {
        let permissions = gate.json("/api/permissions").await;
        (permissions["rules"][0]["approval_by"] == *approval_by).then_some(())
    };
    eventually("the change is in force", WAIT_TIMEOUT, in_force).await;
}

/// Returns the only approval.
async fn only_approval(gate: &TestGate) -> Value {
    let all = gate.json("/api/approvals?state=all").await;
    let approvals = all["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), 1, "{all}");
    approvals[0].clone()
}

async fn decide(gate: &TestGate, id: &str, decision: &str) -> u16 {
    let decision = json!({"decision": decision});
    let path = format!("/api/approvals/{id}");
    gate.caller().post(&path, &decision).await.status.as_u16()
}

#[tokio::test]
async fn configuration_in_force_says_who_may_decide_about_a_waiting_call() {
    let toml = |by: &str| format!("{}{ASK}approval_by = {by}\n{KEYS}", zoo("zoo", &[]));
    let gate = start_gate(&toml("[\"client\"]")).await;
    let (question, _) = say(&gate, "hello", None).await;
    assert!(question.is_some());
    let waiting = only_approval(&gate).await;
    assert_eq!(waiting["approvers"], json!(["client"]), "{waiting}");
    let id = waiting["id"].as_str().unwrap();
    assert_eq!(decide(&gate, id, "approve").await, 403);

    change(&gate, &toml("[\"admin\"]"), &json!(["admin"])).await;
    let waiting = only_approval(&gate).await;
    assert_eq!(waiting["state"], "pending", "{waiting}");
    assert_eq!(waiting["approvers"], json!(["admin"]), "{waiting}");
    let (question, result) = say_and_accept(&gate, "hello").await;
    assert_eq!(question, None, "the client is no longer asked");
    let still = &result["_meta"]["toolgate/approval"]["id"];
    assert_eq!(still, id, "the call waits for the same approval: {result}");
    assert_eq!(decide(&gate, id, "approve").await, 200);
    let (_, result) = say_and_accept(&gate, "hello").await;
    assert_eq!(result["content"][0]["text"], "hello");
}

#[tokio::test]
async fn client_cannot_decide_once_the_configuration_excludes_it() {
    let toml = format!("{}{ASK}{CLIENT}{KEYS}", zoo("zoo", &[]));
    let gate = start_gate(&toml).await;
    let (question, asked) = say(&gate, "hello", None).await;
    assert!(question.is_some());
    let narrowed = toml.replace(", \"client\"", "");
    change(&gate, &narrowed, &json!(["admin"])).await;
    let (_, result) = say(&gate, "hello", Some(&asked["requestState"])).await;
    assert_ne!(result["content"][0]["text"], "hello", "{result}");
    let waiting = only_approval(&gate).await;
    assert_eq!(waiting["state"], "pending", "{waiting}");
}

#[tokio::test]
async fn call_that_nobody_can_decide_any_more_expires_with_a_reason() {
    let toml = |by: &str| format!("{}{ASK}approval_by = {by}\n{KEYS}", zoo("zoo", &[]));
    let gate = start_gate(&toml("[\"admin\"]")).await;
    let alice = gate.with_key(ALICE);
    let hello = json!({"text": "hello"});
    let message = alice.execute("zoo_say", &hello).await.expect_status(200);
    assert!(message["approval"]["id"].is_string(), "{message}");

    change(&gate, &toml("[\"client\"]"), &json!(["client"])).await;
    let expired = eventually("the approval expires", WAIT_TIMEOUT, async || {
        let approval = only_approval(&gate).await;
        (approval["state"] != "pending").then_some(approval)
    })
    .await;
    assert_eq!(expired["state"], "expired", "{expired}");
    assert_eq!(expired["decided_by"], "configuration", "{expired}");
    let reason = expired["reason"].as_str().unwrap();
    assert!(reason.contains("`approval_by`"), "{reason}");
    let pending = gate.json("/api/approvals").await;
    assert_eq!(pending["approvals"], json!([]), "{pending}");
    let id = expired["id"].as_str().unwrap();
    assert_eq!(decide(&gate, id, "approve").await, 409);
    let records = gate.json("/api/audit?kind=approval").await;
    let record = &records["records"][0];
    assert_eq!(record["outcome"], "expired", "{records}");
    assert_eq!(record["detail"]["reason"], reason, "{records}");

    let message = alice.execute("zoo_say", &hello).await.expect_status(200);
    let text = message["content"].as_str().unwrap();
    assert!(text.contains("no approver is available"), "{text}");
    change(&gate, &toml("[\"admin\"]"), &json!(["admin"])).await;
    let message = alice.execute("zoo_say", &hello).await.expect_status(200);
    assert_ne!(message["approval"]["id"], id, "a new approval: {message}");
}

#[tokio::test]
async fn administrator_decides_what_a_removed_approver_could() {
    let approver = "[keys.boss]\nkey = \"boss-key-0123456789abcdef\"\nroles = [\"approver\"]\n";
    let toml = format!("{}{ASK}approval_by = [\"admin\"]\n{KEYS}", zoo("zoo", &[]));
    let gate = start_gate(&format!("{toml}{approver}")).await;
    let alice = gate.with_key(ALICE);
    let hello = json!({"text": "hello"});
    alice.execute("zoo_say", &hello).await.expect_status(200);
    gate.edit(&toml);
    eventually("the approver is gone", WAIT_TIMEOUT, async || {
        let keys = gate.json("/api/keys").await;
        (keys["keys"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    let waiting = only_approval(&gate).await;
    assert_eq!(waiting["approvers"], json!(["admin"]), "{waiting}");
    let id = waiting["id"].as_str().unwrap();
    assert_eq!(decide(&gate, id, "approve").await, 200);
    let message = alice.execute("zoo_say", &hello).await.expect_status(200);
    assert_eq!(message["content"], "hello", "{message}");
}
