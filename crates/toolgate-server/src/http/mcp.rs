//! `/mcp`, `/mcp/{server}` and `/mcp/v/{name}`: the gateway as an MCP server over HTTP, for clients
//! of either era.
//!
//! A modern request says everything by itself; a client of the old era gets a session, which
//! belongs to its key. A request is answered with JSON, or with a stream of events once there is
//! something to say before the answer.

mod session;
mod stream;

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::value::RawValue;
use session::Session;
pub(crate) use session::Sessions;
use toolgate::jsonrpc::{self, RpcError};
use toolgate::mcp::{Asker, Door, Face, Subscription};
use toolgate::serve::{
    HEADER_MISMATCH, Headers, Hello, INVALID_REQUEST, Meta, Modern, Received, Refusal, Said, rpc,
};
use toolgate::{Caller, Origin, Request, ServerName};

use super::error::ApiError;
use super::request::{self, RequestId, Sent};
use super::{App, error};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: &str = "mcp-protocol-version";

/// One request of a client, and where it goes.
struct Visit {
    app: App,
    door: Door,
    face: Face,
    caller: Caller,
    id: String,
    headers: HeaderMap,
}

/// All servers as one MCP server: JSON-RPC messages of every protocol revision.
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, description = "the answer, as JSON or as an event stream"), (status = 202, description = "taken")))]
pub(crate) async fn post_all(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let visit = Visit::new(state, Face::All, caller, id, headers)?;
    Ok(visit.post(&body?).await)
}

/// One server as an MCP server, with its raw names.
#[utoipa::path(post, path = "/mcp/{server}", tag = "mcp", params(("server" = String, Path)), request_body = Object,
    responses((status = 200, description = "the answer, as JSON or as an event stream"), (status = 202, description = "taken")))]
pub(crate) async fn post_one(
    state: State<App>,
    path: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Path(server) = path?;
    let visit = Visit::new(state, one(&server)?, caller, id, headers)?;
    Ok(visit.post(&body?).await)
}

/// A virtual server as an MCP server.
#[utoipa::path(post, path = "/mcp/v/{name}", tag = "mcp", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, description = "the answer, as JSON or as an event stream"), (status = 202, description = "taken")))]
pub(crate) async fn post_virtual(
    state: State<App>,
    path: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = path?;
    let visit = Visit::new(state, Face::Virtual(name), caller, id, headers)?;
    Ok(visit.post(&body?).await)
}

/// The news of a session, as an event stream.
#[utoipa::path(get, path = "/mcp", tag = "mcp", responses((status = 200, description = "an event stream"), (status = 405, description = "no session")))]
pub(crate) async fn listen(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    match found(&app, &caller, &headers) {
        Found::Session(session) => stream::news(&app, &session),
        Found::Unknown => no_session(),
        Found::None => no_stream(),
    }
}

/// End a session.
#[utoipa::path(delete, path = "/mcp", tag = "mcp", responses((status = 200, description = "it has ended"), (status = 404, description = "no such session")))]
pub(crate) async fn end(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    match found(&app, &caller, &headers) {
        Found::Session(session) => {
            app.sessions().end(&session);
            StatusCode::OK.into_response()
        }
        Found::Unknown => no_session(),
        Found::None => no_stream(),
    }
}

fn one(server: &str) -> Result<Face, ApiError> {
    let name = ServerName::parse(server);
    name.map(Face::Server).map_err(|_| nothing_here())
}

fn nothing_here() -> ApiError {
    ApiError::not_found("there is no MCP server under this path")
}

enum Found {
    Session(Arc<Session>),
    /// An id that is none of this caller's sessions.
    Unknown,
    /// No id was sent.
    None,
}

fn found(app: &App, caller: &Caller, headers: &HeaderMap) -> Found {
    let Some(id) = headers.get(SESSION) else {
        return Found::None;
    };
    let id = id.to_str().ok();
    let known = id.and_then(|id| app.sessions().find(id, caller));
    known.map_or(Found::Unknown, Found::Session)
}

