//! Traces: what is exported, where it belongs, and what servers and providers are told of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message as _;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use toolgate_testkit::model::{Chunking, Model, Reply};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{SOON, TestGate, zoo};
use crate::mcp::{META, Old, headers, modern_as};
use crate::models::{self, PATHS};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CHAT: &str = "/v1/chat/completions";
const EXECUTE: &str = "/v1/mcp/tool/execute";

/// Takes traces as a collector does, and keeps them.
struct Collector {
    url: String,
    taken: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    _tasks: TaskTracker,
}

/// What was exported.
struct Exported {
    spans: Vec<Span>,
    resource: Vec<KeyValue>,
    /// The bytes as they came, for what must not be in them.
    raw: Vec<u8>,
    headers: Vec<HeaderMap>,
}

impl Collector {
    async fn start() -> Self {
        let taken: Arc<Mutex<Vec<(HeaderMap, Bytes)>>> = Arc::default();
        let kept = Arc::clone(&taken);
        let take = async move |headers: HeaderMap, body: Bytes| {
            kept.lock().unwrap().push((headers, body));
        };
        let router = Router::new().route("/v1/traces", post(take));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let tasks = TaskTracker::new();
        tasks.spawn(async { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            taken,
            _tasks: tasks,
        }
    }

    /// A gateway that exports here, and only when it ends.
    fn gate(&self, toml: &str) -> TestGate {
        self.gate_with(toml, &[])
    }

    fn gate_with(&self, toml: &str, env: &[(&str, &str)]) -> TestGate {
        let own = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.url.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
        ];
        TestGate::start_with(toml, &[], &[&own, env].concat())
    }

    fn requests(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    /// All that a gateway exported once it has ended.
    async fn exported(&self, mut gate: TestGate) -> Exported {
        gate.signal("-TERM");
        assert_eq!(gate.ends().await, Some(0), "{}", gate.log());
        let taken = self.taken.lock().unwrap().clone();
        let mut exported = Exported {
            spans: Vec::new(),
            resource: Vec::new(),
            raw: Vec::new(),
            headers: Vec::new(),
        };
        for (headers, body) in taken {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            exported.headers.push(headers);
            exported.raw.extend(&body);
            for group in ExportTraceServiceRequest::decode(body)
                .unwrap()
                .resource_spans
            {
                exported.resource = group.resource.unwrap_or_default().attributes;
                let scopes = group.scope_spans.into_iter();
                exported.spans.extend(scopes.flat_map(|scope| scope.spans));
            }
        }
        exported
    }
}

impl Exported {
    fn span(&self, name: &str) -> &Span {
        let mut found = self.spans.iter().filter(|span| span.name == name);
        let names: Vec<&str> = self.spans.iter().map(|span| span.name.as_str()).collect();
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no `{name}` in {names:?}"));
        assert!(found.next().is_none(), "`{name}` twice in {names:?}");
        span
    }

