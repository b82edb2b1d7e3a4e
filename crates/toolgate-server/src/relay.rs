//! Relays MCP between a client's standard input and output and the gateway's `/mcp`, in the era that the
//! client speaks. Messages are passed on as they are; the relay adds what HTTP requires: headers, the
//! session of a legacy client with its event stream, and cancellation by closing a request.
//!
//! A gateway that restarts is reconnected to: requests in flight fail, and a legacy session is opened again.

mod gateway;
mod in_flight;
mod message;
mod mirrored_arguments;
mod output;
mod session;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use gateway::{Answer, GatewayEndpoint, GatewayError, SessionHeaders};
use http::HeaderMap;
use in_flight::InFlight;
use message::{
    ClientMessage, ClientNotification, ClientRequest, GatewayMessage, ModernRequest, RequestId,
};
use mirrored_arguments::MirroredArguments;
use output::{ClientSender, ClientWriter};
use session::{FoundSession, LegacySession, OpenSession};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::jsonrpc::INVALID_REQUEST;
use toolgate::line::{LineReader, MessageLine};
use toolgate::registry::Era;
pub(crate) use upstream::Upstream;

/// Maximum size of a message from the client.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Messages other than requests that wait to be posted, in their order.
const QUEUE_SIZE: usize = 256;
/// Maximum time to end the session at shutdown.
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two event streams of a session.
const LISTEN_INTERVAL: Duration = Duration::from_millis(500);
/// JSON-RPC error code of requests that the gateway did not answer.
const NO_ANSWER: i64 = -32000;

/// The endpoint to relay to, and the key to use there.
#[derive(Debug)]
pub(crate) struct RelaySettings {
    pub(crate) upstream: Upstream,
    /// Path of the endpoint, such as `mcp/github`.
    pub(crate) path: String,
    pub(crate) key: Option<String>,
    /// Name of the variable that has the key or could have it.
    pub(crate) key_variable: String,
}

/// Passes messages between the client and the gateway; clones share it.
#[derive(Clone, Debug)]
struct Relay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: GatewayEndpoint,
    client: ClientSender,
    session: LegacySession,
    in_flight: InFlight,
    mirrored: MirroredArguments,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// A message that has no response.
#[derive(Debug)]
struct QueuedMessage {
    line: String,
    notification: Option<ClientNotification>,
}

/// Relays until standard input ends, the client stops reading, or `stop` finishes.
pub(crate) async fn run(
    settings: RelaySettings,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let RelaySettings {
        upstream,
        path,
        key,
        key_variable,
    } = settings;
    let gateway = GatewayEndpoint::new(upstream, path, key.as_deref(), key_variable)?;
    let (client, writer) = ClientWriter::start();
    let relay = Relay(Arc::new(Inner {
        gateway,
        client,
        session: LegacySession::default(),
        in_flight: InFlight::default(),
        mirrored: MirroredArguments::default(),
        tasks: TaskTracker::new(),
        shutdown: CancellationToken::new(),
    }));
    tokio::select! {
        () = relay.read_lines() => {}
        () = writer.closed.cancelled() => {}
        () = stop => {}
    }
    relay.shut_down().await;
    drop(relay);
    writer.finish().await;
    Ok(())
}

impl Relay {
    /// Handles the client's messages until its output ends.
    async fn read_lines(&self) {
        let (queue, queued) = mpsc::channel(QUEUE_SIZE);
        self.spawn({
            let relay = self.clone();
            async move { relay.post_queued(queued).await }
        });
        let mut lines = LineReader::new(tokio::io::stdin(), MAX_LINE_BYTES);
        while let Ok(Some(line)) = lines.next().await {
            match line {
                MessageLine::Text(text) if text.trim().is_empty() => {}
                MessageLine::Text(text) => self.handle_line(text.trim().to_owned(), &queue).await,
                MessageLine::TooLong { .. } => {
                    let error = serde_json::json!({"jsonrpc": "2.0", "id": null,
                        "error": {"code": INVALID_REQUEST, "message": "the message is too long"}});
                    self.0.client.send(error.to_string()).await;
                }
            }
        }
    }

