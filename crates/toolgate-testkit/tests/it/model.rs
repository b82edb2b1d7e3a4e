//! The scripted model: selection and delivery of replies.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, ModelScript, Reply, ScriptedModel};
use toolgate_testkit::{eventually, model_path};

use crate::stdio_zoo::TIMEOUT;
use crate::wire::{self, exchange, send_request};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const APIS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];

const PLAIN_BODY: &str = r#"{"model":"m"}"#;
const STREAM_BODY: &str = r#"{"model":"m","stream":true}"#;
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) async fn post_to(model: &ScriptedModel, path: &str, body: &str) -> wire::HttpReply {
    exchange(model.port(), "POST", path, &[], body).await
}

async fn reply_text(model: &ScriptedModel) -> Value {
    let reply = post_to(model, CHAT, PLAIN_BODY).await;
    reply.json()["choices"][0]["message"]["content"].clone()
}

#[tokio::test]
async fn replies_are_used_in_order_and_last_repeats() {
    let model = ScriptedModel::start(vec![Reply::text("one"), Reply::text("two")]);
    for expected in ["one", "two", "two"] {
        assert_eq!(reply_text(&model).await, expected);
    }
    let model = ScriptedModel::start_strict(vec![Reply::text("one")]);
    assert_eq!(reply_text(&model).await, "one");
    let refused = post_to(&model, MESSAGES, PLAIN_BODY).await;
    let message = &refused.json()["error"]["message"];
    assert_eq!(refused.status, 500);
    assert_eq!(message, "the script has 1 replies, and this is turn 2");
}

#[tokio::test]
async fn reply_can_depend_on_request() {
    let echo = |body: &Value| Reply::text(body["messages"][0]["content"].as_str().unwrap());
    let model = ScriptedModel::start(vec![Reply::from_request(echo)]);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let reply = post_to(&model, MESSAGES, body).await;
    assert_eq!(reply.json()["content"][0]["text"], "hi");
}

#[tokio::test]
async fn requests_are_recorded_verbatim() {
    let model = ScriptedModel::start(vec![Reply::text("x")]);
    let body = r#"{ "model":"m", "n": 1.50 }"#;
    let key = [("Authorization", "Bearer k")];
    exchange(model.port(), "POST", "/v1/messages?beta=true", &key, body).await;
    exchange(model.port(), "GET", "/v1/models", &key, "").await;
    assert_eq!(post_to(&model, CHAT, "[").await.status, 400);
    assert_eq!(post_to(&model, "/v1/batches", PLAIN_BODY).await.status, 404);
    let requests = model.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| format!("{} {}", request.method, request.path))
        .collect();
    let first = "POST /v1/messages?beta=true";
    let chat = format!("POST {CHAT}");
    assert_eq!(seen, [first, "GET /v1/models", &chat, "POST /v1/batches"]);
    assert_eq!(requests[0].header("authorization"), Some("Bearer k"));
    assert_eq!(
        (requests[0].text.as_str(), &requests[0].body["model"]),
        (body, &json!("m"))
    );
    assert_eq!(model.turns().len(), 2);
}

#[tokio::test]
async fn scripted_statuses_errors_and_headers_are_sent() {
    let busy = json!({ "busy": true });
    let model = ScriptedModel::start(vec![
        Reply::status(429, busy.clone()).with_header("retry-after", "1"),
        Reply::error(401, "no"),
        Reply::error(401, "no"),
        Reply::raw("text/html", "<h1>bad gateway</h1>").with_status(502),
    ]);
    let reply = post_to(&model, CHAT, STREAM_BODY).await;
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(reply.json(), busy);
    let openai = post_to(&model, RESPONSES, PLAIN_BODY).await.json();
    assert_eq!(openai["error"]["code"], "invalid_api_key");
    let anthropic = post_to(&model, MESSAGES, STREAM_BODY).await.json();
    assert_eq!(anthropic["error"]["type"], "authentication_error");
    let page = post_to(&model, CHAT, PLAIN_BODY).await;
    assert_eq!((page.status, page.text()), (502, "<h1>bad gateway</h1>"));
}

#[tokio::test]
async fn chunking_does_not_change_stream() {
    for path in APIS {
        let reply = Reply::calls([("c", "t", json!({ "city": "Åbo" }))]).with_text("är så");
        let cut = |chunking| reply.clone().with_chunking(chunking);
        let cuts = [
            Chunking::Events,
            Chunking::Bytes(1),
            Chunking::Bytes(7),
            Chunking::Whole,
        ];
        let mut streams = Vec::new();
        for chunking in cuts {
            let model = ScriptedModel::start(vec![cut(chunking)]);
            let stream = post_to(&model, path, STREAM_BODY).await;
            assert!(stream.is_complete());
            streams.push(stream.text().to_owned());
        }
        assert!(streams[0].contains("är "), "{}", streams[0]);
        assert!(streams.iter().all(|stream| *stream == streams[0]));
        // The same bytes, served raw.
        let raw = Reply::raw("text/event-stream", streams[0].clone());
        let model = ScriptedModel::start(vec![raw.clone(), raw.disconnect_after(2)]);
        assert_eq!(post_to(&model, path, STREAM_BODY).await.text(), streams[0]);
        let broken = post_to(&model, path, STREAM_BODY).await;
        assert_eq!(broken.messages().len(), 2);
        assert!(!broken.is_complete() && streams[0].starts_with(broken.text()));
    }
}

