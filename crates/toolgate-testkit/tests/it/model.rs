//! The scripted model: which reply a request gets, and how its bytes arrive.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use toolgate_testkit::model::{Chunking, Model, Reply, Script};
use toolgate_testkit::{eventually, model_path};

use crate::pipe::PATIENCE;
use crate::wire::{self, dial, exchange};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";
pub(crate) const APIS: [&str; 3] = [CHAT, RESPONSES, MESSAGES];

const WHOLE: &str = r#"{"model":"m"}"#;
const STREAM: &str = r#"{"model":"m","stream":true}"#;
const FOREVER: Duration = Duration::from_secs(3600);

pub(crate) async fn ask(model: &Model, path: &str, body: &str) -> wire::Reply {
    exchange(model.port(), "POST", path, &[], body).await
}

async fn said(model: &Model) -> Value {
    let reply = ask(model, CHAT, WHOLE).await;
    reply.value()["choices"][0]["message"]["content"].clone()
}

#[tokio::test]
async fn replies_come_in_order_and_the_last_again() {
    let model = Model::start(vec![Reply::text("one"), Reply::text("two")]);
    for expected in ["one", "two", "two"] {
        assert_eq!(said(&model).await, expected);
    }
    let model = Model::strict(vec![Reply::text("one")]);
    assert_eq!(said(&model).await, "one");
    let refused = ask(&model, MESSAGES, WHOLE).await;
    let message = &refused.value()["error"]["message"];
    assert_eq!(refused.status, 500);
    assert_eq!(message, "the script has 1 replies, and this is turn 2");
}

#[tokio::test]
async fn a_reply_may_depend_on_the_request() {
    let echo = |body: &Value| Reply::text(body["messages"][0]["content"].as_str().unwrap());
    let model = Model::start(vec![Reply::with(echo)]);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let reply = ask(&model, MESSAGES, body).await;
    assert_eq!(reply.value()["content"][0]["text"], "hi");
}

#[tokio::test]
async fn requests_are_recorded_as_they_came() {
    let model = Model::start(vec![Reply::text("x")]);
    let body = r#"{ "model":"m", "n": 1.50 }"#;
    let key = [("Authorization", "Bearer k")];
    exchange(model.port(), "POST", "/v1/messages?beta=true", &key, body).await;
    exchange(model.port(), "GET", "/v1/models", &key, "").await;
    assert_eq!(ask(&model, CHAT, "[").await.status, 400);
    assert_eq!(ask(&model, "/v1/embeddings", WHOLE).await.status, 404);
    let requests = model.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|one| format!("{} {}", one.method, one.path))
        .collect();
    let first = "POST /v1/messages?beta=true";
    let chat = format!("POST {CHAT}");
    assert_eq!(
        seen,
        [first, "GET /v1/models", &chat, "POST /v1/embeddings"]
    );
    assert_eq!(requests[0].header("authorization"), Some("Bearer k"));
    assert_eq!(
        (requests[0].text.as_str(), &requests[0].body["model"]),
        (body, &json!("m"))
    );
    assert_eq!(model.turns().len(), 2);
}

#[tokio::test]
async fn statuses_errors_and_headers_are_played() {
    let busy = json!({ "busy": true });
    let model = Model::start(vec![
        Reply::status(429, busy.clone()).header("retry-after", "1"),
        Reply::error(401, "no"),
        Reply::error(401, "no"),
        Reply::raw("text/html", "<h1>bad gateway</h1>").with_status(502),
    ]);
    let reply = ask(&model, CHAT, STREAM).await;
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(reply.value(), busy);
    let openai = ask(&model, RESPONSES, WHOLE).await.value();
    assert_eq!(openai["error"]["code"], "invalid_api_key");
    let anthropic = ask(&model, MESSAGES, STREAM).await.value();
    assert_eq!(anthropic["error"]["type"], "authentication_error");
    let page = ask(&model, CHAT, WHOLE).await;
    assert_eq!((page.status, page.text()), (502, "<h1>bad gateway</h1>"));
}

