//! The streamable HTTP transport: each request is a POST, answered with JSON or with an event
//! stream that ends with the response.
//!
//! In the legacy era the server may assign a session id, which every later request carries. A
//! stream that breaks is resumed if the server assigned event ids.

mod body;
mod client;
mod direct;
mod errors;
mod incoming;
mod poster;
pub(super) mod stream;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use direct::DirectClient;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::{Client, Request, Response};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use url::Url;

use super::close_signal::{self, CloseNotifier, CloseReceiver};
use super::server_requests::ServerRequests;
use super::{OutgoingRequest, RequestError, TransportEvent, TransportEvents};
use crate::client_handler::ClientHandler;
use crate::jsonrpc::{self, Object};

use body::parse_rpc_error;
pub(super) use body::{excerpt, is_event_stream, read_body};
pub(crate) use client::HttpClients;
pub use client::{ClientError, ResolvedEndpoint};
pub(super) use errors::send_error;
use poster::MessagePoster;

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// An endpoint and the session with it, if any.
#[derive(Debug)]
pub struct StreamableHttp {
    client: Client,
    url: Url,
    /// Faster client for the same URL where neither TLS nor a proxy is involved.
    direct: Option<DirectClient>,
    headers: HeaderMap,
    session: OnceLock<HeaderValue>,
    /// The negotiated legacy version; modern requests carry their version themselves.
    version: OnceLock<HeaderValue>,
    next_id: AtomicU64,
    events: mpsc::Sender<TransportEvent>,
    close_notifier: CloseNotifier,
    close_receiver: CloseReceiver,
    tasks: TaskTracker,
    /// Handles messages that belong to no request.
    handler: Arc<dyn ClientHandler>,
    server_requests: ServerRequests,
    /// Cancels open server requests.
    stop: CancellationToken,
    _guard: DropGuard,
}

impl StreamableHttp {
    pub fn new(
        endpoint: &ResolvedEndpoint,
        tasks: &TaskTracker,
        handler: Arc<dyn ClientHandler>,
    ) -> Result<(Self, TransportEvents), ClientError> {
        let client = endpoint.client()?;
        let (events, event_receiver) = mpsc::channel(16);
        let (close_notifier, close_receiver) = close_signal::channel();
        let stop = CancellationToken::new();
        let direct = endpoint.direct();
        if let Some(direct) = direct.clone() {
            tasks.spawn(direct.sweep_idle(stop.clone()));
        }
        let http = Self {
            client,
            url: endpoint.url.clone(),
            direct,
            headers: endpoint.headers.clone(),
            session: OnceLock::new(),
            version: OnceLock::new(),
            next_id: AtomicU64::new(1),
            events,
            close_notifier,
            close_receiver,
            tasks: tasks.clone(),
            handler,
            server_requests: ServerRequests::new(tasks),
            _guard: stop.clone().drop_guard(),
            stop,
        };
        Ok((http, event_receiver))
    }

    /// Sets the protocol version that every later request carries.
    pub(crate) fn set_version(&self, version: &str) {
        if let Ok(value) = HeaderValue::from_str(version) {
            let _ = self.version.set(value);
        }
    }

    pub(super) async fn request(
        &self,
        outgoing: OutgoingRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        let result = self.send_request(outgoing).await;
        let in_session = self.session.get().is_some();
        let is_suspect = match &result {
            Err(RequestError::NotSent(_) | RequestError::Lost(_)) => true,
            // Without a session, a status says nothing about the connection.
            Err(RequestError::Status { .. }) => in_session,
            _ => false,
        };
        if is_suspect {
            // A full queue already contains an event that triggers the same check.
            let _ = self.events.try_send(TransportEvent::ConnectionSuspect);
        }
        result
    }

