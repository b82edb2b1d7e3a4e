//! Approvals: requesting, deciding, one-time approvals, grants and rules.

use std::collections::HashSet;

use reqwest::Method;
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

async fn grants(gate: &TestGate) -> Vec<Value> {
    let permissions = gate.json("/api/permissions").await;
    permissions["grants"].as_array().unwrap().clone()
}

#[tokio::test]
async fn approval_allows_one_call() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    assert_eq!(
        request_approval(&caller).await,
        id,
        "the same call waits for the same approval"
    );
    let pending = gate.json("/api/approvals").await;
    let shown = &pending["approvals"][0];
    assert_eq!(
        (&shown["id"], &shown["state"]),
        (&json!(id), &json!("pending"))
    );
    assert_eq!(
        (&shown["tool"], &shown["arguments"]),
        (&json!("say"), &hello())
    );
    assert_eq!(shown["rule"], "permissions.rules[0]");

    let decided = approve(&gate, &id, "once").await;
    assert_eq!(
        (&decided["state"], &decided["decided_by"]),
        (&json!("approved"), &json!("admin"))
    );
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(text(&message), "hello");
    assert_eq!(message["approval"], json!({"id": id}));
    let used = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(used["state"], "done");
    assert_ne!(
        request_approval(&caller).await,
        id,
        "an approval is used once"
    );
    assert!(grants(&gate).await.is_empty());
}

#[tokio::test]
async fn one_approval_allows_one_of_many_concurrent_calls() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "once").await;
    let arguments = hello();
    let calls = (0..20).map(|_| caller.call("zoo_say", &arguments));
    let messages = futures_util::future::join_all(calls).await;
    let ran = messages.iter().filter(|message| text(message) == "hello");
    assert_eq!(ran.count(), 1);
    let waiting = messages.iter().filter(|message| text(message) != "hello");
    let ids: HashSet<String> = waiting.map(pending_approval_id).collect();
    assert_eq!(ids.len(), 1, "the others wait for one new approval");
}

#[tokio::test]
async fn approval_matches_tool_caller_and_arguments() {
    let gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE);
    let id = request_approval(&alice).await;
    approve(&gate, &id, "once").await;
    assert_ne!(
        request_approval(&gate.with_key(BOB)).await,
        id,
        "another key"
    );
    let other = alice.call("zoo_say", &json!({"text": "other"})).await;
    assert_ne!(pending_approval_id(&other), id, "other arguments");
    let spelled = r#"{ "text" : "hell\u006f" }"#;
    let body = json!({"id": "c", "function": {"name": "mcp__zoo__say", "arguments": spelled}});
    let message = alice.post(EXECUTE, &body).await.expect_status(200);
    assert_eq!(
        text(&message),
        "hello",
        "the same arguments with another spelling"
    );
}

#[tokio::test]
async fn approval_survives_restart_and_is_used_once() {
    let mut gate = start_gate("").await;
    let id = request_approval(&gate.caller()).await;
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    approve(&gate, &id, "once").await;
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    assert_hello_runs(&gate.caller()).await;
    assert_ne!(request_approval(&gate.caller()).await, id);
}

#[tokio::test]
async fn edited_arguments_replace_original() {
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
    let records = gate.records(&caller).await;
    assert_eq!(
        records.last().unwrap()["arguments"],
        json!({"text": "goodbye"})
    );
}

async fn check_edited_arguments_with_scope(scope: &str) {
    let gate = start_gate("").await;
    let caller = gate.caller().with_header(SESSION, "s");
    let id = request_approval(&caller).await;
    let body = json!({"decision": "approve", "scope": scope, "arguments": {"text": "goodbye"}});
    let answer = decide(&gate.caller(), &id, &body).await;
    if answer.status == 400 {
        return;
    }
    answer.expect_status(200);
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(
        text(&message),
        "goodbye",
        "arguments ran that were not approved"
    );
}

#[tokio::test]
async fn edited_arguments_replace_original_with_always_scope() {
    check_edited_arguments_with_scope("always").await;
}

#[tokio::test]
async fn edited_arguments_replace_original_with_session_scope() {
    check_edited_arguments_with_scope("session").await;
}

