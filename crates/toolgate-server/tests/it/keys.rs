//! Caller keys: authentication, tool visibility, rate limits and budgets.

use std::fs;
use std::path::Path;

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB, EXECUTE, is_unknown_tool, text, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};

const ADMIN: &str = "the-admin-key-of-this-test";

/// Builds `[keys.alice]` with additional lines.
fn alice_config(lines: &str) -> String {
    format!("[keys.alice]\nkey = \"{ALICE}\"\n{lines}")
}

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// Creates a key through the API and returns it.
async fn create_key(gate: &TestGate, entry: &Value) -> String {
    let created = gate
        .caller()
        .post("/api/keys", entry)
        .await
        .expect_status(201);
    created["key"].as_str().unwrap().to_owned()
}

async fn call_add(gate: &TestGate, key: &str) -> Value {
    let caller = gate.with_key(key);
    caller.call("zoo_add", &json!({"a": 1, "b": 2})).await
}

#[tokio::test]
async fn first_key_enables_authentication_on_loopback() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    assert_eq!(gate.caller().call_status().await, 200);
    assert_eq!(gate.with_key("whatever").call_status().await, 200);
    let key = create_key(&gate, &json!({"name": "alice"})).await;
    assert!(key.starts_with("tg-") && key.len() == 46, "{key}");
    assert_eq!(gate.caller().call_status().await, 401);
    assert_eq!(gate.with_key("whatever").call_status().await, 401);
    assert_eq!(gate.with_key(&key).call_status().await, 200);
    gate.caller()
        .delete("/api/keys/alice")
        .await
        .expect_status(200);
    assert_eq!(gate.caller().call_status().await, 401);
}

#[tokio::test]
async fn key_is_accepted_in_every_header() {
    let gate = start_gate(&(zoo("zoo", &[]) + &alice_config(""))).await;
    for (name, value, status) in [
        ("authorization", format!("Bearer {ALICE}"), 200),
        ("authorization", format!("bearer  {ALICE}"), 200),
        ("x-api-key", ALICE.to_owned(), 200),
        ("x-bf-vk", ALICE.to_owned(), 200),
        ("authorization", ALICE.to_owned(), 401),
        ("authorization", format!("Basic {ALICE}"), 401),
        ("x-api-key", format!("{ALICE}x"), 401),
        ("x-api-key", ALICE.to_uppercase(), 401),
        ("x-api-key", String::new(), 401),
        ("cookie", ALICE.to_owned(), 401),
    ] {
        let caller = gate.caller().with_header(name, &value);
        assert_eq!(caller.call_status().await, status, "{name}: {value}");
    }
    let query = format!("/v1/mcp/tool/execute?api_key={ALICE}");
    let body = tool_call("zoo_add", &json!({}));
    assert_eq!(gate.caller().post(&query, &body).await.status, 401);
    let both = gate
        .with_key("sk-of-the-model")
        .with_header("x-bf-vk", ALICE);
    assert_eq!(both.call_status().await, 200);
}

#[tokio::test]
async fn every_caller_endpoint_requires_a_key() {
    let gate = start_gate(&(zoo("zoo", &[]) + &alice_config(""))).await;
    let handle = gate.get("/v1/mcp/results/none").await;
    assert_eq!(handle.status(), 401);
    let malformed = gate.post("/v1/mcp/tool/execute", "{", HeaderMap::new());
    assert_eq!(malformed.await.status(), 401, "the key is checked first");
    let answer = gate.with_key("wrong").execute("zoo_add", &json!({})).await;
    let error = answer.expect_status(401);
    assert_eq!(error["error"]["type"], "authentication_error");
    assert!(!error.to_string().contains("alice"), "{error}");
}

