//! Answers of a well-behaved zoo on stdio, in both eras.

use std::collections::HashSet;

use serde_json::Value;

use crate::stdio_zoo::{META, StdioZoo, call, request};

const NUMBERS: &str =
    r#"{"big":18446744073709551617,"huge":1e400,"zero":-0.0,"b":1.50,"a":[ 1,  2 ],"ü":"\u00fc"}"#;

#[tokio::test]
async fn legacy_negotiates_version_and_rejects_discover() {
    let mut zoo = StdioZoo::start(&["--instructions", "be kind"]);
    let probe = zoo
        .exchange_json(&request(0, "server/discover", "{}"))
        .await;
    assert_eq!(probe["error"]["code"], -32601);
    for (requested, negotiated) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let params = format!(
            r#"{{"protocolVersion":"{requested}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}"#
        );
        let answer = zoo.exchange_json(&request(1, "initialize", &params)).await;
        assert_eq!(answer["result"]["protocolVersion"], negotiated);
        assert_eq!(answer["result"]["instructions"], "be kind");
    }
    zoo.close_stdin();
    assert!(zoo.wait_for_exit().await.success());
}

#[tokio::test]
async fn modern_discovers_and_requires_meta() {
    let mut zoo = StdioZoo::start(&["--era", "modern"]);
    let discovered = zoo
        .exchange_json(&request(1, "server/discover", &format!("{{{META}}}")))
        .await;
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(discovered["result"]["resultType"], "complete");
    assert_eq!(discovered["result"]["cacheScope"], "public");
    let cases = [
        ("initialize", "{}".to_owned(), -32601),
        ("tools/list", "{}".to_owned(), -32602),
        ("ping", format!("{{{META}}}"), -32601),
        (
            "tools/list",
            format!("{{{META}}}").replace("2026", "1999"),
            -32022,
        ),
    ];
    for (method, params, code) in cases {
        let answer = zoo.exchange_json(&request(2, method, &params)).await;
        assert_eq!(answer["error"]["code"], code, "{method}");
    }
}

#[tokio::test]
async fn dual_supports_both_eras() {
    let mut zoo = StdioZoo::start(&["--era", "dual"]);
    let modern = zoo
        .exchange_json(&request(1, "tools/list", &format!("{{{META}}}")))
        .await;
    assert_eq!(modern["result"]["resultType"], "complete");
    let legacy = zoo.exchange_json(&request(2, "initialize", "{}")).await;
    assert_eq!(legacy["result"]["protocolVersion"], "2025-11-25");
    let legacy = zoo.exchange_json(&request(3, "tools/list", "{}")).await;
    assert_eq!(legacy["result"]["resultType"], Value::Null);
}

