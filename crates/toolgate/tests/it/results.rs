//! Processing of results: truncation, stored results, sanitising and redaction.

use serde_json::{Value, json};
use toolgate::{Caller, Gateway};
use toolgate_testkit::eventually;

use crate::support::{
    KEYS, WAIT_TIMEOUT, call_as, call_json, is_failed, records, secret_token, start_settled,
    stdio_zoo, stop,
};

const TRUNCATE: &str = "[results]\nmax_bytes = 1024\n";

/// A caller that passes results on to a model; only for such callers are they truncated.
fn model() -> Caller {
    Caller::http()
}

async fn start(more: &str) -> Gateway {
    start_settled(&(stdio_zoo("zoo", &[]) + more)).await
}

/// Reads a stored result in chunks and checks that they are contiguous.
fn read_all(gateway: &Gateway, caller: &Caller, handle: &str) -> String {
    let mut whole = String::new();
    let mut offset = 0;
    loop {
        let chunk = gateway.tools().read_result(caller, handle, offset);
        let chunk = chunk.expect("a stored result");
        assert_eq!(chunk.offset as u64, offset);
        whole += &chunk.text;
        match chunk.next {
            Some(next) => offset = next as u64,
            None => {
                assert_eq!(chunk.total, whole.len());
                return whole;
            }
        }
    }
}

/// Says a text and returns what the caller gets.
async fn say(gateway: &Gateway, text: &str) -> String {
    let outcome = call_as(gateway, &model(), "zoo_say", &json!({"text": text})).await;
    outcome.unwrap().result.text()
}

#[tokio::test]
async fn large_result_is_truncated_and_stored_for_its_caller() {
    let gateway = start(&(TRUNCATE.to_owned() + KEYS)).await;
    let (alice, bob) = (model().with_key("alice"), model().with_key("bob"));
    let long: String = "ä–😀x".chars().cycle().take(3000).collect();
    let outcome = call_as(&gateway, &alice, "zoo_say", &json!({"text": long})).await;
    let outcome = outcome.unwrap();
    let handle = outcome.handle.expect("a handle");
    let text = outcome.result.text();
    assert!(text.len() < 1400, "{}", text.len());
    assert!(text.starts_with(&long[..1000]) && text.contains(&handle));
    assert_eq!(read_all(&gateway, &alice, &handle), long);
    let tools = gateway.tools();
    assert!(tools.read_result(&bob, &handle, 0).is_none());
    assert!(tools.read_result(&alice, "nothing", 0).is_none());
    let library = call_json(&gateway, "zoo_say", &json!({"text": long})).await;
    let library = library.unwrap();
    assert_eq!((library.result.text(), library.handle), (long, None));
    let small = call_as(&gateway, &alice, "zoo_say", &json!({"text": "x"})).await;
    assert_eq!(small.unwrap().handle, None);
    stop(gateway).await;
}

#[tokio::test]
async fn read_result_tool_returns_the_rest() {
    let gateway = start(&(TRUNCATE.to_owned() + KEYS)).await;
    let (alice, bob) = (model().with_key("alice"), model().with_key("bob"));
    let big = call_as(&gateway, &alice, "zoo_big", &json!({"bytes": 2500})).await;
    let handle = big.unwrap().handle.expect("a handle");
    let read = async |caller: &Caller, arguments: Value| {
        call_as(&gateway, caller, "toolgate_read_result", &arguments).await
    };
    for name in [
        "toolgate_read_result",
        "toolgate-read_result",
        "mcp__toolgate__read_result",
        "toolgate.read_result",
    ] {
        let arguments = json!({"handle": handle, "offset": 2400});
        let rest = call_as(&gateway, &alice, name, &arguments).await.unwrap();
        assert_eq!(rest.result.text(), "x".repeat(100), "{name}");
    }
    let more = read(&alice, json!({"handle": handle, "offset": 1024})).await;
    let more = more.unwrap().result.text();
    assert!(more.contains("\"offset\":2048"), "{more}");
    for (caller, arguments) in [
        (&bob, json!({"handle": handle, "offset": 0})),
        (&alice, json!({"handle": "nothing"})),
        (&alice, json!({})),
    ] {
        let answer = read(caller, arguments).await;
        assert!(is_failed(&answer), "{answer:?}");
    }
    let records = records(&gateway).await;
    assert_eq!(records.len(), 9);
    let is_read = |tool: Option<&str>| tool == Some("read_result");
    assert!(records[1..].iter().all(|r| is_read(r.tool.as_deref())));
    stop(gateway).await;
}

#[tokio::test]
async fn large_error_result_stays_an_error() {
    let gateway = start(TRUNCATE).await;
    let arguments = json!({"text": "x".repeat(5000), "fails": true});
    let outcome = call_as(&gateway, &model(), "zoo_say", &arguments)
        .await
        .unwrap();
    assert!(outcome.result.is_error());
    assert!(outcome.handle.is_some());
    stop(gateway).await;
}