#[tokio::test]
async fn disabled_and_expired_keys_are_rejected() {
    let gate = start_gate(
        &(zoo("zoo", &[])
            + &alice_config("enabled = false\n")
            + &format!("[keys.bob]\nkey = \"{BOB}\"\nexpires_at = \"2020-01-01T00:00:00Z\"\n")),
    )
    .await;
    assert_eq!(
        gate.caller().call_status().await,
        401,
        "a disabled key still enables authentication"
    );
    for (key, reason) in [(ALICE, "disabled"), (BOB, "expired")] {
        let answer = gate.with_key(key).execute("zoo_add", &json!({})).await;
        let error = answer.expect_status(401);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message}");
    }
    let keys = gate.json("/api/keys").await;
    let expired: Vec<&Value> = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| &k["expired"])
        .collect();
    assert_eq!(expired, [false, true], "{keys}");
}

#[tokio::test]
async fn key_can_be_disabled_enabled_rotated_and_deleted() {
    let mut gate = start_gate(&zoo("zoo", &[])).await;
    let first = create_key(&gate, &json!({"name": "alice"})).await;
    create_key(&gate, &json!({"name": "other"})).await;
    let admin = gate.caller();
    admin
        .put("/api/keys/alice", &json!({"enabled": false}))
        .await
        .expect_status(200);
    assert_eq!(gate.with_key(&first).call_status().await, 401);
    admin
        .put("/api/keys/alice", &json!({"enabled": true}))
        .await
        .expect_status(200);
    assert_eq!(gate.with_key(&first).call_status().await, 200);
    admin
        .put(
            "/api/keys/alice",
            &json!({"expires_at": "2020-01-01T00:00:00Z"}),
        )
        .await
        .expect_status(200);
    assert_eq!(gate.with_key(&first).call_status().await, 401);
    let back = admin
        .put("/api/keys/alice", &json!({"expires_at": null}))
        .await
        .expect_status(200);
    assert_eq!(back["expires_at"], Value::Null);
    let rotated = admin
        .post("/api/keys/alice/rotate", &Value::Null)
        .await
        .expect_status(200);
    let second = rotated["key"].as_str().unwrap().to_owned();
    assert_eq!(
        gate.with_key(&first).call_status().await,
        401,
        "the old key is invalid at once"
    );
    assert_eq!(gate.with_key(&second).call_status().await, 200);
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.with_key(&first).call_status().await, 401);
    assert_eq!(gate.with_key(&second).call_status().await, 200);
    gate.caller()
        .delete("/api/keys/alice")
        .await
        .expect_status(200);
    assert_eq!(gate.with_key(&second).call_status().await, 401);
    assert_eq!(gate.caller().delete("/api/keys/alice").await.status, 404);
    assert_eq!(gate.caller().get("/api/keys/alice").await.status, 404);
}

#[tokio::test]
async fn file_keys_can_only_be_changed_in_the_file() {
    let toml = zoo("zoo", &[]) + &alice_config("");
    let gate = start_gate(&toml).await;
    let admin = gate.caller();
    for answer in [
        admin
            .put("/api/keys/alice", &json!({"enabled": false}))
            .await,
        admin.delete("/api/keys/alice").await,
        admin.post("/api/keys/alice/rotate", &Value::Null).await,
        admin.post("/api/keys", &json!({"name": "alice"})).await,
    ] {
        answer.expect_status(409);
    }
    assert_eq!(gate.with_key(ALICE).call_status().await, 200);
    gate.edit(&toml.replace(ALICE, BOB));
    // A wrong key that is tried many times would be answered with 429.
    eventually("the old key is rejected", WAIT_TIMEOUT, async || {
        (gate.with_key(ALICE).call_status().await == 401).then_some(())
    })
    .await;
    assert_eq!(gate.with_key(BOB).call_status().await, 200);
}