#[tokio::test]
async fn edited_arguments_cannot_bypass_deny() {
    let deny = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\narguments = { text = \"*secret*\" }\n";
    let gate = start_gate(deny).await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    let body = json!({"decision": "approve", "arguments": {"text": "a secret"}});
    let decided = decide(&caller, &id, &body).await;
    if decided.status == 200 {
        let message = caller.call("zoo_say", &hello()).await;
        assert_eq!(message["is_error"], true);
        assert!(text(&message).contains("permissions.rules[1]"), "{message}");
    }
    let message = caller.call("zoo_say", &json!({"text": "a secret"})).await;
    assert!(text(&message).contains("permissions.rules[1]"), "{message}");
    assert_eq!(message.get("approval"), None);
}

#[tokio::test]
async fn denial_returns_its_reason() {
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
    assert_eq!(message["is_error"], true);
    assert!(text(&message).contains("not on a Friday"), "{message}");
    assert_eq!(gate.outcomes(&caller).await, ["ask", "denied"]);
    let other = caller.call("zoo_say", &json!({"text": "other"})).await;
    pending_approval_id(&other);
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

#[tokio::test]
async fn pending_approval_expires() {
    let gate = start_gate("[permissions]\napproval_expiry = \"300ms\"\n").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    eventually("the approval expires", WAIT_TIMEOUT, async || {
        let shown = gate.json("/api/approvals?state=all").await;
        (shown["approvals"][0]["state"] == "expired").then_some(())
    })
    .await;
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["state"], "expired");
    let late = decide(&caller, &id, &json!({"decision": "approve"})).await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert_ne!(request_approval(&caller).await, id);
}

#[tokio::test]
async fn granted_approval_expires() {
    let gate = start_gate("[permissions]\napproval_expiry = \"2s\"\n").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "once").await;
    eventually("the approval expires", WAIT_TIMEOUT, async || {
        let shown = gate.json(&format!("/api/approvals/{id}")).await;
        let expires_at = shown["expires_at"].as_str().unwrap().to_owned();
        let now = std::time::SystemTime::now();
        (now > humantime::parse_rfc3339(&expires_at).unwrap()).then_some(())
    })
    .await;
    assert_ne!(request_approval(&caller).await, id);
}

#[tokio::test]
async fn concurrent_decisions_have_one_winner() {
    let gate = start_gate("").await;
    let id = request_approval(&gate.caller()).await;
    let admin = gate.caller();
    let path = format!("/api/approvals/{id}");
    let bodies: Vec<Value> = (0..20)
        .map(|n| match n % 2 {
            0 => json!({"decision": "approve"}),
            _ => json!({"decision": "deny", "reason": n.to_string()}),
        })
        .collect();
    let decisions = bodies
        .iter()
        .map(|body| admin.send(Method::POST, &path, body));
    let answers = futures_util::future::join_all(decisions).await;
    let won: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 200)
        .collect();
    assert_eq!(won.len(), 1);
    assert!(
        answers.iter().all(|a| a.status == 200 || a.status == 409),
        "{answers:?}"
    );
    let shown = gate.json(&path).await;
    assert_eq!(
        shown["state"], won[0].body["state"],
        "the stored state is that of the winner"
    );
    assert_eq!(shown["reason"], won[0].body["reason"]);
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
async fn session_grant_applies_to_session_only() {
    let mut gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE).with_header(SESSION, "s1");
    let id = request_approval(&alice).await;
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["session"], "s1");
    approve(&gate, &id, "session").await;
    for expected in ["hello", "hello", "other"] {
        let message = alice.call("zoo_say", &json!({"text": expected})).await;
        assert_eq!(text(&message), expected, "{message}");
    }
    for other in [
        gate.with_key(ALICE).with_header(SESSION, "s2"),
        gate.with_key(BOB).with_header(SESSION, "s1"),
        gate.with_key(ALICE),
    ] {
        let message = other.call("zoo_say", &json!({"text": "unseen"})).await;
        pending_approval_id(&message);
    }
    assert!(
        grants(&gate).await.is_empty(),
        "a session grant is not permanent"
    );
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    let alice = gate.with_key(ALICE).with_header(SESSION, "s1");
    let message = alice.call("zoo_say", &json!({"text": "later"})).await;
    assert!(
        message.get("approval").is_some() || text(&message) == "later",
        "{message}"
    );
}