    async fn handle_line(&self, line: String, queue: &mpsc::Sender<QueuedMessage>) {
        let relay = self.clone();
        match ClientMessage::parse(&line) {
            ClientMessage::Initialize(id) => {
                self.spawn_request(vec![id], Era::Legacy, async move {
                    relay.initialize(&line).await
                });
            }
            ClientMessage::Request(request) => {
                let (id, era) = (request.id.clone(), request.era());
                self.spawn_request(vec![id], era, async move {
                    match &request.modern {
                        Some(modern) => relay.send_modern(&line, &request, modern).await,
                        None => relay.send_legacy(&line, Some(&request)).await,
                    }
                });
            }
            ClientMessage::Batch(ids) => {
                self.spawn_request(ids, Era::Legacy, async move {
                    relay.send_legacy(&line, None).await
                });
            }
            ClientMessage::Invalid => {
                self.spawn_request(Vec::new(), Era::Legacy, async move {
                    relay.send_legacy(&line, None).await
                });
            }
            ClientMessage::Notification(ClientNotification::Cancelled(id))
                if self.0.in_flight.era(&id) == Some(Era::Modern) =>
            {
                // Over HTTP, a modern client cancels by closing the request.
                self.0.in_flight.cancel(&id);
            }
            ClientMessage::Notification(notification) => {
                let notification = Some(notification);
                let message = QueuedMessage { line, notification };
                let _ = queue.send(message).await;
            }
            ClientMessage::Response => {
                let message = QueuedMessage {
                    line,
                    notification: None,
                };
                let _ = queue.send(message).await;
            }
        }
    }

    /// Spawns a task that is cancelled at shutdown.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.0.shutdown.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    /// Spawns the exchange of requests with these ids. If it fails, those that are still open get an error.
    fn spawn_request(
        &self,
        ids: Vec<RequestId>,
        era: Era,
        exchange: impl Future<Output = Result<(), GatewayError>> + Send + 'static,
    ) {
        let relay = self.clone();
        let open = self.0.in_flight.register(ids, era);
        self.spawn(async move {
            let result = tokio::select! {
                result = exchange => result,
                () = open.cancelled() => return,
            };
            let unanswered = open.take_unanswered();
            let error = match result {
                Ok(()) if unanswered.is_empty() => return,
                Ok(()) => GatewayError::Lost("it ended the response".to_owned()),
                Err(error) => error,
            };
            tracing::error!(%error, "a request failed");
            for id in unanswered {
                let response = id.error_response(NO_ANSWER, &error.to_string());
                relay.0.client.send(response).await;
            }
        });
    }

    /// Opens the session of a legacy client.
    async fn initialize(&self, line: &str) -> Result<(), GatewayError> {
        let Inner {
            gateway, session, ..
        } = &*self.0;
        if let Some(response) = session.open(gateway, line).await? {
            self.deliver(response).await;
        }
        Ok(())
    }

    /// Sends a modern request, and passes on everything that it is answered with.
    async fn send_modern(
        &self,
        line: &str,
        request: &ClientRequest,
        modern: &ModernRequest,
    ) -> Result<(), GatewayError> {
        let Inner {
            gateway, mirrored, ..
        } = &*self.0;
        let called = modern
            .name
            .as_deref()
            .filter(|_| request.method == "tools/call");
        let headers = || {
            let mut headers = gateway::modern_headers(&request.method, modern);
            if let Some(name) = called {
                mirrored.insert(name, line, &mut headers);
            }
            headers
        };
        let mut answer = gateway.post(line, headers()).await?;
        if answer.status.is_success() {
            return self.deliver_all(answer).await;
        }
        let Some(error) = answer.next().await? else {
            return Ok(());
        };
        if let Some(name) = called
            && mirrored_arguments::is_header_mismatch(&error)
            && mirrored.look_up(gateway, name, line).await?
        {
            return self.deliver_all(gateway.post(line, headers()).await?).await;
        }
        self.deliver_error(&error, &request.id).await;
        Ok(())
    }

    /// Sends a message in the client's session, and passes on everything that it is answered with.
    async fn send_legacy(
        &self,
        line: &str,
        request: Option<&ClientRequest>,
    ) -> Result<(), GatewayError> {
        let mut answer = self.post_in_session(line).await?;
        if !answer.status.is_success()
            && let Some(request) = request
        {
            if let Some(error) = answer.next().await? {
                self.deliver_error(&error, &request.id).await;
            }
            return Ok(());
        }
        if let Some(request) = request {
            let session = &self.0.session;
            session.record_request(&request.method, line).await;
        }
        self.deliver_all(answer).await
    }

    /// Posts a message in the client's session, which is opened again if the gateway has ended it.
    async fn post_in_session(&self, line: &str) -> Result<Answer, GatewayError> {
        let Some(session) = self.find_session(None).await? else {
            return self.0.gateway.post(line, HeaderMap::new()).await;
        };
        let headers = session.headers.to_headers();
        match self.0.gateway.post(line, headers).await {
            Err(GatewayError::SessionGone) => {
                let session = self.find_session(Some(&session)).await?;
                let headers =
                    session.map_or_else(HeaderMap::new, |session| session.headers.to_headers());
                self.0.gateway.post(line, headers).await
            }
            result => result,
        }
    }

