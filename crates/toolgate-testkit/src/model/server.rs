//! The HTTP server: records requests and selects the reply for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Reply;
use super::api::Api;
use super::delivery::{self, BodyEnding, DeliveryOptions, DisconnectGuard};
use super::endpoints;
use super::reply::ReplyContent;
use super::script::{ModelScript, WhenExhausted};
use super::turn::RequestInfo;

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub text: String,
    /// The parsed body; null if it is not JSON.
    pub body: Value,
}

/// State of the server.
#[derive(Debug)]
pub(crate) struct ModelState {
    script: ModelScript,
    turns_started: AtomicUsize,
    lists_requested: AtomicUsize,
    recorded: Mutex<Vec<RecordedRequest>>,
    disconnects: Arc<AtomicUsize>,
}

/// A completion request.
struct TurnRequest<'a> {
    api: Api,
    info: RequestInfo<'a>,
}

impl RecordedRequest {
    /// Returns the value of a header, if present and valid text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_turn(&self) -> bool {
        self.method == "POST" && Api::from_path(self.route()).is_some()
    }

    pub(crate) fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

impl ModelState {
    pub(crate) fn new(script: ModelScript) -> Self {
        Self {
            script,
            turns_started: AtomicUsize::new(0),
            lists_requested: AtomicUsize::new(0),
            recorded: Mutex::default(),
            disconnects: Arc::default(),
        }
    }

    pub(crate) fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.recorded.lock().clone()
    }

    pub(crate) fn disconnects(&self) -> usize {
        self.disconnects.load(Ordering::SeqCst)
    }

    fn record(&self, request: &RecordedRequest) {
        let mut recorded = self.recorded.lock();
        if recorded.len() < self.script.max_recorded_requests {
            recorded.push(request.clone());
        }
    }

    /// Returns the next reply and the number of the request, counted from one.
    fn next_reply(&self, body: &Value) -> (Reply, usize) {
        let index = self.turns_started.fetch_add(1, Ordering::SeqCst);
        let replies = &self.script.replies;
        let reply = match self.script.when_exhausted {
            WhenExhausted::RepeatLast => replies.get(index).or(replies.last()),
            WhenExhausted::Fail => replies.get(index),
        };
        let number = index + 1;
        let reply = reply.map_or_else(
            || {
                let count = replies.len();
                let message = format!("the script has {count} replies, and this is turn {number}");
                Reply::error(500, message)
            },
            |reply| reply.resolve(body),
        );
        (reply, number)
    }
}

/// Serves forever.
pub(crate) async fn serve(listener: TcpListener, state: Arc<ModelState>) {
    // Nagle's algorithm would merge small writes while it waits for acknowledgements.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let router = Router::new().fallback(handle_request).with_state(state);
    axum::serve(listener, router)
        .await
        .expect("the server failed");
}

async fn handle_request(State(state): State<Arc<ModelState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let request = RecordedRequest {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        // Null if it is not JSON, as documented.
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    };
    state.record(&request);
    match (parts.method, Api::from_path(request.route())) {
        (Method::POST, Some(api)) => answer_turn(&state, api, &request.body).await,
        (Method::GET, None) if request.route() == "/v1/models" => {
            let listed = state.lists_requested.fetch_add(1, Ordering::SeqCst);
            if listed < state.script.failing_lists {
                return json_response(503, &Api::Chat.error_body(503, "no list yet"));
            }
            let anthropic = request.headers.contains_key("anthropic-version");
            json_response(200, &model_list(&state.script.models, anthropic))
        }
        (method, _) => endpoints::answer(&request).unwrap_or_else(|| {
            let message = format!("the scripted model has no {method} {}", request.route());
            json_response(404, &Api::Chat.error_body(404, &message))
        }),
    }
}