#[tokio::test]
async fn invalid_key_entries_are_rejected() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    let admin = gate.caller();
    for entry in [
        json!({}),
        json!({"name": ""}),
        json!({"name": 5}),
        json!({"name": "a", "key": "chosen-by-me-0123456789"}),
        json!({"name": "a", "sha256": "00"}),
        json!({"name": "a", "rate_limit": "many"}),
        json!({"name": "a", "rate_limit": "0/min"}),
        json!({"name": "a", "expires_at": "tomorrow"}),
        json!({"name": "a", "budget": {"usd": -1}}),
        json!({"name": "a", "max_in_flight": 0}),
        json!({"name": "a", "tols": []}),
    ] {
        let answer = admin.post("/api/keys", &entry).await;
        assert_eq!(answer.status, 400, "{entry}: {}", answer.body);
    }
    assert_eq!(gate.json("/api/keys").await["keys"], json!([]));
    create_key(&gate, &json!({"name": "a"})).await;
    let again = admin.post("/api/keys", &json!({"name": "a"})).await;
    assert_eq!(again.status, 409);
}

fn read_all_files(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                read_all_files(&path)
            } else if path.is_file() {
                fs::read(path).unwrap()
            } else {
                Vec::new()
            }
        })
        .collect()
}

fn contains_text(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn key_is_shown_once_and_never_stored() {
    let mut gate = start_gate(&(zoo("zoo", &[]))).await;
    let key = create_key(&gate, &json!({"name": "alice", "description": "for tests"})).await;
    let message = gate
        .with_key(&key)
        .call("zoo_echo", &json!({"mine": key}))
        .await;
    assert!(
        text(&message).contains(&key),
        "the tool receives its arguments unchanged"
    );
    for path in ["/api/keys", "/api/keys/alice", "/api/audit", "/metrics"] {
        let shown = gate.get(path).await.text().await.unwrap();
        assert!(!shown.contains(&key[3..]), "{path}: {shown}");
        assert!(!shown.contains("sha256"), "{path}: {shown}");
    }
    gate.restart().await;
    let stored = read_all_files(gate.folder.path());
    assert!(
        contains_text(&stored, "for tests") || contains_text(&stored, "alice"),
        "the store was read"
    );
    assert!(
        !contains_text(&stored, &key),
        "the key is in the store or the log"
    );
}

#[tokio::test]
async fn forbidden_tools_look_unknown() {
    let toml = zoo("zoo", &[])
        + &zoo("ape", &[])
        + "[[permissions.rules]]\ntool = \"ape_*\"\naction = \"ask\"\n"
        + &alice_config("tools = [\"zoo.echo\"]\n");
    let gate = start_gate(&toml).await;
    gate.wait_for_state("ape", "healthy").await;
    let alice = gate.with_key(ALICE);
    let answer = async |name: &str| {
        let body = tool_call(name, &json!({"a": "no number"}));
        let answer = alice.post("/v1/mcp/tool/execute", &body).await;
        let shown = answer.body.to_string().replace(name, "NAME");
        (answer.status, shown)
    };
    let unknown = answer("zoo_adx").await;
    assert!(unknown.1.contains("unknown tool `NAME`"), "{unknown:?}");
    for hidden in [
        "zoo_add",
        "zoo-add",
        "zoo.add",
        "mcp__zoo__add",
        "ape_add",
        "ape_nothing",
        "nobody_add",
    ] {
        assert_eq!(answer(hidden).await, unknown, "{hidden}");
    }
    let message = alice.call("zoo_ecko", &json!({})).await;
    assert!(text(&message).contains("`zoo_echo`"), "{message}");
    let message = alice.call("ape_ecko", &json!({})).await;
    assert!(!text(&message).contains("ape_echo"), "{message}");
    assert_eq!(gate.json("/api/approvals").await["approvals"], json!([]));
}

#[tokio::test]
async fn forbidden_unavailable_server_looks_unknown() {
    let toml =
        zoo("zoo", &[]) + &zoo("ape", &["--silent"]) + &alice_config("tools = [\"zoo.*\"]\n");
    let gate = start_gate(&toml).await;
    let message = gate.with_key(ALICE).call("ape_echo", &json!({})).await;
    assert!(is_unknown_tool(&message), "{message}");
    let ambiguous = gate
        .with_key(ALICE)
        .with_header("x-bf-mcp-include-tools", "ape_echo");
    let message = ambiguous.call("ape_echo", &json!({})).await;
    assert!(is_unknown_tool(&message), "{message}");
}

async fn visible_tools(gate: &TestGate, key: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for name in ["zoo_echo", "zoo_empty", "ape_echo"] {
        let message = gate.with_key(key).call(name, &json!({})).await;
        if !is_unknown_tool(&message) {
            found.push(name);
        }
    }
    found
}

#[tokio::test]
async fn roles_and_key_tools_intersect() {
    let roles = "[roles.reader]\ntools = [\"*.echo\"]\n[roles.keeper]\ntools = [\"zoo.*\"]\n[roles.plain]\ndescription = \"no tools named\"\n";
    let gate = start_gate(&(zoo("zoo", &[]) + &zoo("ape", &[]) + roles)).await;
    gate.wait_for_state("ape", "healthy").await;
    for (name, entry, expected) in [
        ("none", json!({"tools": []}), &[][..]),
        ("all", json!({}), &["zoo_echo", "zoo_empty", "ape_echo"]),
        (
            "reader",
            json!({"roles": ["reader"]}),
            &["zoo_echo", "ape_echo"],
        ),
        (
            "union",
            json!({"roles": ["reader", "keeper"]}),
            &["zoo_echo", "zoo_empty", "ape_echo"],
        ),
        (
            "plain",
            json!({"roles": ["plain"]}),
            &["zoo_echo", "zoo_empty", "ape_echo"],
        ),
        (
            "both",
            json!({"roles": ["reader"], "tools": ["zoo_*"]}),
            &["zoo_echo"],
        ),
        (
            "bifrost",
            json!({"mcp_configs": [{"mcp_client_name": "zoo", "tools_to_execute": ["echo"]}]}),
            &["zoo_echo"],
        ),
        (
            "stars",
            json!({"mcp_configs": [{"mcp_client_name": "zoo", "tools_to_execute": ["*"]}]}),
            &["zoo_echo", "zoo_empty"],
        ),
        (
            "empty",
            json!({"mcp_configs": [{"mcp_client_name": "zoo", "tools_to_execute": []}]}),
            &[],
        ),
        ("no_grant", json!({"mcp_configs": []}), &[]),
    ] {
        let mut entry = entry;
        entry["name"] = json!(name);
        let key = create_key(&gate, &entry).await;
        assert_eq!(visible_tools(&gate, &key).await, expected, "{name}");
    }
    let unknown = json!({"name": "x", "roles": ["no-such-role"]});
    assert_eq!(gate.caller().post("/api/keys", &unknown).await.status, 400);
}

#[tokio::test]
async fn allow_on_all_virtual_keys_opens_server() {
    let toml = zoo("zoo", &[]) + &zoo("ape", &[]) + "allow_on_all_virtual_keys = true\n";
    let gate = start_gate(&toml).await;
    gate.wait_for_state("ape", "healthy").await;
    let other = create_key(&gate, &json!({"name": "silent", "tools": ["zoo.echo"]})).await;
    assert_eq!(visible_tools(&gate, &other).await, ["zoo_echo", "ape_echo"]);
    let explicit = create_key(&gate, &json!({"name": "speaks", "tools": ["ape.empty"]})).await;
    assert!(visible_tools(&gate, &explicit).await.is_empty());
}

#[tokio::test]
async fn role_changes_apply_to_existing_keys() {
    let gate = start_gate(&(zoo("zoo", &[]) + &zoo("ape", &[]))).await;
    gate.wait_for_state("ape", "healthy").await;
    let admin = gate.caller();
    admin
        .put("/api/roles/r", &json!({"tools": ["zoo.echo"]}))
        .await
        .expect_status(200);
    let key = create_key(&gate, &json!({"name": "alice", "roles": ["r"]})).await;
    assert_eq!(visible_tools(&gate, &key).await, ["zoo_echo"]);
    admin
        .put("/api/roles/r", &json!({"tools": ["ape.*"]}))
        .await
        .expect_status(200);
    assert_eq!(visible_tools(&gate, &key).await, ["ape_echo"]);
    assert_eq!(
        admin.delete("/api/roles/r").await.status,
        409,
        "a key has the role"
    );
    admin
        .put("/api/keys/alice", &json!({"roles": []}))
        .await
        .expect_status(200);
    admin.delete("/api/roles/r").await.expect_status(200);
    assert_eq!(visible_tools(&gate, &key).await.len(), 3);
}

#[tokio::test]
async fn rate_limit_is_per_key() {
    let toml = zoo("zoo", &[])
        + &alice_config("rate_limit = \"2/hour\"\n")
        + &format!("[keys.bob]\nkey = \"{BOB}\"\n");
    let gate = start_gate(&toml).await;
    for _ in 0..2 {
        assert_eq!(text(&call_add(&gate, ALICE).await), "3");
    }
    let answer = gate
        .with_key(ALICE)
        .execute("zoo_add", &json!({"a": 1, "b": 2}))
        .await;
    let after: u64 = answer.retry_after.as_ref().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&after), "{after}");
    let error = answer.expect_status(429);
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("alice"),
        "{error}"
    );
    assert_eq!(
        gate.with_key(BOB).call_status().await,
        200,
        "other keys are unaffected"
    );
    let outcomes = gate.outcomes(&gate.with_key(BOB)).await;
    assert_eq!(outcomes, ["ok", "ok", "limited", "ok"]);
}