    /// Returns the client's session, which is not the one that is gone.
    async fn find_session(
        &self,
        gone: Option<&Arc<OpenSession>>,
    ) -> Result<Option<Arc<OpenSession>>, GatewayError> {
        match self.0.session.get(&self.0.gateway, gone).await? {
            FoundSession::None => Ok(None),
            FoundSession::Open(session) => Ok(Some(session)),
            FoundSession::Renewed(renewed) => {
                if renewed.is_ready {
                    self.spawn_listener(&renewed.session);
                    // Not awaited here: the caller may be the listener that the new session replaces.
                    let (relay, changes) = (self.clone(), renewed.list_changes);
                    self.spawn(async move {
                        for change in changes {
                            relay.0.client.send(change).await;
                        }
                    });
                }
                Ok(Some(renewed.session))
            }
        }
    }

    /// Posts messages that have no response, in their order.
    async fn post_queued(&self, mut queued: mpsc::Receiver<QueuedMessage>) {
        while let Some(QueuedMessage { line, notification }) = queued.recv().await {
            if let Err(error) = self.post_one_way(&line, notification.as_ref()).await {
                tracing::error!(%error, "a message of the client was lost");
            }
            if let Some(ClientNotification::Cancelled(id)) = notification {
                // The gateway may not have received the request before the notification.
                self.0.in_flight.cancel(&id);
            }
        }
    }

    async fn post_one_way(
        &self,
        line: &str,
        notification: Option<&ClientNotification>,
    ) -> Result<(), GatewayError> {
        if notification == Some(&ClientNotification::Initialized) {
            self.0.session.set_initialized(line).await;
        }
        let Some(session) = self.find_session(None).await? else {
            let none = SessionHeaders::default();
            return self.0.gateway.notify(line, &none).await.map(drop);
        };
        let result = self.0.gateway.notify(line, &session.headers).await;
        if notification == Some(&ClientNotification::Initialized) {
            self.spawn_listener(&session);
        }
        match result {
            // What it was about is gone too.
            Err(GatewayError::SessionGone) => self.find_session(Some(&session)).await.map(drop),
            result => result.map(drop),
        }
    }

    /// Keeps the event stream of a session open, for messages that belong to no request.
    fn spawn_listener(&self, session: &Arc<OpenSession>) {
        let (relay, session) = (self.clone(), Arc::clone(session));
        self.spawn(async move {
            let replaced = session.replaced.clone();
            tokio::select! {
                () = relay.listen(&session) => {}
                () = replaced.cancelled() => {}
            }
        });
    }

    async fn listen(&self, session: &Arc<OpenSession>) {
        let mut is_reported = false;
        loop {
            let ended = match self.0.gateway.listen(&session.headers).await {
                Ok(Some(answer)) => {
                    is_reported = false;
                    self.deliver_all(answer).await
                }
                Ok(None) => return,
                // The new session has a listener of its own.
                Err(GatewayError::SessionGone) => match self.find_session(Some(session)).await {
                    Ok(_) => return,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = ended
                && !std::mem::replace(&mut is_reported, true)
            {
                tracing::error!(%error, "no messages of the gateway until it can be reached again");
            }
            tokio::time::sleep(LISTEN_INTERVAL).await;
        }
    }

    /// Passes on all messages of an answer.
    async fn deliver_all(&self, mut answer: Answer) -> Result<(), GatewayError> {
        while let Some(message) = answer.next().await? {
            self.deliver(message).await;
        }
        Ok(())
    }

    async fn deliver(&self, message: String) {
        for id in message::response_ids(&message) {
            self.0.in_flight.mark_answered(&id);
        }
        self.0.client.send(message).await;
    }

    /// Passes on an error response. The gateway does not know the id of a request that it has not parsed.
    async fn deliver_error(&self, message: &str, id: &RequestId) {
        let parsed = GatewayMessage::parse(message);
        let error = parsed.as_ref().and_then(|message| message.error);
        let has_id = parsed
            .as_ref()
            .and_then(GatewayMessage::response_id)
            .as_ref()
            == Some(id);
        let message = match error {
            Some(error) if !has_id => id.adopt_error(error),
            _ => message.to_owned(),
        };
        self.deliver(message).await;
    }

    async fn shut_down(&self) {
        self.0.shutdown.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
        let closed = self.0.session.close(&self.0.gateway);
        let _ = tokio::time::timeout(END_SESSION_TIMEOUT, closed).await;
        self.0.gateway.shut_down().await;
    }
}
