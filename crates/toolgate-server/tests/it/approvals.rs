//! Calls that a person decides about: asking, deciding, tickets, grants and rules.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB, Caller, EXECUTE, SESSION, is_unknown, text, tool_call};
use crate::gate::{SOON, TestGate, zoo};

const ASK: &str = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

async fn gate(more: &str) -> TestGate {
    let gate = TestGate::start(&(zoo("zoo", &[]) + ASK + more));
    gate.reaches("zoo", "healthy").await;
    gate
}

fn hello() -> Value {
    json!({"text": "hello"})
}

/// The id of the approval that a call is told to wait for.
fn waits_for(message: &Value) -> String {
    let approval = &message["approval"];
    assert_eq!(message["is_error"], true, "{message}");
    assert!(approval["expires_at"].is_string(), "{message}");
    approval["id"].as_str().unwrap().to_owned()
}

/// Makes a call that has to wait, and gives the approval's id.
async fn asks(caller: &Caller<'_>) -> String {
    waits_for(&caller.call("zoo_say", &hello()).await)
}

async fn decide(decider: &Caller<'_>, id: &str, decision: &Value) -> crate::caller::Answer {
    decider
        .post(&format!("/api/approvals/{id}"), decision)
        .await
}

async fn approve(gate: &TestGate, id: &str, scope: &str) -> Value {
    let body = json!({"decision": "approve", "scope": scope});
    decide(&gate.caller(), id, &body).await.expect(200)
}

