//! Traces: exported spans, their parents, and trace context propagated to servers and providers.

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
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{LegacySession, META, headers, modern_request_with_meta};
use crate::models::{self, PATHS};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OTHER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CHAT: &str = "/v1/chat/completions";
const EXECUTE: &str = "/v1/mcp/tool/execute";

/// An OTLP collector that stores what it receives.
struct Collector {
    url: String,
    received: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    _tasks: TaskTracker,
}

/// Traces exported by a gateway.
struct ExportedTraces {
    spans: Vec<Span>,
    resource: Vec<KeyValue>,
    /// The raw bytes, to check for what must not be in them.
    raw: Vec<u8>,
    headers: Vec<HeaderMap>,
}

impl Collector {
    async fn start() -> Self {
        let received: Arc<Mutex<Vec<(HeaderMap, Bytes)>>> = Arc::default();
        let stored = Arc::clone(&received);
        let store = async move |headers: HeaderMap, body: Bytes| {
            stored.lock().unwrap().push((headers, body));
        };
        let router = Router::new().route("/v1/traces", post(store));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let tasks = TaskTracker::new();
        tasks.spawn(async { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            received,
            _tasks: tasks,
        }
    }

    /// Starts a gateway that exports to this collector when it exits.
    fn start_gate(&self, toml: &str) -> TestGate {
        self.start_gate_with(toml, &[])
    }

    fn start_gate_with(&self, toml: &str, env: &[(&str, &str)]) -> TestGate {
        let telemetry = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", self.url.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
        ];
        TestGate::start_with(toml, &[], &[&telemetry, env].concat())
    }