async fn answer_turn(state: &ModelState, api: Api, body: &Value) -> Response {
    if !body.is_object() {
        let message = "the body is not a JSON object";
        return json_response(400, &api.error_body(400, message));
    }
    let (reply, number) = state.next_reply(body);
    // From here on the client waits for a response: disconnecting counts, even during the delay.
    let guard = DisconnectGuard::new(&state.disconnects);
    if !reply.delivery.delay.is_zero() {
        tokio::time::sleep(reply.delivery.delay).await;
    }
    let info = RequestInfo { body, number };
    let mut response = build_response(&reply, &TurnRequest { api, info }, guard);
    let id = HeaderValue::try_from(format!("req_{number}"))
        .expect("a request id must be a valid header value");
    response.headers_mut().insert(api.id_header(), id);
    for (name, value) in &reply.headers {
        let name = HeaderName::try_from(name).expect("the script has an invalid header name");
        let value = HeaderValue::try_from(value).expect("the script has an invalid header value");
        response.headers_mut().append(name, value);
    }
    response
}

fn build_response(reply: &Reply, request: &TurnRequest<'_>, guard: DisconnectGuard) -> Response {
    let Reply {
        content,
        status,
        delivery: options,
        ..
    } = reply;
    let json_body = |value: &Value| (JSON, vec![Bytes::from(value.to_string())]);
    let (kind, events) = match content {
        ReplyContent::Turn(turn) if request.info.body["stream"] == true => (
            EVENT_STREAM,
            inject_error(
                request.api.stream_events(turn, request.info),
                options,
                request.api,
            ),
        ),
        ReplyContent::Turn(turn) => json_body(&request.api.response_body(turn, request.info)),
        ReplyContent::Error(message) => json_body(&request.api.error_body(*status, message)),
        ReplyContent::Json(value) => json_body(value),
        ReplyContent::Raw {
            content_type,
            bytes,
        } if is_stream(content_type) => (content_type.as_str(), delivery::split_events(bytes)),
        ReplyContent::Raw {
            content_type,
            bytes,
        } => (content_type.as_str(), vec![bytes.clone()]),
        ReplyContent::FromRequest(_) => {
            unreachable!("a resolved reply does not depend on the request")
        }
    };
    let length: usize = events.iter().map(Bytes::len).sum();
    let body = delivery::build_body(events, options, guard);
    let mut response = response(*status, kind, body);
    let headers = response.headers_mut();
    if is_stream(kind) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    } else {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// Replaces the events after the scripted failure by an error event.
fn inject_error(mut events: Vec<Bytes>, options: &DeliveryOptions, api: Api) -> Vec<Bytes> {
    if let BodyEnding::Error(after, message) = &options.ending {
        events.truncate(*after);
        events.push(api.error_event(message, *after));
    }
    events
}

fn is_stream(content_type: &str) -> bool {
    content_type.starts_with("text/event-stream")
}

fn model_list(names: &[String], anthropic: bool) -> Value {
    if anthropic {
        let model = |name: &String| {
            json!({
                "type": "model", "id": name, "display_name": name,
                "created_at": "2023-11-14T22:13:20Z", "lifecycle": "active",
            })
        };
        let data: Vec<Value> = names.iter().map(model).collect();
        json!({
            "data": data, "has_more": false,
            "first_id": names.first(), "last_id": names.last(),
        })
    } else {
        let model = |name: &String| {
            json!({
                "id": name, "object": "model", "created": 1_700_000_000,
                "owned_by": "toolgate-testkit",
            })
        };
        let data: Vec<Value> = names.iter().map(model).collect();
        json!({ "object": "list", "data": data })
    }
}

pub(crate) fn json_response(status: u16, value: &Value) -> Response {
    response(status, JSON, Body::from(value.to_string()))
}

pub(crate) fn response(status: u16, kind: &str, body: Body) -> Response {
    let status = StatusCode::from_u16(status).expect("the script has an invalid status");
    let kind = HeaderValue::try_from(kind).expect("the script has an invalid content type");
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
