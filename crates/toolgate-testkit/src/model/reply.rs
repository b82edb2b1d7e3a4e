//! The replies that a script is made of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::delivery::{Chunking, Ending, Manner};
use super::turn::{Call, Turn, Usage};

/// What one request gets, and how its bytes are sent.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) content: Content,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) manner: Manner,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// An answer of the model, in the form of the API that was asked.
    Turn(Turn),
    /// An error, in the form of the API that was asked.
    Error(String),
    Json(Value),
    Raw {
        content_type: String,
        bytes: Bytes,
    },
    With(Choice),
}

/// A reply that depends on the request.
#[derive(Clone)]
pub(crate) struct Choice(Arc<dyn Fn(&Value) -> Reply + Send + Sync>);

impl Reply {
    fn new(content: Content) -> Self {
        Self {
            content,
            status: 200,
            headers: Vec::new(),
            manner: Manner::default(),
        }
    }

    /// The model says this.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Turn(Turn::default())).with_text(text)
    }

    /// The model asks for these calls, each an id, a name and arguments.
    #[must_use]
    pub fn calls<I, N>(calls: impl IntoIterator<Item = (I, N, Value)>) -> Self
    where
        I: Into<String>,
        N: Into<String>,
    {
        let reply = Self::new(Content::Turn(Turn::default()));
        calls.into_iter().fold(reply, |reply, (id, name, value)| {
            reply.with_raw_call(id, name, value.to_string())
        })
    }

    /// This status, with an error that says this in the form of the API that was asked.
    #[must_use]
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::new(Content::Error(message.into())).with_status(status)
    }

    /// This status and this body, whatever was asked.
    #[must_use]
    pub fn status(status: u16, body: Value) -> Self {
        Self::new(Content::Json(body)).with_status(status)
    }

    /// These bytes as they are. Of an event stream, each event counts as one.
    #[must_use]
    pub fn raw(content_type: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        Self::new(Content::Raw {
            content_type: content_type.into(),
            bytes: bytes.into(),
        })
    }

    /// The reply that `choose` makes of the request's body; all else about it is said there too.
    #[must_use]
    pub fn with(choose: impl Fn(&Value) -> Self + Send + Sync + 'static) -> Self {
        Self::new(Content::With(Choice(Arc::new(choose))))
    }

    /// Text before the calls.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.turn().text = Some(text.into());
        self
    }

    /// Thoughts before everything else: `reasoning_content` of a chat, an item of its own in
    /// Responses, a thinking block in Messages.
    #[must_use]
    pub fn with_reasoning(mut self, text: impl Into<String>) -> Self {
        self.turn().reasoning = Some(text.into());
        self
    }

    /// One more call, with arguments that need not be JSON.
    #[must_use]
    pub fn with_raw_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.turn().calls.push(Call {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        });
        self
    }

    /// The tokens that it says went in and came out.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        let usage = &mut self.turn().usage;
        *usage = Usage {
            input,
            output,
            ..*usage
        };
        self
    }

    /// How many of the tokens that went in were cached.
    #[must_use]
    pub fn cached(mut self, tokens: u64) -> Self {
        self.turn().usage.cached = tokens;
        self
    }

    /// Why it ended, in the words of the Chat API (`length`, `content_filter`), which the other
    /// APIs get in theirs; a word that is not of the Chat API is sent as it is.
    #[must_use]
    pub fn finish(mut self, reason: impl Into<String>) -> Self {
        self.turn().finish = Some(reason.into());
        self
    }

    /// Fields to add to the answer, to every event of a stream, and to the answer in an event.
    ///
    /// # Panics
    /// If this is not an object.
    #[must_use]
    pub fn extra(mut self, fields: Value) -> Self {
        let fields: Map<String, Value> =
            serde_json::from_value(fields).expect("extra fields are an object");
        self.turn().extra.extend(fields);
        self
    }

    /// Another status than 200.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// One more header of the response.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// How the bytes of the body are cut; without this, an event at a time.
    #[must_use]
    pub fn chunked(mut self, chunking: Chunking) -> Self {
        self.manner.chunking = chunking;
        self
    }

    /// Closes the connection after so many events, in the middle of the body. An answer that is
    /// not streamed is one event.
    #[must_use]
    pub fn breaks_after(mut self, events: usize) -> Self {
        self.manner.ending = Ending::Break(events);
        self
    }

    /// Sends an error after so many events, as the API does, and ends the stream there. An answer
    /// that is not streamed is not touched.
    #[must_use]
    pub fn fails_after(mut self, events: usize, message: impl Into<String>) -> Self {
        self.manner.ending = Ending::Failure(events, message.into());
        self
    }

    /// Waits before the first byte, the status line.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.manner.delay = delay;
        self
    }

    /// Waits between two writes.
    #[must_use]
    pub fn slow(mut self, pause: Duration) -> Self {
        self.manner.pause = pause;
        self
    }

    /// What the request gets in the end.
    pub(crate) fn chosen(&self, body: &Value) -> Self {
        let mut reply = self.clone();
        while let Content::With(Choice(choose)) = &reply.content {
            reply = choose(body);
        }
        reply
    }

    fn turn(&mut self) -> &mut Turn {
        match &mut self.content {
            Content::Turn(turn) => turn,
            other => panic!("only an answer of the model can have this, not {other:?}"),
        }
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Choice")
    }
}
