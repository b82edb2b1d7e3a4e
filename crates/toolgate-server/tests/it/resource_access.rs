//! Resources, prompts and completions pass the same gates as tool calls.

use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::caller::ALICE;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{LegacySession, names};

const KEY: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n";
const TEXT: &str = "toolgate://zoo/zoo://text";

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// The requests about an item of the zoo: method, parameters and kind of record.
fn requests() -> [(&'static str, Value, &'static str); 3] {
    let reference = json!({"type": "ref/prompt", "name": "zoo.greet"});
    let argument = json!({"name": "who", "value": "a"});
    [
        ("resources/read", json!({"uri": TEXT}), "resource"),
        (
            "prompts/get",
            json!({"name": "zoo.greet", "arguments": {"who": "Ada"}}),
            "prompt",
        ),
        (
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
            "completion",
        ),
    ]
}

/// Returns the records of a kind, once there are any: they are written shortly after the response.
async fn records(gate: &TestGate, kind: &str) -> Vec<Value> {
    let path = format!("/api/audit?kind={kind}");
    eventually("a record", WAIT_TIMEOUT, async || {
        let page = gate.json(&path).await;
        let records = page["records"].as_array().unwrap().clone();
        (!records.is_empty()).then_some(records)
    })
    .await
}

#[tokio::test]
async fn what_hides_a_server_hides_its_resources_and_prompts() {
    let zoo = zoo("zoo", &[]);
    for rule in [
        "[mcp]\nblocked_tools = [\"zoo.*\"]\n",
        "[[permissions.rules]]\nserver = \"zoo\"\naction = \"deny\"\n",
        "[[permissions.rules]]\ntool = \"zoo_*\"\naction = \"deny\"\n",
        "[[permissions.rules]]\nresource = \"zoo:*\"\naction = \"deny\"\n[[permissions.rules]]\nprompt = \"zoo.*\"\naction = \"deny\"\n",
        "[permissions]\ndefault = \"deny\"\n",
    ] {
        let gate = start_gate(&format!("{zoo}{rule}{KEY}")).await;
        let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
        for (list, member) in [
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ] {
            let listed = session.result(list, json!({})).await;
            assert_eq!(listed[member], json!([]), "{rule}");
        }
        for (method, params, kind) in requests() {
            let (_, answer) = session.request(method, params).await;
            assert!(answer["error"].is_object(), "{rule} {method}: {answer}");
            let records = records(&gate, kind).await;
            assert_eq!(records.len(), 1, "{rule} {method}");
            assert_eq!(records[0]["outcome"], "unknown", "{rule} {method}");
        }
        let subscribed = session
            .request("resources/subscribe", json!({"uri": TEXT}))
            .await;
        assert!(subscribed.1["error"].is_object(), "{rule}");
    }
}

#[tokio::test]
async fn requests_count_against_budget_and_rate() {
    let toml = format!("{}{KEY}budget = {{ calls = 2 }}\n", zoo("zoo", &[]));
    let gate = start_gate(&toml).await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let [read, prompt, completion] = requests();
    for (method, params, _) in [read, prompt] {
        session.result(method, params).await;
    }
    let (_, answer) = session.request(completion.0, completion.1).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("budget"), "{answer}");
    for (kind, outcome) in [
        ("resource", "ok"),
        ("prompt", "ok"),
        ("completion", "limited"),
    ] {
        let records = records(&gate, kind).await;
        assert_eq!(records.len(), 1, "{kind}");
        assert_eq!(records[0]["outcome"], outcome, "{kind}");
        assert_eq!(records[0]["verdict"], "allow", "{kind}");
    }

    let toml = format!("{}rate_limit = \"1/day\"\n{KEY}", zoo("zoo", &[]));
    let gate = start_gate(&toml).await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let [read, prompt, _] = requests();
    session.result(read.0, read.1).await;
    let (_, answer) = session.request(prompt.0, prompt.1).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("rate limit"), "{answer}");
}

#[tokio::test]
async fn rules_name_single_resources_and_prompts() {
    let rules = "[[permissions.rules]]\nresource = \"zoo:zoo://text\"\naction = \"deny\"\n[[permissions.rules]]\nprompt = \"zoo.plain\"\naction = \"deny\"\n[[permissions.rules]]\nprompt = \"zoo.greet\"\naction = \"ask\"\n";
    let gate = start_gate(&format!("{}{rules}{KEY}", zoo("zoo", &[]))).await;
    let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
    let resources = session.result("resources/list", json!({})).await;
    let listed = names(&resources, "resources", "uri");
    assert!(
        !listed.is_empty() && !listed.contains(&TEXT.to_owned()),
        "{listed:?}"
    );
    let prompts = session.result("prompts/list", json!({})).await;
    assert_eq!(names(&prompts, "prompts", "name"), ["zoo.greet"]);
    let item = json!({"uri": "toolgate://zoo/zoo://item/7"});
    session.result("resources/read", item).await;

    let [read, greet, _] = requests();
    let (_, hidden) = session.request(read.0, read.1).await;
    assert_eq!(hidden["error"]["code"], -32002, "{hidden}");
    let tool =
        json!({"name": "ReadMcpResource", "arguments": {"uri": "zoo://text", "server": "zoo"}});
    let (_, hidden) = session.request("tools/call", tool).await;
    assert_eq!(hidden["result"]["isError"], true, "{hidden}");

    // A prompt that needs an approval is read once with it.
    let (_, asked) = session.request(greet.0, greet.1.clone()).await;
    let message = asked["error"]["message"].as_str().unwrap();
    let pending = gate.json("/api/approvals").await;
    let id = pending["approvals"][0]["id"].as_str().unwrap();
    assert!(message.contains(id), "{message} {id}");
    let path = format!("/api/approvals/{id}");
    let edited = json!({"decision": "approve", "arguments": {"name": "plain"}});
    let refused = gate.caller().post(&path, &edited).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    let approve = json!({"decision": "approve"});
    gate.caller().post(&path, &approve).await.expect_status(200);
    let got = session.result(greet.0, greet.1.clone()).await;
    assert!(got["messages"].is_array(), "{got}");
    let (_, again) = session.request(greet.0, greet.1).await;
    assert!(again["error"].is_object(), "{again}");
}