fn add_calls(count: usize) -> Value {
    vec![tool_call("zoo_add", &json!({"a": 1, "b": 2})); count].into()
}

#[tokio::test]
async fn array_is_admitted_or_refused_as_a_whole() {
    let toml = zoo("zoo", &[])
        + &alice_config("rate_limit = \"5/hour\"\nbudget = { calls = 100 }\n")
        + &format!("[keys.bob]\nkey = \"{BOB}\"\n");
    let gate = start_gate(&toml).await;
    let (alice, bob) = (gate.with_key(ALICE), gate.with_key(BOB));

    let too_large = alice.post(EXECUTE, &add_calls(6)).await;
    assert_eq!(too_large.retry_after, None, "it can never succeed");
    let error = too_large.expect_status(400).to_string();
    assert!(
        error.contains("at most 5") && error.contains("5/hour"),
        "{error}"
    );
    let answers = alice.post(EXECUTE, &add_calls(3)).await.expect_status(200);
    assert_eq!(answers.as_array().unwrap().len(), 3);
    let refused = alice.post(EXECUTE, &add_calls(3)).await;
    let after: u64 = refused.retry_after.as_ref().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&after), "{after}");
    let error = refused.expect_status(429);
    assert_eq!(error["error"]["code"], "rate_limited", "{error}");

    // The refused arrays have used up nothing, and the admitted one was counted once.
    let answers = alice.post(EXECUTE, &add_calls(2)).await.expect_status(200);
    let texts: Vec<&str> = answers.as_array().unwrap().iter().map(text).collect();
    assert_eq!(texts, ["3", "3"]);
    for one in [add_calls(1), tool_call("zoo_add", &json!({}))] {
        assert_eq!(alice.post(EXECUTE, &one).await.status, 429);
    }
    bob.post(EXECUTE, &add_calls(50)).await.expect_status(200);
    let records = gate.records(&bob).await;
    let of_alice = records.iter().filter(|record| record["caller"] == "alice");
    let outcomes: Vec<(&str, i64)> = of_alice
        .map(|record| {
            let occurrences = record["occurrences"].as_i64().unwrap_or(1);
            (record["outcome"].as_str().unwrap(), occurrences)
        })
        .collect();
    let (ok, limited) = (("ok", 1), ("limited", 1));
    let expected = [
        ("limited", 6),
        ok,
        ok,
        ok,
        ("limited", 3),
        ok,
        ok,
        limited,
        limited,
    ];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn malformed_array_is_not_counted() {
    let toml = zoo("zoo", &[]) + &alice_config("rate_limit = \"2/hour\"\n");
    let gate = start_gate(&toml).await;
    let alice = gate.with_key(ALICE);
    let malformed = json!([tool_call("zoo_add", &json!({})), {"function": {"name": 7}}]);
    for _ in 0..3 {
        alice.post(EXECUTE, &malformed).await.expect_status(400);
    }
    alice.post(EXECUTE, &add_calls(2)).await.expect_status(200);
}

