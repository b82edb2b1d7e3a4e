//! Messages from the server: responses, which are JSON or the end of an event stream, and everything
//! else that arrives on event streams.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Response;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::StreamableHttp;
use super::body::{excerpt, is_event_stream, read_body};
use super::stream::{EventStream, ResumeState};
use crate::client_handler::{ClientHandler, notify};
use crate::jsonrpc::{self, Incoming, RpcResult};
use crate::transport::server_requests::ServerRequest;
use crate::transport::{RequestError, TransportEvent, forward_list_changed};

const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// Delay before the notification stream is reopened; doubles after each failure.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_LISTEN_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The request that a stream belongs to.
struct StreamContext<'a> {
    id: u64,
    handler: Option<&'a Arc<dyn ClientHandler>>,
    /// Ends server requests received on the stream.
    end: &'a CancellationToken,
}

impl StreamableHttp {
    /// Reads the response to a request.
    pub(super) async fn read_response(
        &self,
        response: Response,
        id: u64,
        handler: Option<&Arc<dyn ClientHandler>>,
    ) -> Result<Box<RawValue>, RequestError> {
        if is_event_stream(&response) {
            return Box::pin(self.read_stream_response(response, id, handler)).await;
        }
        let body = read_body(response).await?;
        let messages = jsonrpc::parse(&body)
            .map_err(|error| RequestError::Malformed(format!("{error}: {}", excerpt(&body))))?;
        messages
            .into_iter()
            .find_map(|message| match message {
                Incoming::Response {
                    id: Some(response_id),
                    result,
                } if response_id == id => Some(RequestError::from_response(result)),
                _ => None,
            })
            .unwrap_or_else(|| {
                Err(RequestError::Malformed(
                    "no response to the request".to_owned(),
                ))
            })
    }

    async fn read_stream_response(
        &self,
        response: Response,
        id: u64,
        handler: Option<&Arc<dyn ClientHandler>>,
    ) -> Result<Box<RawValue>, RequestError> {
        let mut stream = EventStream::new(response);
        let mut resume = ResumeState::default();
        // Server requests on a request's stream end with the request.
        let end = self.stop.child_token();
        let _guard = end.clone().drop_guard();
        let context = StreamContext {
            id,
            handler,
            end: &end,
        };
        loop {
            match stream.next_message(&mut resume).await {
                Ok(Some(text)) => {
                    if let Some(result) = self.handle_message(&text, &context) {
                        return RequestError::from_response(result);
                    }
                }
                Err(error @ RequestError::TooLarge(_)) => return Err(error),
                Ok(None) | Err(_) => {
                    // Modern streams cannot be resumed.
                    let last_event_id = match self.version.get() {
                        Some(_) => resume.wait_retry().await,
                        None => None,
                    };
                    let Some(last_event_id) = last_event_id else {
                        let reason = "server closed the stream before responding".to_owned();
                        return Err(RequestError::Lost(reason));
                    };
                    if let Some(resumed) = self.resume_stream(last_event_id).await {
                        stream = resumed;
                    }
                }
            }
        }
    }

    /// Handles a message on a stream and returns the response if it is one. All other messages on
    /// the stream of a request belong to that request's handler.
    fn handle_message(&self, text: &str, stream: &StreamContext<'_>) -> Option<RpcResult> {
        let messages = match jsonrpc::parse(text) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::debug!(%error, "ignoring invalid message in event stream");
                return None;
            }
        };
        let mut response = None;
        for message in messages {
            match message {
                Incoming::Response {
                    id: Some(response_id),
                    result,
                } if response_id == stream.id => response = Some(result),
                Incoming::Response { .. } => {}
                Incoming::Notification { method, params } => {
                    if forward_list_changed(&method, &self.events) {
                        continue;
                    }
                    match (&*method, stream.handler) {
                        ("notifications/cancelled", _) => self.server_requests.cancel(params),
                        // Resource updates concern all subscribers, not just this request.
                        ("notifications/resources/updated", _) | (_, None) => {
                            notify(&*self.handler, &method, params);
                        }
                        (_, Some(handler)) => notify(&**handler, &method, params),
                    }
                }
                Incoming::Request { id, method, params } => {
                    let poster = self.poster();
                    let request = ServerRequest {
                        id,
                        method: &method,
                        params,
                    };
                    // On a shared connection no client can answer.
                    let handler = stream
                        .handler
                        .filter(|_| self.handler.can_answer_requests());
                    let handler = handler.unwrap_or(&self.handler);
                    let reply = move |reply| poster.post(reply);
                    self.server_requests
                        .answer(handler, request, stream.end, reply);
                }
            }
        }
        response
    }

    async fn resume_stream(&self, last_event_id: HeaderValue) -> Option<EventStream> {
        let mut headers = self.session_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT_HEADER, last_event_id);
        let response = self
            .client
            .get(self.url.clone())
            .headers(headers)
            .send()
            .await
            .ok()?;
        (response.status().is_success() && is_event_stream(&response))
            .then(|| EventStream::new(response))
    }

    /// Keeps the notification stream of a legacy server open; returns if the server offers none.
    pub(crate) async fn listen(&self) {
        let mut delay = LISTEN_RETRY_DELAY;
        loop {
            let mut headers = self.session_headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let request = self.client.get(self.url.clone()).headers(headers);
            match request.send().await {
                Ok(response) if response.status().is_success() && is_event_stream(&response) => {
                    delay = LISTEN_RETRY_DELAY;
                    let mut stream = EventStream::new(response);
                    let context = StreamContext {
                        id: 0, // request ids start at 1
                        handler: None,
                        end: &self.stop,
                    };
                    while let Ok(Some(text)) =
                        stream.next_message(&mut ResumeState::default()).await
                    {
                        self.handle_message(&text, &context);
                    }
                }
                Ok(response)
                    if response.status().is_client_error()
                        && response.status() != StatusCode::NOT_FOUND =>
                {
                    return;
                }
                Ok(_) | Err(_) => delay = (delay * 2).min(MAX_LISTEN_RETRY_DELAY),
            }
            // Notifications may have been missed, and the server may be gone.
            let _ = self.events.try_send(TransportEvent::ConnectionSuspect);
            tokio::time::sleep(delay).await;
        }
    }
}