#[tokio::test]
async fn echo_preserves_every_byte() {
    let mut zoo = StdioZoo::start(&[]);
    let answer = zoo.exchange(&call(1, "echo", NUMBERS)).await;
    let text = Value::from(NUMBERS);
    assert_eq!(
        answer,
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{{"arguments":{NUMBERS}}},"x-zoo":-0.0}}}}"#
        )
    );
    let list = zoo.exchange(&request(2, "tools/list", "{}")).await;
    assert!(list.contains(r#""x-zoo":[18446744073709551617,1e400,0.1,-0.0]"#));
}

#[tokio::test]
async fn lists_are_paginated() {
    let mut zoo = StdioZoo::start(&["--tools", "30", "--page", "7"]);
    let mut names = Vec::new();
    let mut params = "{}".to_owned();
    loop {
        let answer = zoo.exchange_json(&request(1, "tools/list", &params)).await;
        let page = answer["result"]["tools"].as_array().unwrap();
        assert!(page.len() <= 7);
        names.extend(page.iter().map(|tool| tool["name"].to_string()));
        match answer["result"].get("nextCursor") {
            Some(cursor) => params = format!(r#"{{"cursor":{cursor}}}"#),
            None => break,
        }
    }
    assert_eq!(names.len(), 15 + 30);
    assert_eq!(names.last().unwrap(), r#""tool_0030""#);
    let bad = zoo
        .exchange_json(&request(2, "tools/list", r#"{"cursor":"nope"}"#))
        .await;
    assert_eq!(bad["error"]["code"], -32602);
}

#[tokio::test]
async fn malformed_entries_are_listed_and_hostile_names_callable() {
    let mut zoo = StdioZoo::start(&["--malformed"]);
    let list = zoo.exchange_json(&request(1, "tools/list", "{}")).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 15 + 11);
    assert!(tools.iter().any(Value::is_string));
    let long = tools.iter().filter_map(|tool| tool["name"].as_str());
    assert_eq!(long.map(|name| name.chars().count()).max(), Some(200));
    let answer = zoo.exchange_json(&call(2, r"x\u001b[31mred", "{}")).await;
    assert_eq!(answer["result"]["content"][0]["text"], "{}");
}

#[tokio::test]
async fn every_tool_answers() {
    let mut zoo = StdioZoo::start(&[]);
    let answer = zoo
        .exchange_json(&call(1, "add", r#"{"a":2,"b":-5}"#))
        .await;
    assert_eq!(answer["result"]["structuredContent"]["sum"], -3);
    let answer = zoo.exchange_json(&call(2, "fail", "{}")).await;
    assert_eq!(answer["result"]["isError"], true);
    let answer = zoo.exchange_json(&call(3, "rpc_error", "{}")).await;
    assert_eq!(answer["error"]["data"]["reason"], "zoo");
    let answer = zoo
        .exchange_json(&call(4, "big", r#"{"bytes":3000000}"#))
        .await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 3_000_000);
    let answer = zoo.exchange_json(&call(5, "kinds", "{}")).await;
    assert_eq!(answer["result"]["content"][5]["type"], "x-new");
    let answer = zoo.exchange_json(&call(6, "env", "{}")).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["PATH"].is_string());
    let answer = zoo.exchange(&call(7, "empty", "{}")).await;
    assert_eq!(
        answer,
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#
    );
    let answer = zoo.exchange_json(&call(8, "missing", "{}")).await;
    assert_eq!(answer["error"]["code"], -32602);
    let params = r#"{"name":"progress","arguments":{"steps":3},"_meta":{"progressToken":"p"}}"#;
    zoo.send(&request(9, "tools/call", params)).await;
    for step in 1..=3 {
        let note: Value = serde_json::from_str(&zoo.next_line().await).unwrap();
        assert_eq!(note["params"]["progress"], step);
        assert_eq!(note["params"]["progressToken"], "p");
    }
    assert!(zoo.next_line().await.contains("3 steps"));
}

#[tokio::test]
async fn resources_and_prompts_are_served() {
    let mut zoo = StdioZoo::start(&[]);
    let list = zoo.exchange_json(&request(1, "resources/list", "{}")).await;
    assert_eq!(list["result"]["resources"].as_array().unwrap().len(), 3);
    let list = zoo
        .exchange_json(&request(2, "resources/templates/list", "{}"))
        .await;
    assert_eq!(list["result"]["resourceTemplates"][0]["name"], "item");
    for uri in ["zoo://text", "zoo://blob", "zoo://json", "zoo://item/7"] {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        let read = zoo
            .exchange_json(&request(3, "resources/read", &params))
            .await;
        assert_eq!(read["result"]["contents"][0]["uri"], uri);
    }
    let read = zoo
        .exchange_json(&request(4, "resources/read", r#"{"uri":"zoo://none"}"#))
        .await;
    assert_eq!(read["error"]["code"], -32002);
    let list = zoo.exchange_json(&request(5, "prompts/list", "{}")).await;
    assert_eq!(list["result"]["prompts"].as_array().unwrap().len(), 2);
    let params = r#"{"name":"greet","arguments":{"who":"Eve"}}"#;
    let prompt = zoo.exchange_json(&request(6, "prompts/get", params)).await;
    let text = &prompt["result"]["messages"][0]["content"]["text"];
    assert_eq!(text, "Say hello to Eve.");
}

#[tokio::test]
async fn two_thousand_concurrent_calls_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = StdioZoo::start(&["--count", count.to_str().unwrap()]);
    for id in 0..2000 {
        zoo.send(&call(id, "sleep", r#"{"ms":600000}"#)).await;
    }
    let echo = zoo.exchange_json(&call(2000, "echo", "{}")).await;
    assert_eq!(echo["id"], 2000, "echo overtakes the sleeping calls");
    for id in 0..2000 {
        let cancel = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        zoo.send(&cancel).await;
    }
    let counted = crate::fault::wait_for_lines(&count, 2000 + 1 + 2000).await;
    let cancelled = counted.iter().filter(|line| *line == "cancelled");
    assert_eq!(cancelled.count(), 2000);
}

#[tokio::test]
async fn concurrent_calls_are_each_answered_once() {
    let mut zoo = StdioZoo::start(&[]);
    for id in 0..500 {
        zoo.send(&call(id, "sleep", r#"{"ms":20}"#)).await;
    }
    let mut ids = HashSet::new();
    while ids.len() < 500 {
        let answer: Value = serde_json::from_str(&zoo.next_line().await).unwrap();
        assert!(ids.insert(answer["id"].to_string()));
    }
}