async fn says_hello(caller: &Caller<'_>) {
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
async fn an_approval_is_a_ticket_for_one_call() {
    let gate = gate("").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    assert_eq!(
        asks(&caller).await,
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
    assert_ne!(asks(&caller).await, id, "a ticket is used once");
    assert!(grants(&gate).await.is_empty());
}

#[tokio::test]
async fn one_ticket_lets_one_of_many_through() {
    let gate = gate("").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    approve(&gate, &id, "once").await;
    let arguments = hello();
    let calls = (0..20).map(|_| caller.call("zoo_say", &arguments));
    let messages = futures_util::future::join_all(calls).await;
    let ran = messages.iter().filter(|message| text(message) == "hello");
    assert_eq!(ran.count(), 1);
    let waiting = messages.iter().filter(|message| text(message) != "hello");
    let ids: HashSet<String> = waiting.map(waits_for).collect();
    assert_eq!(ids.len(), 1, "and the others wait for one new approval");
}

#[tokio::test]
async fn a_ticket_fits_one_tool_one_caller_and_the_same_arguments() {
    let gate = gate(KEYS).await;
    let alice = gate.with_key(ALICE);
    let id = asks(&alice).await;
    approve(&gate, &id, "once").await;
    assert_ne!(asks(&gate.with_key(BOB)).await, id, "another key");
    let other = alice.call("zoo_say", &json!({"text": "other"})).await;
    assert_ne!(waits_for(&other), id, "other arguments");
    let spelled = r#"{ "text" : "hell\u006f" }"#;
    let body = json!({"id": "c", "function": {"name": "mcp__zoo__say", "arguments": spelled}});
    let message = alice.post(EXECUTE, &body).await.expect(200);
    assert_eq!(
        text(&message),
        "hello",
        "the same arguments in another spelling"
    );
}

#[tokio::test]
async fn a_ticket_survives_a_restart_and_is_used_once() {
    let mut gate = gate("").await;
    let id = asks(&gate.caller()).await;
    gate.restart().await;
    gate.reaches("zoo", "healthy").await;
    approve(&gate, &id, "once").await;
    gate.restart().await;
    gate.reaches("zoo", "healthy").await;
    says_hello(&gate.caller()).await;
    assert_ne!(asks(&gate.caller()).await, id);
}

#[tokio::test]
async fn edited_arguments_run_instead() {
    let gate = gate("").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    for bad in [json!({"text": 5}), json!({}), json!([1]), json!("x")] {
        let body = json!({"decision": "approve", "arguments": bad});
        assert_eq!(decide(&caller, &id, &body).await.status, 400, "{bad}");
    }
    let body = json!({"decision": "approve", "arguments": {"text": "goodbye"}});
    let decided = decide(&caller, &id, &body).await.expect(200);
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

async fn edited_for_more_than_once(scope: &str) {
    let gate = gate("").await;
    let caller = gate.caller().with(SESSION, "s");
    let id = asks(&caller).await;
    let body = json!({"decision": "approve", "scope": scope, "arguments": {"text": "goodbye"}});
    let answer = decide(&gate.caller(), &id, &body).await;
    if answer.status == 400 {
        return;
    }
    answer.expect(200);
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(
        text(&message),
        "goodbye",
        "what the approver did not approve has run"
    );
}

#[tokio::test]
async fn edited_arguments_run_instead_where_the_approval_is_for_good() {
    edited_for_more_than_once("always").await;
}

#[tokio::test]
async fn edited_arguments_run_instead_where_the_approval_is_for_the_session() {
    edited_for_more_than_once("session").await;
}

#[tokio::test]
async fn edited_arguments_cannot_lift_a_deny() {
    let deny = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\narguments = { text = \"*secret*\" }\n";
    let gate = gate(deny).await;
    let caller = gate.caller();
    let id = asks(&caller).await;
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
async fn a_denial_is_told_with_its_reason() {
    let gate = gate("").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    let body = json!({"decision": "deny", "reason": "not on a Friday"});
    let denied = decide(&caller, &id, &body).await.expect(200);
    assert_eq!(
        (&denied["state"], &denied["reason"]),
        (&json!("denied"), &json!("not on a Friday"))
    );
    let message = caller.call("zoo_say", &hello()).await;
    assert_eq!(message["is_error"], true);
    assert!(text(&message).contains("not on a Friday"), "{message}");
    assert_eq!(gate.outcomes(&caller).await, ["ask", "denied"]);
    let other = caller.call("zoo_say", &json!({"text": "other"})).await;
    waits_for(&other);
}

#[tokio::test]
async fn what_is_no_decision_is_refused() {
    let gate = gate("").await;
    let id = asks(&gate.caller()).await;
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
async fn an_approval_expires() {
    let gate = gate("[permissions]\napproval_expiry = \"300ms\"\n").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    eventually("it expires", SOON, async || {
        let shown = gate.json("/api/approvals?state=all").await;
        (shown["approvals"][0]["state"] == "expired").then_some(())
    })
    .await;
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["state"], "expired");
    let late = decide(&caller, &id, &json!({"decision": "approve"})).await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert_ne!(asks(&caller).await, id);
}

#[tokio::test]
async fn a_ticket_expires() {
    let gate = gate("[permissions]\napproval_expiry = \"2s\"\n").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    approve(&gate, &id, "once").await;
    eventually("the ticket expires", SOON, async || {
        let shown = gate.json(&format!("/api/approvals/{id}")).await;
        let ends = shown["expires_at"].as_str().unwrap().to_owned();
        let now = std::time::SystemTime::now();
        (now > humantime::parse_rfc3339(&ends).unwrap()).then_some(())
    })
    .await;
    assert_ne!(asks(&caller).await, id);
}

#[tokio::test]
async fn exactly_one_of_many_decisions_wins() {
    let gate = gate("").await;
    let id = asks(&gate.caller()).await;
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
        "and what it says holds"
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
async fn who_may_decide() {
    let gate = TestGate::start(&with_approvers());
    let carol = gate.with_key("carol-key-0123456789abcdef");
    let dave = gate.with_key("dave-key-0123456789abcdef");
    eventually("the server is up", SOON, async || {
        let message = carol.call("zoo_say", &hello()).await;
        message.get("approval").map(drop)
    })
    .await;
    let id = asks(&carol).await;
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
    let decided = decide(&dave, &id, &body).await.expect(200);
    assert_eq!(decided["decided_by"], "key:dave");
    says_hello(&carol).await;
    let id = asks(&carol).await;
    let both = carol.clone().with("x-api-key", ADMIN);
    let answer = decide(&both, &id, &body).await;
    assert!([200, 403].contains(&answer.status.as_u16()), "{answer:?}");
    let listed = dave.get("/api/approvals?state=all").await.expect(200);
    assert_eq!(listed["approvals"].as_array().unwrap().len(), 2);
    let admin = gate.with_key(ADMIN);
    assert_eq!(
        dave.get("/api/permissions").await.status,
        403,
        "an approver is no administrator"
    );
    admin.get("/api/permissions").await.expect(200);
}

#[tokio::test]
async fn the_calling_key_cannot_approve_its_own_call_from_loopback() {
    let approver = "[keys.carol]\nkey = \"carol-key-0123456789abcdef\"\nroles = [\"approver\"]\n";
    let gate = gate(&(KEYS.to_owned() + approver)).await;
    let body = json!({"decision": "approve"});
    for key in [ALICE, "carol-key-0123456789abcdef"] {
        let caller = gate.with_key(key);
        let id = asks(&caller).await;
        assert_eq!(decide(&caller, &id, &body).await.status, 403);
        let vk = gate.caller().with("x-bf-vk", key);
        assert_eq!(decide(&vk, &id, &body).await.status, 403);
    }
}

#[tokio::test]
async fn a_grant_for_the_session() {
    let mut gate = gate(KEYS).await;
    let alice = gate.with_key(ALICE).with(SESSION, "s1");
    let id = asks(&alice).await;
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["session"], "s1");
    approve(&gate, &id, "session").await;
    for said in ["hello", "hello", "other"] {
        let message = alice.call("zoo_say", &json!({"text": said})).await;
        assert_eq!(text(&message), said, "{message}");
    }
    for other in [
        gate.with_key(ALICE).with(SESSION, "s2"),
        gate.with_key(BOB).with(SESSION, "s1"),
        gate.with_key(ALICE),
    ] {
        let message = other.call("zoo_say", &json!({"text": "unheard"})).await;
        waits_for(&message);
    }
    assert!(grants(&gate).await.is_empty(), "it is not for good");
    gate.restart().await;
    gate.reaches("zoo", "healthy").await;
    let alice = gate.with_key(ALICE).with(SESSION, "s1");
    let message = alice.call("zoo_say", &json!({"text": "later"})).await;
    assert!(
        message.get("approval").is_some() || text(&message) == "later",
        "{message}"
    );
}

#[tokio::test]
async fn a_session_grant_leaves_no_ticket_for_others() {
    let gate = gate(KEYS).await;
    let alice = gate.with_key(ALICE).with(SESSION, "s1");
    let id = asks(&alice).await;
    approve(&gate, &id, "session").await;
    says_hello(&alice).await;
    let outside = gate.with_key(ALICE).with(SESSION, "s2");
    let message = outside.call("zoo_say", &hello()).await;
    waits_for(&message);
}

#[tokio::test]
async fn a_grant_for_good_until_it_is_taken_back() {
    let mut gate = gate(KEYS).await;
    let alice = gate.with_key(ALICE);
    let id = asks(&alice).await;
    approve(&gate, &id, "always").await;
    says_hello(&alice).await;
    gate.restart().await;
    gate.reaches("zoo", "healthy").await;
    let alice = gate.with_key(ALICE);
    says_hello(&alice).await;
    let message = alice.call("zoo_say", &json!({"text": "other"})).await;
    assert_eq!(text(&message), "other");
    asks(&gate.with_key(BOB)).await;
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
    gate.caller().delete(&path).await.expect(200);
    assert_eq!(gate.caller().delete(&path).await.status, 404);
    let message = alice.call("zoo_say", &json!({"text": "new"})).await;
    waits_for(&message);
    let message = alice.call("zoo_say", &hello()).await;
    waits_for(&message);
}

#[tokio::test]
async fn a_grant_answers_ask_and_never_deny() {
    let mut rules = zoo("zoo", &[]) + ASK;
    let gate = TestGate::start(&rules);
    gate.reaches("zoo", "healthy").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    approve(&gate, &id, "always").await;
    says_hello(&caller).await;
    rules += "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"deny\"\n";
    gate.edit(&rules);
    eventually("the rule is in force", SOON, async || {
        let message = caller.call("zoo_say", &hello()).await;
        is_unknown(&message).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_grant_does_not_follow_the_name_to_another_program() {
    let toml = zoo("zoo", &[]) + ASK;
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    approve(&gate, &id, "always").await;
    says_hello(&caller).await;
    let ticket = caller.call("zoo_say", &json!({"text": "x"})).await;
    assert_eq!(text(&ticket), "x");
    gate.edit(&(zoo("zoo", &["--tools", "1"]) + ASK));
    let message = eventually("the other program is asked about", SOON, async || {
        let message = caller.call("zoo_say", &hello()).await;
        message.get("approval").is_some().then_some(message)
    })
    .await;
    assert_ne!(waits_for(&message), id);
    gate.edit(&toml);
    eventually("the first program has its grant", SOON, async || {
        let message = caller.call("zoo_say", &hello()).await;
        (text(&message) == "hello").then_some(())
    })
    .await;
}

#[tokio::test]
async fn with_nobody_to_ask_it_is_refused() {
    let gate = gate("[permissions]\napproval_by = []\n").await;
    let message = gate.caller().call("zoo_say", &hello()).await;
    assert_eq!(
        (&message["is_error"], message.get("approval")),
        (&json!(true), None),
        "{message}"
    );
    assert!(text(&message).contains("nobody"), "{message}");
    assert_eq!(
        gate.json("/api/approvals?state=all").await["approvals"],
        json!([])
    );
    assert_eq!(gate.records(&gate.caller()).await.len(), 1);
}

#[tokio::test]
async fn the_conversation_is_shown() {
    let gate = gate("").await;
    let conversation = json!([{"role": "user", "content": "say hello, please"}, {"n": 18_446_744_073_709_551_615_u64}]);
    let mut body = tool_call("zoo_say", &hello());
    body["messages"] = conversation.clone();
    let message = gate.caller().post(EXECUTE, &body).await.expect(200);
    let id = waits_for(&message);
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(shown["conversation"], conversation);
    let body = json!({"call_id": "c", "name": "zoo_say", "arguments": {"text": "x"}, "messages": conversation});
    let path = format!("{EXECUTE}?format=responses");
    let item = gate.caller().post(&path, &body).await.expect(200);
    assert!(item["approval"]["id"].is_string(), "{item}");
}

#[tokio::test]
async fn bad_arguments_are_told_before_anyone_is_asked() {
    let gate = gate("").await;
    let message = gate.caller().call("zoo_say", &json!({"text": 5})).await;
    assert_eq!(message.get("approval"), None, "{message}");
    assert_eq!(gate.json("/api/approvals").await["approvals"], json!([]));
}

#[tokio::test]
async fn rules_on_arguments() {
    let rules = "[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = [\"/etc/*\", \"*.pem\"] }\n\
                 [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"ask\"\narguments = { \"options.mode\" = \"w?\", path = \"*\" }\n\
                 [scanner]\npath_traversal = \"off\"\n";
    let gate = gate(rules).await;
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
        let came = match (
            message["is_error"] == true,
            message.get("approval").is_some(),
        ) {
            (false, _) => "runs",
            (true, true) => "asks",
            (true, false) => "denied",
        };
        assert_eq!(came, expected, "{arguments}: {message}");
        assert!(!is_unknown(&message), "it stays visible");
        if came == "denied" {
            assert!(
                text(&message).contains("permissions.rules[1]"),
                "it names the rule: {message}"
            );
        }
    }
    let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
    assert_eq!(explained["visible"], true, "{explained}");
}

#[tokio::test]
async fn rules_by_role_server_and_hint() {
    let rules = "[[permissions.rules]]\nserver = \"z*\"\nhint = \"destructive\"\naction = \"deny\"\n\
                 [[permissions.rules]]\nserver = \"zoo\"\ntool = \"k*\"\nroles = \"intern\"\naction = \"ask\"\n\
                 [roles.intern]\n[keys.carol]\nkey = \"carol-key-0123456789abcdef\"\nroles = [\"intern\"]\n";
    let gate = gate(&(KEYS.to_owned() + rules)).await;
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
async fn the_strictest_rule_wins_in_any_order() {
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
        let gate = gate(&rules).await;
        let message = gate.caller().call("zoo_echo", &json!({})).await;
        waits_for(&message);
    }
}

#[tokio::test]
async fn permissions_make_a_round_trip() {
    let rules = "[permissions]\ndefault = \"manual\"\napproval_expiry = \"5m\"\napproval_by = [\"admin\"]\n\
                 [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = [\"/etc/*\", \"*.pem\"] }\nroles = [\"approver\"]\nenvironment = [\"production\"]\nhint = \"read_only\"\n\
                 [[permissions.rules]]\nserver = \"zoo\"\ntool = \"f*\"\naction = \"deny\"\n";
    let mut gate = TestGate::start(&(zoo("zoo", &[]) + rules));
    gate.reaches("zoo", "healthy").await;
    let shown = gate.json("/api/permissions").await;
    assert_eq!(shown["source"], "file");
    let mut put = gate
        .caller()
        .put("/api/permissions", &shown)
        .await
        .expect(200);
    assert_eq!(put["source"], "api");
    put["source"] = json!("file");
    assert_eq!(
        put, shown,
        "what is shown can be sent back and means the same"
    );

    let body = json!({"rules": [{"tool": "zoo_say", "action": "ask"}]});
    gate.caller()
        .put("/api/permissions", &body)
        .await
        .expect(200);
    asks(&gate.caller()).await;
    assert!(!is_unknown(
        &gate.caller().call("zoo_fail", &json!({})).await
    ));
    gate.restart().await;
    gate.reaches("zoo", "healthy").await;
    asks(&gate.caller()).await;
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
    let back = gate.caller().delete("/api/permissions").await.expect(200);
    assert_eq!(back, shown);
    says_hello(&gate.caller()).await;
    assert!(is_unknown(
        &gate.caller().call("zoo_fail", &json!({})).await
    ));
}

#[tokio::test]
async fn rules_of_the_api_hold_until_the_file_changes() {
    let toml = zoo("zoo", &[]) + "[[permissions.rules]]\ntool = \"zoo_fail\"\naction = \"deny\"\n";
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    let body = json!({"rules": [{"tool": "zoo_say", "action": "ask"}]});
    gate.caller()
        .put("/api/permissions", &body)
        .await
        .expect(200);
    asks(&gate.caller()).await;
    gate.edit(&toml.replace("zoo_fail", "zoo_empty"));
    eventually("the rules of the file are in force", SOON, async || {
        let message = gate.caller().call("zoo_empty", &json!({})).await;
        (message["content"] != "").then_some(())
    })
    .await;
    says_hello(&gate.caller()).await;
    assert_eq!(gate.json("/api/permissions").await["source"], "file");
}

#[tokio::test]
async fn approvals_come_in_pages() {
    let gate = gate("").await;
    let mut asked = Vec::new();
    for n in 0..5 {
        let message = gate
            .caller()
            .call("zoo_say", &json!({"text": n.to_string()}))
            .await;
        asked.push(waits_for(&message));
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
    assert_eq!(found, asked);
}

#[tokio::test]
async fn the_same_call_made_many_times_at_once_asks_once() {
    let gate = gate("").await;
    let caller = gate.caller();
    let asked = futures_util::future::join_all((0..20).map(|_| asks(&caller))).await;
    let ids: HashSet<String> = asked.into_iter().collect();
    assert_eq!(ids.len(), 1);
    let pending = gate.json("/api/approvals").await;
    assert_eq!(pending["approvals"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn arguments_that_only_look_the_same_are_others() {
    let rule = "[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"ask\"\n";
    let gate = gate(rule).await;
    let caller = gate.caller();
    let call = async |arguments: &str| {
        let body = json!({"id": "c", "function": {"name": "zoo_echo", "arguments": arguments}});
        caller.post(EXECUTE, &body).await.expect(200)
    };
    let id = waits_for(&call(r#"{"n":9007199254740993,"m":null,"s":"1"}"#).await);
    approve(&gate, &id, "once").await;
    for other in [
        r#"{"n":9007199254740992,"m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":1}"#,
        r#"{"n":"9007199254740993","m":null,"s":"1"}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1 "}"#,
        r#"{"n":9007199254740993,"m":null,"s":"1","S":"1"}"#,
    ] {
        assert_ne!(waits_for(&call(other).await), id, "{other}");
    }
    let message = call(r#"{"s": "1", "m": null, "n": 9007199254740993}"#).await;
    assert_eq!(
        message["is_error"],
        Value::Null,
        "the order does not matter: {message}"
    );
}

#[tokio::test]
async fn where_only_clients_are_asked_no_administrator_decides() {
    let gate = gate("[permissions]\napproval_by = [\"client\"]\n").await;
    let message = gate.caller().call("zoo_say", &hello()).await;
    assert_eq!(message["is_error"], true);
    if let Some(id) = message["approval"]["id"].as_str() {
        let answer = decide(&gate.caller(), id, &json!({"decision": "approve"})).await;
        assert_eq!(answer.status, 403, "{}", answer.body);
    }
}

#[tokio::test]
async fn a_ticket_whose_call_was_never_sent_can_be_used_again() {
    let mut web = toolgate_testkit::HttpZoo::start(&[]);
    let toml = format!("[mcp_servers.web]\nurl = \"{}\"\n", web.url())
        + "[[permissions.rules]]\ntool = \"web_say\"\naction = \"ask\"\n";
    let gate = TestGate::start(&toml);
    gate.reaches("web", "healthy").await;
    let caller = gate.caller();
    let id = waits_for(&caller.call("web_say", &hello()).await);
    approve(&gate, &id, "once").await;
    web.kill();
    let message = caller.call("web_say", &hello()).await;
    assert_eq!(message["is_error"], true, "{message}");
    let shown = gate.json(&format!("/api/approvals/{id}")).await;
    assert_eq!(
        shown["state"], "approved",
        "nothing listened, so nothing was sent: {message}"
    );
    web.restart();
    gate.reaches("web", "healthy").await;
    let message = caller.call("web_say", &hello()).await;
    assert_eq!(text(&message), "hello", "{message}");
}

#[tokio::test]
async fn the_default_only_makes_it_stricter() {
    for (default, verdict) in [
        ("allow", Some("manual")),
        ("manual", Some("manual")),
        ("ask", Some("ask")),
        ("deny", None),
    ] {
        let toml = zoo("zoo", &[]) + &format!("[permissions]\ndefault = \"{default}\"\n");
        let gate = TestGate::start(&toml);
        gate.reaches("zoo", "healthy").await;
        let explained = gate.json("/api/mcp/tools/explain?tool=zoo_echo").await;
        assert_eq!(
            explained["verdict"].as_str(),
            verdict,
            "{default}: {explained}"
        );
        let message = gate.caller().call("zoo_echo", &json!({})).await;
        assert_eq!(
            is_unknown(&message),
            default == "deny",
            "{default}: {message}"
        );
    }
}

#[tokio::test]
async fn the_record_of_a_denial_names_its_approval() {
    let gate = gate("").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    decide(&caller, &id, &json!({"decision": "deny"}))
        .await
        .expect(200);
    caller.call("zoo_say", &hello()).await;
    let records = gate.records(&caller).await;
    assert_eq!(records[1]["outcome"], "denied");
    assert_eq!(records[1]["approval"], id, "{}", records[1]);
}

#[tokio::test]
async fn what_the_scanner_asks_is_answered_once() {
    let gate = gate("[scanner]\nsecret = \"ask\"\n").await;
    let caller = gate.caller();
    let id = asks(&caller).await;
    approve(&gate, &id, "always").await;
    says_hello(&caller).await;
    says_hello(&caller).await;
    let secret = json!({"text": format!("ghp_{}", "a1B2".repeat(9))});
    let asked = caller.call("zoo_say", &secret).await;
    let id = waits_for(&asked);
    let pending = caller
        .get(&format!("/api/approvals/{id}"))
        .await
        .expect(200);
    let rule = pending["rule"].as_str().unwrap();
    assert!(
        rule.contains("permissions.rules[0] and scanner.secret"),
        "{rule}"
    );
    let always = json!({"decision": "approve", "scope": "always"});
    assert_eq!(decide(&caller, &id, &always).await.status, 400);
    approve(&gate, &id, "once").await;
    let said = caller.call("zoo_say", &secret).await;
    assert!(text(&said).starts_with("ghp_"), "{said}");
    waits_for(&caller.call("zoo_say", &secret).await);
}

#[tokio::test]
async fn rules_are_not_removed_by_leaving_them_away() {
    let gate = gate("").await;
    let admin = gate.caller();
    for body in [
        json!({}),
        json!({"rules": null}),
        json!({"default": "manual"}),
    ] {
        assert_eq!(admin.put("/api/permissions", &body).await.status, 400);
    }
    asks(&admin).await;
}