impl Visit {
    fn new(
        State(app): State<App>,
        face: Face,
        Extension(caller): Extension<Caller>,
        Extension(RequestId(id)): Extension<RequestId>,
        headers: HeaderMap,
    ) -> Result<Self, ApiError> {
        let door = Door::open(app.gateway(), face.clone(), &caller).ok_or_else(nothing_here)?;
        Ok(Self {
            app,
            door,
            face,
            caller: caller.through(Origin::Mcp),
            id,
            headers,
        })
    }

    async fn post(self, body: &[u8]) -> Response {
        let Ok(text) = std::str::from_utf8(body) else {
            return refuse(400, &rpc(toolgate::serve::PARSE_ERROR, "this is not UTF-8"));
        };
        if text.trim_start().starts_with('[') {
            return Box::pin(self.batch(text)).await;
        }
        match Received::read(text) {
            Ok(message) => self.take(message).await,
            Err(error) => refuse(400, &error),
        }
    }

    /// Several messages at once.
    async fn batch(self, text: &str) -> Response {
        let session = match self.session(RawValue::NULL) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let (door, caller, request) = match self.request() {
            Ok(asked) => asked,
            Err(error) => return refuse(400, &error),
        };
        let asked = (caller, request);
        match door.batch(asked, &session.client, text).await {
            Ok(Some(answers)) => json(200, answers),
            Ok(None) => StatusCode::ACCEPTED.into_response(),
            Err(error) => refuse(400, &error),
        }
    }

    async fn take(self, message: Received) -> Response {
        match message {
            Received::Request { id, method, params } => {
                let meta = Meta::of(params.as_deref());
                match Modern::is_spoken(&method, &meta) {
                    true => {
                        let read = self.read_modern(&method, (params.as_deref(), &meta));
                        match read {
                            Ok(said) => self.modern(id, method, params, said).await,
                            Err(Refusal { status, error }) => answered(status, &id, &Err(error)),
                        }
                    }
                    false => {
                        let said = meta.said();
                        self.legacy(id, method, params, said).await
                    }
                }
            }
            Received::Notification { method, params } => {
                match found(&self.app, &self.caller, &self.headers) {
                    Found::Unknown => return no_session(),
                    Found::Session(session) => {
                        let gateway = self.app.gateway();
                        session.client.hear(gateway, &method, params.as_deref());
                    }
                    Found::None => {}
                }
                StatusCode::ACCEPTED.into_response()
            }
            Received::Response { id, answer } => {
                match found(&self.app, &self.caller, &self.headers) {
                    Found::Unknown => no_session(),
                    Found::Session(session) => {
                        session.client.settle(&id, answer);
                        StatusCode::ACCEPTED.into_response()
                    }
                    Found::None => refuse(
                        400,
                        &rpc(INVALID_REQUEST, "an answer needs `Mcp-Session-Id`"),
                    ),
                }
            }
        }
    }

