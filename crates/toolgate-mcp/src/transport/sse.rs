//! The HTTP+SSE transport of revision 2024-11-05: one event stream carries all server messages, and
//! its `endpoint` event announces the URL for client messages.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::close_signal::{self, CloseReceiver};
use super::http::stream::{EventStream, ResumeState};
use super::http::{self, ResolvedEndpoint};
use super::message_router::MessageRouter;
use super::pending::{PendingRequest, PendingRequests};
use super::server_requests::ServerRequests;
use super::{OutgoingRequest, RequestError, TransportEvents};
use crate::client_handler::ClientHandler;
use crate::jsonrpc::{self, Object};

/// Timeout for the `endpoint` event, and for messages sent in the background.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);

/// An open event stream and the requests waiting for responses on it.
#[derive(Debug)]
pub struct SseTransport {
    poster: MessagePoster,
    pending: PendingRequests,
    close_receiver: CloseReceiver,
    stop: CancellationToken,
}

/// Posts messages to the announced endpoint.
#[derive(Clone, Debug)]
struct MessagePoster {
    client: Client,
    url: Url,
    headers: HeaderMap,
    tasks: TaskTracker,
}

impl SseTransport {
    /// Opens the stream and waits until the server has announced its message endpoint.
    pub async fn start(
        endpoint: &ResolvedEndpoint,
        tasks: &TaskTracker,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<(Self, TransportEvents), RequestError> {
        let client = endpoint
            .client()
            .map_err(|error| RequestError::NotSent(error.to_string()))?;
        let request = client
            .get(endpoint.url.clone())
            .headers(endpoint.headers.clone());
        let response = request.header(ACCEPT, "text/event-stream").send().await;
        let mut stream = EventStream::new(require_event_stream(
            response.map_err(|error| http::send_error(&error))?,
        )?);
        let url = tokio::time::timeout(
            ENDPOINT_TIMEOUT,
            read_endpoint_url(&mut stream, &endpoint.url),
        )
        .await;
        let url =
            url.map_err(|_| malformed_response("event stream announced no message endpoint"))??;
        let poster = MessagePoster {
            client,
            url,
            headers: endpoint.headers.clone(),
            tasks: tasks.clone(),
        };
        let (events, event_receiver) = mpsc::channel(16);
        let (close_notifier, close_receiver) = close_signal::channel();
        let pending = PendingRequests::default();
        let stop = CancellationToken::new();
        let router = MessageRouter {
            pending: pending.clone(),
            events,
            handler,
            server_requests: ServerRequests::new(tasks),
            end: stop.clone(),
        };
        let reading = read_messages(stream, router, poster.clone());
        let (stopped, unanswered) = (stop.clone(), pending.clone());
        tasks.spawn(async move {
            let reason = tokio::select! {
                reason = reading => reason,
                () = stopped.cancelled() => "the connection was closed".to_owned(),
            };
            unanswered.close(&reason);
            stopped.cancel();
            close_notifier.notify(&reason);
        });
        let sse = Self {
            poster,
            pending,
            close_receiver,
            stop,
        };
        Ok((sse, event_receiver))
    }

    pub(super) async fn request(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        let request = self.pending.register(outgoing.handler.clone())?;
        let message = outgoing.message(request.id);
        let mut guard = RequestGuard {
            request,
            poster: &self.poster,
            // The protocol does not allow clients to cancel `initialize`.
            is_cancellable: outgoing.method != "initialize",
        };
        let posting = self.poster.post(message, outgoing.headers);
        tokio::pin!(posting);
        // The response may arrive on the stream before the POST itself is acknowledged.
        tokio::select! {
            biased;
            result = guard.request.wait_result() => return result,
            posting = &mut posting => posting?,
        }
        guard.request.wait_result().await
    }

    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestError> {
        let message = jsonrpc::notification(method, &Object::new());
        self.poster.post(message, HeaderMap::new()).await
    }

    pub(super) async fn wait_closed(&self) -> String {
        self.close_receiver.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.wait_closed().await;
    }
}

impl Drop for SseTransport {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl MessagePoster {
    async fn post(&self, message: String, extra: HeaderMap) -> Result<(), RequestError> {
        let mut headers = self.headers.clone();
        headers.extend(extra);
        let request = self.client.post(self.url.clone()).headers(headers);
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .body(message);
        let response = request
            .send()
            .await
            .map_err(|error| http::send_error(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        // The body only explains the status, which is the error to report even without it.
        let text = match http::read_body(response).await {
            Ok(body) => http::excerpt(&body),
            Err(error) => format!("error body is unreadable: {error}"),
        };
        Err(RequestError::Status {
            status: status.as_u16(),
            text,
            rpc: None,
        })
    }

    /// Posts a message in the background.
    fn post_detached(&self, message: String) {
        let poster = self.clone();
        self.tasks.spawn(async move {
            let posting = poster.post(message, HeaderMap::new());
            if !matches!(
                tokio::time::timeout(ENDPOINT_TIMEOUT, posting).await,
                Ok(Ok(()))
            ) {
                // The error is not logged because its text is not masked here.
                tracing::debug!("failed to post a message to the server");
            }
        });
    }
}

/// A request in flight. Dropping it before the response sends `notifications/cancelled`.
struct RequestGuard<'a> {
    request: PendingRequest,
    poster: &'a MessagePoster,
    is_cancellable: bool,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.request.remove() && self.is_cancellable {
            let params = Object::new().raw("requestId", &self.request.id.to_string());
            self.poster
                .post_detached(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

fn require_event_stream(response: Response) -> Result<Response, RequestError> {
    let status = response.status();
    if status.is_success() && http::is_event_stream(&response) {
        Ok(response)
    } else {
        Err(RequestError::Status {
            status: status.as_u16(),
            text: "response is not an event stream".to_owned(),
            rpc: None,
        })
    }
}

/// Waits for the message endpoint, which must have the same origin so that credentials stay there.
async fn read_endpoint_url(stream: &mut EventStream, base: &Url) -> Result<Url, RequestError> {
    while let Some(event) = stream.next_event().await? {
        if event.name == "endpoint" {
            let url = base
                .join(&event.data)
                .map_err(|_| malformed_response("announced message endpoint is not a valid URL"))?;
            return if url.origin() == base.origin() {
                Ok(url)
            } else {
                Err(malformed_response(
                    "announced message endpoint has a different origin",
                ))
            };
        }
    }
    Err(malformed_response(
        "event stream ended before announcing a message endpoint",
    ))
}

async fn read_messages(
    mut stream: EventStream,
    router: MessageRouter,
    poster: MessagePoster,
) -> String {
    loop {
        match stream.next_message(&mut ResumeState::default()).await {
            Ok(Some(text)) => {
                let poster = poster.clone();
                router.route(&text, move |reply| poster.post_detached(reply));
            }
            Ok(None) => return "server closed the event stream".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

fn malformed_response(text: &str) -> RequestError {
    RequestError::Malformed(text.to_owned())
}
