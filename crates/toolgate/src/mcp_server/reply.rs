//! Replies to messages: a single response, or a stream of messages that ends with it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{
    self, HEADER_MISMATCH, INVALID_REQUEST, METHOD_NOT_FOUND, RATE_LIMITED, RpcError, RpcResult,
    UNSUPPORTED_VERSION,
};

use super::event_stream::{EventStream, StreamEvent};
use super::event_streams::Resumption;
use super::message_queue::MessageReceiver;
use super::sessions::SessionError;
use super::tool_pages::EncodedToolPage;
use crate::call::CallError;

/// Time after which a client that waits for an answer gets the head of a stream, so that it and the
/// proxies on the way see that the request is in progress.
const STREAM_AFTER: Duration = Duration::from_millis(500);

/// The reply to a message.
pub enum Reply {
    /// The message needs no response.
    Accepted,
    /// One response.
    Single(SingleReply),
    /// Messages to send as they come; the last one is the response.
    Stream(BoxStream<'static, StreamEvent>),
}

/// A reply that consists of one response.
#[derive(Debug)]
pub struct SingleReply {
    /// The HTTP status to send the response with.
    pub status: u16,
    /// The response.
    pub body: ReplyBody,
    /// The id of the session that was opened, which the client repeats with later messages.
    pub session: Option<String>,
    /// Time after which a refused message is worth another try.
    pub retry_after: Option<Duration>,
}

/// The JSON of a response.
#[derive(Debug)]
pub struct ReplyBody(BodyParts);

#[derive(Debug)]
enum BodyParts {
    Text(String),
    /// A response around a cached page.
    ToolPage {
        before: String,
        page: EncodedToolPage,
        after: &'static str,
    },
}

/// A request in flight, whose answer may be preceded by other messages.
pub(super) struct PendingReply {
    pub(super) id: Box<RawValue>,
    pub(super) era: Era,
    /// Messages to send before the answer.
    pub(super) messages: MessageReceiver,
    /// Resolves to `None` if the client cancels the request.
    pub(super) answer: BoxFuture<'static, Option<RpcResult>>,
    pub(super) streaming: Streaming,
}

/// How an answer that takes longer is sent.
#[derive(Debug)]
pub(super) enum Streaming {
    /// When it is there: on a transport without separate replies, and to a client that does not
    /// accept streams.
    Late,
    /// As a stream that starts before the answer is there. The request ends with the stream.
    Early,
    /// As a stream that the client can resume.
    Resumable(Box<Resumption>),
}

/// State of a stream that ends with the answer to a request.
struct AnswerStream {
    first: Option<String>,
    pending: Option<PendingReply>,
}

impl Reply {
    pub(super) fn text(status: u16, text: String) -> Self {
        Self::Single(SingleReply::new(status, text))
    }

    pub(super) fn response(status: u16, id: &RawValue, result: &RpcResult) -> Self {
        Self::text(status, jsonrpc::response(id, result))
    }

    pub(super) fn error(status: u16, id: &RawValue, error: RpcError) -> Self {
        Self::response(status, id, &Err(error))
    }

    /// Refuses a request that a limit does not admit.
    pub(super) fn refused(id: &RawValue, error: &CallError) -> Self {
        let status = match error {
            CallError::Overloaded { .. } => 503,
            CallError::Limited { .. } => 429,
            _ => 400,
        };
        let response = jsonrpc::response(id, &Err(refusal_error(error)));
        Self::Single(SingleReply {
            retry_after: error.retry_after(),
            ..SingleReply::new(status, response)
        })
    }

    /// Rejects a message that has no id, or whose id is unknown.
    pub(super) fn rejection(status: u16, error: RpcError) -> Self {
        Self::error(status, RawValue::NULL, error)
    }

    /// Responds to `initialize` and announces the session.
    pub(super) fn open_session(id: &RawValue, result: Box<RawValue>, session: &str) -> Self {
        Self::Single(SingleReply {
            session: Some(session.to_owned()),
            ..SingleReply::new(200, jsonrpc::response(id, &Ok(result)))
        })
    }

    /// Responds with a cached page of tools, without copying it.
    pub(super) fn tool_page(id: &RawValue, page: EncodedToolPage) -> Self {
        let (before, after) = jsonrpc::response_frame(id);
        Self::Single(SingleReply {
            status: 200,
            body: ReplyBody(BodyParts::ToolPage {
                before,
                page,
                after,
            }),
            session: None,
            retry_after: None,
        })
    }

    /// Rejects a message that names no session of the caller.
    pub fn unknown_session() -> Self {
        let error = RpcError::new(INVALID_REQUEST, SessionError::Unknown.to_string());
        Self::rejection(404, error)
    }

