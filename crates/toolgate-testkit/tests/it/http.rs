//! The HTTP zoo: eras, sessions, streams and rejections.

use serde_json::Value;
use toolgate_testkit::{HttpZoo, is_alive};

use crate::stdio_zoo::{META, call, request};
use crate::wire::{EventStream, post, send};

const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2025-11-25");
const MODERN: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");

#[tokio::test]
async fn answers_are_events_or_json() {
    let raw = r#"{"big":18446744073709551617,"zero":-0.0}"#;
    for (flags, kind) in [
        (&[][..], "text/event-stream"),
        (&["--json"][..], "application/json"),
    ] {
        let zoo = HttpZoo::start(flags);
        let reply = post(&zoo, &[], &call(1, "echo", raw)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some(kind));
        let structured = format!(r#""structuredContent":{{"arguments":{raw}}},"x-zoo":-0.0"#);
        assert!(
            reply.last_message().contains(&structured),
            "{}",
            reply.last_message()
        );
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let reply = post(&zoo, &[], note).await;
        assert_eq!((reply.status, reply.text()), (202, ""));
        let probe = post(&zoo, &[], &request(2, "server/discover", "{}")).await;
        assert_eq!(probe.json()["error"]["code"], -32601);
    }
}

#[tokio::test]
async fn multiline_arguments_survive_event_stream() {
    let zoo = HttpZoo::start(&[]);
    let raw = "{\n  \"a\": 1.50\n}";
    let reply = post(&zoo, &[], &call(1, "echo", raw)).await;
    assert_eq!(reply.json()["result"]["content"][0]["text"], raw);
    assert!(reply.last_message().contains(raw));
}

#[tokio::test]
async fn session_is_created_required_and_deleted() {
    let zoo = HttpZoo::start(&["--sessions"]);
    let reply = post(&zoo, &[], &request(1, "initialize", "{}")).await;
    let session = ("Mcp-Session-Id", reply.header("mcp-session-id").unwrap());
    let list = request(2, "tools/list", "{}");
    assert_eq!(post(&zoo, &[session, VERSION], &list).await.status, 200);
    assert_eq!(post(&zoo, &[VERSION], &list).await.status, 400);
    assert_eq!(post(&zoo, &[session, MODERN], &list).await.status, 400);
    let unknown = ("Mcp-Session-Id", "unknown");
    assert_eq!(post(&zoo, &[unknown, VERSION], &list).await.status, 404);
    let delete = send(&zoo, "DELETE", "/mcp", &[session, VERSION], "").await;
    assert_eq!(delete.status, 204);
    assert_eq!(post(&zoo, &[session, VERSION], &list).await.status, 404);
}

#[tokio::test]
async fn session_expires_after_request_limit() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let zoo = HttpZoo::start(&["--expire-after", "2", "--count", count.to_str().unwrap()]);
    let reply = post(&zoo, &[], &request(1, "initialize", "{}")).await;
    let session = ("Mcp-Session-Id", reply.header("mcp-session-id").unwrap());
    for status in [200, 200, 404, 404] {
        let reply = post(&zoo, &[session, VERSION], &call(2, "echo", "{}")).await;
        assert_eq!(reply.status, status);
    }
    let counted = std::fs::read_to_string(count).unwrap();
    let counted: Vec<&str> = counted.lines().collect();
    let (ran, refused) = ("tools/call echo", "refused 404 tools/call echo");
    assert_eq!(counted, ["initialize", ran, ran, refused, refused]);
}

#[tokio::test]
async fn session_does_not_survive_restart() {
    let mut zoo = HttpZoo::start(&["--sessions"]);
    let (url, pid) = (zoo.url(), zoo.pid());
    let reply = post(&zoo, &[], &request(1, "initialize", "{}")).await;
    let session = ("Mcp-Session-Id", reply.header("mcp-session-id").unwrap());
    zoo.restart();
    assert_eq!(zoo.url(), url);
    assert!(!is_alive(pid) && is_alive(zoo.pid()));
    let ping = request(2, "ping", "{}");
    assert_eq!(post(&zoo, &[session, VERSION], &ping).await.status, 404);
}