#[tokio::test]
async fn the_cut_of_a_stream_does_not_change_it() {
    for path in APIS {
        let reply = Reply::calls([("c", "t", json!({ "city": "Åbo" }))]).with_text("är så");
        let cut = |chunking| reply.clone().chunked(chunking);
        let cuts = [
            Chunking::Events,
            Chunking::Bytes(1),
            Chunking::Bytes(7),
            Chunking::Whole,
        ];
        let mut streams = Vec::new();
        for chunking in cuts {
            let model = Model::start(vec![cut(chunking)]);
            let stream = ask(&model, path, STREAM).await;
            assert!(stream.is_complete());
            streams.push(stream.text().to_owned());
        }
        assert!(streams[0].contains("är "), "{}", streams[0]);
        assert!(streams.iter().all(|stream| *stream == streams[0]));
        // The same bytes, told to be served as they are.
        let raw = Reply::raw("text/event-stream", streams[0].clone());
        let model = Model::start(vec![raw.clone(), raw.breaks_after(2)]);
        assert_eq!(ask(&model, path, STREAM).await.text(), streams[0]);
        let broken = ask(&model, path, STREAM).await;
        assert_eq!(broken.messages().len(), 2);
        assert!(!broken.is_complete() && streams[0].starts_with(broken.text()));
    }
}

#[tokio::test]
async fn a_stream_breaks_or_fails_where_the_script_says() {
    for path in APIS {
        for chunking in [Chunking::Events, Chunking::Bytes(3), Chunking::Whole] {
            let reply = Reply::text("a b c").chunked(chunking);
            let model = Model::start(vec![
                reply.clone().breaks_after(0),
                reply.clone().breaks_after(3),
                reply.fails_after(3, "too hot"),
            ]);
            for events in [0, 3] {
                let broken = ask(&model, path, STREAM).await;
                assert_eq!((broken.status, broken.messages().len()), (200, events));
                assert!(!broken.is_complete());
            }
            let failed = ask(&model, path, STREAM).await;
            assert_eq!((failed.messages().len(), failed.is_complete()), (4, true));
            assert!(failed.messages()[3].contains(r#""message":"too hot""#));
            assert_eq!(model.disconnects(), 0);
        }
        let model = Model::start(vec![Reply::text("a").breaks_after(0)]);
        let broken = ask(&model, path, WHOLE).await;
        assert_eq!((broken.status, broken.is_complete()), (200, false));
    }
}

#[tokio::test]
async fn going_away_is_noticed() {
    let model = Model::start(vec![
        Reply::text("at once"),
        Reply::text("never").delayed(FOREVER),
        Reply::text("a word, then nothing").slow(FOREVER),
    ]);
    ask(&model, CHAT, STREAM).await;
    let waiting = dial(model.port(), "POST", CHAT, &[], STREAM).await;
    eventually("the request", PATIENCE, async || {
        (model.requests().len() == 2).then_some(())
    })
    .await;
    assert_eq!(model.disconnects(), 0);
    drop(waiting);
    gone(&model, 1).await;
    let mut reading = dial(model.port(), "POST", CHAT, &[], STREAM).await;
    reading.read_exact(&mut [0; 12]).await.unwrap();
    assert_eq!(model.disconnects(), 1);
    drop(reading);
    gone(&model, 2).await;
}

async fn gone(model: &Model, clients: usize) {
    eventually("the disconnect", PATIENCE, async || {
        (model.disconnects() == clients).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stopped_model_cuts_its_streams_and_leaves_its_port() {
    let mut model = Model::start(vec![Reply::text("a b").slow(FOREVER)]);
    let mut stream = dial(model.port(), "POST", CHAT, &[], STREAM).await;
    stream.read_exact(&mut [0; 12]).await.unwrap();
    model.stop();
    let mut rest = Vec::new();
    // Reset or closed: that is for the kernel to choose.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8(rest).unwrap().contains("[DONE]"));
    let address = ("127.0.0.1", model.port());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn models_are_listed_for_either_kind_of_client() {
    let model = Script::new(Vec::new()).models(["a", "b"]).start();
    let list = async |headers: &[(&str, &str)]| {
        let list = exchange(model.port(), "GET", "/v1/models", headers, "").await;
        list.value()
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
async fn the_program_calls_a_tool_and_then_talks() {
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
    let mut said = BufReader::new(program.stdout.take().unwrap());
    said.read_line(&mut line).await.unwrap();
    let port = line
        .trim_end()
        .strip_prefix("listening on http://127.0.0.1:");
    let port = port.unwrap().parse().unwrap();
    let turn = async |path, body| exchange(port, "POST", path, &[], body).await.value();
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
