//! A client's connection: takes one message at a time and yields the reply to it.

mod session_lookup;

use std::sync::{Arc, OnceLock};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_core::json::{MAX_DEPTH, exceeds_depth};
use toolgate_core::scope::Filters;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{INVALID_REQUEST, PARSE_ERROR, RpcError, RpcResult};
use toolgate_mcp::task;

use super::Server;
use super::client_capabilities::MAX_CAPABILITIES_BYTES;
use super::endpoint::McpEndpoint;
use super::event_stream::StreamEvent;
use super::list_changes::ListChanges;
use super::listen::ListenStream;
use super::message::{Message, RequestMessage};
use super::message_queue::{MessageReceiver, message_queue};
use super::meta::{RawMeta, RepeatedParts};
use super::method::{ClientNotification, INITIALIZE, LISTEN, Method, RequestedNotifications};
use super::reply::{PendingReply, Reply, Streaming, error_status};
use super::request::{ClientInput, RequestHandler};
use super::session::{Session, SessionChannel};
use super::sessions::SessionError;
use super::tasks::missing_extension;
use crate::active_set::ActiveGuard;
use crate::call::RequestContext;
use crate::caller::Caller;
use crate::held_bytes::Hold;
use crate::metrics::Bound;

/// A connection of a caller to an endpoint.
///
/// Over HTTP it lives as long as one request, and the headers of a message name the legacy session
/// that it belongs to. Where all messages come from one client, [`Self::into_dedicated`] binds the
/// connection to that client.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) server: Server,
    pub(super) endpoint: McpEndpoint,
    pub(super) caller: Caller,
    dedicated: Option<Arc<DedicatedClient>>,
}

/// The only client of a connection.
#[derive(Debug)]
struct DedicatedClient {
    /// Set once the client has sent `initialize`, which makes it a legacy client.
    session: OnceLock<Arc<Session>>,
    channel: SessionChannel,
    /// Cancelled when the client is ready for notifications.
    initialized: CancellationToken,
}

/// Transport details of a message.
#[derive(Debug)]
pub struct Delivery {
    /// Id in logs and the audit trail; generated if absent.
    pub request_id: Option<String>,
    /// Id of the request that caused this one.
    pub parent_id: Option<String>,
    /// Filters that narrow the scope of a request; if they are malformed, the error to report.
    pub filters: Result<Filters, String>,
    /// Headers of the HTTP request. They name the session of a legacy client, and repeat parts of
    /// a modern client's body.
    pub headers: Option<HeaderMap>,
    /// The memory of the message, which counts for the caller until its requests have ended.
    pub memory: Option<Arc<Hold>>,
}

/// Progress of a received message: its reply, or the future that yields it.
enum Received {
    Replied(Reply),
    Pending(PendingReply),
    /// Rare: batches and `subscriptions/listen`.
    Boxed(BoxFuture<'static, Reply>),
}

impl Delivery {
    /// A message on a transport without headers.
    pub fn without_headers() -> Self {
        Self {
            request_id: None,
            parent_id: None,
            filters: Ok(Filters::default()),
            headers: None,
            memory: None,
        }
    }

    /// Returns whether the client asks for streams of events, as the protocol requires. Scripts that
    /// accept anything usually expect plain JSON.
    fn accepts_streams(&self) -> bool {
        let accepted = self
            .headers
            .iter()
            .flat_map(|headers| headers.get_all(ACCEPT));
        let mut accepted = accepted.filter_map(|value| value.to_str().ok());
        accepted.any(|value| value.contains("text/event-stream"))
    }
}

impl Connection {
    pub(super) fn new(server: Server, endpoint: McpEndpoint, caller: Caller) -> Self {
        Self {
            server,
            endpoint,
            caller,
            dedicated: None,
        }
    }

