//! `/api/approvals` and `/api/permissions`: formats, statuses, and which requests may decide.

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{
    ALICE, ApiResponse, BOB, Caller, EXECUTE, SESSION, is_unknown_tool, text, tool_call,
};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

const ASK: &str = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

async fn start_gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + ASK + more));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

fn hello() -> Value {
    json!({"text": "hello"})
}

/// Returns the id of the approval that a call waits for.
fn pending_approval_id(message: &Value) -> String {
    let approval = &message["approval"];
    assert_eq!(message["is_error"], true, "{message}");
    assert!(approval["expires_at"].is_string(), "{message}");
    approval["id"].as_str().unwrap().to_owned()
}

/// Makes a call that needs approval and returns the approval's id.
async fn request_approval(caller: &Caller<'_>) -> String {
    pending_approval_id(&caller.call("zoo_say", &hello()).await)
}

async fn decide(decider: &Caller<'_>, id: &str, decision: &Value) -> ApiResponse {
    decider
        .post(&format!("/api/approvals/{id}"), decision)
        .await
}

async fn approve(gate: &TestGate, id: &str, scope: &str) -> Value {
    let body = json!({"decision": "approve", "scope": scope});
    decide(&gate.caller(), id, &body).await.expect_status(200)
}

async fn assert_hello_runs(caller: &Caller<'_>) {
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(
        (text(&message), &message["is_error"]),
        ("hello", &Value::Null),
        "{message}"
    );
}

#[tokio::test]
async fn approval_is_shown_decided_and_used() {
    let gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE).with_header(SESSION, "s1");
    let id = request_approval(&alice).await;
    let path = format!("/api/approvals/{id}");
    let pending = gate.json("/api/approvals").await;
    let shown = &pending["approvals"][0];
    for (field, expected) in [
        ("id", json!(id)),
        ("state", json!("pending")),
        ("server", json!("zoo")),
        ("tool", json!("say")),
        ("alias", json!("zoo_say")),
        ("arguments", hello()),
        ("rule", json!("permissions.rules[0]")),
        ("caller", json!("alice")),
        ("session", json!("s1")),
        ("decided_by", Value::Null),
    ] {
        assert_eq!(shown[field], expected, "{field}");
    }
    let decided = approve(&gate, &id, "session").await;
    for (field, expected) in [
        ("state", "approved"),
        ("decided_by", "admin"),
        ("scope", "session"),
    ] {
        assert_eq!(decided[field], expected, "{field}");
    }
    let again = decide(&gate.caller(), &id, &json!({"decision": "approve"})).await;
    assert_eq!(again.status, 409, "{}", again.body);
    let message = alice.call("zoo_say", &hello()).await;
    assert_eq!(text(&message), "hello");
    assert_eq!(message["approval"], json!({"id": id}));
    assert_eq!(gate.json(&path).await["state"], "done");
    assert_eq!(gate.json("/api/approvals").await["approvals"], json!([]));
    let all = gate.json("/api/approvals?state=all").await;
    assert_eq!(all["approvals"][0]["id"], id);
    assert_hello_runs(&alice).await;
    request_approval(&gate.with_key(ALICE).with_header(SESSION, "s2")).await;
}

#[tokio::test]
async fn edited_arguments_are_validated_and_reported() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    for bad in [json!({"text": 5}), json!({}), json!([1]), json!("x")] {
        let body = json!({"decision": "approve", "arguments": bad});
        assert_eq!(decide(&caller, &id, &body).await.status, 400, "{bad}");
    }
    let body = json!({"decision": "approve", "arguments": {"text": "goodbye"}});
    let decided = decide(&caller, &id, &body).await.expect_status(200);
    assert_eq!(decided["edited_arguments"], json!({"text": "goodbye"}));
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(text(&message), "goodbye");
    assert_eq!(message["approval"], json!({"id": id, "edited": true}));
}

#[tokio::test]
async fn denied_call_is_an_error_message() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    let body = json!({"decision": "deny", "reason": "not on a Friday"});
    let denied = decide(&caller, &id, &body).await.expect_status(200);
    assert_eq!(
        (&denied["state"], &denied["reason"]),
        (&json!("denied"), &json!("not on a Friday"))
    );
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(
        (&message["is_error"], message.get("approval")),
        (&json!(true), None)
    );
    assert!(text(&message).contains("not on a Friday"), "{message}");
}

#[tokio::test]
async fn grants_are_listed_and_revoked() {
    let gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE);
    let id = request_approval(&alice).await;
    approve(&gate, &id, "always").await;
    let permissions = gate.json("/api/permissions").await;
    let [grant] = &permissions["grants"].as_array().unwrap()[..] else {
        panic!("one grant: {permissions}")
    };
    for (field, expected) in [
        ("caller", "alice"),
        ("server", "zoo"),
        ("tool", "say"),
        ("approval", id.as_str()),
        ("granted_by", "admin"),
    ] {
        assert_eq!(grant[field], expected, "{field}");
    }
    let grant_id = grant["id"].as_str().unwrap();
    let path = format!("/api/permissions/grants/{grant_id}");
    gate.caller().delete(&path).await.expect_status(200);
    assert_eq!(gate.caller().delete(&path).await.status, 404);
    assert_eq!(gate.json("/api/permissions").await["grants"], json!([]));
}

