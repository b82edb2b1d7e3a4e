//! `/sse` and `/sse/{server}`: the HTTP+SSE transport of revision 2024-11-05, for older clients.
//!
//! A client opens an event stream, whose first event names the URL for its messages. All answers are
//! sent on the stream.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use toolgate::mcp_server::{Connection, Delivery, McpEndpoint, Reply};
use toolgate::{Caller, HeldBytes, Hold, ServerName};

use super::App;
use super::connections::BodyRefused;
use super::error::ApiError;
use super::extract::{ApiMessage, ApiPath, ApiQuery};
use super::mcp::{KEEP_ALIVE_INTERVAL, message_event, unknown_endpoint};
use super::request::{self, OwnedHeaders, RequestId};

/// Messages queued for a slow client.
const QUEUE_SIZE: usize = 256;
/// Messages of one client in progress, including those whose answers wait to be read.
const MAX_MESSAGES: usize = 64;

/// The open streams, by the id in the URL for messages.
#[derive(Debug, Default)]
pub(super) struct SseClients {
    open: Mutex<HashMap<String, SseClient>>,
    tasks: TaskTracker,
}

#[derive(Clone, Debug)]
struct SseClient {
    connection: Connection,
    caller: Caller,
    answers: mpsc::Sender<Answer>,
    /// Limits the messages in progress.
    slots: Arc<Semaphore>,
    /// Cancelled when the stream ends.
    ended: CancellationToken,
}

/// A message that waits for the client to read it.
#[derive(Debug)]
struct Answer {
    text: String,
    _memory: Hold,
}

/// Ends a client's session with its stream.
struct OpenStream {
    app: App,
    id: String,
    connection: Connection,
    _ended: DropGuard,
}

#[derive(Deserialize)]
pub(crate) struct MessageQuery {
    session_id: String,
}

/// Open an event stream of revision 2024-11-05 to all servers as one MCP server.
#[utoipa::path(get, path = "/sse", tag = "mcp", responses((status = 200, description = "event stream; the first event has the URL for messages")))]
pub(crate) async fn open_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    open(&app, caller, McpEndpoint::All)
}

/// Open an event stream of revision 2024-11-05 to a single server.
#[utoipa::path(get, path = "/sse/{server}", tag = "mcp", params(("server" = String, Path)), responses((status = 200, description = "event stream; the first event has the URL for messages")))]
pub(crate) async fn open_server(
    State(app): State<App>,
    ApiPath(server): ApiPath<String>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let name = ServerName::parse(&server).map_err(|_| unknown_endpoint())?;
    open(&app, caller, McpEndpoint::Server(name))
}

/// Send a JSON-RPC message, whose answer arrives on the event stream.
#[utoipa::path(post, path = "/messages", tag = "mcp", params(("session_id" = String, Query)), request_body = Object,
    responses((status = 202, description = "accepted"), (status = 404, description = "unknown stream")))]
pub(crate) async fn post_message(
    State(app): State<App>,
    ApiQuery(query): ApiQuery<MessageQuery>,
    Extension(caller): Extension<Caller>,
    Extension(id): Extension<RequestId>,
    OwnedHeaders(headers): OwnedHeaders,
    message: ApiMessage,
) -> Result<StatusCode, ApiError> {
    let client = app.sse().open.lock().get(&query.session_id).cloned();
    let client = client.filter(|client| client.caller.key() == caller.key());
    let client = client.ok_or_else(|| ApiError::not_found("unknown stream; open a new one"))?;
    let slot = Arc::clone(&client.slots).try_acquire_owned().map_err(|_| {
        let message = format!("{MAX_MESSAGES} messages of this stream are in progress; try again");
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "limited", message)
    })?;
    let held = app.gateway().held_bytes().clone();
    let delivery = Delivery {
        memory: Some(client.hold_message(&message, &held)?),
        ..delivery(id, headers)
    };
    let reply = client.connection.handle(&message.body, delivery);
    app.sse().tasks.spawn(async move {
        let _slot = slot;
        tokio::select! {
            () = client.send_reply(reply, &held) => {}
            () = client.ended.cancelled() => {}
        }
    });
    Ok(StatusCode::ACCEPTED)
}

