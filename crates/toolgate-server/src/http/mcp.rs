//! `/mcp`, `/mcp/{server}` and `/mcp/v/{name}`: the gateway as an MCP server over HTTP.
//!
//! Only translates between HTTP and [`toolgate::mcp_server`]: a reply is JSON, or an event stream if
//! messages have to be sent before the result.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, StreamExt as _};
use toolgate::large::run_large;
use toolgate::mcp_server::{
    Delivery, McpEndpoint, Reply, SESSION_ID_HEADER, SessionError, SingleReply, StreamError,
    StreamEvent,
};
use toolgate::{Caller, ServerName};

use super::App;
use super::error::{ApiError, retry_after_value};
use super::extract::{ApiMessage, ApiPath};
use super::request::{self, OwnedHeaders, RequestId};
use super::spliced_body::SplicedBody;

/// Interval between keep-alive comments, shorter than the idle timeout of common proxies.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Time after which a client should reconnect whose stream broke.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// An HTTP request that carries a message.
struct McpPost {
    caller: Caller,
    id: RequestId,
    headers: HeaderMap,
    message: ApiMessage,
}

/// Send a JSON-RPC message, of any protocol revision, to all servers as one MCP server.
#[utoipa::path(post, path = "/mcp", tag = "mcp", request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    message: ApiMessage,
) -> Result<Response, ApiError> {
    let post = McpPost {
        caller,
        id,
        headers,
        message,
    };
    post.handle(&app, McpEndpoint::All).await
}

/// Send a JSON-RPC message to a single server, whose tools keep their original names.
#[utoipa::path(post, path = "/mcp/{server}", tag = "mcp", params(("server" = String, Path)), request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_server(
    State(app): State<App>,
    ApiPath(server): ApiPath<String>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    message: ApiMessage,
) -> Result<Response, ApiError> {
    let name = ServerName::parse(&server).map_err(|_| unknown_endpoint())?;
    let post = McpPost {
        caller,
        id,
        headers,
        message,
    };
    post.handle(&app, McpEndpoint::Server(name)).await
}

/// Send a JSON-RPC message to a virtual server.
#[utoipa::path(post, path = "/mcp/v/{name}", tag = "mcp", params(("name" = String, Path)), request_body = Object,
    responses((status = 200, description = "response, as JSON or as an event stream"), (status = 202, description = "notification or response accepted")))]
pub(crate) async fn post_virtual(
    State(app): State<App>,
    ApiPath(name): ApiPath<String>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    message: ApiMessage,
) -> Result<Response, ApiError> {
    let post = McpPost {
        caller,
        id,
        headers,
        message,
    };
    post.handle(&app, McpEndpoint::Virtual(name)).await
}

/// Open the event stream of a session.
#[utoipa::path(get, path = "/mcp", tag = "mcp", responses((status = 200, description = "event stream"), (status = 405, description = "no session id sent")))]
pub(crate) async fn listen(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    if let Err(error) = app.gateway().check_load() {
        return ApiError::from(error).into_response();
    }
    match app.mcp().session_messages(&caller, &headers) {
        Ok(messages) => event_stream(messages),
        Err(StreamError::Session(error)) => session_error_response(error),
        Err(error @ StreamError::UnknownEvent) => {
            ApiError::bad_request(error.to_string()).into_response()
        }
    }
}

/// End a session.
#[utoipa::path(delete, path = "/mcp", tag = "mcp", responses((status = 200, description = "session ended"), (status = 404, description = "unknown session")))]
pub(crate) async fn end_session(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    match app.mcp().end_session(&caller, &headers) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => session_error_response(error),
    }
}

impl McpPost {
    async fn handle(self, app: &App, endpoint: McpEndpoint) -> Result<Response, ApiError> {
        let filters = request::parse_filters(&self.headers);
        // Most clients send no filters, and their requests need no copies.
        let named = filters.as_ref().ok();
        let named = named.filter(|filters| filters.name_count() > 0);
        let named = named.map(|filters| (self.caller.clone(), filters.clone()));
        let connection = app.mcp().connect(endpoint, self.caller);
        let connection = connection.ok_or_else(unknown_endpoint)?;
        let delivery = Delivery {
            request_id: Some(self.id.0),
            parent_id: request::parent_id(&self.headers),
            filters: filters.map_err(|error| error.message().to_owned()),
            headers: Some(self.headers),
            memory: self.message.memory,
        };
        let reply = connection.handle(&self.message.body, delivery);
        let mut response = into_response(reply.await);
        if let Some((caller, filters)) = named {
            request::warn_of_unmatched_filters(app, &caller, &filters, &mut response);
        }
        Ok(response)
    }
}

fn into_response(reply: Reply) -> Response {
    match reply {
        Reply::Accepted => StatusCode::ACCEPTED.into_response(),
        Reply::Single(reply) => single_response(reply),
        Reply::Stream(messages) => event_stream(messages),
    }
}

fn single_response(reply: SingleReply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_REQUEST);
    let body = Body::new(SplicedBody::new(reply.body.into_parts()));
    let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(after) = reply.retry_after {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, retry_after_value(after));
    }
    let session = reply.session.as_deref();
    if let Some(Ok(session)) = session.map(HeaderValue::from_str) {
        const SESSION_ID: HeaderName = HeaderName::from_static(SESSION_ID_HEADER);
        response.headers_mut().insert(SESSION_ID, session);
    }
    response
}

fn event_stream(events: impl Stream<Item = StreamEvent> + Send + 'static) -> Response {
    let events = events.map(|event| Ok::<_, Infallible>(to_sse_event(&event)));
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    let mut response = (StatusCode::OK, stream).into_response();
    response.headers_mut().insert(
        // Keeps nginx from buffering the stream.
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

fn to_sse_event(event: &StreamEvent) -> Event {
    let sse = message_event(&event.message);
    let sse = match &event.id {
        Some(id) => sse.id(id),
        None => sse,
    };
    if event.message.is_empty() {
        sse.retry(RECONNECT_DELAY)
    } else {
        sse
    }
}

/// Returns an event with a message, on one line. Raw line breaks occur only between JSON tokens, so values do
/// not change.
pub(super) fn message_event(message: &str) -> Event {
    run_large(message.len(), || {
        Event::default().data(message.replace(['\n', '\r'], " "))
    })
}

pub(super) fn unknown_endpoint() -> ApiError {
    ApiError::not_found("no MCP server at this path")
}

fn session_error_response(error: SessionError) -> Response {
    match error {
        SessionError::Unknown => into_response(Reply::unknown_session()),
        SessionError::Missing => {
            let mut response = ApiError::new(
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
    }
}
