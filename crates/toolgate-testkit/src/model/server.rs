//! The HTTP server: what is recorded, and which reply a request gets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Reply;
use super::api::Api;
use super::delivery::{self, Ending, Manner, Witness};
use super::reply::Content;
use super::script::{After, Script};
use super::turn::Ask;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

/// One request, as it arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// With the query, if there is one.
    pub path: String,
    /// All of its headers.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub text: String,
    /// The body, parsed; null if it is not JSON.
    pub body: Value,
}

/// Everything the server knows.
#[derive(Debug)]
pub(crate) struct Stage {
    script: Script,
    played: AtomicUsize,
    recorded: Mutex<Vec<Recorded>>,
    gone: Arc<AtomicUsize>,
}

/// A request for the model to speak.
struct Scene<'a> {
    api: Api,
    ask: Ask<'a>,
}

impl Recorded {
    /// The value of a header, if the request had it and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_turn(&self) -> bool {
        self.method == "POST" && Api::of(self.route()).is_some()
    }

    fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

impl Stage {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            played: AtomicUsize::new(0),
            recorded: Mutex::default(),
            gone: Arc::default(),
        }
    }

    pub(crate) fn recorded(&self) -> Vec<Recorded> {
        let recorded = self.recorded.lock();
        recorded.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn disconnects(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }

    fn record(&self, request: &Recorded) {
        let recorded = self.recorded.lock();
        let mut recorded = recorded.unwrap_or_else(PoisonError::into_inner);
        if recorded.len() < self.script.memory {
            recorded.push(request.clone());
        }
    }

    /// The reply whose turn it is, and the number of the request, counted from one.
    fn next(&self, body: &Value) -> (Reply, usize) {
        let index = self.played.fetch_add(1, Ordering::SeqCst);
        let replies = &self.script.replies;
        let reply = match self.script.after {
            After::LastAgain => replies.get(index).or(replies.last()),
            After::Failure => replies.get(index),
        };
        let number = index + 1;
        let reply = reply.map_or_else(
            || {
                let known = replies.len();
                let message = format!("the script has {known} replies, and this is turn {number}");
                Reply::error(500, message)
            },
            |reply| reply.chosen(body),
        );
        (reply, number)
    }
}

/// Serves for ever.
pub(crate) async fn serve(listener: TcpListener, stage: Arc<Stage>) {
    // Without this the kernel would join small writes while it waits for acknowledgements.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let router = Router::new().fallback(entry).with_state(stage);
    axum::serve(listener, router)
        .await
        .expect("serving never fails");
}

async fn entry(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let request = Recorded {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body: serde_json::from_str(&text).unwrap_or_default(),
        text,
    };
    stage.record(&request);
    match (parts.method, Api::of(request.route())) {
        (Method::POST, Some(api)) => speak(&stage, api, &request.body).await,
        (Method::GET, None) if request.route() == "/v1/models" => {
            let anthropic = request.headers.contains_key("anthropic-version");
            json_response(200, &models(&stage.script.models, anthropic))
        }
        (method, _) => {
            let message = format!("the scripted model has no {method} {}", request.route());
            json_response(404, &Api::Chat.error(404, &message))
        }
    }
}

async fn speak(stage: &Stage, api: Api, body: &Value) -> Response {
    if !body.is_object() {
        let message = "the body is not a JSON object";
        return json_response(400, &api.error(400, message));
    }
    let (reply, number) = stage.next(body);
    // From here on somebody waits for an answer: going away counts, during the delay too.
    let witness = Witness::new(&stage.gone);
    if !reply.manner.delay.is_zero() {
        tokio::time::sleep(reply.manner.delay).await;
    }
    let ask = Ask { body, number };
    let mut response = respond(&reply, &Scene { api, ask }, witness);
    let id = HeaderValue::try_from(format!("req_{number}")).expect("it is a word");
    response.headers_mut().insert(api.id_header(), id);
    for (name, value) in &reply.headers {
        let name = HeaderName::try_from(name).expect("the script has valid header names");
        let value = HeaderValue::try_from(value).expect("the script has valid header values");
        response.headers_mut().append(name, value);
    }
    response
}

fn respond(reply: &Reply, scene: &Scene<'_>, witness: Witness) -> Response {
    let Reply {
        content,
        status,
        manner,
        ..
    } = reply;
    let whole = |value: &Value| (JSON, vec![Bytes::from(value.to_string())]);
    let (kind, events) = match content {
        Content::Turn(turn) if scene.ask.body["stream"] == true => (
            EVENTS,
            cut_short(scene.api.events(turn, scene.ask), manner, scene.api),
        ),
        Content::Turn(turn) => whole(&scene.api.whole(turn, scene.ask)),
        Content::Error(message) => whole(&scene.api.error(*status, message)),
        Content::Json(value) => whole(value),
        Content::Raw {
            content_type,
            bytes,
        } if is_stream(content_type) => (content_type.as_str(), delivery::events(bytes)),
        Content::Raw {
            content_type,
            bytes,
        } => (content_type.as_str(), vec![bytes.clone()]),
        Content::With(_) => unreachable!("a chosen reply is not a choice"),
    };
    let length: usize = events.iter().map(Bytes::len).sum();
    let body = delivery::body(events, manner, witness);
    let mut response = response(*status, kind, body);
    let headers = response.headers_mut();
    if is_stream(kind) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    } else {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// Puts the failure that the script wants in the place of the events after it.
fn cut_short(mut events: Vec<Bytes>, manner: &Manner, api: Api) -> Vec<Bytes> {
    if let Ending::Failure(after, message) = &manner.ending {
        events.truncate(*after);
        events.push(api.failure(message, *after));
    }
    events
}

fn is_stream(content_type: &str) -> bool {
    content_type.starts_with("text/event-stream")
}

fn models(names: &[String], anthropic: bool) -> Value {
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

fn json_response(status: u16, value: &Value) -> Response {
    response(status, JSON, Body::from(value.to_string()))
}

fn response(status: u16, kind: &str, body: Body) -> Response {
    let status = StatusCode::from_u16(status).expect("the script has valid statuses");
    let kind = HeaderValue::try_from(kind).expect("the script has valid content types");
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}