#[tokio::test]
async fn max_in_flight_limits_key() {
    let toml = zoo("zoo", &[]) + &alice_config("max_in_flight = 1\n");
    let gate = start_gate(&toml).await;
    let alice = gate.with_key(ALICE);
    let sleep = json!({"ms": 60000});
    // One runs, four wait, and one is refused.
    let calls = (0..6).map(|_| Box::pin(alice.execute("zoo_sleep", &sleep)));
    let (refused, ..) = futures_util::future::select_all(calls).await;
    let error = refused.expect_status(429);
    assert!(error.to_string().contains("in flight"), "{error}");
}

#[tokio::test]
async fn call_budget_survives_restart() {
    let toml = zoo("zoo", &[]) + &alice_config("budget = { calls = 3 }\n");
    let mut gate = start_gate(&toml).await;
    let alice = gate.with_key(ALICE);
    assert!(is_unknown_tool(
        &alice.call("zoo_nothing", &json!({})).await
    ));
    assert_eq!(
        alice.call("zoo_add", &json!({"a": "x"})).await["is_error"],
        true
    );
    for _ in 0..2 {
        assert_eq!(
            text(&call_add(&gate, ALICE).await),
            "3",
            "calls that did not run are free"
        );
    }
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.with_key(ALICE).call_status().await, 200);
    let answer = gate
        .with_key(ALICE)
        .execute("zoo_add", &json!({"a": 1, "b": 2}))
        .await;
    let error = answer.expect_status(429);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("budget") && message.contains("3 calls"),
        "{message}"
    );
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.with_key(ALICE).call_status().await, 429);
}