    /// Rejects a message that exceeds the transport's limit.
    pub fn too_long() -> Self {
        Self::rejection(
            413,
            RpcError::new(INVALID_REQUEST, "the message is too long"),
        )
    }
}

impl SingleReply {
    fn new(status: u16, text: String) -> Self {
        Self {
            status,
            body: ReplyBody(BodyParts::Text(text)),
            session: None,
            retry_after: None,
        }
    }
}

impl ReplyBody {
    /// Returns the JSON in parts that are sent one after the other; some may be empty. A cached
    /// page is not copied.
    pub fn into_parts(self) -> [Bytes; 3] {
        match self.0 {
            BodyParts::Text(text) => [text.into(), Bytes::new(), Bytes::new()],
            BodyParts::ToolPage {
                before,
                page,
                after,
            } => [before.into(), page.into_bytes(), after.into()],
        }
    }

    /// Returns the JSON as text.
    pub fn into_string(self) -> String {
        match self.0 {
            BodyParts::Text(text) => text,
            BodyParts::ToolPage {
                before,
                page,
                after,
            } => [&before, page.text(), after].concat(),
        }
    }
}

impl PendingReply {
    /// Waits for the answer. The reply is single if it comes soon and nothing has to be sent before.
    pub(super) async fn into_reply(mut self) -> Reply {
        let first = tokio::select! {
            biased;
            Some(message) = self.messages.recv() => Some(message),
            answer = &mut self.answer => match (self.messages.try_recv(), answer) {
                // Messages sent before the answer must precede it.
                (Some(message), answer) => {
                    self.answer = Box::pin(std::future::ready(answer));
                    Some(message)
                }
                (None, Some(result)) => {
                    let status = result
                        .as_ref()
                        .map_or_else(|error| error_status(self.era, error), |_| 200);
                    return Reply::response(status, &self.id, &result);
                }
                // The client cancelled the request and expects no answer.
                (None, None) => return Reply::Accepted,
            },
            () = tokio::time::sleep(STREAM_AFTER), if self.streaming.is_early() => None,
        };
        Reply::Stream(
            match std::mem::replace(&mut self.streaming, Streaming::Late) {
                Streaming::Resumable(resumption) => resumption.start(first, self),
                Streaming::Early | Streaming::Late => {
                    let state = AnswerStream {
                        first,
                        pending: Some(self),
                    };
                    let messages = stream::unfold(state, AnswerStream::next);
                    messages.map(StreamEvent::from).boxed()
                }
            },
        )
    }

    /// Sends all messages, and then the answer, to a stream.
    pub(super) async fn send_to(mut self, stream: &EventStream) {
        loop {
            let message = async {
                stream.wait_for_room().await;
                self.messages.recv().await
            };
            let answer = tokio::select! {
                biased;
                Some(message) = message => {
                    stream.push_in_turn(message);
                    continue;
                }
                answer = &mut self.answer => answer,
            };
            // Messages sent before the answer must precede it.
            while let Some(message) = self.messages.try_recv() {
                stream.push_in_turn(message);
            }
            return stream.complete(answer.map(|answer| jsonrpc::response(&self.id, &answer)));
        }
    }
}

impl Streaming {
    fn is_early(&self) -> bool {
        !matches!(self, Self::Late)
    }
}

impl AnswerStream {
    async fn next(mut self) -> Option<(String, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        let pending = self.pending.as_mut()?;
        let message = tokio::select! {
            biased;
            Some(message) = pending.messages.recv() => message,
            answer = &mut pending.answer => match pending.messages.try_recv() {
                // Messages sent before the answer must precede it.
                Some(message) => {
                    pending.answer = Box::pin(std::future::ready(answer));
                    message
                }
                None => {
                    let response = jsonrpc::response(&pending.id, &answer?);
                    self.pending = None;
                    response
                }
            },
        };
        Some((message, self))
    }
}

/// Converts the reason why a request was not admitted. It did not run, so the client gets an error rather
/// than a result that a model would read.
pub(super) fn refusal_error(error: &CallError) -> RpcError {
    let code = match error {
        CallError::Limited { .. } | CallError::Overloaded { .. } => RATE_LIMITED,
        _ => INVALID_REQUEST,
    };
    let data = error
        .retry_after()
        .map(|after| json!({"retryAfterMs": after.as_millis()}));
    RpcError {
        // Cannot fail: the value is plain JSON.
        data: data.and_then(|data| to_raw_value(&data).ok()),
        ..RpcError::new(code, error.to_string())
    }
}

/// Returns the HTTP status of an error: modern revisions use 404 for unknown methods and 400 for
/// bad requests, legacy ones always 200.
pub(super) fn error_status(era: Era, error: &RpcError) -> u16 {
    match (era, error.code) {
        (Era::Modern, METHOD_NOT_FOUND) => 404,
        // Header mismatch, missing capability, unsupported protocol version.
        (Era::Modern, UNSUPPORTED_VERSION..=HEADER_MISMATCH) => 400,
        _ => 200,
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted => f.write_str("Accepted"),
            Self::Single(reply) => f.debug_tuple("Single").field(reply).finish(),
            Self::Stream(_) => f.debug_tuple("Stream").finish_non_exhaustive(),
        }
    }
}