    /// Binds the connection to a single client. Also returns the messages to the client that belong
    /// to none of its requests.
    pub fn into_dedicated(self) -> (Self, impl Stream<Item = String> + Send + 'static) {
        let client = Arc::new(DedicatedClient {
            session: OnceLock::new(),
            channel: SessionChannel::new(self.server.memory_of(&self.caller)),
            initialized: CancellationToken::new(),
        });
        let (gateway, caller) = (self.server.gateway().clone(), self.caller.clone());
        let filters = self.endpoint.narrow(Filters::default());
        let initialized = client.initialized.clone();
        let opened = Arc::downgrade(&client);
        let changes = stream::once(async move {
            initialized.cancelled().await;
            let opened = opened.upgrade();
            let session = opened.as_ref().and_then(|client| client.session.get());
            let filters = session.map_or(filters, |session| session.owner.filters.clone());
            ListChanges::new(gateway, caller, filters)
        });
        let changes = changes.flat_map(ListChanges::into_messages);
        let listener = &client.channel.listener;
        let messages = listener.messages(None, false, changes);
        let messages = stream::iter(messages).flatten().map(|event| event.message);
        let connection = Self {
            dedicated: Some(client),
            ..self
        };
        (connection, messages)
    }

    /// Ends the session of a dedicated connection's client.
    pub fn disconnect(&self) {
        let client = self.dedicated.as_ref();
        if let Some(session) = client.and_then(|client| client.session.get()) {
            session.client.disconnect(self.server.gateway());
        }
    }

    /// Receives one message, or one batch. When this returns, the message has taken effect on those
    /// that follow: a session is open, a request can be cancelled. The future yields the reply;
    /// dropping it cancels the request.
    pub fn handle(
        &self,
        message: &[u8],
        delivery: Delivery,
    ) -> impl Future<Output = Reply> + Send + use<> {
        let received = match std::str::from_utf8(message) {
            Ok(text) => self.receive(text, delivery),
            Err(_) => {
                let error = RpcError::new(PARSE_ERROR, "the body is not valid UTF-8");
                Err(Reply::rejection(400, error))
            }
        };
        async move {
            match received {
                Ok(Received::Pending(pending)) => pending.into_reply().await,
                Ok(Received::Boxed(reply)) => reply.await,
                Ok(Received::Replied(reply)) | Err(reply) => reply,
            }
        }
    }

    /// Receives a message; a rejected one yields its reply as the error.
    fn receive(&self, text: &str, delivery: Delivery) -> Result<Received, Reply> {
        if exceeds_depth(text, MAX_DEPTH) {
            self.report_bound(Bound::JsonDepth);
            let message = format!("the message is nested more than {MAX_DEPTH} levels deep");
            return Err(Reply::rejection(
                400,
                RpcError::new(INVALID_REQUEST, message),
            ));
        }
        if text.trim_start().starts_with('[') {
            return self.receive_batch(text, delivery);
        }
        match Message::parse(text) {
            Ok(Message::Request(request)) => {
                let meta = RawMeta::from_params(request.params);
                match meta.era(&request.method) {
                    Era::Modern => self.receive_modern(&request, &meta, delivery),
                    Era::Legacy => self.receive_legacy(&request, &meta, delivery),
                }
            }
            Ok(Message::Notification { method, params }) => {
                let session = match self.find_session(&delivery) {
                    Ok(session) => Some(session),
                    Err(SessionError::Missing) => None,
                    Err(SessionError::Unknown) => return Err(Reply::unknown_session()),
                };
                if let Some(notification) = ClientNotification::parse(&method, params) {
                    self.handle_notification(session.as_ref(), &notification);
                }
                Ok(Received::Replied(Reply::Accepted))
            }
            Ok(Message::Response { id, result }) => self.receive_response(id, result, &delivery),
            Err(error) => Err(Reply::rejection(400, error)),
        }
    }