#[tokio::test]
async fn session_grant_leaves_no_approval_for_other_sessions() {
    let gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE).with_header(SESSION, "s1");
    let id = request_approval(&alice).await;
    approve(&gate, &id, "session").await;
    assert_hello_runs(&alice).await;
    let outside = gate.with_key(ALICE).with_header(SESSION, "s2");
    let message = outside.call("zoo_say", &hello()).await;
    pending_approval_id(&message);
}

#[tokio::test]
async fn always_grant_persists_until_revoked() {
    let mut gate = start_gate(KEYS).await;
    let alice = gate.with_key(ALICE);
    let id = request_approval(&alice).await;
    approve(&gate, &id, "always").await;
    assert_hello_runs(&alice).await;
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    let alice = gate.with_key(ALICE);
    assert_hello_runs(&alice).await;
    let message = alice.call("zoo_say", &json!({"text": "other"})).await;
    assert_eq!(text(&message), "other");
    request_approval(&gate.with_key(BOB)).await;
    let granted = grants(&gate).await;
    assert_eq!(granted.len(), 1);
    assert_eq!(
        (&granted[0]["caller"], &granted[0]["tool"]),
        (&json!("alice"), &json!("say"))
    );
    let path = format!(
        "/api/permissions/grants/{}",
        granted[0]["id"].as_str().unwrap()
    );
    gate.caller().delete(&path).await.expect_status(200);
    assert_eq!(gate.caller().delete(&path).await.status, 404);
    let message = alice.call("zoo_say", &json!({"text": "new"})).await;
    pending_approval_id(&message);
    let message = alice.call("zoo_say", &hello()).await;
    pending_approval_id(&message);
}

#[tokio::test]
async fn grant_satisfies_ask_but_not_deny() {
    let mut rules = zoo("zoo", &[]) + ASK;
    let gate = TestGate::start(&rules);
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "always").await;
    assert_hello_runs(&caller).await;
    rules += "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\n";
    gate.edit(&rules);
    eventually("the rule is in effect", WAIT_TIMEOUT, async || {
        let message = caller.call("zoo_say", &hello()).await;
        is_unknown_tool(&message).then_some(())
    })
    .await;
}