#[tokio::test]
async fn usd_budget_counts_tool_prices() {
    let toml = zoo("zoo", &[])
        + "tool_pricing = { add = 0.4 }\n"
        + "[mcp_servers.zoo.tools.kinds]\nprice = 0.25\n"
        + &alice_config("budget = { usd = 1.0 }\n");
    let mut gate = start_gate(&toml).await;
    let alice = gate.with_key(ALICE);
    assert_eq!(
        alice.call("zoo_echo", &json!({})).await["is_error"],
        Value::Null
    );
    for _ in 0..2 {
        assert_eq!(alice.call_status().await, 200);
    }
    assert_eq!(
        alice.call_status().await,
        429,
        "0.8 + 0.4 exceeds the budget"
    );
    gate.restart().await;
    gate.wait_for_state("zoo", "healthy").await;
    let alice = gate.with_key(ALICE);
    assert_eq!(alice.call_status().await, 429);
    let kinds = alice.execute("zoo_kinds", &json!({})).await;
    assert_eq!(kinds.status, 429, "0.8 + 0.25 exceeds the budget");
    assert_eq!(
        alice.execute("zoo_echo", &json!({})).await.status,
        200,
        "the tool is free"
    );
    let records = gate.all_records().await;
    let spent: f64 = records
        .iter()
        .map(|r| r["cost_usd"].as_f64().unwrap())
        .sum();
    assert!((spent - 0.8).abs() < 1e-9, "{spent}");
}

#[tokio::test]
async fn cached_result_is_free() {
    let toml = zoo("zoo", &[])
        + "cache_ttl = \"10m\"\ntool_pricing = { add = 0.6 }\n"
        + &alice_config("budget = { usd = 1.0 }\n");
    let gate = start_gate(&toml).await;
    for _ in 0..3 {
        assert_eq!(gate.with_key(ALICE).call_status().await, 200);
    }
    let records = gate.records(&gate.with_key(ALICE)).await;
    let costs: Vec<f64> = records
        .iter()
        .map(|r| r["cost_usd"].as_f64().unwrap())
        .collect();
    assert_eq!(costs, [0.6, 0.0, 0.0]);
}