    fn requests(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// Stops the gateway and returns everything it exported.
    async fn stop_and_collect(&self, mut gate: TestGate) -> ExportedTraces {
        gate.signal("-TERM");
        assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
        let received = self.received.lock().unwrap().clone();
        let mut exported = ExportedTraces {
            spans: Vec::new(),
            resource: Vec::new(),
            raw: Vec::new(),
            headers: Vec::new(),
        };
        for (headers, body) in received {
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

impl ExportedTraces {
    fn span(&self, name: &str) -> &Span {
        let mut found = self.spans.iter().filter(|span| span.name == name);
        let names: Vec<&str> = self.spans.iter().map(|span| span.name.as_str()).collect();
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no `{name}` in {names:?}"));
        assert!(found.next().is_none(), "`{name}` twice in {names:?}");
        span
    }

    fn contains(&self, text: &str) -> bool {
        self.raw
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Converts attributes to JSON and checks that each occurs once.
fn attributes(attributes: &[KeyValue]) -> Value {
    fn to_json(value: &AnyValue) -> Value {
        match value.value.as_ref() {
            Some(Any::StringValue(text)) => json!(text),
            Some(Any::IntValue(number)) => json!(number),
            Some(Any::DoubleValue(number)) => json!(number),
            Some(Any::BoolValue(value)) => json!(value),
            Some(Any::ArrayValue(list)) => list.values.iter().map(to_json).collect(),
            other => panic!("{other:?}"),
        }
    }
    let mut found = serde_json::Map::new();
    for KeyValue { key, value, .. } in attributes {
        let previous = found.insert(key.clone(), to_json(value.as_ref().unwrap()));
        assert_eq!(previous, None, "{key} twice");
    }
    Value::Object(found)
}

/// Returns the `traceparent` that a span propagates.
fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

fn is_error(span: &Span) -> bool {
    let code = span.status.as_ref().map(|status| status.code);
    code == Some(StatusCode::Error.into())
}

fn provider(model: &ScriptedModel) -> String {
    format!(
        "[providers.there]\nbase_url = \"{}/v1\"\napi_key = \"secret-key\"\ndialect = \"openai\"\n",
        model.url()
    )
}

fn http_server(name: &str, server: &HttpZoo) -> String {
    format!("[mcp_servers.{name}]\nurl = {:?}\n", server.url())
}

fn chat_request(stream: bool) -> String {
    let messages = json!([{"role": "user", "content": "secret-prompt"}]);
    let mut request = json!({"model": "there/m-1", "messages": messages, "stream": stream});
    if stream {
        request["stream_options"] = json!({"include_usage": true});
    }
    request.to_string()
}

fn tool_call(name: &str, arguments: &str) -> String {
    json!({"id": "c1", "function": {"name": name, "arguments": arguments}}).to_string()
}

/// Calls the zoo's tool `trace` through `tool/execute` and returns the context it received.
async fn received_context(gate: &TestGate, tool: &str, sent: &[(&str, &str)]) -> Value {
    let answer = gate
        .post(EXECUTE, &tool_call(tool, "{}"), headers(sent))
        .await;
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    serde_json::from_str(answer["content"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn streamed_answer_is_one_child_span_of_its_request() {
    let collector = Collector::start().await;
    let reply = Reply::text("secret-answer")
        .with_usage(9, 4)
        .with_cached_tokens(3);
    let model = ScriptedModel::start(vec![reply.with_chunking(Chunking::Bytes(7))]);
    let service = [
        ("TOOLGATE_LOG", "trace"),
        ("OTEL_SERVICE_NAME", "gate-7"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue"),
    ];
    let gate = collector.start_gate_with(&provider(&model), &service);
    let sent = headers(&[
        ("traceparent", PARENT),
        ("tracestate", "rojo=1"),
        ("baggage", "user=7"),
        ("x-request-id", "r-1"),
    ]);
    let answer = gate.post(CHAT, &chat_request(true), sent).await;
    assert!(answer.text().await.unwrap().contains("[DONE]"));
    assert!(!gate.log().contains("gen_ai"), "{}", gate.log());
    let exported = collector.stop_and_collect(gate).await;

    let request = exported.span("POST /v1/chat/completions");
    assert_eq!(
        (hex(&request.trace_id), hex(&request.parent_span_id)),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!(request.kind, i32::from(SpanKind::Server));
    let expected = json!({
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "toolgate.request.id": "r-1",
    });
    assert_eq!(attributes(&request.attributes), expected);

    let model_span = exported.span("chat m-1");
    assert_eq!(
        (&model_span.trace_id, &model_span.parent_span_id),
        (&request.trace_id, &request.span_id)
    );
    assert!(model_span.end_time_unix_nano <= request.end_time_unix_nano);
    assert_describes_streamed_answer(model_span, &model);

    let turn = model.turns().remove(0);
    assert_eq!(
        turn.header("traceparent"),
        Some(traceparent(model_span).as_str())
    );
    assert_eq!(
        (turn.header("tracestate"), turn.header("baggage")),
        (Some("rojo=1"), Some("user=7"))
    );
    assert!(!exported.contains("secret"));
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

fn assert_describes_streamed_answer(model_span: &Span, model: &ScriptedModel) {
    assert_eq!(model_span.kind, i32::from(SpanKind::Client));
    let mut found = attributes(&model_span.attributes);
    let first = found["gen_ai.response.time_to_first_chunk"].take();
    assert!(first.as_f64().unwrap() > 0.0);
    let expected = json!({
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
    assert_eq!(found, expected);
    assert!(!is_error(model_span) && model_span.events.is_empty());
}

#[tokio::test]
async fn every_dialect_reports_usage_and_finish_reason() {
    let collector = Collector::start().await;
    let model = ScriptedModel::start(vec![Reply::text("hello you").with_usage(9, 4)]);
    let providers = PATHS.map(|(dialect, _)| models::provider(dialect, &model, dialect));
    let gate = collector.start_gate(&providers.concat());
    for (provider_dialect, _) in PATHS {
        for (client_dialect, path) in PATHS {
            for stream in [false, true] {
                let mut body =
                    models::request(client_dialect, &format!("{provider_dialect}/m-1"), stream);
                if client_dialect == "openai" && stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let id = format!("{client_dialect} to {provider_dialect}, stream {stream}");
                let sent = headers(&[("x-request-id", &id)]);
                let answer = gate.post(path, &body.to_string(), sent).await;
                assert_eq!(answer.status(), 200);
                answer.text().await.unwrap();
            }
        }
    }
    let exported = collector.stop_and_collect(gate).await;
    let model_spans = exported.spans.iter().filter(|span| span.name == "chat m-1");
    let mut count = 0;
    for span in model_spans {
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
async fn tool_call_span_context_is_propagated_to_servers() {
    let collector = Collector::start().await;
    let (legacy_zoo, modern_zoo) = (HttpZoo::start(&[]), HttpZoo::start(&["--era", "modern"]));
    let gate = collector.start_gate(
        &(http_server("legacy", &legacy_zoo)
            + &http_server("modern", &modern_zoo)
            + &zoo("stdio", &[])),
    );
    for server in ["legacy", "modern", "stdio"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let mut contexts = Vec::new();
    for server in ["legacy", "modern", "stdio"] {
        let sent = [
            ("traceparent", PARENT),
            ("baggage", "user=7"),
            ("x-request-id", server),
        ];
        contexts.push((
            server,
            received_context(&gate, &format!("{server}_trace"), &sent).await,
        ));
    }
    let exported = collector.stop_and_collect(gate).await;
    for (server, context) in contexts {
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
        let expected = json!({
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "trace",
            "gen_ai.tool.type": "function",
            "mcp.method.name": "tools/call",
            "toolgate.server.name": server,
            "toolgate.call.outcome": "ok",
            "toolgate.audit.id": null,
        });
        assert_eq!(found, expected);
        let expected =
            json!({"traceparent": traceparent(span), "tracestate": null, "baggage": "user=7"});
        assert_eq!(context["meta"], expected, "{server}");
        if server != "stdio" {
            assert_eq!(context["headers"], expected, "{server}");
        }
    }
    assert_eq!(attributes(&exported.resource)["service.name"], "toolgate");
}

#[tokio::test]
async fn clients_of_both_eras_set_trace_in_meta() {
    let collector = Collector::start().await;
    let gate = collector.start_gate(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let mut meta: Value = serde_json::from_str(META).unwrap();
    meta["traceparent"] = json!(OTHER);
    let params = json!({"name": "zoo_trace", "arguments": {}});
    let (_, modern) = modern_request_with_meta(
        &gate,
        "/mcp",
        "tools/call",
        params.clone(),
        &meta.to_string(),
    )
    .await;
    let session = LegacySession::open(&gate, "/mcp", None).await;
    let mut params = params;
    params["_meta"] = json!({"traceparent": OTHER, "progressToken": 1});
    let legacy = session.result("tools/call", params).await;
    let exported = collector.stop_and_collect(gate).await;
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
        let context: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        let parent = context["meta"]["traceparent"].as_str().unwrap().to_owned();
        assert!(
            calls.iter().any(|span| traceparent(span) == parent),
            "{parent}"
        );
    }
}

#[tokio::test]
async fn failed_spans_have_error_type_but_no_content() {
    let collector = Collector::start().await;
    let model = ScriptedModel::start(vec![
        Reply::error(400, "secret-reason"),
        Reply::text("and then it breaks").disconnect_after(2),
    ]);
    let gate = collector.start_gate(&(provider(&model) + &zoo("zoo", &[])));
    gate.wait_for_state("zoo", "healthy").await;
    for stream in [false, true] {
        gate.post(CHAT, &chat_request(stream), headers(&[]))
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
    let exported = collector.stop_and_collect(gate).await;
    let failure = |name: &str| {
        let span = exported.span(name);
        assert!(is_error(span), "{name}");
        attributes(&span.attributes)["error.type"].clone()
    };
    assert_eq!(failure("execute_tool say"), "tool_error");
    assert_eq!(failure("execute_tool rpc_error"), "server");
    assert_eq!(failure("execute_tool add"), "bad_arguments");
    // Unknown tool names must not become span names.
    assert_eq!(failure("execute_tool"), "unknown");
    let model_spans = exported.spans.iter().filter(|span| span.name == "chat m-1");
    let mut errors: Vec<Value> = model_spans
        .map(|span| attributes(&span.attributes)["error.type"].clone())
        .collect();
    errors.sort_by_key(Value::to_string);
    assert_eq!(errors, [json!("400"), json!("broken")]);
    assert_eq!(
        attributes(&exported.span("GET").attributes)["http.response.status_code"],
        404
    );
    assert!(!exported.contains("secret"));
}

#[tokio::test]
async fn disconnecting_ends_the_span_as_cancelled() {
    let collector = Collector::start().await;
    let model = ScriptedModel::start(vec![
        Reply::text("a b c d e f").with_pause(Duration::from_secs(60)),
    ]);
    let gate = collector.start_gate(&provider(&model));
    let mut answer = gate.post(CHAT, &chat_request(true), headers(&[])).await;
    answer.chunk().await.unwrap();
    drop(answer);
    eventually("the model request is cancelled", WAIT_TIMEOUT, async || {
        (model.disconnects() > 0).then_some(())
    })
    .await;
    let exported = collector.stop_and_collect(gate).await;
    let model_span = exported.span("chat m-1");
    assert_eq!(
        attributes(&model_span.attributes)["error.type"],
        "cancelled"
    );
    assert_eq!(
        model_span.parent_span_id,
        exported.span("POST /v1/chat/completions").span_id
    );
}

#[tokio::test]
async fn unsampled_traces_are_propagated_but_not_exported() {
    let collector = Collector::start().await;
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let gate =
        collector.start_gate_with(&provider(&model), &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let sent = headers(&[("traceparent", PARENT)]);
    gate.post(CHAT, &chat_request(false), sent)
        .await
        .text()
        .await
        .unwrap();
    assert!(collector.stop_and_collect(gate).await.spans.is_empty());
    let turn = model.turns().remove(0);
    let parent = turn.header("traceparent").unwrap();
    assert!(
        parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"),
        "{parent}"
    );
    assert!(!parent.contains(CALLER));
}

#[tokio::test]
async fn unavailable_collector_does_not_affect_requests() {
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let away = [
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://127.0.0.1:9/v1/traces",
        ),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ];
    let mut gate = TestGate::start_with(&provider(&model), &[], &away);
    for _ in 0..3 {
        let answer = gate.post(CHAT, &chat_request(false), headers(&[])).await;
        assert_eq!(answer.status(), 200);
    }
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
}

/// Without telemetry nothing is exported, and the caller's trace context is forwarded unchanged.
#[tokio::test]
async fn disabled_telemetry_forwards_trace_context() {
    let collector = Collector::start().await;
    let model = ScriptedModel::start(vec![Reply::text("hello")]);
    let (legacy_zoo, modern_zoo) = (HttpZoo::start(&[]), HttpZoo::start(&["--era", "modern"]));
    let toml = provider(&model)
        + &http_server("legacy", &legacy_zoo)
        + &http_server("modern", &modern_zoo);
    let off = [("OTEL_SDK_DISABLED", "true"), ("TOOLGATE_LOG", "trace")];
    let gate = collector.start_gate_with(&toml, &off);
    for server in ["legacy", "modern"] {
        gate.wait_for_state(server, "healthy").await;
    }
    let sent = [
        ("traceparent", PARENT),
        ("tracestate", "rojo=1"),
        ("baggage", "user=7"),
    ];
    let expected = json!({"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "user=7"});
    let nothing = json!({"traceparent": null, "tracestate": null, "baggage": null});
    let legacy = LegacySession::open(&gate, "/mcp", None).await;
    for server in ["legacy", "modern"] {
        let tool = format!("{server}_trace");
        let context = received_context(&gate, &tool, &sent).await;
        assert_eq!(
            (&context["meta"], &context["headers"]),
            (&expected, &expected)
        );
        assert_eq!(
            received_context(&gate, &tool, &[]).await["headers"],
            nothing
        );
        let mut meta: Value = serde_json::from_str(META).unwrap();
        meta["traceparent"] = json!(OTHER);
        let mut params = json!({"name": tool, "arguments": {}});
        let (_, answer) = modern_request_with_meta(
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
            let context: Value =
                serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!(
                (
                    &context["meta"]["traceparent"],
                    &context["headers"]["traceparent"]
                ),
                (&json!(OTHER), &json!(OTHER))
            );
        }
    }
    gate.post(CHAT, &chat_request(false), headers(&sent))
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
    assert!(collector.stop_and_collect(gate).await.spans.is_empty());
    assert_eq!(collector.requests(), 0);
}
