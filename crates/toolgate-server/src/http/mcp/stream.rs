//! Responses as event streams: results preceded by notifications and requests to the client, and
//! streams that carry only notifications.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, Receiver};
use tokio_util::sync::CancellationToken;
use toolgate::jsonrpc::{self, METHOD_NOT_FOUND, Object, RpcResult};
use toolgate::mcp::{
    EncodedToolPage, Era, ListChanges, ListenStream, McpRequestContext, McpServer,
};
use toolgate::serve::{InFlightGuard, MessageSender};

use super::super::spliced_body::SplicedBody;
use super::session::McpSession;
use super::{App, rpc_response};

/// Messages buffered for a slow client; more are dropped.
const STREAM_BUFFER_MESSAGES: usize = 1024;
/// Interval between keep-alive comments, shorter than the idle timeout of common proxies.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Creates a channel for messages sent to the client before the result of a request.
pub(super) fn message_channel() -> (MessageSender, Receiver<String>) {
    let (sender, messages) = mpsc::channel(STREAM_BUFFER_MESSAGES);
    let send = move |message| sender.try_send(message).is_ok();
    (Arc::new(send), messages)
}

/// Responds to a request: with JSON if nothing has to be sent before the result, otherwise with an
/// event stream.
pub(super) async fn respond(
    server: McpServer,
    context: McpRequestContext,
    (id, method, params): (Box<RawValue>, String, Option<Box<RawValue>>),
    (mut messages, in_flight): (Receiver<String>, Option<InFlightGuard>),
) -> Response {
    let is_modern = context.era == Era::Modern;
    if method == "tools/list" {
        return match server.list_tools(&context, params.as_deref()) {
            Ok(page) => tool_page_response(&id, &page),
            Err(error) => rpc_response(200, &id, &Err(error)),
        };
    }
    let mut answer: BoxFuture<'static, Option<RpcResult>> = Box::pin(async move {
        let answer = server.handle_request(&context, &method, params.as_deref());
        match in_flight {
            None => Some(answer.await),
            Some(in_flight) => tokio::select! {
                answer = answer => Some(answer),
                () = in_flight.wait_cancelled() => None,
            },
        }
    });
    let first = tokio::select! {
        biased;
        Some(message) = messages.recv() => message,
        result = &mut answer => match (messages.try_recv(), result) {
            // Messages sent before the result must precede it.
            (Ok(message), result) => {
                answer = Box::pin(std::future::ready(result));
                message
            }
            (Err(_), Some(result)) => {
                let status = http_status(is_modern, &result);
                return rpc_response(status, &id, &result);
            }
            // The client cancelled the request and expects no result.
            (Err(_), None) => return StatusCode::ACCEPTED.into_response(),
        },
    };
    let state = ResponseStream {
        first: Some(first),
        messages,
        answer: Some(answer),
        id,
    };
    event_stream(stream::unfold(state, ResponseStream::next))
}

/// Writes a response around a cached page of tools without copying the page.
fn tool_page_response(id: &RawValue, page: &EncodedToolPage) -> Response {
    let (before, after) = jsonrpc::response_frame(id);
    let body = Body::new(SplicedBody::new([
        before.into(),
        page.bytes(),
        after.into(),
    ]));
    (StatusCode::OK, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns the HTTP status of a result: modern revisions use 404 for unknown methods and 400 for bad
/// requests, legacy ones always 200.
fn http_status(is_modern: bool, answer: &RpcResult) -> u16 {
    match answer {
        Err(error) if is_modern && error.code == METHOD_NOT_FOUND => 404,
        // Header mismatch, missing capability, unsupported protocol version.
        Err(error) if is_modern && (-32022..=-32020).contains(&error.code) => 400,
        _ => 200,
    }
}

/// State of an event stream that ends with the result of a request.
struct ResponseStream {
    first: Option<String>,
    messages: Receiver<String>,
    /// Resolves to `None` if the request is cancelled.
    answer: Option<BoxFuture<'static, Option<RpcResult>>>,
    id: Box<RawValue>,
}

impl ResponseStream {
    async fn next(mut self) -> Option<(String, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        let answer = self.answer.as_mut()?;
        let message = tokio::select! {
            biased;
            Some(message) = self.messages.recv() => message,
            answer = answer => match self.messages.try_recv() {
                // Messages sent before the result must precede it.
                Ok(message) => {
                    self.answer = Some(Box::pin(std::future::ready(answer)));
                    message
                }
                Err(_) => {
                    self.answer = None;
                    jsonrpc::response(&self.id, &answer?)
                }
            },
        };
        Some((message, self))
    }
}

/// Streams the notifications of a legacy session until it ends or another stream replaces this one.
pub(super) fn session_stream(app: &App, session: &McpSession) -> Response {
    let (gateway, stopping) = (app.gateway().clone(), app.stopping());
    let changes = ListChanges::new(gateway, session.caller.clone(), session.filters.clone());
    let disconnected = session.client.disconnect_token().clone();
    let state = (changes, session.listen());
    let messages = stream::unfold(state, async |(mut changes, mut inbox)| {
        let messages = tokio::select! {
            message = inbox.recv() => vec![message?],
            changed = changes.next() => {
                let notification = |method| jsonrpc::notification(method, &Object::new());
                changed?.into_iter().map(notification).collect()
            }
        };
        Some((stream::iter(messages), (changes, inbox)))
    });
    event_stream(until_cancelled(
        messages.flatten(),
        [disconnected, stopping],
    ))
}

/// Streams the notifications requested by `subscriptions/listen` until the client disconnects.
pub(super) fn listen_stream(app: &App, id: &RawValue, listen: ListenStream) -> Response {
    let acknowledgement = listen.acknowledgement();
    let notifications = stream::unfold(listen, |mut listen| async move {
        let messages = listen.next().await?;
        Some((stream::iter(messages), listen))
    });
    let result = jsonrpc::response(id, &Ok(ListenStream::final_result()));
    let messages = stream::iter([acknowledgement])
        .chain(until_cancelled(notifications.flatten(), [app.stopping()]))
        .chain(stream::iter([result]));
    event_stream(messages)
}

/// Ends a stream when one of the tokens is cancelled.
fn until_cancelled<T, const N: usize>(
    stream: impl Stream<Item = T>,
    tokens: [CancellationToken; N],
) -> impl Stream<Item = T> {
    let cancelled = async move {
        let tokens = tokens.iter().map(|token| Box::pin(token.cancelled()));
        futures_util::future::select_all(tokens).await;
    };
    stream.take_until(cancelled)
}

fn event_stream(messages: impl Stream<Item = String> + Send + 'static) -> Response {
    let events =
        messages.map(|message| Ok::<_, Infallible>(Event::default().data(one_line(&message))));
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    let mut response = (StatusCode::OK, stream).into_response();
    response.headers_mut().insert(
        // Keeps nginx from buffering the stream.
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// Puts a message on one line. Raw line breaks occur only between JSON tokens, so values do not change.
fn one_line(message: &str) -> String {
    message.replace(['\n', '\r'], " ")
}
