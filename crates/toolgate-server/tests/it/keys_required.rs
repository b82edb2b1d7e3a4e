//! Keys stay required once one has existed, until the administrator makes them optional.

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::ALICE;
use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};

const PATH: &str = "/api/keys-required";

fn alice() -> String {
    format!("[keys.alice]\nkey = \"{ALICE}\"\n")
}

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

async fn anonymous_status(gate: &TestGate) -> u16 {
    gate.caller().get("/v1/models").await.status.as_u16()
}

async fn state(gate: &TestGate) -> (bool, bool) {
    let state = gate.json(PATH).await;
    let get = |name: &str| state[name].as_bool().unwrap();
    (get("required"), get("has_keys"))
}

#[tokio::test]
async fn requirement_outlives_api_keys_and_restarts() {
    let mut gate = start_gate(&zoo("zoo", &[])).await;
    assert_eq!(state(&gate).await, (false, false));
    let created = gate.caller().post("/api/keys", &json!({"name": "a"})).await;
    created.expect_status(201);
    assert_eq!(state(&gate).await, (true, true));
    gate.child.kill().unwrap();
    gate.child.wait().unwrap();
    gate.relaunch();
    assert_eq!(anonymous_status(&gate).await, 401);
    let deleted = gate.caller().delete("/api/keys/a").await;
    deleted.expect_status(200);
    for _ in 0..2 {
        assert_eq!(state(&gate).await, (true, false));
        let error = gate.caller().get("/v1/models").await.expect_status(401);
        let message = error["error"]["message"].as_str().unwrap();
        for part in ["toolgate keys create", "toolgate keys make-optional"] {
            assert!(message.contains(part), "{message}");
        }
        gate.restart().await;
    }
}

#[tokio::test]
async fn requirement_outlives_keys_of_the_file() {
    let toml = zoo("zoo", &[]);
    let mut gate = start_gate(&toml).await;
    assert_eq!(anonymous_status(&gate).await, 200);
    gate.edit(&(toml.clone() + &alice()));
    eventually("the key is in force", WAIT_TIMEOUT, async || {
        (gate.with_key(ALICE).get("/api/keys").await.status == 403).then_some(())
    })
    .await;
    gate.edit(&toml);
    eventually("the key is removed", WAIT_TIMEOUT, async || {
        let keys = gate.json("/api/keys").await;
        (keys["keys"] == json!([])).then_some(())
    })
    .await;
    assert_eq!(anonymous_status(&gate).await, 401);
    gate.restart().await;
    assert_eq!(anonymous_status(&gate).await, 401);
}

#[tokio::test]
async fn requirement_outlives_a_key_removed_while_stopped() {
    let toml = zoo("zoo", &[]);
    let mut gate = start_gate(&(toml.clone() + &alice())).await;
    gate.edit(&toml);
    gate.restart().await;
    assert_eq!(state(&gate).await, (true, false));
    assert_eq!(anonymous_status(&gate).await, 401);
}

#[tokio::test]
async fn only_the_administrator_makes_keys_optional() {
    let mut gate = start_gate(&zoo("zoo", &[])).await;
    let put = async |gate: &TestGate, body: Value| gate.caller().put(PATH, &body).await;
    for body in [json!({}), json!({"required": 1}), json!({"require": true})] {
        put(&gate, body).await.expect_status(400);
    }
    // It can be turned on before there is a key.
    let on = put(&gate, json!({"required": true})).await;
    assert_eq!(
        on.expect_status(200),
        json!({"required": true, "has_keys": false})
    );
    assert_eq!(anonymous_status(&gate).await, 401);
    let entry = json!({"name": "a"});
    let created = gate.caller().post("/api/keys", &entry).await;
    let key = created.expect_status(201)["key"].clone();
    let refused = put(&gate, json!({"required": false})).await;
    let error = refused.expect_status(409);
    assert!(error.to_string().contains("remove all keys"), "{error}");
    let by_caller = gate.with_key(key.as_str().unwrap());
    let refused = by_caller.put(PATH, &json!({"required": false})).await;
    refused.expect_status(403);

    let deleted = gate.caller().delete("/api/keys/a").await;
    deleted.expect_status(200);
    put(&gate, json!({"required": false}))
        .await
        .expect_status(200);
    assert_eq!(anonymous_status(&gate).await, 200);
    gate.restart().await;
    assert_eq!(anonymous_status(&gate).await, 200, "that is remembered too");
    let log = gate.log();
    for change in ["callers need a key from", "callers need no key from"] {
        assert!(log.contains(change), "{log}");
    }
    let created = gate.caller().post("/api/keys", &entry).await;
    created.expect_status(201);
    let deleted = gate.caller().delete("/api/keys/a").await;
    deleted.expect_status(200);
    assert_eq!(anonymous_status(&gate).await, 401, "until the next key");
}

#[tokio::test]
async fn rejected_key_does_not_require_keys() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    let invalid = json!({"name": "a", "rate_limit": "many"});
    let refused = gate.caller().post("/api/keys", &invalid).await;
    refused.expect_status(400);
    assert_eq!(state(&gate).await, (false, false));
    assert_eq!(anonymous_status(&gate).await, 200);
}

#[tokio::test]
async fn command_line_shows_and_changes_the_requirement() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    let keys = |args: &[&str]| {
        let args = [&["keys", "--url", &gate.url], args].concat();
        let (output, stdout, stderr) = run(gate.folder.path(), &args);
        (output.status.success(), stdout + &stderr)
    };
    for (args, succeeds, expected) in [
        (
            &["list"][..],
            true,
            "no keys; callers on the gateway's machine do not need a key",
        ),
        (&["require"], true, "callers need a key"),
        (&["list"], true, "no keys; callers need a key"),
        (&["create", "a"], true, "tg-"),
        (&["make-optional"], false, "remove all keys first"),
        (&["delete", "a"], true, "deleted"),
        (&["list"], true, "no keys; callers need a key"),
        (&["make-optional"], true, "do not need a key"),
    ] {
        let (ok, text) = keys(args);
        assert_eq!(ok, succeeds, "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
    assert_eq!(anonymous_status(&gate).await, 200);
}

#[tokio::test]
async fn unreadable_requirement_refuses_to_start() {
    let toml = zoo("zoo", &[]);
    let mut gate = start_gate(&(toml.clone() + &alice())).await;
    gate.edit(&toml);
    gate.signal("-TERM");
    gate.wait_for_exit().await;
    let folder = gate.folder.path();
    std::fs::remove_file(folder.join("data/store.key")).unwrap();
    let args = ["serve", "--port", "0", "--data-dir", "data"];
    let (output, _, stderr) = run(folder, &args);
    assert!(!output.status.success());
    assert!(stderr.contains("store.key` is missing"), "{stderr}");
}
