//! `/mcp`, `/mcp/{server}` and `/mcp/v/{name}`: the gateway as an MCP server over HTTP, for modern and
//! legacy clients.
//!
//! A modern request is self-contained; a legacy client gets a session, which belongs to its key. The
//! response is JSON, or an event stream if messages have to be sent before the result.

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
use session::McpSession;
pub(crate) use session::McpSessions;
use toolgate::jsonrpc::{self, RpcError};
use toolgate::mcp::{ListenStream, McpEndpoint, McpRequestContext, McpServer};
use toolgate::serve::{
    ClientMessage, HEADER_MISMATCH, INVALID_REQUEST, InitializeRequest, MirroredHeaders,
    ModernRequest, RawMeta, RequestMeta, RequestRejection, rpc_error,
};
use toolgate::{CallOrigin, Caller, RequestContext, ServerName};

use super::error::ApiError;
use super::request::{self, OwnedHeaders, RequestId};
use super::{App, error};

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: &str = "mcp-protocol-version";

/// An HTTP request to an MCP endpoint.
struct McpHttpRequest {
    app: App,
    server: McpServer,
    endpoint: McpEndpoint,
    caller: Caller,
    id: String,
    headers: HeaderMap,
}

/// Send a JSON-RPC message, of any protocol revision, to all servers as one MCP server.
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_all(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let request = McpHttpRequest::new(state, McpEndpoint::All, caller, id, headers)?;
    Ok(request.handle_post(&body?).await)
}

/// Send a JSON-RPC message to a single server, whose tools keep their original names.
#[utoipa::path(post, path = "/mcp/{server}", tag = "mcp", operation_id = "post_one", params(("server" = String, Path)), request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_server(
    state: State<App>,
    path: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Path(server) = path?;
    let request = McpHttpRequest::new(state, server_endpoint(&server)?, caller, id, headers)?;
    Ok(request.handle_post(&body?).await)
}

/// Send a JSON-RPC message to a virtual server.
#[utoipa::path(post, path = "/mcp/v/{name}", tag = "mcp", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_virtual(
    state: State<App>,
    path: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = path?;
    let request = McpHttpRequest::new(state, McpEndpoint::Virtual(name), caller, id, headers)?;
    Ok(request.handle_post(&body?).await)
}

/// Open the event stream of a session.
#[utoipa::path(get, path = "/mcp", tag = "mcp", responses((status = 200, description = "event stream"), (status = 405, description = "no session id sent")))]
pub(crate) async fn listen(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    match find_session(&app, &caller, &headers) {
        SessionLookup::Session(session) => stream::session_stream(&app, &session),
        SessionLookup::Unknown => unknown_session_response(),
        SessionLookup::None => session_required_response(),
    }
}

/// End a session.
#[utoipa::path(delete, path = "/mcp", tag = "mcp", operation_id = "end", responses((status = 200, description = "session ended"), (status = 404, description = "unknown session")))]
pub(crate) async fn end_session(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    match find_session(&app, &caller, &headers) {
        SessionLookup::Session(session) => {
            app.sessions().end(&session);
            StatusCode::OK.into_response()
        }
        SessionLookup::Unknown => unknown_session_response(),
        SessionLookup::None => session_required_response(),
    }
}

fn server_endpoint(server: &str) -> Result<McpEndpoint, ApiError> {
    let name = ServerName::parse(server);
    name.map(McpEndpoint::Server)
        .map_err(|_| unknown_endpoint())
}

fn unknown_endpoint() -> ApiError {
    ApiError::not_found("no MCP server at this path")
}

enum SessionLookup {
    Session(Arc<McpSession>),
    /// The id is not one of the caller's sessions.
    Unknown,
    /// No id was sent.
    None,
}

fn find_session(app: &App, caller: &Caller, headers: &HeaderMap) -> SessionLookup {
    let Some(id) = headers.get(SESSION_HEADER) else {
        return SessionLookup::None;
    };
    let id = id.to_str().ok();
    let session = id.and_then(|id| app.sessions().find(id, caller));
    session.map_or(SessionLookup::Unknown, SessionLookup::Session)
}