    fn says(&self, text: &str) -> bool {
        self.raw
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The attributes as JSON; each is there once.
fn attributes(attributes: &[KeyValue]) -> Value {
    fn plain(value: &AnyValue) -> Value {
        match value.value.as_ref() {
            Some(Any::StringValue(text)) => json!(text),
            Some(Any::IntValue(number)) => json!(number),
            Some(Any::DoubleValue(number)) => json!(number),
            Some(Any::BoolValue(is)) => json!(is),
            Some(Any::ArrayValue(list)) => list.values.iter().map(plain).collect(),
            other => panic!("{other:?}"),
        }
    }
    let mut found = serde_json::Map::new();
    for KeyValue { key, value, .. } in attributes {
        let before = found.insert(key.clone(), plain(value.as_ref().unwrap()));
        assert_eq!(before, None, "{key} twice");
    }
    Value::Object(found)
}

/// The context that a span gives to those who are asked on its behalf.
fn context(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn is_error(span: &Span) -> bool {
    let code = span.status.as_ref().map(|status| status.code);
    code == Some(StatusCode::Error.into())
}

fn provider(model: &Model) -> String {
    format!(
        "[providers.there]\nbase_url = \"{}/v1\"\napi_key = \"secret-key\"\ndialect = \"openai\"\n",
        model.url()
    )
}

fn web(name: &str, server: &HttpZoo) -> String {
    format!("[mcp_servers.{name}]\nurl = {:?}\n", server.url())
}

fn question(stream: bool) -> String {
    let said = json!([{"role": "user", "content": "secret-prompt"}]);
    let mut question = json!({"model": "there/m-1", "messages": said, "stream": stream});
    if stream {
        question["stream_options"] = json!({"include_usage": true});
    }
    question.to_string()
}

fn call(name: &str, arguments: &str) -> String {
    json!({"id": "c1", "function": {"name": name, "arguments": arguments}}).to_string()
}

/// What the zoo's tool `trace` saw, called by `tool/execute` with these headers.
async fn seen(gate: &TestGate, tool: &str, sent: &[(&str, &str)]) -> Value {
    let answer = gate.post(EXECUTE, &call(tool, "{}"), headers(sent)).await;
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    serde_json::from_str(answer["content"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_streamed_answer_is_one_span_below_its_request() {
    let collector = Collector::start().await;
    let reply = Reply::text("secret-answer").usage(9, 4).cached(3);
    let model = Model::start(vec![reply.chunked(Chunking::Bytes(7))]);
    let service = [
        ("TOOLGATE_LOG", "trace"),
        ("OTEL_SERVICE_NAME", "gate-7"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue"),
    ];
    let gate = collector.gate_with(&provider(&model), &service);
    let sent = headers(&[
        ("traceparent", PARENT),
        ("tracestate", "rojo=1"),
        ("baggage", "user=7"),
        ("x-request-id", "r-1"),
    ]);
    let answer = gate.post(CHAT, &question(true), sent).await;
    assert!(answer.text().await.unwrap().contains("[DONE]"));
    assert!(!gate.log().contains("gen_ai"), "{}", gate.log());
    let exported = collector.exported(gate).await;

    let request = exported.span("POST /v1/chat/completions");
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!(request.kind, i32::from(SpanKind::Server));
    let wanted = json!({
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "toolgate.request.id": "r-1",
    });
    assert_eq!(attributes(&request.attributes), wanted);

    let asked = exported.span("chat m-1");
    assert_eq!(
        (&asked.trace_id, &asked.parent_span_id),
        (&request.trace_id, &request.span_id)
    );
    assert_eq!(asked.kind, i32::from(SpanKind::Client));
    assert!(asked.end_time_unix_nano <= request.end_time_unix_nano);
    let mut found = attributes(&asked.attributes);
    let first = found["gen_ai.response.time_to_first_chunk"].take();
    assert!(first.as_f64().unwrap() > 0.0);
    let wanted = json!({
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "there",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.stream": true,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": null,
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": model.port(),
    });
    assert_eq!(found, wanted);
    assert!(!is_error(asked) && asked.events.is_empty());

    let turn = model.turns().remove(0);
    assert_eq!(turn.header("traceparent"), Some(context(asked).as_str()));
    assert_eq!(
        (turn.header("tracestate"), turn.header("baggage")),
        (Some("rojo=1"), Some("user=7"))
    );
    assert!(!exported.says("secret"));
    let resource = attributes(&exported.resource);
    assert_eq!(
        (&resource["service.name"], &resource["service.version"]),
        (&json!("gate-7"), &json!(env!("CARGO_PKG_VERSION")))
    );
    assert!(
        exported
            .headers
            .iter()
            .all(|headers| headers["x-team"] == "blue")
    );
}

#[tokio::test]
async fn every_dialect_tells_what_was_used_and_why_it_ended() {
    let collector = Collector::start().await;
    let model = Model::start(vec![Reply::text("hello you").usage(9, 4)]);
    let providers = PATHS.map(|(dialect, _)| models::provider(dialect, &model, dialect));
    let gate = collector.gate(&providers.concat());
    for (spoken, _) in PATHS {
        for (wanted, path) in PATHS {
            for stream in [false, true] {
                let mut body = models::request(wanted, &format!("{spoken}/m-1"), stream);
                if wanted == "openai" && stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let id = format!("{wanted} to {spoken}, stream {stream}");
                let sent = headers(&[("x-request-id", &id)]);
                let answer = gate.post(path, &body.to_string(), sent).await;
                assert_eq!(answer.status(), 200);
                answer.text().await.unwrap();
            }
        }
    }
    let exported = collector.exported(gate).await;
    let asked = exported.spans.iter().filter(|span| span.name == "chat m-1");
    let mut count = 0;
    for span in asked {
        let mut requests = exported.spans.iter();
        let request = requests.find(|request| request.span_id == span.parent_span_id);
        let what = attributes(&request.unwrap().attributes)["toolgate.request.id"].clone();
        let found = attributes(&span.attributes);
        let used = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"];
        assert_eq!(
            used.map(|name| &found[name]),
            [&json!(9), &json!(4)],
            "{what}"
        );
        let finish = found["gen_ai.response.finish_reasons"][0].as_str();
        assert!(
            matches!(finish, Some("stop" | "end_turn" | "completed")),
            "{what}: {found}"
        );
        assert!(!is_error(span), "{what}");
        count += 1;
    }
    assert_eq!(count, 18);
}

#[tokio::test]
async fn a_tool_call_is_a_span_that_servers_of_all_kinds_are_told_of() {
    let collector = Collector::start().await;
    let (old, new) = (HttpZoo::start(&[]), HttpZoo::start(&["--era", "modern"]));
    let gate = collector.gate(&(web("old", &old) + &web("new", &new) + &zoo("pipe", &[])));
    for server in ["old", "new", "pipe"] {
        gate.reaches(server, "healthy").await;
    }
    let mut told = Vec::new();
    for server in ["old", "new", "pipe"] {
        let sent = [
            ("traceparent", PARENT),
            ("baggage", "user=7"),
            ("x-request-id", server),
        ];
        told.push((server, seen(&gate, &format!("{server}_trace"), &sent).await));
    }
    let exported = collector.exported(gate).await;
    for (server, told) in told {
        let of = |span: &&Span, key: &str, value: &str| attributes(&span.attributes)[key] == value;
        let spans = || exported.spans.iter();
        let request = spans()
            .find(|span| of(span, "toolgate.request.id", server))
            .unwrap();
        let span = spans()
            .find(|span| of(span, "toolgate.server.name", server))
            .unwrap();
        assert_eq!(span.name, "execute_tool trace");
        assert_eq!(
            (hex(&span.trace_id).as_str(), &span.parent_span_id),
            (TRACE, &request.span_id)
        );
        assert_eq!(span.kind, i32::from(SpanKind::Client));
        let mut found = attributes(&span.attributes);
        assert!(found["toolgate.audit.id"].take().is_string());
        let wanted = json!({
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "trace",
            "gen_ai.tool.type": "function",
            "mcp.method.name": "tools/call",
            "toolgate.server.name": server,
            "toolgate.call.outcome": "ok",
            "toolgate.audit.id": null,
        });
        assert_eq!(found, wanted);
        let wanted = json!({"traceparent": context(span), "tracestate": null, "baggage": "user=7"});
        assert_eq!(told["meta"], wanted, "{server}");
        if server != "pipe" {
            assert_eq!(told["headers"], wanted, "{server}");
        }
    }
    assert_eq!(attributes(&exported.resource)["service.name"], "toolgate");
}

#[tokio::test]
async fn a_client_of_either_era_says_to_which_trace_its_call_belongs() {
    let collector = Collector::start().await;
    let gate = collector.gate(&zoo("zoo", &[]));
    gate.reaches("zoo", "healthy").await;
    let mut meta: Value = serde_json::from_str(META).unwrap();
    meta["traceparent"] = json!(OTHER);
    let params = json!({"name": "zoo_trace", "arguments": {}});
    let (_, modern) = modern_as(
        &gate,
        "/mcp",
        "tools/call",
        params.clone(),
        &meta.to_string(),
    )
    .await;
    let old = Old::open(&gate, "/mcp", None).await;
    let mut params = params;
    params["_meta"] = json!({"traceparent": OTHER, "progressToken": 1});
    let legacy = old.result("tools/call", params).await;
    let exported = collector.exported(gate).await;
    let calls = exported
        .spans
        .iter()
        .filter(|span| span.name == "execute_tool trace");
    let calls: Vec<&Span> = calls.collect();
    assert_eq!(calls.len(), 2);
    for span in &calls {
        assert_eq!(
            (
                hex(&span.trace_id).as_str(),
                hex(&span.parent_span_id).as_str()
            ),
            (OTHER_TRACE, "00f067aa0ba902b7")
        );
        let mut requests = exported
            .spans
            .iter()
            .filter(|span| span.name == "POST /mcp");
        assert!(requests.any(|request| span.links[0].span_id == request.span_id));
    }
    for result in [&modern["result"], &legacy] {
        let told: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        let told = told["meta"]["traceparent"].as_str().unwrap().to_owned();
        assert!(calls.iter().any(|span| context(span) == told), "{told}");
    }
}

#[tokio::test]
async fn what_fails_says_how_but_not_with_what() {
    let collector = Collector::start().await;
    let model = Model::start(vec![
        Reply::error(400, "secret-reason"),
        Reply::text("and then it breaks").breaks_after(2),
    ]);
    let gate = collector.gate(&(provider(&model) + &zoo("zoo", &[])));
    gate.reaches("zoo", "healthy").await;
    for stream in [false, true] {
        gate.post(CHAT, &question(stream), headers(&[]))
            .await
            .text()
            .await
            .unwrap();
    }
    for (tool, arguments) in [
        ("zoo_say", r#"{"text": "secret-text", "fails": true}"#),
        ("zoo_rpc_error", "{}"),
        ("zoo_add", r#"{"a": "secret-argument"}"#),
        ("zoo_secret-name", "{}"),
    ] {
        let answer = gate.call(tool, arguments).await;
        assert_eq!(answer["is_error"], true, "{answer}");
    }
    gate.get("/secret-path").await;
    let exported = collector.exported(gate).await;
    let failure = |name: &str| {
        let span = exported.span(name);
        assert!(is_error(span), "{name}");
        attributes(&span.attributes)["error.type"].clone()
    };
    assert_eq!(failure("execute_tool say"), "tool_error");
    assert_eq!(failure("execute_tool rpc_error"), "server");
    assert_eq!(failure("execute_tool add"), "bad_arguments");
    // A name that somebody made up is no name for a span.
    assert_eq!(failure("execute_tool"), "unknown");
    let asked = exported.spans.iter().filter(|span| span.name == "chat m-1");
    let mut errors: Vec<Value> = asked
        .map(|span| attributes(&span.attributes)["error.type"].clone())
        .collect();
    errors.sort_by_key(Value::to_string);
    assert_eq!(errors, [json!("400"), json!("broken")]);
    assert_eq!(
        attributes(&exported.span("GET").attributes)["http.response.status_code"],
        404
    );
    assert!(!exported.says("secret"));
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_span() {
    let collector = Collector::start().await;
    let model = Model::start(vec![
        Reply::text("a b c d e f").slow(Duration::from_secs(60)),
    ]);
    let gate = collector.gate(&provider(&model));
    let mut answer = gate.post(CHAT, &question(true), headers(&[])).await;
    answer.chunk().await.unwrap();
    drop(answer);
    eventually("the model is left", SOON, async || {
        (model.disconnects() > 0).then_some(())
    })
    .await;
    let exported = collector.exported(gate).await;
    let asked = exported.span("chat m-1");
    assert_eq!(attributes(&asked.attributes)["error.type"], "cancelled");
    assert_eq!(
        asked.parent_span_id,
        exported.span("POST /v1/chat/completions").span_id
    );
}

#[tokio::test]
async fn what_is_not_sampled_is_not_exported_but_passed_on() {
    let collector = Collector::start().await;
    let model = Model::start(vec![Reply::text("hello")]);
    let gate = collector.gate_with(&provider(&model), &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let sent = headers(&[("traceparent", PARENT)]);
    gate.post(CHAT, &question(false), sent)
        .await
        .text()
        .await
        .unwrap();
    assert!(collector.exported(gate).await.spans.is_empty());
    let turn = model.turns().remove(0);
    let told = turn.header("traceparent").unwrap();
    assert!(
        told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"),
        "{told}"
    );
    assert!(!told.contains(CALLER));
}

#[tokio::test]
async fn a_collector_that_is_away_harms_nobody() {
    let model = Model::start(vec![Reply::text("hello")]);
    let away = [
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://127.0.0.1:9/v1/traces",
        ),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ];
    let mut gate = TestGate::start_with(&provider(&model), &[], &away);
    for _ in 0..3 {
        let answer = gate.post(CHAT, &question(false), headers(&[])).await;
        assert_eq!(answer.status(), 200);
    }
    gate.signal("-TERM");
    assert_eq!(gate.ends().await, Some(0), "{}", gate.log());
}

/// Without telemetry nothing is exported, and what callers say of their traces goes on as it is.
#[tokio::test]
async fn off_it_passes_on_what_it_was_told() {
    let collector = Collector::start().await;
    let model = Model::start(vec![Reply::text("hello")]);
    let (old, new) = (HttpZoo::start(&[]), HttpZoo::start(&["--era", "modern"]));
    let toml = provider(&model) + &web("old", &old) + &web("new", &new);
    let off = [("OTEL_SDK_DISABLED", "true"), ("TOOLGATE_LOG", "trace")];
    let gate = collector.gate_with(&toml, &off);
    for server in ["old", "new"] {
        gate.reaches(server, "healthy").await;
    }
    let sent = [
        ("traceparent", PARENT),
        ("tracestate", "rojo=1"),
        ("baggage", "user=7"),
    ];
    let wanted = json!({"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "user=7"});
    let nothing = json!({"traceparent": null, "tracestate": null, "baggage": null});
    let legacy = Old::open(&gate, "/mcp", None).await;
    for server in ["old", "new"] {
        let tool = format!("{server}_trace");
        let told = seen(&gate, &tool, &sent).await;
        assert_eq!((&told["meta"], &told["headers"]), (&wanted, &wanted));
        assert_eq!(seen(&gate, &tool, &[]).await["headers"], nothing);
        let mut meta: Value = serde_json::from_str(META).unwrap();
        meta["traceparent"] = json!(OTHER);
        let mut params = json!({"name": tool, "arguments": {}});
        let (_, answer) = modern_as(
            &gate,
            "/mcp",
            "tools/call",
            params.clone(),
            &meta.to_string(),
        )
        .await;
        params["_meta"] = json!({"traceparent": OTHER});
        let answers = [
            answer["result"].clone(),
            legacy.result("tools/call", params).await,
        ];
        for answer in answers {
            let told: Value =
                serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(
                (
                    &told["meta"]["traceparent"],
                    &told["headers"]["traceparent"]
                ),
                (&json!(OTHER), &json!(OTHER))
            );
        }
    }
    gate.post(CHAT, &question(false), headers(&sent))
        .await
        .text()
        .await
        .unwrap();
    let turn = model.turns().remove(0);
    assert_eq!(
        (turn.header("traceparent"), turn.header("tracestate")),
        (Some(PARENT), Some("rojo=1"))
    );
    let log = gate.log();
    assert!(log.contains("tool call") && !log.contains("gen_ai"));
    assert!(collector.exported(gate).await.spans.is_empty());
    assert_eq!(collector.requests(), 0);
}