#[tokio::test]
async fn stored_result_expires() {
    let gateway = start(&(TRUNCATE.to_owned() + "keep = \"100ms\"\n")).await;
    let big = call_as(&gateway, &model(), "zoo_big", &json!({"bytes": 2500})).await;
    let handle = big.unwrap().handle.expect("a handle");
    eventually("the result has expired", WAIT_TIMEOUT, async || {
        let chunk = gateway.tools().read_result(&model(), &handle, 0);
        chunk.is_none().then_some(())
    })
    .await;
    stop(gateway).await;
}

#[tokio::test]
async fn control_characters_are_removed_from_results() {
    let gateway = start("").await;
    for (raw, expected) in [
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("bell\u{7} null\u{0} del\u{7f}", "bell null del"),
        ("\u{9b}2Jcleared", "cleared"),
        ("\u{1b}]8;;http://evil\u{7}link\u{1b}]8;;\u{7}", "link"),
        ("tag\u{e0041}\u{e0042}", "tag"),
        ("lines\r\nand\ttabs", "lines\r\nand\ttabs"),
        ("Grüße 😀 — 日本語", "Grüße 😀 — 日本語"),
    ] {
        assert_eq!(say(&gateway, raw).await, expected, "{raw:?}");
    }
    stop(gateway).await;
}

#[tokio::test]
async fn secrets_in_results_are_redacted_when_enabled() {
    let token = secret_token();
    let with_secret = format!("it is {token}.");
    let unredacted = start("").await;
    assert_eq!(say(&unredacted, &with_secret).await, with_secret);
    stop(unredacted).await;

    let gateway = start("[results]\nredact_secrets = true\nmax_bytes = 1024\n").await;
    let text = say(&gateway, &with_secret).await;
    assert!(!text.contains(&token), "{text}");
    assert!(text.starts_with("it is [") && text.ends_with('.'), "{text}");
    let long = json!({"text": format!("{} {token}", "x".repeat(2000))});
    let outcome = call_as(&gateway, &model(), "zoo_say", &long).await.unwrap();
    let handle = outcome.handle.expect("a handle");
    let whole = read_all(&gateway, &model(), &handle);
    assert!(whole.starts_with(&"x".repeat(2000)), "{whole}");
    assert!(!whole.contains(&token), "the stored result is redacted too");
    stop(gateway).await;
}

/// Starts a gateway with a tool that has an output schema, and returns this structured content.
async fn start_with_output(mode: &str, structured: &Value) -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.json");
    let schema =
        json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
    let mut result = json!({"content": [{"type": "text", "text": "done"}]});
    if !structured.is_null() {
        result["structuredContent"] = structured.clone();
    }
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema,
        "annotations": {"readOnlyHint": true}});
    let failed = json!({"content": [], "isError": true});
    let fails = json!({"name": "fails", "inputSchema": {"type": "object"}, "outputSchema": schema});
    let content = json!({"tools": [tool, fails], "results": {"t": result, "fails": failed}});
    std::fs::write(&file, content.to_string()).unwrap();
    let zoo = stdio_zoo("zoo", &["--tools-from", file.to_str().unwrap()]);
    let mode = if mode.is_empty() {
        String::new()
    } else {
        format!("[results]\noutput_schema = \"{mode}\"\n")
    };
    let toml = format!("{mode}{zoo}cache_ttl = \"1m\"\n");
    (folder, start_settled(&toml).await)
}

#[tokio::test]
async fn result_is_checked_against_the_output_schema() {
    let (valid, invalid) = (json!({"sum": 3}), json!({"sum": "three"}));
    for (mode, structured, is_refused, is_warned) in [
        ("", &valid, false, false),
        ("", &invalid, false, true),
        ("", &Value::Null, false, true),
        ("off", &invalid, false, false),
        ("refuse", &valid, false, false),
        ("refuse", &invalid, true, false),
        ("refuse", &Value::Null, true, false),
    ] {
        let (_folder, gateway) = start_with_output(mode, structured).await;
        // The second time, the result may come from the cache; a refused one must not.
        for _ in 0..2 {
            let answer = call_json(&gateway, "zoo_t", &json!({})).await;
            match answer {
                Ok(outcome) => {
                    assert!(!is_refused, "{mode} {structured}");
                    assert_eq!(outcome.result.text(), "done");
                }
                Err(error) => {
                    assert!(is_refused, "{mode} {structured}: {error}");
                    assert_eq!(error.code(), "invalid_output");
                    assert!(
                        error.to_string().contains("`zoo.t` ran, but its result"),
                        "{error}"
                    );
                }
            }
        }
        let fails = call_json(&gateway, "zoo_fails", &json!({})).await.unwrap();
        assert!(
            fails.result.is_error(),
            "a failure needs no structured content"
        );
        let records = records(&gateway).await;
        let warnings = &records[0].warnings;
        assert_eq!(
            warnings.iter().any(|text| text.contains("output schema")),
            is_warned,
            "{mode} {structured}"
        );
        assert_eq!(
            records[0].outcome,
            if is_refused { "invalid_output" } else { "ok" }
        );
        assert!(records.last().unwrap().warnings.is_empty());
        stop(gateway).await;
    }
}