#[tokio::test]
async fn stream_disconnects_or_fails_as_scripted() {
    for path in APIS {
        for chunking in [Chunking::Events, Chunking::Bytes(3), Chunking::Whole] {
            let reply = Reply::text("a b c").with_chunking(chunking);
            let model = ScriptedModel::start(vec![
                reply.clone().disconnect_after(0),
                reply.clone().disconnect_after(3),
                reply.fail_after(3, "too hot"),
            ]);
            for events in [0, 3] {
                let broken = post_to(&model, path, STREAM_BODY).await;
                assert_eq!((broken.status, broken.messages().len()), (200, events));
                assert!(!broken.is_complete());
            }
            let failed = post_to(&model, path, STREAM_BODY).await;
            assert_eq!((failed.messages().len(), failed.is_complete()), (4, true));
            assert!(failed.messages()[3].contains(r#""message":"too hot""#));
            assert_eq!(model.disconnects(), 0);
        }
        let model = ScriptedModel::start(vec![Reply::text("a").disconnect_after(0)]);
        let broken = post_to(&model, path, PLAIN_BODY).await;
        assert_eq!((broken.status, broken.is_complete()), (200, false));
    }
}

#[tokio::test]
async fn disconnects_are_counted() {
    let model = ScriptedModel::start(vec![
        Reply::text("at once"),
        Reply::text("never").with_delay(HOUR),
        Reply::text("a word, then nothing").with_pause(HOUR),
    ]);
    post_to(&model, CHAT, STREAM_BODY).await;
    let waiting = send_request(model.port(), "POST", CHAT, &[], STREAM_BODY).await;
    eventually("the request arrives", TIMEOUT, async || {
        (model.requests().len() == 2).then_some(())
    })
    .await;
    assert_eq!(model.disconnects(), 0);
    drop(waiting);
    wait_for_disconnects(&model, 1).await;
    let mut reading = send_request(model.port(), "POST", CHAT, &[], STREAM_BODY).await;
    reading.read_exact(&mut [0; 12]).await.unwrap();
    assert_eq!(model.disconnects(), 1);
    drop(reading);
    wait_for_disconnects(&model, 2).await;
}

async fn wait_for_disconnects(model: &ScriptedModel, clients: usize) {
    eventually("the disconnect is counted", TIMEOUT, async || {
        (model.disconnects() == clients).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stopped_model_closes_streams_and_port() {
    let mut model = ScriptedModel::start(vec![Reply::text("a b").with_pause(HOUR)]);
    let mut stream = send_request(model.port(), "POST", CHAT, &[], STREAM_BODY).await;
    stream.read_exact(&mut [0; 12]).await.unwrap();
    model.stop();
    let mut rest = Vec::new();
    // The kernel decides whether the connection is reset or closed.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8(rest).unwrap().contains("[DONE]"));
    let address = ("127.0.0.1", model.port());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn models_are_listed_in_both_formats() {
    let model = ModelScript::new(Vec::new()).with_models(["a", "b"]).start();
    let list = async |headers: &[(&str, &str)]| {
        let list = exchange(model.port(), "GET", "/v1/models", headers, "").await;
        list.json()
    };
    let openai = list(&[]).await;
    assert_eq!(openai["object"], "list");
    let anthropic = list(&[("anthropic-version", "2023-06-01")]).await;
    assert_eq!(anthropic["last_id"], "b");
    for list in [openai, anthropic] {
        assert_eq!(
            (&list["data"][0]["id"], &list["data"][1]["id"]),
            (&json!("a"), &json!("b"))
        );
    }
}

#[tokio::test]
async fn binary_calls_tool_then_answers() {
    let mut program = Command::new(model_path())
        .args([
            "--call",
            "add",
            "--arguments",
            r#"{"a":1}"#,
            "--text",
            "done",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(program.stdout.take().unwrap());
    stdout.read_line(&mut line).await.unwrap();
    let port = line
        .trim_end()
        .strip_prefix("listening on http://127.0.0.1:");
    let port = port.unwrap().parse().unwrap();
    let turn = async |path, body| exchange(port, "POST", path, &[], body).await.json();
    let results = [
        (CHAT, r#"{"messages":[{"role":"tool"}]}"#),
        (RESPONSES, r#"{"input":[{"type":"function_call_output"}]}"#),
        (
            MESSAGES,
            r#"{"messages":[{"content":[{"type":"tool_result"}]}]}"#,
        ),
    ];
    for (path, result) in results {
        let call = turn(path, r#"{"messages":[],"input":"hi"}"#)
            .await
            .to_string();
        assert!(call.contains("add") && !call.contains("done"), "{call}");
        let text = turn(path, result).await.to_string();
        assert!(text.contains("done") && !text.contains("add"), "{text}");
    }
}
