//! The replies of a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::delivery::{BodyEnding, Chunking, DeliveryOptions};
use super::turn::{ScriptedCall, ScriptedTurn, ScriptedUsage};

/// The reply to one request: its content and how it is delivered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) content: ReplyContent,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) delivery: DeliveryOptions,
}

#[derive(Debug, Clone)]
pub(crate) enum ReplyContent {
    /// An answer of the model, in the format of the requested API.
    Turn(ScriptedTurn),
    /// An error, in the format of the requested API.
    Error(String),
    Json(Value),
    Raw {
        content_type: String,
        bytes: Bytes,
    },
    FromRequest(ReplyFn),
}

/// A reply that depends on the request.
#[derive(Clone)]
pub(crate) struct ReplyFn(Arc<dyn Fn(&Value) -> Reply + Send + Sync>);

impl Reply {
    fn new(content: ReplyContent) -> Self {
        Self {
            content,
            status: 200,
            headers: Vec::new(),
            delivery: DeliveryOptions::default(),
        }
    }

    /// Creates an answer with this text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(ReplyContent::Turn(ScriptedTurn::default())).with_text(text)
    }

    /// Creates an answer with these tool calls, each an id, a name and arguments.
    #[must_use]
    pub fn calls<I, N>(calls: impl IntoIterator<Item = (I, N, Value)>) -> Self
    where
        I: Into<String>,
        N: Into<String>,
    {
        let reply = Self::new(ReplyContent::Turn(ScriptedTurn::default()));
        calls.into_iter().fold(reply, |reply, (id, name, value)| {
            reply.with_raw_call(id, name, value.to_string())
        })
    }

    /// Creates an error response in the format of the requested API.
    #[must_use]
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::new(ReplyContent::Error(message.into())).with_status(status)
    }

    /// Creates a response with this status and JSON body, for every API.
    #[must_use]
    pub fn status(status: u16, body: Value) -> Self {
        Self::new(ReplyContent::Json(body)).with_status(status)
    }

    /// Creates a response with these raw bytes. An event stream is split into its events.
    #[must_use]
    pub fn raw(content_type: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self::new(ReplyContent::Raw {
            content_type: content_type.into(),
            bytes: bytes.into(),
        })
    }

    /// Creates a reply that `choose` computes from the request body, with its own delivery options.
    #[must_use]
    pub fn from_request(choose: impl Fn(&Value) -> Self + Send + Sync + 'static) -> Self {
        Self::new(ReplyContent::FromRequest(ReplyFn(Arc::new(choose))))
    }

    /// Adds text before the calls.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.turn_mut().text = Some(text.into());
        self
    }

    /// Adds reasoning before everything else: `reasoning_content` in Chat Completions, a separate
    /// item in Responses, a thinking block in Messages.
    #[must_use]
    pub fn with_reasoning(mut self, text: impl Into<String>) -> Self {
        self.turn_mut().reasoning = Some(text.into());
        self
    }

    /// Adds a call with raw arguments, which need not be JSON.
    #[must_use]
    pub fn with_raw_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.turn_mut().calls.push(ScriptedCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        });
        self
    }

    /// Sets the reported input and output tokens.
    #[must_use]
    pub fn with_usage(mut self, input: u64, output: u64) -> Self {
        let usage = &mut self.turn_mut().usage;
        *usage = ScriptedUsage {
            input,
            output,
            ..*usage
        };
        self
    }

    /// Sets the number of cached input tokens.
    #[must_use]
    pub fn with_cached_tokens(mut self, tokens: u64) -> Self {
        self.turn_mut().usage.cached = tokens;
        self
    }

    /// Sets the finish reason in terms of the Chat API (`length`, `content_filter`). It is
    /// translated for the other APIs; a value unknown to the Chat API is sent unchanged.
    #[must_use]
    pub fn with_finish_reason(mut self, reason: impl Into<String>) -> Self {
        self.turn_mut().finish_reason = Some(reason.into());
        self
    }

    /// Adds fields to the response, to every event of a stream, and to responses within events.
    ///
    /// # Panics
    /// If `fields` is not an object.
    #[must_use]
    pub fn with_extra_fields(mut self, fields: Value) -> Self {
        let fields: Map<String, Value> =
            serde_json::from_value(fields).expect("extra fields must be an object");
        self.turn_mut().extra.extend(fields);
        self
    }

    /// Sets the status; the default is 200.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets how the body is split into writes; the default is one event per write.
    #[must_use]
    pub fn with_chunking(mut self, chunking: Chunking) -> Self {
        self.delivery.chunking = chunking;
        self
    }

    /// Closes the connection after this many events, in the middle of the body. A response that
    /// is not streamed counts as one event.
    #[must_use]
    pub fn disconnect_after(mut self, events: usize) -> Self {
        self.delivery.ending = BodyEnding::Disconnect(events);
        self
    }

    /// Sends an error event after this many events and ends the stream. A response that is not
    /// streamed is unaffected.
    #[must_use]
    pub fn fail_after(mut self, events: usize, message: impl Into<String>) -> Self {
        self.delivery.ending = BodyEnding::Error(events, message.into());
        self
    }

    /// Waits before sending the status line.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delivery.delay = delay;
        self
    }

    /// Waits between writes.
    #[must_use]
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.delivery.pause = pause;
        self
    }

    /// Resolves replies that depend on the request.
    pub(crate) fn resolve(&self, body: &Value) -> Self {
        let mut reply = self.clone();
        while let ReplyContent::FromRequest(ReplyFn(choose)) = &reply.content {
            reply = choose(body);
        }
        reply
    }

    fn turn_mut(&mut self) -> &mut ScriptedTurn {
        match &mut self.content {
            ReplyContent::Turn(turn) => turn,
            other => panic!("only a model answer supports this, not {other:?}"),
        }
    }
}

impl fmt::Debug for ReplyFn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReplyFn")
    }
}