    fn receive_modern(
        &self,
        request: &RequestMessage<'_>,
        meta: &RawMeta<'_>,
        delivery: Delivery,
    ) -> Result<Received, Reply> {
        let RequestMessage { id, method, params } = request;
        let bad_request = |error| Reply::error(400, id, error);
        let parsed = Method::parse(method, Era::Modern, *params);
        let version = meta.version().map_err(bad_request)?;
        if let Some(headers) = &delivery.headers {
            let parts = RepeatedParts {
                version: &version,
                method,
                name: parsed.as_ref().ok().and_then(Method::header_name),
            };
            parts.check(headers).map_err(bad_request)?;
        }
        let meta = meta.to_modern_meta(&version).map_err(bad_request)?;
        let streaming = if self.dedicated.is_none() && delivery.accepts_streams() {
            Streaming::Early
        } else {
            Streaming::Late
        };
        let context = RequestContext {
            headers_mirror_arguments: delivery.headers.is_some(),
            ..self.request_context(id, delivery)?
        };
        let parsed = parsed.map_err(|error| {
            let status = if method == LISTEN {
                400
            } else {
                error_status(Era::Modern, &error)
            };
            Reply::error(status, id, error)
        })?;
        if parsed.needs_tasks() && !task::is_declared_by_client(meta.capabilities.get()) {
            return Err(bad_request(missing_extension()));
        }
        let (sender, messages) = message_queue(self.server.gateway(), &self.caller);
        if matches!(parsed, Method::Listen(_)) {
            let load = self.server.gateway().check_load();
            load.map_err(|error| Reply::refused(id, &error))?;
        }
        let input = ClientInput::parse(*params);
        let handler = RequestHandler::modern(self, context, meta, input, sender);
        let client = self.dedicated.as_ref();
        let in_flight = client.map(|client| client.channel.in_flight.register(id.get()));
        Ok(match parsed {
            Method::Listen(requested) => Received::Boxed(Box::pin(listen(
                handler,
                (*id).to_owned(),
                requested,
                in_flight,
            ))),
            method => start_answer(handler, id, method, messages, in_flight, streaming),
        })
    }

    fn receive_legacy(
        &self,
        request: &RequestMessage<'_>,
        meta: &RawMeta<'_>,
        delivery: Delivery,
    ) -> Result<Received, Reply> {
        let RequestMessage { id, method, params } = request;
        let parsed = match Method::parse(method, Era::Legacy, *params) {
            Ok(Method::Initialize(initialize)) => {
                let filters = self.narrow_filters(id, delivery.filters)?;
                return Ok(Received::Replied(match self.admit_session() {
                    Ok(()) => self.open_session(id, initialize, filters),
                    Err(error) => Reply::refused(id, &error),
                }));
            }
            Err(error) if method == INITIALIZE => {
                if params.is_some_and(|params| params.get().len() > MAX_CAPABILITIES_BYTES) {
                    self.report_bound(Bound::Capabilities);
                }
                return Err(Reply::error(400, id, error));
            }
            parsed => parsed,
        };
        let session = self.require_session(id, &delivery)?;
        let streaming = if self.dedicated.is_none() && delivery.accepts_streams() {
            Streaming::Resumable(Box::new(self.server.resumption(&session)))
        } else {
            Streaming::Late
        };
        let context = self.request_context(id, delivery)?;
        let method = parsed.map_err(|error| Reply::error(200, id, error))?;
        let (sender, messages) = message_queue(self.server.gateway(), &self.caller);
        let meta = meta.to_request_meta();
        let handler = RequestHandler::legacy(self, context, &session, meta, sender);
        let in_flight = Some(session.client.in_flight.register(id.get()));
        Ok(start_answer(
            handler, id, method, messages, in_flight, streaming,
        ))
    }

    fn receive_batch(&self, text: &str, delivery: Delivery) -> Result<Received, Reply> {
        let session = self.require_session(RawValue::NULL, &delivery)?;
        let context = self.request_context(RawValue::NULL, delivery)?;
        let reply = self.handle_batch(text, &session, &context);
        reply
            .map(Received::Boxed)
            .map_err(|error| Reply::rejection(400, error))
    }