fn delivery(id: RequestId, headers: HeaderMap) -> Delivery {
    let filters = request::parse_filters(&headers);
    Delivery {
        request_id: Some(id.0),
        parent_id: request::parent_id(&headers),
        filters: filters.map_err(|error| error.message().to_owned()),
        headers: Some(headers),
        memory: None,
    }
}

fn open(app: &App, caller: Caller, endpoint: McpEndpoint) -> Result<Response, ApiError> {
    app.gateway().check_load()?;
    let connection = app.mcp().connect(endpoint, caller.clone());
    let connection = connection.ok_or_else(unknown_endpoint)?;
    let (connection, notifications) = connection.into_dedicated();
    let (answers, answered) = mpsc::channel(QUEUE_SIZE);
    let id = uuid::Uuid::new_v4().to_string();
    let ended = CancellationToken::new();
    let client = SseClient {
        connection: connection.clone(),
        caller,
        answers,
        slots: Arc::new(Semaphore::new(MAX_MESSAGES)),
        ended: ended.clone(),
    };
    app.sse().open.lock().insert(id.clone(), client);
    let first = Event::default()
        .event("endpoint")
        .data(format!("/messages?session_id={id}"));
    let guard = OpenStream {
        app: app.clone(),
        id,
        connection,
        _ended: ended.drop_guard(),
    };
    // The notifications end with the validity of the key, and the stream with them.
    let end = || stream::iter([None]);
    let notifications = notifications.map(Some).chain(end());
    let answers = receive(answered, guard).map(Some).chain(end());
    let messages = stream::select(notifications, answers);
    let messages = messages
        .take_while(|message| std::future::ready(message.is_some()))
        .filter_map(std::future::ready);
    let messages = messages.map(|message| message_event(&message).event("message"));
    let events = stream::iter([first]).chain(messages);
    let events = events
        .map(Ok::<_, std::convert::Infallible>)
        .take_until(app.stopping().cancelled_owned());
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    Ok(stream.into_response())
}

/// Streams the answers. Dropping the stream ends the client's session.
fn receive(
    answers: mpsc::Receiver<Answer>,
    guard: OpenStream,
) -> impl Stream<Item = String> + Send {
    stream::unfold((answers, guard), |(mut answers, guard)| async move {
        let answer = answers.recv().await?;
        Some((answer.text, (answers, guard)))
    })
}

impl SseClient {
    /// Counts the whole body of a message, because its request is answered before the message is processed.
    fn hold_message(&self, message: &ApiMessage, held: &HeldBytes) -> Result<Arc<Hold>, ApiError> {
        let large = message.memory.clone();
        let memory = large.unwrap_or_else(|| Arc::new(held.hold(self.caller.share_owner())));
        let uncounted = message.body.len().saturating_sub(memory.bytes());
        let counted = memory.try_grow(uncounted);
        counted.map_err(|full| BodyRefused::from(full).to_error())?;
        Ok(memory)
    }

    async fn send_reply(&self, reply: impl Future<Output = Reply>, held: &HeldBytes) {
        match reply.await {
            Reply::Accepted => {}
            Reply::Single(reply) => {
                // Fails only if the client has disconnected.
                let _ = self.send(reply.body.into_string(), held).await;
            }
            Reply::Stream(mut events) => {
                while let Some(event) = events.next().await {
                    if self.send(event.message, held).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Queues a message, whose memory counts until the client has read it.
    async fn send(&self, text: String, held: &HeldBytes) -> Result<(), SendError<Answer>> {
        let memory = held.hold(self.caller.share_owner());
        memory.grow(text.len());
        let answer = Answer {
            text,
            _memory: memory,
        };
        self.answers.send(answer).await
    }
}

impl SseClients {
    /// Waits until all answers are sent or dropped.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.app.sse().open.lock().remove(&self.id);
        self.connection.disconnect();
    }
}