impl McpHttpRequest {
    fn new(
        State(app): State<App>,
        endpoint: McpEndpoint,
        Extension(caller): Extension<Caller>,
        Extension(RequestId(id)): Extension<RequestId>,
        headers: HeaderMap,
    ) -> Result<Self, ApiError> {
        let server = McpServer::open(app.gateway(), endpoint.clone(), &caller)
            .ok_or_else(unknown_endpoint)?;
        Ok(Self {
            app,
            server,
            endpoint,
            caller: caller.with_origin(CallOrigin::Mcp),
            id,
            headers,
        })
    }

    async fn handle_post(self, body: &[u8]) -> Response {
        let Ok(text) = std::str::from_utf8(body) else {
            return rpc_error_response(
                400,
                &rpc_error(toolgate::serve::PARSE_ERROR, "the body is not valid UTF-8"),
            );
        };
        if text.trim_start().starts_with('[') {
            return Box::pin(self.handle_batch(text)).await;
        }
        match ClientMessage::parse(text) {
            Ok(message) => self.handle_message(message).await,
            Err(error) => rpc_error_response(400, &error),
        }
    }

    /// Handles a JSON-RPC batch, which only legacy revisions allow.
    async fn handle_batch(self, text: &str) -> Response {
        let session = match self.require_session(RawValue::NULL) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let (server, caller, request) = match self.into_parts() {
            Ok(parts) => parts,
            Err(error) => return rpc_error_response(400, &error),
        };
        match server
            .handle_batch((caller, request), &session.client, text)
            .await
        {
            Ok(Some(responses)) => json(200, responses),
            Ok(None) => StatusCode::ACCEPTED.into_response(),
            Err(error) => rpc_error_response(400, &error),
        }
    }

    async fn handle_message(self, message: ClientMessage) -> Response {
        match message {
            ClientMessage::Request { id, method, params } => {
                let meta = RawMeta::from_params(params.as_deref());
                if ModernRequest::is_modern(&method, &meta) {
                    match self.read_modern(&method, (params.as_deref(), &meta)) {
                        Ok(modern) => self.handle_modern(id, method, params, modern).await,
                        Err(RequestRejection { status, error }) => {
                            rpc_response(status, &id, &Err(error))
                        }
                    }
                } else {
                    let request_meta = meta.to_request_meta();
                    self.handle_legacy(id, method, params, request_meta).await
                }
            }
            ClientMessage::Notification { method, params } => {
                match find_session(&self.app, &self.caller, &self.headers) {
                    SessionLookup::Unknown => return unknown_session_response(),
                    SessionLookup::Session(session) => {
                        let gateway = self.app.gateway();
                        session
                            .client
                            .handle_notification(gateway, &method, params.as_deref());
                    }
                    SessionLookup::None => {}
                }
                StatusCode::ACCEPTED.into_response()
            }
            ClientMessage::Response { id, result } => {
                match find_session(&self.app, &self.caller, &self.headers) {
                    SessionLookup::Unknown => unknown_session_response(),
                    SessionLookup::Session(session) => {
                        session.client.handle_response(&id, result);
                        StatusCode::ACCEPTED.into_response()
                    }
                    SessionLookup::None => rpc_error_response(
                        400,
                        &rpc_error(
                            INVALID_REQUEST,
                            "a response requires the header `Mcp-Session-Id`",
                        ),
                    ),
                }
            }
        }
    }