#[tokio::test]
async fn invalid_decisions_are_rejected() {
    let gate = start_gate("").await;
    let id = request_approval(&gate.caller()).await;
    for body in [
        json!({}),
        json!({"decision": "maybe"}),
        json!({"decision": "approve", "scope": "forever"}),
        json!({"decision": "approve", "scope": "session"}),
        json!({"decision": "deny", "arguments": {}}),
        json!({"decision": "approve", "scop": "always"}),
    ] {
        let answer = decide(&gate.caller(), &id, &body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
    }
    let body = json!({"decision": "approve"});
    assert_eq!(decide(&gate.caller(), "nothing", &body).await.status, 404);
    assert_eq!(
        gate.caller().get("/api/approvals/nothing").await.status,
        404
    );
    assert_eq!(
        gate.caller().get("/api/approvals?state=odd").await.status,
        400
    );
    approve(&gate, &id, "once").await;
}

const ADMIN: &str = "the-admin-key-of-this-test";

fn with_approvers() -> String {
    let approver =
        |name: &str, key: &str| format!("[keys.{name}]\nkey = \"{key}\"\nroles = [\"approver\"]\n");
    format!("admin_key = \"{ADMIN}\"\n")
        + &zoo("zoo", &[])
        + ASK
        + KEYS
        + &approver("carol", "carol-key-0123456789abcdef")
        + &approver("dave", "dave-key-0123456789abcdef")
}

#[tokio::test]
async fn only_admins_and_other_approvers_can_decide() {
    let gate = TestGate::start(&with_approvers());
    let carol = gate.with_key("carol-key-0123456789abcdef");
    let dave = gate.with_key("dave-key-0123456789abcdef");
    eventually("the server is connected", WAIT_TIMEOUT, async || {
        let message = carol.call("zoo_say", &hello()).await;
        message.get("approval").map(drop)
    })
    .await;
    let id = request_approval(&carol).await;
    let body = json!({"decision": "approve"});
    for (caller, status) in [
        (gate.caller(), 401),
        (gate.with_key("wrong"), 401),
        (gate.with_key(ALICE), 403),
        (gate.with_key(BOB), 403),
        (carol.clone(), 403),
    ] {
        let answer = decide(&caller, &id, &body).await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    let approvals = gate.with_key(ALICE).get("/api/approvals").await;
    assert_eq!(approvals.status, 403);
    let decided = decide(&dave, &id, &body).await.expect_status(200);
    assert_eq!(decided["decided_by"], "key:dave");
    assert_hello_runs(&carol).await;
    let id = request_approval(&carol).await;
    let both = carol.clone().with_header("x-api-key", ADMIN);
    let answer = decide(&both, &id, &body).await;
    assert!([200, 403].contains(&answer.status.as_u16()), "{answer:?}");
    let listed = dave
        .get("/api/approvals?state=all")
        .await
        .expect_status(200);
    assert_eq!(listed["approvals"].as_array().unwrap().len(), 2);
    let admin = gate.with_key(ADMIN);
    assert_eq!(
        dave.get("/api/permissions").await.status,
        403,
        "an approver is not an administrator"
    );
    admin.get("/api/permissions").await.expect_status(200);
}

#[tokio::test]
async fn key_cannot_approve_its_own_call_from_loopback() {
    let approver = "[keys.carol]\nkey = \"carol-key-0123456789abcdef\"\nroles = [\"approver\"]\n";
    let gate = start_gate(&(KEYS.to_owned() + approver)).await;
    let body = json!({"decision": "approve"});
    for key in [ALICE, "carol-key-0123456789abcdef"] {
        let caller = gate.with_key(key);
        let id = request_approval(&caller).await;
        assert_eq!(decide(&caller, &id, &body).await.status, 403);
        let vk = gate.caller().with_header("x-bf-vk", key);
        assert_eq!(decide(&vk, &id, &body).await.status, 403);
    }
}

#[tokio::test]
async fn approval_shows_the_conversation() {
    let gate = start_gate("").await;
    let conversation = json!([{"role": "user", "content": "say hello, please"}, {"n": 18_446_744_073_709_551_615_u64}]);
    let mut body = tool_call("zoo_say", &hello());
    body["messages"] = conversation.clone();
    let message = gate.caller().post(EXECUTE, &body).await.expect_status(200);
    let id = pending_approval_id(&message);
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["conversation"], conversation);
    let body = json!({"call_id": "c", "name": "zoo_say", "arguments": {"text": "x"}, "messages": conversation});
    let path = format!("{EXECUTE}?format=responses");
    let item = gate.caller().post(&path, &body).await.expect_status(200);
    assert!(item["approval"]["id"].is_string(), "{item}");
}

#[tokio::test]
async fn approvals_are_paginated() {
    let gate = start_gate("").await;
    let mut requested = Vec::new();
    for n in 0..5 {
        let message = gate
            .caller()
            .call("zoo_say", &json!({"text": n.to_string()}))
            .await;
        requested.push(pending_approval_id(&message));
    }
    let mut found = Vec::new();
    let mut path = "/api/approvals?limit=2".to_owned();
    loop {
        let page = gate.json(&path).await;
        let ids = page["approvals"].as_array().unwrap().iter();
        found.extend(ids.map(|approval| approval["id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/api/approvals?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(found, requested);
}

#[tokio::test]
async fn permissions_round_trip_through_the_api() {
    let rules = "[permissions]\ndefault = \"manual\"\napproval_expiry = \"5m\"\napproval_by = [\"admin\"]\n\
                 [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = [\"/etc/*\", \"*.pem\"] }\nroles = [\"approver\"]\nenvironment = [\"production\"]\nhint = \"read_only\"\n\
                 [[permissions.rules]]\nserver = \"zoo\"\ntool = \"f*\"\naction = \"deny\"\n";
    let mut gate = TestGate::start(&(zoo("zoo", &[]) + rules));
    gate.wait_for_state("zoo", "healthy").await;
    let shown = gate.json("/api/permissions").await;
    assert_eq!(shown["source"], "file");
    let mut put = gate
        .caller()
        .put("/api/permissions", &shown)
        .await
        .expect_status(200);
    assert_eq!(put["source"], "api");
    put["source"] = json!("file");
    assert_eq!(put, shown, "what is shown can be sent back unchanged");

    let body = json!({"rules": [{"tool": "zoo_say", "action": "ask"}]});
    gate.caller()
        .put("/api/permissions", &body)
        .await
        .expect_status(200);
    request_approval(&gate.caller()).await;
    assert!(!is_unknown_tool(
        &gate.caller().call("zoo_fail", &json!({})).await
    ));
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    request_approval(&gate.caller()).await;
    for bad in [
        json!({"rules": [{"tool": "zoo_say", "action": "perhaps"}]}),
        json!({"rules": [{"tol": "zoo_say", "action": "ask"}]}),
        json!({"rules": 5}),
        json!({"defaults": "ask"}),
        json!({"rules": [{"action": "allow", "tool": "nobody_says"}, 5]}),
    ] {
        let answer = gate.caller().put("/api/permissions", &bad).await;
        assert_eq!(answer.status, 400, "{bad}: {}", answer.body);
    }
    let back = gate
        .caller()
        .delete("/api/permissions")
        .await
        .expect_status(200);
    assert_eq!(back, shown);
    assert_hello_runs(&gate.caller()).await;
    assert!(is_unknown_tool(
        &gate.caller().call("zoo_fail", &json!({})).await
    ));
}

#[tokio::test]
async fn api_rules_apply_until_the_file_changes() {
    let toml = zoo("zoo", &[]) + "[[permissions.rules]]\ntool = \"zoo_fail\"\naction = \"deny\"\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let body = json!({"rules": [{"tool": "zoo_say", "action": "ask"}]});
    gate.caller()
        .put("/api/permissions", &body)
        .await
        .expect_status(200);
    request_approval(&gate.caller()).await;
    gate.edit(&toml.replace("zoo_fail", "zoo_empty"));
    // The source is shown once the rules are in effect.
    eventually("the rules of the file apply", WAIT_TIMEOUT, async || {
        (gate.json("/api/permissions").await["source"] == "file").then_some(())
    })
    .await;
    let message = gate.caller().call("zoo_empty", &json!({})).await;
    assert_ne!(message["content"], "", "{message}");
    assert_hello_runs(&gate.caller()).await;
}

#[tokio::test]
async fn omitting_rules_does_not_remove_them() {
    let gate = start_gate("").await;
    let admin = gate.caller();
    for body in [
        json!({}),
        json!({"rules": null}),
        json!({"default": "manual"}),
    ] {
        assert_eq!(admin.put("/api/permissions", &body).await.status, 400);
    }
    request_approval(&admin).await;
}

#[tokio::test]
async fn standing_approval_ends_when_the_server_changes_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("redefine");
    let flags = ["--redefine-while", file.to_str().unwrap()];
    let gate = TestGate::start(&(zoo("zoo", &flags) + ASK));
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "always").await;
    assert_hello_runs(&caller).await;
    assert_hello_runs(&caller).await;
    std::fs::write(&file, "").unwrap();
    caller
        .post("/api/mcp/client/zoo/reconnect", &json!({}))
        .await
        .expect_status(202);
    let asked = eventually("the changed tool asks again", WAIT_TIMEOUT, async || {
        let message = caller.call("zoo_say", &hello()).await;
        message["approval"]["id"].as_str().map(ToOwned::to_owned)
    })
    .await;
    assert_ne!(asked, id);
}