#[tokio::test]
async fn recreated_key_has_a_fresh_budget() {
    let gate = start_gate(&zoo("zoo", &[])).await;
    let entry = json!({"name": "alice", "budget": {"calls": 1}});
    let first = create_key(&gate, &entry).await;
    assert_eq!(gate.with_key(&first).call_status().await, 200);
    assert_eq!(gate.with_key(&first).call_status().await, 429);
    gate.caller()
        .delete("/api/keys/alice")
        .await
        .expect_status(200);
    let second = create_key(&gate, &entry).await;
    assert_eq!(gate.with_key(&second).call_status().await, 200);
}

#[tokio::test]
async fn concurrent_calls_do_not_exceed_budget() {
    let toml = zoo("zoo", &[]) + &alice_config("budget = { calls = 5 }\n");
    let gate = start_gate(&toml).await;
    let alice = gate.with_key(ALICE);
    let statuses = futures_util::future::join_all((0..20).map(|_| alice.call_status())).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 15);
}

#[tokio::test]
async fn only_admin_key_allows_admin_api() {
    let toml = format!("admin_key = \"{ADMIN}\"\n") + &zoo("zoo", &[]) + &alice_config("");
    let gate = TestGate::start(&toml);
    for path in [
        "/api/keys",
        "/api/audit",
        "/api/permissions",
        "/api/mcp/tools",
        "/api/events",
    ] {
        assert_eq!(gate.with_key(ALICE).get(path).await.status, 403, "{path}");
        assert_eq!(gate.caller().get(path).await.status, 401, "{path}");
    }
    let keys = gate
        .with_key(ADMIN)
        .get("/api/keys")
        .await
        .expect_status(200);
    assert_eq!(keys["keys"][0]["name"], "alice");
    assert_eq!(keys["keys"][0]["source"], "file");
    assert!(!keys.to_string().contains(ALICE), "{keys}");
    let more = json!({"roles": ["approver"]});
    let escalation = gate.with_key(ALICE).put("/api/keys/alice", &more).await;
    assert_eq!(escalation.status, 403);
}

#[tokio::test]
async fn metrics_do_not_reveal_forbidden_servers() {
    let toml = zoo("zoo", &[])
        + &zoo("vault", &[])
        + &alice_config("tools = [\"zoo.*\"]\n")
        + &format!("[keys.bob]\nkey = \"{BOB}\"\n");
    let gate = start_gate(&toml).await;
    gate.wait_for_state("vault", "healthy").await;
    gate.with_key(BOB).call("vault_echo", &json!({})).await;
    let request = gate.client.get(format!("{}/metrics", gate.url));
    let response = request.header("x-api-key", ALICE).send().await.unwrap();
    let metrics = response.text().await.unwrap();
    assert!(!metrics.contains("vault"), "{metrics}");
}

#[tokio::test]
async fn ambiguous_filter_does_not_reveal_hidden_servers() {
    let toml = zoo("zoo", &[]) + &zoo("zoo_a", &[]) + &alice_config("tools = [\"zoo.*\"]\n");
    let gate = start_gate(&toml).await;
    gate.wait_for_state("zoo_a", "healthy").await;
    let answer = async |filter: &str| {
        let caller = gate
            .with_key(ALICE)
            .with_header("x-bf-mcp-include-tools", filter);
        let answer = caller.execute("zoo_echo", &json!({})).await;
        (
            answer.status,
            answer.body.to_string().replace(filter, "FILTER"),
        )
    };
    assert_eq!(answer("zoo_a_x").await, answer("zoo_b_x").await);
}