    fn receive_response(
        &self,
        id: &RawValue,
        result: RpcResult,
        delivery: &Delivery,
    ) -> Result<Received, Reply> {
        match self.find_session(delivery) {
            Ok(session) => session.client.handle_response(id, result),
            Err(SessionError::Unknown) => return Err(Reply::unknown_session()),
            Err(SessionError::Missing) if delivery.headers.is_some() => {
                let message = "a response requires the header `Mcp-Session-Id`";
                return Err(Reply::rejection(
                    400,
                    RpcError::new(INVALID_REQUEST, message),
                ));
            }
            Err(SessionError::Missing) => {}
        }
        Ok(Received::Replied(Reply::Accepted))
    }

    /// Handles a notification from the client.
    pub(super) fn handle_notification(
        &self,
        session: Option<&Arc<Session>>,
        notification: &ClientNotification<'_>,
    ) {
        if let Some(session) = session {
            let gateway = self.server.gateway();
            session.client.handle_notification(gateway, notification);
        }
        if let Some(client) = &self.dedicated {
            match notification {
                ClientNotification::Initialized => client.initialized.cancel(),
                // A modern client has requests but no session.
                ClientNotification::Cancelled { request_id } => {
                    client.channel.in_flight.cancel(request_id.get());
                }
                ClientNotification::RootsChanged => {}
            }
        }
    }

    fn report_bound(&self, bound: Bound) {
        let key = self.caller.key().map_or("", |key| &**key);
        self.server.gateway().report_bound(bound, key);
    }

    fn request_context(&self, id: &RawValue, delivery: Delivery) -> Result<RequestContext, Reply> {
        Ok(RequestContext {
            id: delivery.request_id,
            parent: delivery.parent_id,
            filters: self.narrow_filters(id, delivery.filters)?,
            headers: delivery.headers.unwrap_or_default(),
            memory: delivery.memory,
            ..RequestContext::default()
        })
    }

    fn narrow_filters(
        &self,
        id: &RawValue,
        filters: Result<Filters, String>,
    ) -> Result<Filters, Reply> {
        let filters = filters
            .map_err(|message| Reply::error(400, id, RpcError::new(INVALID_REQUEST, message)))?;
        Ok(self.endpoint.narrow(filters))
    }
}

/// Starts to answer a request.
fn start_answer(
    handler: RequestHandler,
    id: &RawValue,
    method: Method,
    messages: MessageReceiver,
    in_flight: Option<ActiveGuard>,
    streaming: Streaming,
) -> Received {
    if let Method::ListTools { cursor } = &method
        && handler.knows_lists()
    {
        return Received::Replied(match handler.list_tools(cursor.as_deref()) {
            Ok(page) => Reply::tool_page(id, page),
            Err(error) => Reply::error(200, id, error),
        });
    }
    Received::Pending(PendingReply {
        id: id.to_owned(),
        era: handler.era,
        messages,
        streaming,
        answer: Box::pin(async move {
            let answer = handler.answer_or_follow(method);
            // Dropping the answer cancels the call: `engine::CancelOnDrop` closes its record, and the
            // transport's `RequestGuard` tells the server.
            match in_flight {
                None => Some(answer.await),
                Some(in_flight) => tokio::select! {
                    result = answer => Some(result),
                    () = in_flight.token().cancelled() => None,
                },
            }
        }),
    })
}

/// Streams the notifications that a client has requested, until it disconnects or cancels the
/// request.
async fn listen(
    handler: RequestHandler,
    id: Box<RawValue>,
    requested: RequestedNotifications,
    in_flight: Option<ActiveGuard>,
) -> Reply {
    let stopping = handler.server.stopping();
    let Some(in_flight) = in_flight else {
        let stream = ListenStream::open(&handler, id, requested).await;
        let messages = stream.into_messages(stopping);
        return Reply::Stream(messages.map(StreamEvent::from).boxed());
    };
    let stream = tokio::select! {
        stream = ListenStream::open(&handler, id, requested) => stream,
        () = in_flight.token().cancelled() => return Reply::Accepted,
    };
    let cancelled = async move { in_flight.token().cancelled().await };
    let messages = stream.into_messages(stopping).take_until(cancelled);
    Reply::Stream(messages.map(StreamEvent::from).boxed())
}