#[tokio::test]
async fn grant_does_not_apply_to_changed_server_command() {
    let toml = zoo("zoo", &[]) + ASK;
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "always").await;
    assert_hello_runs(&caller).await;
    let message = caller.call("zoo_say", &json!({"text": "x"})).await;
    assert_eq!(text(&message), "x");
    gate.edit(&(zoo("zoo", &["--tools", "1"]) + ASK));
    let message = eventually(
        "the changed server needs approval",
        WAIT_TIMEOUT,
        async || {
            let message = caller.call("zoo_say", &hello()).await;
            message.get("approval").is_some().then_some(message)
        },
    )
    .await;
    assert_ne!(pending_approval_id(&message), id);
    gate.edit(&toml);
    eventually(
        "the original server has its grant",
        WAIT_TIMEOUT,
        async || {
            let message = caller.call("zoo_say", &hello()).await;
            (text(&message) == "hello").then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn ask_without_approvers_is_refused() {
    let gate = start_gate("[permissions]\napproval_by = []\n").await;
    let message = gate.caller().call("zoo_say", &hello()).await;
    assert_eq!(
        (&message["is_error"], message.get("approval")),
        (&json!(true), None),
        "{message}"
    );
    assert!(
        text(&message).contains("no approver is available"),
        "{message}"
    );
    assert_eq!(
        gate.json("/api/approvals?state=all").await["approvals"],
        json!([])
    );
    assert_eq!(gate.records(&gate.caller()).await.len(), 1);
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
async fn invalid_arguments_are_reported_before_approval() {
    let gate = start_gate("").await;
    let message = gate.caller().call("zoo_say", &json!({"text": 5})).await;
    assert_eq!(message.get("approval"), None, "{message}");
    assert_eq!(gate.json("/api/approvals").await["approvals"], json!([]));
}

#[tokio::test]
async fn rules_match_arguments() {
    let rules = "[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = [\"/etc/*\", \"*.pem\"] }\n\
                 [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"ask\"\narguments = { \"options.mode\" = \"w?\", path = \"*\" }\n\
                 [scanner]\npath_traversal = \"off\"\n";
    let gate = start_gate(rules).await;
    let caller = gate.caller();
    for (arguments, expected) in [
        (json!({"path": "/tmp/x"}), "runs"),
        (json!({}), "runs"),
        (json!({"other": "/etc/passwd"}), "runs"),
        (json!({"path": "/etc/passwd"}), "denied"),
        (json!({"path": "/home/key.pem"}), "denied"),
        (json!({"path": ["/tmp/x", "/etc/passwd"]}), "denied"),
        (json!({"path": "/tmp/x", "options": {"mode": "wb"}}), "asks"),
        (
            json!({"path": "/etc/x", "options": {"mode": "wb"}}),
            "denied",
        ),
        (json!({"path": "/tmp/x", "options": {"mode": "rb"}}), "runs"),
    ] {
        let message = caller.call("zoo_echo", &arguments).await;
        let outcome = match (
            message["is_error"] == true,
            message.get("approval").is_some(),
        ) {
            (false, _) => "runs",
            (true, true) => "asks",
            (true, false) => "denied",
        };
        assert_eq!(outcome, expected, "{arguments}: {message}");
        assert!(!is_unknown_tool(&message), "the tool stays visible");
        if outcome == "denied" {
            assert!(
                text(&message).contains("permissions.rules[1]"),
                "the message names the rule: {message}"
            );
        }
    }
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["visible"], true, "{explained}");
}

#[tokio::test]
async fn rules_match_role_server_and_hint() {
    let rules = "[[permissions.rules]]\nserver = \"z*\"\nhint = \"destructive\"\naction = \"deny\"\n\
                 [[permissions.rules]]\nserver = \"zoo\"\ntool = \"k*\"\nroles = \"intern\"\naction = \"ask\"\n\
                 [roles.intern]\n[keys.carol]\nkey = \"carol-key-0123456789abcdef\"\nroles = [\"intern\"]\n";
    let gate = start_gate(&(KEYS.to_owned() + rules)).await;
    let (alice, carol) = (
        gate.with_key(ALICE),
        gate.with_key("carol-key-0123456789abcdef"),
    );
    for (tool, unknown) in [
        ("zoo_fail", true),
        ("zoo_die", true),
        ("zoo_sleep", true),
        ("zoo_kinds", false),
        ("zoo_add", false),
    ] {
        let message = alice.call(tool, &json!({"a": 1, "b": 2, "ms": 0})).await;
        assert_eq!(
            message["content"]
                .as_str()
                .is_some_and(|t| t.starts_with("unknown tool")),
            unknown,
            "{tool}"
        );
    }
    assert!(
        carol
            .call("zoo_kinds", &json!({}))
            .await
            .get("approval")
            .is_some()
    );
    assert!(
        alice
            .call("zoo_kinds", &json!({}))
            .await
            .get("approval")
            .is_none()
    );
}

#[tokio::test]
async fn strictest_rule_wins_in_any_order() {
    let rule = |action: &str| {
        format!("[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"{action}\"\n")
    };
    let orders = [
        ["allow", "ask", "manual"],
        ["manual", "allow", "ask"],
        ["ask", "manual", "allow"],
    ];
    for order in orders {
        let rules: String = order.map(rule).concat();
        let gate = start_gate(&rules).await;
        let message = gate.caller().call("zoo_echo", &json!({})).await;
        pending_approval_id(&message);
    }
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
    eventually(
        "the rules of the file are in effect",
        WAIT_TIMEOUT,
        async || {
            let message = gate.caller().call("zoo_empty", &json!({})).await;
            (message["content"] != "").then_some(())
        },
    )
    .await;
    assert_hello_runs(&gate.caller()).await;
    assert_eq!(gate.json("/api/permissions").await["source"], "file");
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
async fn concurrent_identical_calls_create_one_approval() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let ids = futures_util::future::join_all((0..20).map(|_| request_approval(&caller))).await;
    let ids: HashSet<String> = ids.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let pending = gate.json("/api/approvals").await;
    assert_eq!(pending["approvals"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn similar_arguments_need_separate_approval() {
    let rule = "[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"ask\"\n";
    let gate = start_gate(rule).await;
    let caller = gate.caller();
    let call = async |arguments: &str| {
        let body = json!({"id": "c", "function": {"name": "zoo_echo", "arguments": arguments}});
        caller.post(EXECUTE, &body).await.expect_status(200)
    };
    let id = pending_approval_id(&call(r#"{"n":9007199254740993,"m":null,"s":"1"}"#).await);
    approve(&gate, &id, "once").await;
    for other in [
        r#"{"n":9007199254740992,"m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":1}"#,
        r#"{"n":"9007199254740993","m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1 "}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1","S":"1"}"#,
    ] {
        assert_ne!(pending_approval_id(&call(other).await), id, "{other}");
    }
    let message = call(r#"{"s": "1", "m": null, "n": 9007199254740993}"#).await;
    assert_eq!(
        message["is_error"],
        Value::Null,
        "key order does not matter: {message}"
    );
}

#[tokio::test]
async fn admin_cannot_decide_when_only_clients_approve() {
    let gate = start_gate("[permissions]\napproval_by = [\"client\"]\n").await;
    let message = gate.caller().call("zoo_say", &hello()).await;
    assert_eq!(message["is_error"], true);
    if let Some(id) = message["approval"]["id"].as_str() {
        let answer = decide(&gate.caller(), id, &json!({"decision": "approve"})).await;
        assert_eq!(answer.status, 403, "{}", answer.body);
    }
}

#[tokio::test]
async fn approval_is_returned_if_call_was_never_sent() {
    let mut web = toolgate_testkit::HttpZoo::start(&[]);
    let toml = format!("[mcp_servers.web]\nurl = \"{}\"\n", web.url())
        + "[[permissions.rules]]\ntool = \"web_say\"\naction = \"ask\"\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("web", "healthy").await;
    let caller = gate.caller();
    let id = pending_approval_id(&caller.call("web_say", &hello()).await);
    approve(&gate, &id, "once").await;
    web.kill();
    let message = caller.call("web_say", &hello()).await;
    assert_eq!(message["is_error"], true, "{message}");
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(
        shown["state"], "approved",
        "the server was down, so nothing was sent: {message}"
    );
    web.restart();
    gate.wait_for_state("web", "healthy").await;
    let message = caller.call("web_say", &hello()).await;
    assert_eq!(text(&message), "hello", "{message}");
}

#[tokio::test]
async fn default_verdict_only_tightens() {
    for (default, verdict) in [
        ("allow", Some("manual")),
        ("manual", Some("manual")),
        ("ask", Some("ask")),
        ("deny", None),
    ] {
        let toml = zoo("zoo", &[]) + &format!("[permissions]\ndefault = \"{default}\"\n");
        let gate = TestGate::start(&toml);
        gate.wait_for_state("zoo", "healthy").await;
        let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
        assert_eq!(
            explained["verdict"].as_str(),
            verdict,
            "{default}: {explained}"
        );
        let message = gate.caller().call("zoo_echo", &json!({})).await;
        assert_eq!(
            is_unknown_tool(&message),
            default == "deny",
            "{default}: {message}"
        );
    }
}

#[tokio::test]
async fn denied_record_names_its_approval() {
    let gate = start_gate("").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    decide(&caller, &id, &json!({"decision": "deny"}))
        .await
        .expect_status(200);
    caller.call("zoo_say", &hello()).await;
    let records = gate.records(&caller).await;
    assert_eq!(records[1]["outcome"], "denied");
    assert_eq!(records[1]["approval"], id, "{}", records[1]);
}

#[tokio::test]
async fn scanner_approval_is_one_time_only() {
    let gate = start_gate("[scanner]\nsecret = \"ask\"\n").await;
    let caller = gate.caller();
    let id = request_approval(&caller).await;
    approve(&gate, &id, "always").await;
    assert_hello_runs(&caller).await;
    assert_hello_runs(&caller).await;
    let secret = json!({"text": format!("ghp_{}", "a1B2".repeat(9))});
    let message = caller.call("zoo_say", &secret).await;
    let id = pending_approval_id(&message);
    let pending = caller
        .get(&format!("/api/approvals/{id}"))
        .await
        .expect_status(200);
    let rule = pending["rule"].as_str().unwrap();
    assert!(
        rule.contains("permissions.rules[0] and scanner.secret"),
        "{rule}"
    );
    let always = json!({"decision": "approve", "scope": "always"});
    assert_eq!(decide(&caller, &id, &always).await.status, 400);
    approve(&gate, &id, "once").await;
    let message = caller.call("zoo_say", &secret).await;
    assert!(text(&message).starts_with("ghp_"), "{message}");
    pending_approval_id(&caller.call("zoo_say", &secret).await);
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