#[tokio::test]
async fn fallback_call_counts_once() {
    let mut web = toolgate_testkit::HttpZoo::start(&[]);
    let toml = zoo("zoo", &[])
        + &format!(
            "[mcp_servers.web]\nurl = \"{}\"\nfallback = \"zoo\"\n",
            web.url()
        )
        + &alice_config("budget = { calls = 2 }\n");
    let gate = start_gate(&toml).await;
    gate.wait_for_state("web", "healthy").await;
    web.kill();
    for _ in 0..2 {
        let answer = gate.with_key(ALICE).execute("web_echo", &json!({})).await;
        let message = answer.expect_status(200);
        assert_eq!(text(&message), "{}", "{message}");
    }
    assert_eq!(gate.with_key(ALICE).call_status().await, 429);
}

#[tokio::test]
async fn key_by_digest_works_and_unreadable_key_does_not() {
    // The SHA-256 digest of `secret`.
    let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let toml = zoo("zoo", &[])
        + &format!("[keys.alice]\nsha256 = \"{digest}\"\n")
        + "[keys.bob]\nkey = \"env.NOT_SET_ANYWHERE\"\n";
    let gate = start_gate(&toml).await;
    assert_eq!(gate.with_key("secret").call_status().await, 200);
    for other in [digest, "", "env.NOT_SET_ANYWHERE", "NOT_SET_ANYWHERE"] {
        assert_eq!(gate.with_key(other).call_status().await, 401, "`{other}`");
    }
}

#[tokio::test]
async fn unreadable_key_still_enables_authentication() {
    let toml = zoo("zoo", &[]) + "[keys.bob]\nkey = \"env.NOT_SET_ANYWHERE\"\n";
    let gate = start_gate(&toml).await;
    assert_eq!(gate.caller().call_status().await, 401);
}

#[tokio::test]
async fn empty_or_ambiguous_keys_are_config_errors() {
    for line in [
        "key = \"\"",
        "",
        "key = \"a\"\nsha256 = \"00\"",
        "sha256 = \"zz\"",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let toml = format!("[keys.alice]\n{line}\n");
        fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let (output, stdout, stderr) = crate::gate::run(folder.path(), &["check"]);
        assert!(!output.status.success(), "`{line}`: {stdout}{stderr}");
    }
}

#[tokio::test]
async fn key_from_empty_variable_is_rejected() {
    let toml = zoo("zoo", &[]) + "[keys.team]\nkey = \"env.TEAM_KEY\"\n";
    let gate = TestGate::start_with(&toml, &[], &[("TEAM_KEY", "")]);
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(gate.caller().call_status().await, 401);
    assert_eq!(
        gate.caller()
            .with_header("x-api-key", "")
            .call_status()
            .await,
        401
    );
    assert_eq!(
        gate.caller().with_header("x-bf-vk", "").call_status().await,
        401
    );
}

#[tokio::test]
async fn removed_last_key_is_rejected() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let key = create_key(&gate, &json!({"name": "one", "tools": ["zoo.echo"]})).await;
    let one = gate.with_key(&key);
    assert_eq!(one.call_status().await, 200);
    gate.caller()
        .delete("/api/keys/one")
        .await
        .expect_status(200);
    assert_eq!(one.call_status().await, 401);
    assert_eq!(gate.with_key("sk-dummy").call_status().await, 401);
    assert!(gate.log().contains("no caller keys are left"));
    let optional = json!({"required": false});
    let changed = gate.caller().put("/api/keys-required", &optional).await;
    changed.expect_status(200);
    assert_eq!(one.call_status().await, 401, "a revoked key stays invalid");
    assert_eq!(gate.with_key("sk-dummy").call_status().await, 200);
}

#[tokio::test]
async fn caller_key_gives_no_admin_access() {
    let gate = TestGate::start(&(zoo("zoo", &[]) + &alice_config("")));
    for key in [ALICE, "wrong"] {
        let status = gate.with_key(key).get("/api/keys").await.status;
        assert!(status == 401 || status == 403, "{key}: {status}");
    }
    gate.caller().get("/api/keys").await.expect_status(200);
    assert!(gate.log().contains("the admin key is off"));
}