#[tokio::test]
async fn modern_headers_must_match_body() {
    let zoo = HttpZoo::start(&["--era", "modern", "--malformed"]);
    let method = ("Mcp-Method", "tools/call");
    let call = |name: &str, arguments: &str| {
        let params = format!(r#"{{{META},"name":"{name}","arguments":{arguments}}}"#);
        request(1, "tools/call", &params)
    };
    let (echo, region) = (("Mcp-Name", "echo"), ("Mcp-Name", "header_tool"));
    let north = call("header_tool", r#"{"region":"nørd"}"#);
    let encoded = ("Mcp-Param-Region", "=?base64?bsO4cmQ=?=");
    let good = [
        (&[MODERN, method, echo][..], call("echo", "{}")),
        (&[MODERN, method, region, encoded], north.clone()),
        (&[MODERN, method, region], call("header_tool", "{}")),
        (
            &[MODERN, method, ("Mcp-Name", "=?base64?w7xuw69jb2Rl?=")],
            call("ünïcode", "{}"),
        ),
    ];
    for (headers, body) in good {
        let reply = post(&zoo, headers, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["result"]["resultType"], "complete");
    }
    let bad = [
        (&[method, echo][..], call("echo", "{}")),
        (&[VERSION, method, echo], call("echo", "{}")),
        (&[MODERN, echo], call("echo", "{}")),
        (
            &[MODERN, ("Mcp-Method", "tools/list"), echo],
            call("echo", "{}"),
        ),
        (&[MODERN, method], call("echo", "{}")),
        (&[MODERN, method, ("Mcp-Name", "Echo")], call("echo", "{}")),
        (&[MODERN, method, region], north.clone()),
        (
            &[MODERN, method, region, encoded],
            call("header_tool", "{}"),
        ),
        (&[MODERN, method, region, ("Mcp-Param-Region", "x")], north),
    ];
    for (headers, body) in bad {
        let reply = post(&zoo, headers, &body).await;
        assert_eq!(reply.status, 400, "{headers:?}");
        assert_eq!(reply.json()["error"]["code"], -32020, "{headers:?}");
    }
}

#[tokio::test]
async fn modern_rejections_have_status_and_code() {
    let zoo = HttpZoo::start(&["--era", "modern"]);
    let meta = format!("{{{META}}}");
    let legacy_meta = meta.replace("2026-07-28", "2025-11-25");
    let cases = [
        (&[][..], "initialize", "{}", 400, -32022),
        (&[MODERN], "tools/list", "{}", 400, -32602),
        (
            &[VERSION, ("Mcp-Method", "tools/list")],
            "tools/list",
            &legacy_meta,
            400,
            -32022,
        ),
        (
            &[MODERN, ("Mcp-Method", "ping")],
            "ping",
            &meta,
            404,
            -32601,
        ),
    ];
    for (headers, method, params, status, code) in cases {
        let reply = post(&zoo, headers, &request(1, method, params)).await;
        assert_eq!(reply.status, status, "{method}");
        assert_eq!(reply.json()["error"]["code"], code, "{method}");
    }
    assert_eq!(send(&zoo, "GET", "/mcp", &[], "").await.status, 405);
    assert_eq!(send(&zoo, "DELETE", "/mcp", &[], "").await.status, 405);
}

#[tokio::test]
async fn gate_flags_reject_requests() {
    let ping = request(1, "ping", "{}");
    let zoo = HttpZoo::start(&["--status", "503"]);
    assert_eq!(post(&zoo, &[], &ping).await.status, 503);
    let zoo = HttpZoo::start(&["--redirect", "http://example.com/mcp"]);
    let reply = post(&zoo, &[], &ping).await;
    assert_eq!(reply.status, 307);
    assert_eq!(reply.header("location"), Some("http://example.com/mcp"));
    let zoo = HttpZoo::start(&["--require-header", "Authorization:Bearer abc"]);
    assert_eq!(post(&zoo, &[], &ping).await.status, 401);
    let good = ("authorization", "Bearer abc");
    assert_eq!(post(&zoo, &[good], &ping).await.status, 200);
    let headers = post(&zoo, &[good], &call(2, "headers", "{}")).await.json();
    let text = headers["result"]["content"][0]["text"].as_str().unwrap();
    let headers: Value = serde_json::from_str(text).unwrap();
    assert_eq!(headers["authorization"], "Bearer abc");
}

#[tokio::test]
async fn interrupted_stream_resumes_by_event_id() {
    let zoo = HttpZoo::start(&["--half-close"]);
    let reply = post(&zoo, &[], &call(1, "echo", "{}")).await;
    assert_eq!((reply.status, reply.text()), (200, ""));

    let zoo = HttpZoo::start(&["--half-close", "--resumable"]);
    let reply = post(&zoo, &[], &call(2, "sleep", r#"{"ms":20}"#)).await;
    let id = reply
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("id: "));
    let last = [("Last-Event-ID", id.unwrap())];
    let reply = send(&zoo, "GET", "/mcp", &last, "").await;
    assert_eq!(reply.json()["id"], 2);
    assert_eq!(send(&zoo, "GET", "/mcp", &last, "").await.status, 400);
}

#[tokio::test]
async fn get_stream_announces_changes() {
    let zoo = HttpZoo::start(&["--list-changed-storm", "20"]);
    let mut events = EventStream::open(&zoo, "/mcp", &[]).await;
    for _ in 0..20 {
        assert!(events.next().await.contains("list_changed"));
    }
}

#[tokio::test]
async fn legacy_sse_answers_on_its_stream() {
    let zoo = HttpZoo::start(&["--sse-legacy"]);
    let ping = request(1, "ping", "{}");
    assert_eq!(post(&zoo, &[], &ping).await.status, 405);
    assert_eq!(send(&zoo, "POST", "/sse", &[], &ping).await.status, 405);
    let mut events = EventStream::open(&zoo, "/sse", &[]).await;
    let address = events.next().await;
    for id in 1..=2 {
        let reply = send(&zoo, "POST", &address, &[], &call(id, "echo", "{}")).await;
        assert_eq!(reply.status, 202);
        let answer: Value = serde_json::from_str(&events.next().await).unwrap();
        assert_eq!(answer["id"], id);
    }
    let unknown = send(&zoo, "POST", "/messages?sessionId=x", &[], &ping).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn disconnect_cancels_modern_call() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    for flags in [&[][..], &["--json"]] {
        let _ = std::fs::remove_file(&count);
        let common = ["--era", "modern", "--count", count.to_str().unwrap()];
        let zoo = HttpZoo::start(&[&common, flags].concat());
        let params = format!(r#"{{{META},"name":"sleep","arguments":{{"ms":600000}}}}"#);
        let headers = [MODERN, ("Mcp-Method", "tools/call"), ("Mcp-Name", "sleep")];
        let call = request(1, "tools/call", &params);
        let stream = crate::wire::connect(&zoo, "POST", "/mcp", &headers, &call).await;
        crate::fault::wait_for_lines(&count, 1).await;
        drop(stream);
        let counted = crate::fault::wait_for_lines(&count, 2).await;
        assert_eq!(counted, ["tools/call sleep", "cancelled"]);
    }
}
