//! JSON-RPC batches, which only protocol revision 2025-03-26 supports.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use serde_json::value::RawValue;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{self, INTERNAL_ERROR, INVALID_REQUEST, RpcError, RpcResult};

use super::connection::Connection;
use super::message::{Message, RequestMessage};
use super::meta::{RawMeta, RequestMeta};
use super::method::{ClientNotification, Method};
use super::reply::{Reply, refusal_error};
use super::request::RequestHandler;
use super::session::Session;
use crate::active_set::ActiveGuard;
use crate::call::RequestContext;
use crate::concurrent::run_numbered;

/// The only protocol revision with batches.
const BATCH_VERSION: &str = "2025-03-26";
const MAX_BATCH_MESSAGES: usize = 100;
/// Requests of a batch that are handled concurrently.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Total size of all responses to a batch.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// The answer to one message of a batch, with the message's id.
struct BatchItem {
    id: Box<RawValue>,
    result: RpcResult,
}

/// A message of a batch, parsed before any message takes effect.
enum BatchMessage<'a> {
    Request {
        id: &'a RawValue,
        method: Result<Method, RpcError>,
        meta: RequestMeta,
    },
    Notification(ClientNotification<'a>),
    Response {
        id: &'a RawValue,
        result: RpcResult,
    },
    /// A notification that the gateway does not act on.
    Ignored,
    Invalid(RpcError),
}

/// Resolves to the answer to one message; `None` if its request is cancelled.
type BatchAnswer = BoxFuture<'static, Option<BatchItem>>;

impl Connection {
    /// Handles a batch. Notifications sent while its requests run are not tied to any of them.
    pub(super) fn handle_batch(
        &self,
        text: &str,
        session: &Arc<Session>,
        context: &RequestContext,
    ) -> Result<BoxFuture<'static, Reply>, RpcError> {
        let messages: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|error| RpcError::new(INVALID_REQUEST, format!("invalid batch: {error}")))?;
        if session.client.version() != BATCH_VERSION
            || messages.is_empty()
            || messages.len() > MAX_BATCH_MESSAGES
        {
            let message = format!(
                "a batch must have 1 to {MAX_BATCH_MESSAGES} messages and requires protocol revision {BATCH_VERSION}"
            );
            return Err(RpcError::new(INVALID_REQUEST, message));
        }
        let messages: Vec<BatchMessage<'_>> =
            messages.into_iter().map(BatchMessage::parse).collect();
        // All calls are counted before the first one runs: they are admitted together or not at all.
        let calls = messages.iter().filter(|message| message.is_tool_call());
        let keys = self.server.gateway().keys();
        let admission = keys.admit_calls(&self.caller, calls.count());
        let context = RequestContext {
            rate_admission: admission.as_ref().ok().cloned(),
            ..context.clone()
        };
        let mut answers: Vec<BatchAnswer> = Vec::new();
        for message in messages {
            match message {
                BatchMessage::Request { id, method, meta } => {
                    let method = match (method, &admission) {
                        (Ok(Method::CallTool(_)), Err(error)) => Err(refusal_error(error)),
                        (method, _) => method,
                    };
                    let sender = session.client.message_sender();
                    let handler =
                        RequestHandler::legacy(self, context.clone(), session, meta, sender);
                    let in_flight = session.client.in_flight.register(id.get());
                    answers.push(answer_request(handler, id.to_owned(), method, in_flight));
                }
                BatchMessage::Notification(notification) => {
                    self.handle_notification(Some(session), &notification);
                }
                BatchMessage::Response { id, result } => {
                    session.client.handle_response(id, result);
                }
                BatchMessage::Ignored => {}
                BatchMessage::Invalid(error) => {
                    let item = BatchItem {
                        id: RawValue::NULL.to_owned(),
                        result: Err(error),
                    };
                    answers.push(ready(Some(item)).boxed());
                }
            }
        }
        Ok(collect_answers(answers).boxed())
    }
}

impl<'a> BatchMessage<'a> {
    fn parse(message: &'a RawValue) -> Self {
        match Message::parse(message.get()) {
            Ok(Message::Request(RequestMessage { id, method, params })) => Self::Request {
                id,
                method: Method::parse(&method, Era::Legacy, params),
                meta: RawMeta::from_params(params).to_request_meta(),
            },
            Ok(Message::Notification { method, params }) => {
                ClientNotification::parse(&method, params).map_or(Self::Ignored, Self::Notification)
            }
            Ok(Message::Response { id, result }) => Self::Response { id, result },
            Err(error) => Self::Invalid(error),
        }
    }

    fn is_tool_call(&self) -> bool {
        let Self::Request { method, .. } = self else {
            return false;
        };
        matches!(method, Ok(Method::CallTool(_)))
    }
}

/// Answers one request of a batch.
fn answer_request(
    handler: RequestHandler,
    id: Box<RawValue>,
    method: Result<Method, RpcError>,
    in_flight: ActiveGuard,
) -> BatchAnswer {
    async move {
        let result = match method {
            Ok(method) => answer_until_cancelled(&handler, method, &in_flight).await?,
            Err(error) => Err(error),
        };
        Some(BatchItem { id, result })
    }
    .boxed()
}

async fn answer_until_cancelled(
    handler: &RequestHandler,
    method: Method,
    in_flight: &ActiveGuard,
) -> Option<RpcResult> {
    tokio::select! {
        result = handler.answer(method) => Some(result),
        () = in_flight.token().cancelled() => None,
    }
}

async fn collect_answers(answers: Vec<BatchAnswer>) -> Reply {
    if answers.is_empty() {
        return Reply::Accepted;
    }
    let answers = run_numbered(answers, MAX_CONCURRENT_REQUESTS);
    let texts = answers
        .filter_map(|(number, item)| ready(item.map(|item| (number, item))))
        .scan(0, |bytes, (number, BatchItem { id, result })| {
            let text = jsonrpc::response(&id, &result);
            *bytes += text.len();
            let text = if *bytes > MAX_RESPONSE_BYTES {
                let message =
                    "the responses to the batch are too large; send the requests separately";
                jsonrpc::response(&id, &Err(RpcError::new(INTERNAL_ERROR, message)))
            } else {
                text
            };
            ready(Some((number, text)))
        });
    let mut texts: Vec<(usize, String)> = texts.collect().await;
    texts.sort_by_key(|(number, _)| *number);
    let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
    Reply::text(200, format!("[{}]", texts.join(",")))
}
