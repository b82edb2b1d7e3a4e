//! The three ways in which models are talked to, and the one table that leads to them.

use serde_json::Value;
pub use toolgate_core::config::Dialect;
use toolgate_core::sse;

use crate::event::{BadAnswer, Event, Failure, Usage};
use crate::fields::BadField;
use crate::prompt::{Ignored, Prompt};
use crate::turn::{Head, Turn};
use crate::{chat, messages, responses};

/// Reads the answer of a provider that comes as a stream.
#[derive(Debug)]
pub enum Decoder {
    Chat(chat::Decoder),
    Responses(responses::Decoder),
    Messages(messages::Decoder),
}

/// Writes a stream for a caller.
#[derive(Debug)]
pub enum Encoder {
    Chat(chat::Encoder),
    Responses(responses::Encoder),
    Messages(messages::Encoder),
}

/// How a dialect looks on the wire.
pub trait Wire {
    /// What a request asks for. Fields that only this dialect has are errors, but for those that
    /// are to be ignored.
    fn read(self, body: &str, ignored: &Ignored) -> Result<Prompt, BadField>;

    /// A request that asks for it.
    fn write(self, prompt: &Prompt) -> Result<String, BadField>;

    /// The events of an answer that came whole.
    fn events(self, body: &str) -> Result<Vec<Event>, BadAnswer>;

    /// The same with what only this dialect can say, as it came.
    fn events_with_raw(self, body: &str) -> Result<Vec<Event>, BadAnswer>;

    /// A whole answer.
    fn answer(self, head: &Head, turn: &Turn) -> String;

    /// Tokens, as an answer tells of them.
    fn usage(self, usage: &Usage) -> Value;

    /// An error.
    fn error(self, failure: &Failure) -> Value;

    /// The end of a stream that broke off.
    fn broken(self) -> String;

    /// An id for an answer that the gateway writes itself.
    fn new_id(self) -> String;

    fn decoder(self) -> Decoder;

    fn encoder(self, head: Head) -> Encoder;
}

impl Wire for Dialect {
    fn read(self, body: &str, ignored: &Ignored) -> Result<Prompt, BadField> {
        let read = match self {
            Self::Chat => chat::read(body, ignored),
            Self::Responses => responses::read(body, ignored),
            Self::Messages => messages::read(body, ignored),
        };
        read.map(|prompt| prompt.without(ignored))
    }

    fn write(self, prompt: &Prompt) -> Result<String, BadField> {
        match self {
            Self::Chat => chat::write(prompt),
            Self::Responses => responses::write(prompt),
            Self::Messages => messages::write(prompt),
        }
    }

    fn events(self, body: &str) -> Result<Vec<Event>, BadAnswer> {
        match self {
            Self::Chat => chat::events(body),
            Self::Responses => responses::events(body),
            Self::Messages => messages::events(body),
        }
    }

    fn events_with_raw(self, body: &str) -> Result<Vec<Event>, BadAnswer> {
        match self {
            Self::Chat => chat::events(body),
            Self::Responses => responses::events_with_raw(body),
            Self::Messages => messages::events_with_raw(body),
        }
    }

    fn answer(self, head: &Head, turn: &Turn) -> String {
        match self {
            Self::Chat => chat::answer(head, turn),
            Self::Responses => responses::answer(head, turn),
            Self::Messages => messages::answer(head, turn),
        }
    }

    fn usage(self, usage: &Usage) -> Value {
        match self {
            Self::Chat => chat::usage_value(usage),
            Self::Responses => responses::usage_value(usage),
            Self::Messages => messages::usage_value(usage),
        }
    }

    fn error(self, failure: &Failure) -> Value {
        match self {
            Self::Chat => chat::error(failure),
            Self::Responses => responses::error(failure),
            Self::Messages => messages::error(failure),
        }
    }

    fn broken(self) -> String {
        let failure = Failure {
            kind: Some("api_error".to_owned()),
            message: "the provider's stream broke off".to_owned(),
            code: None,
        };
        let error = self.error(&failure);
        // What came before it may have ended in the middle of an event.
        match self {
            Self::Chat => format!("\n\ndata: {error}\n\n"),
            Self::Messages => format!("\n\nevent: error\ndata: {error}\n\n"),
            Self::Responses => {
                let event = serde_json::json!({"type": "error", "code": "server_error",
                    "message": failure.message, "param": null, "sequence_number": 0});
                format!("\n\nevent: error\ndata: {event}\n\n")
            }
        }
    }

    fn new_id(self) -> String {
        let id: u128 = rand::random();
        match self {
            Self::Chat => format!("chatcmpl-{id:032x}"),
            Self::Responses => format!("resp_{id:032x}"),
            Self::Messages => format!("msg_{id:032x}"),
        }
    }

    fn decoder(self) -> Decoder {
        match self {
            Self::Chat => Decoder::Chat(chat::Decoder::default()),
            Self::Responses => Decoder::Responses(responses::Decoder::default()),
            Self::Messages => Decoder::Messages(messages::Decoder::default()),
        }
    }

    fn encoder(self, head: Head) -> Encoder {
        match self {
            Self::Chat => Encoder::Chat(chat::Encoder::new(head)),
            Self::Responses => Encoder::Responses(responses::Encoder::new(head)),
            Self::Messages => Encoder::Messages(messages::Encoder::new(head)),
        }
    }
}

impl Decoder {
    /// One that hands on what only its dialect can say, as it came, rather than refusing it.
    #[must_use]
    pub fn keeping_raw(self) -> Self {
        match self {
            Self::Chat(decoder) => Self::Chat(decoder),
            Self::Responses(decoder) => Self::Responses(decoder.keeping_raw()),
            Self::Messages(decoder) => Self::Messages(decoder.keeping_raw()),
        }
    }

    /// Takes an event of the stream and appends what it means to `out`.
    pub fn take(&mut self, event: &sse::Event, out: &mut Vec<Event>) -> Result<(), BadAnswer> {
        match self {
            Self::Chat(decoder) => decoder.take(event, out),
            Self::Responses(decoder) => decoder.take(event, out),
            Self::Messages(decoder) => decoder.take(event, out),
        }
    }

    /// Whether the stream came to its end, rather than breaking off.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Chat(decoder) => decoder.is_done(),
            Self::Responses(decoder) => decoder.is_done(),
            Self::Messages(decoder) => decoder.is_done(),
        }
    }
}

impl Encoder {
    /// Appends what an event looks like on the wire to `out`.
    pub fn put(&mut self, event: &Event, out: &mut String) {
        match self {
            Self::Chat(encoder) => encoder.put(event, out),
            Self::Responses(encoder) => encoder.put(event, out),
            Self::Messages(encoder) => encoder.put(event, out),
        }
    }

    /// Something about the answer that stands beside its end, as `toolgate`.
    pub fn note(&mut self, note: Value) {
        match self {
            Self::Chat(encoder) => encoder.note = Some(note),
            Self::Responses(encoder) => encoder.note = Some(note),
            Self::Messages(encoder) => encoder.note = Some(note),
        }
    }

    /// Appends the end of the stream.
    pub fn end(&mut self, out: &mut String) {
        match self {
            Self::Chat(encoder) => encoder.end(out),
            Self::Responses(encoder) => encoder.end(out),
            Self::Messages(encoder) => encoder.end(out),
        }
    }
}