    fn read_modern(
        &self,
        method: &str,
        asked: (Option<&RawValue>, &Meta<'_>),
    ) -> Result<Modern, Refusal> {
        let sent = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let headers = Headers {
            version: sent(VERSION),
            method: sent("mcp-method"),
            name: sent("mcp-name"),
        };
        Modern::read(method, asked, Some(&headers))
    }

    async fn modern(
        self,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        said: Modern,
    ) -> Response {
        let app = self.app.clone();
        let (door, caller, request) = match self.request() {
            Ok(asked) => asked,
            Err(error) => return answered(400, &id, &Err(error)),
        };
        let (tell, heard) = stream::before_the_answer();
        let asker = Asker::modern(caller, request, said, params.as_deref(), tell);
        if method == "subscriptions/listen" {
            let open = Subscription::open(&door, &asker, id.clone(), params.as_deref());
            return match Box::pin(open).await {
                Ok(subscription) => stream::listen(&app, &id, subscription),
                Err(error) => answered(400, &id, &Err(error)),
            };
        }
        if method == "tools/call" {
            let mismatch = door.header_mismatch(&asker, params.as_deref());
            if let Some(told) = mismatch {
                return answered(400, &id, &Err(rpc(HEADER_MISMATCH, told)));
            }
        }
        stream::answer(door, asker, (id, method, params), (heard, None)).await
    }

    async fn legacy(
        self,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        said: Said,
    ) -> Response {
        if method == "initialize" {
            return self.initialize(&id, params.as_deref());
        }
        let session = match self.session(&id) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let (door, caller, request) = match self.request() {
            Ok(asked) => asked,
            Err(error) => return answered(400, &id, &Err(error)),
        };
        let client = &session.client;
        let (tell, heard) = stream::before_the_answer();
        let asker = Asker::old(caller, request, client, said, tell);
        let told = (heard, Some(client.enter(&id)));
        stream::answer(door, asker, (id, method, params), told).await
    }

    /// The session that a request belongs to, or what the request is answered with instead.
    fn session(&self, id: &RawValue) -> Result<Arc<Session>, Box<Response>> {
        let refused = |text: String| Err(rpc(INVALID_REQUEST, text));
        let error = match found(&self.app, &self.caller, &self.headers) {
            Found::Session(session) if session.face == self.face => {
                let (version, sent) = (session.client.version(), self.headers.get(VERSION));
                if sent.is_none_or(|sent| sent.as_bytes() == version.as_bytes()) {
                    return Ok(session);
                }
                refused(format!("`{VERSION}` must be `{version}`, as agreed"))
            }
            Found::Session(_) | Found::Unknown => return Err(Box::new(no_session())),
            Found::None => refused(
                "send `initialize` first, then `Mcp-Session-Id` with every request; or speak 2026-07-28, which needs neither".to_owned(),
            ),
        };
        Err(Box::new(answered(400, id, &error)))
    }

    /// Opens a session.
    fn initialize(self, id: &RawValue, params: Option<&RawValue>) -> Response {
        let hello = match Hello::read(params) {
            Ok(hello) => hello,
            Err(error) => return answered(400, id, &Err(error)),
        };
        let filters = match self.filters() {
            Ok(filters) => filters,
            Err(error) => return answered(400, id, &Err(error)),
        };
        let answer = Ok(self.door.hello(hello.version));
        let session = Session::new(self.face, self.caller, hello, filters);
        let mut response = answered(200, id, &answer);
        if let Ok(value) = HeaderValue::from_str(session.client.id()) {
            response.headers_mut().insert(SESSION, value);
        }
        self.app.sessions().open(session);
        response
    }

    fn filters(&self) -> Result<toolgate_core::scope::Filters, RpcError> {
        let sent = request::filters(&self.headers);
        let sent = sent.map_err(|error| rpc(INVALID_REQUEST, error.message()))?;
        Ok(self.door.filters(sent))
    }

    /// Whom it is asked, by whom, and what.
    fn request(self) -> Result<(Door, Caller, Request), RpcError> {
        let request = Request {
            parent: request::parent(&self.headers),
            filters: self.filters()?,
            id: Some(self.id),
            headers: self.headers,
            ..Request::default()
        };
        Ok((self.door, self.caller, request))
    }
}

/// An answer with a status.
fn answered(status: u16, id: &RawValue, answer: &jsonrpc::Answer) -> Response {
    json(status, jsonrpc::answer(id, answer))
}

/// An error that belongs to no request.
fn refuse(status: u16, error: &RpcError) -> Response {
    json(status, jsonrpc::answer(RawValue::NULL, &Err(error.clone())))
}

fn json(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Another caller's session is as unknown as one that never was.
fn no_session() -> Response {
    let error = rpc(INVALID_REQUEST, "unknown session; send `initialize` again");
    refuse(404, &error)
}

fn no_stream() -> Response {
    let mut response = error::ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "there is no session; POST a message",
    )
    .into_response();
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