    async fn send_request(&self, outgoing: OutgoingRequest) -> Result<Box<RawValue>, RequestError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = outgoing.message(id);
        // Before negotiation the version is unset too, and `initialize` must not be cancelled.
        let is_legacy = self.version.get().is_some();
        let mut guard = RequestGuard {
            http: self,
            id,
            is_open: is_legacy,
        };
        let response = self.post(message, &outgoing.headers).await;
        let response = response.inspect_err(|_| guard.is_open = false)?;
        if outgoing.method == "initialize"
            && let Some(session) = response.headers().get(SESSION_HEADER)
        {
            let _ = self.session.set(session.clone());
        }
        let result = self
            .read_response(response, id, outgoing.handler.as_ref())
            .await;
        // An oversized response leaves the request running on the server.
        guard.is_open = is_legacy && matches!(result, Err(RequestError::TooLarge(_)));
        result
    }

    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestError> {
        let message = jsonrpc::notification(method, &Object::new());
        self.post(message, &HeaderMap::new()).await.map(drop)
    }

    pub(super) async fn wait_closed(&self) -> String {
        self.close_receiver.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        if self.session.get().is_some() {
            let request = self
                .client
                .delete(self.url.clone())
                .headers(self.session_headers());
            // Best effort: an unresponsive server expires the session eventually.
            let _ = request.timeout(Duration::from_secs(2)).send().await;
        }
    }

    /// Returns the configured headers plus session id and version.
    fn session_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(session) = self.session.get() {
            headers.insert(SESSION_HEADER, session.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(VERSION_HEADER, version.clone());
        }
        headers
    }

    async fn post(&self, message: String, extra: &HeaderMap) -> Result<Response, RequestError> {
        let body = Bytes::from(message);
        if let Some(direct) = &self.direct {
            let headers = self.headers_with(extra);
            let response = direct.post(&self.url, headers, body.clone()).await?;
            // The reqwest client below implements the redirect policy.
            if !response.status().is_redirection() {
                return self.check(response).await;
            }
        }
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers_with(extra);
        *request.body_mut() = Some(body.into());
        let response = Box::pin(self.client.execute(request)).await;
        let response = response.map_err(|error| send_error(&error))?;
        self.check(response).await
    }

    fn headers_with(&self, extra: &HeaderMap) -> HeaderMap {
        let mut headers = self.session_headers();
        for (name, value) in extra {
            headers.insert(name.clone(), value.clone());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers
    }

    /// Turns an unsuccessful status into an error.
    async fn check(&self, response: Response) -> Result<Response, RequestError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            self.close_notifier
                .notify("the session has expired on the server");
            return Err(RequestError::SessionGone);
        }
        let (text, rpc) = match Box::pin(read_body(response)).await {
            Ok(body) => match parse_rpc_error(&body) {
                Some(error) => (error.to_string(), Some(error)),
                None => (excerpt(&body), None),
            },
            // The lost body may have held the JSON-RPC error by which negotiation tells a modern
            // server from a legacy one. Modern servers send these errors with 400 and 404.
            Err(error @ RequestError::Lost(_))
                if matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND) =>
            {
                return Err(error);
            }
            Err(error) => (format!("error body is unreadable: {error}"), None),
        };
        Err(RequestError::Status {
            status: status.as_u16(),
            text,
            rpc,
        })
    }

    /// Returns a poster for messages that expect no response.
    fn poster(&self) -> MessagePoster {
        MessagePoster {
            client: self.client.clone(),
            url: self.url.clone(),
            headers: self.session_headers(),
            tasks: self.tasks.clone(),
        }
    }
}

/// A request in flight. Dropping it while open cancels it: closing the stream suffices in the
/// modern era, a legacy server needs `notifications/cancelled`.
struct RequestGuard<'a> {
    http: &'a StreamableHttp,
    id: u64,
    is_open: bool,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let params = Object::new().raw("requestId", &self.id.to_string());
            self.http
                .poster()
                .post(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use serde_json::value::RawValue;
    use toolgate_core::config::{HttpConnection, HttpTransport, Tls};
    use toolgate_core::secret::Secret;

    use super::*;
    use crate::environment::Environment;
    use crate::jsonrpc::RpcResult;

    #[derive(Debug)]
    struct NoHandler;

    impl ClientHandler for NoHandler {
        fn on_notification(&self, _: &str, _: Option<&RawValue>) {}

        fn on_request(
            &self,
            _: &str,
            _: Option<&RawValue>,
        ) -> futures_util::future::BoxFuture<'static, RpcResult> {
            Box::pin(std::future::pending())
        }
    }

    /// Sends `server/discover` to a server that answers with the given bytes and closes.
    async fn discover(answer: &'static str) -> RequestError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let config = HttpConnection {
            url: Secret::Literal(url),
            headers: indexmap::IndexMap::new(),
            forwarded_headers: Vec::new(),
            tls: Tls::default(),
            transport: HttpTransport::Auto,
        };
        let environment = Environment::new(|_| None);
        let endpoint =
            ResolvedEndpoint::resolve(&config, &environment, &HttpClients::default()).unwrap();
        let handler = Arc::new(NoHandler);
        let (http, _events) = StreamableHttp::new(&endpoint, &TaskTracker::new(), handler).unwrap();
        let outgoing = OutgoingRequest {
            method: "server/discover",
            ..OutgoingRequest::default()
        };
        http.request(outgoing).await.unwrap_err()
    }

    /// A cut-off error body may have said that the server is modern, so it must not look like the
    /// refusal of a legacy server.
    #[tokio::test]
    async fn cut_off_error_body_is_a_lost_connection() {
        let cut_off = "HTTP/1.1 400 Bad Request\r\ncontent-length: 99\r\n\r\n{\"jsonrpc\"";
        let error = discover(cut_off).await;
        assert!(matches!(error, RequestError::Lost(_)), "{error:?}");
        let whole = "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno";
        let error = discover(whole).await;
        assert!(
            matches!(&error, RequestError::Status { status: 400, text, rpc: None } if text == "no"),
            "{error:?}"
        );
        let unauthorized = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 99\r\n\r\n{";
        let error = discover(unauthorized).await;
        assert!(
            matches!(error, RequestError::Status { status: 401, .. }),
            "{error:?}"
        );
    }
}