    fn read_modern(
        &self,
        method: &str,
        params_and_meta: (Option<&RawValue>, &RawMeta<'_>),
    ) -> Result<ModernRequest, RequestRejection> {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let headers = MirroredHeaders {
            version: header(VERSION_HEADER),
            method: header("mcp-method"),
            name: header("mcp-name"),
        };
        ModernRequest::parse(method, params_and_meta, Some(&headers))
    }

    async fn handle_modern(
        self,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        modern: ModernRequest,
    ) -> Response {
        let app = self.app.clone();
        let (server, caller, request) = match self.into_parts() {
            Ok(parts) => parts,
            Err(error) => return rpc_response(400, &id, &Err(error)),
        };
        let (sender, messages) = stream::message_channel();
        let context = McpRequestContext::modern(caller, request, modern, params.as_deref(), sender);
        if method == "subscriptions/listen" {
            let open = ListenStream::open(&server, &context, id.clone(), params.as_deref());
            return match Box::pin(open).await {
                Ok(listen) => stream::listen_stream(&app, &id, listen),
                Err(error) => rpc_response(400, &id, &Err(error)),
            };
        }
        if method == "tools/call" {
            let mismatch = server.header_mismatch(&context, params.as_deref());
            if let Some(message) = mismatch {
                return rpc_response(400, &id, &Err(rpc_error(HEADER_MISMATCH, message)));
            }
        }
        stream::respond(server, context, (id, method, params), (messages, None)).await
    }

    async fn handle_legacy(
        self,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
        request_meta: RequestMeta,
    ) -> Response {
        if method == "initialize" {
            return self.initialize(&id, params.as_deref());
        }
        let session = match self.require_session(&id) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let (server, caller, request) = match self.into_parts() {
            Ok(parts) => parts,
            Err(error) => return rpc_response(400, &id, &Err(error)),
        };
        let client = &session.client;
        let (sender, messages) = stream::message_channel();
        let context = McpRequestContext::legacy(caller, request, client, request_meta, sender);
        let in_flight = client.track_request(&id);
        let channel = (messages, Some(in_flight));
        stream::respond(server, context, (id, method, params), channel).await
    }

    /// Returns the session that a request belongs to, or the error response.
    fn require_session(&self, id: &RawValue) -> Result<Arc<McpSession>, Box<Response>> {
        let invalid = |text: String| Err(rpc_error(INVALID_REQUEST, text));
        let error = match find_session(&self.app, &self.caller, &self.headers) {
            SessionLookup::Session(session) if session.endpoint == self.endpoint => {
                let (version, sent) = (session.client.version(), self.headers.get(VERSION_HEADER));
                if sent.is_none_or(|sent| sent.as_bytes() == version.as_bytes()) {
                    return Ok(session);
                }
                invalid(format!("`{VERSION_HEADER}` must be `{version}`, the negotiated version"))
            }
            SessionLookup::Session(_) | SessionLookup::Unknown => return Err(Box::new(unknown_session_response())),
            SessionLookup::None => invalid(
                "send `initialize` first, then `Mcp-Session-Id` with every request; or use protocol version 2026-07-28, which needs neither".to_owned(),
            ),
        };
        Err(Box::new(rpc_response(400, id, &error)))
    }

    /// Opens a session for a legacy client.
    fn initialize(self, id: &RawValue, params: Option<&RawValue>) -> Response {
        let initialize = match InitializeRequest::parse(params) {
            Ok(initialize) => initialize,
            Err(error) => return rpc_response(400, id, &Err(error)),
        };
        let filters = match self.filters() {
            Ok(filters) => filters,
            Err(error) => return rpc_response(400, id, &Err(error)),
        };
        let result = Ok(self.server.initialize_result(initialize.version));
        let session = McpSession::new(self.endpoint, self.caller, initialize, filters);
        let mut response = rpc_response(200, id, &result);
        if let Ok(value) = HeaderValue::from_str(session.client.id()) {
            response.headers_mut().insert(SESSION_HEADER, value);
        }
        self.app.sessions().open(session);
        response
    }

    fn filters(&self) -> Result<toolgate_core::scope::Filters, RpcError> {
        let filters = request::parse_filters(&self.headers)
            .map_err(|error| rpc_error(INVALID_REQUEST, error.message()))?;
        Ok(self.server.filters(filters))
    }

    /// Splits into the MCP server, the caller and the request context.
    fn into_parts(self) -> Result<(McpServer, Caller, RequestContext), RpcError> {
        let request = RequestContext {
            parent: request::parent_id(&self.headers),
            filters: self.filters()?,
            id: Some(self.id),
            headers: self.headers,
            ..RequestContext::default()
        };
        Ok((self.server, self.caller, request))
    }
}

/// Writes a JSON-RPC response.
fn rpc_response(status: u16, id: &RawValue, result: &jsonrpc::RpcResult) -> Response {
    json(status, jsonrpc::response(id, result))
}

/// Writes a JSON-RPC error without a request id.
fn rpc_error_response(status: u16, error: &RpcError) -> Response {
    json(
        status,
        jsonrpc::response(RawValue::NULL, &Err(error.clone())),
    )
}

fn json(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Responds that the session is unknown; used for other callers' sessions too, so as not to reveal them.
fn unknown_session_response() -> Response {
    let error = rpc_error(INVALID_REQUEST, "unknown session; send `initialize` again");
    rpc_error_response(404, &error)
}

fn session_required_response() -> Response {
    let mut response = error::ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "no `Mcp-Session-Id` was sent; POST a message to open a session",
    )
    .into_response();
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
