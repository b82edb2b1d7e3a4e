//! `approval_by`: who may approve a call on `/mcp`, and what they are shown.

use serde_json::{Value, json};

use crate::caller::ALICE;
use crate::gate::{TestGate, zoo};
use crate::mcp::{META, headers, read_json};

const ASK: &str = "[[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n";
const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n";
const CLIENT: &str = "approval_by = [\"admin\", \"client\"]\n";

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// Calls `zoo_say` as a client with the key of Alice that can ask its user, and accepts whatever it
/// is asked. Returns the question, if there was one, and the result.
async fn say_and_accept(gate: &TestGate, text: &str) -> (Option<String>, Value) {
    let meta = META.replace("Capabilities\":{}", "Capabilities\":{\"elicitation\":{}}");
    let call = async |params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let sent = headers(&[
            ("authorization", &format!("Bearer {ALICE}")),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "zoo_say"),
        ]);
        let response = gate.post("/mcp", &body.to_string(), sent).await;
        let (_, answer) = read_json(response).await;
        match &answer["error"]["message"] {
            Value::Null => answer["result"].clone(),
            message => json!({"content": [{"text": message}]}),
        }
    };
    let mut params = json!({"name": "zoo_say", "arguments": {"text": text},
        "_meta": serde_json::from_str::<Value>(&meta).unwrap()});
    let result = call(params.clone()).await;
    let question = &result["inputRequests"]["toolgate_approval"]["params"]["message"];
    let Some(question) = question.as_str() else {
        return (None, result);
    };
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"] = json!({"toolgate_approval": {"action": "accept", "content": {}}});
    (Some(question.to_owned()), call(params).await)
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
