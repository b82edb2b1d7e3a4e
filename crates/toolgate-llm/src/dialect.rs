//! The supported dialects, and the single dispatch from a dialect to its implementation.

use serde_json::Value;
pub use toolgate_core::config::Dialect;
use toolgate_core::sse;

use crate::event::{ProviderError, ResponseDecodeError, TokenUsage, TurnEvent};
use crate::fields::FieldError;
use crate::prompt::{IgnoredFields, Prompt};
use crate::turn::{ModelTurn, ResponseHead};
use crate::{chat, messages, responses};

/// Decodes a provider's streamed response.
#[derive(Debug)]
pub enum StreamDecoder {
    Chat(chat::ChatDecoder),
    Responses(responses::ResponsesDecoder),
    Messages(messages::MessagesDecoder),
}

/// Encodes a streamed response for a caller.
#[derive(Debug)]
pub enum StreamEncoder {
    Chat(chat::ChatEncoder),
    Responses(responses::ResponsesEncoder),
    Messages(messages::MessagesEncoder),
}

/// Wire format of a dialect.
pub trait WireFormat {
    /// Decodes a request. Fields that no other dialect can express are errors unless they are in
    /// `ignored`.
    fn decode_request(self, body: &str, ignored: &IgnoredFields) -> Result<Prompt, FieldError>;

    /// Encodes a prompt as a request.
    fn encode_request(self, prompt: &Prompt) -> Result<String, FieldError>;

    /// Decodes a complete response into events.
    fn decode_response(self, body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError>;

    /// Decodes a complete response, passing dialect-specific content through as raw events.
    fn decode_response_with_raw(self, body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError>;

    /// Encodes a complete response.
    fn encode_response(self, head: &ResponseHead, turn: &ModelTurn) -> String;

    /// Encodes token usage as it appears in a response.
    fn encode_usage(self, usage: &TokenUsage) -> Value;

    /// Encodes an error body.
    fn encode_error(self, failure: &ProviderError) -> Value;

    /// Returns the error event that ends a stream the provider cut off.
    fn interrupted_stream_event(self) -> String;

    /// Generates an id for a response that the gateway produces itself.
    fn new_response_id(self) -> String;

    fn stream_decoder(self) -> StreamDecoder;

    fn stream_encoder(self, head: ResponseHead) -> StreamEncoder;
}

impl WireFormat for Dialect {
    fn decode_request(self, body: &str, ignored: &IgnoredFields) -> Result<Prompt, FieldError> {
        let read = match self {
            Self::Chat => chat::decode_request(body, ignored),
            Self::Responses => responses::decode_request(body, ignored),
            Self::Messages => messages::decode_request(body, ignored),
        };
        read.map(|prompt| prompt.without_fields(ignored))
    }

    fn encode_request(self, prompt: &Prompt) -> Result<String, FieldError> {
        match self {
            Self::Chat => chat::encode_request(prompt),
            Self::Responses => responses::encode_request(prompt),
            Self::Messages => messages::encode_request(prompt),
        }
    }

    fn decode_response(self, body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
        match self {
            Self::Chat => chat::decode_response(body),
            Self::Responses => responses::decode_response(body),
            Self::Messages => messages::decode_response(body),
        }
    }

    fn decode_response_with_raw(self, body: &str) -> Result<Vec<TurnEvent>, ResponseDecodeError> {
        match self {
            Self::Chat => chat::decode_response(body),
            Self::Responses => responses::decode_response_with_raw(body),
            Self::Messages => messages::decode_response_with_raw(body),
        }
    }

    fn encode_response(self, head: &ResponseHead, turn: &ModelTurn) -> String {
        match self {
            Self::Chat => chat::encode_response(head, turn),
            Self::Responses => responses::encode_response(head, turn),
            Self::Messages => messages::encode_response(head, turn),
        }
    }

    fn encode_usage(self, usage: &TokenUsage) -> Value {
        match self {
            Self::Chat => chat::encode_usage(usage),
            Self::Responses => responses::encode_usage(usage),
            Self::Messages => messages::encode_usage(usage),
        }
    }

    fn encode_error(self, failure: &ProviderError) -> Value {
        match self {
            Self::Chat => chat::encode_error(failure),
            Self::Responses => responses::encode_error(failure),
            Self::Messages => messages::encode_error(failure),
        }
    }

    fn interrupted_stream_event(self) -> String {
        let failure = ProviderError {
            kind: Some("api_error".to_owned()),
            message: "the provider's stream was interrupted".to_owned(),
            code: None,
        };
        let error = self.encode_error(&failure);
        // The blank line terminates an event that was cut off in the middle.
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

    fn new_response_id(self) -> String {
        let id: u128 = rand::random();
        match self {
            Self::Chat => format!("chatcmpl-{id:032x}"),
            Self::Responses => format!("resp_{id:032x}"),
            Self::Messages => format!("msg_{id:032x}"),
        }
    }

    fn stream_decoder(self) -> StreamDecoder {
        match self {
            Self::Chat => StreamDecoder::Chat(chat::ChatDecoder::default()),
            Self::Responses => StreamDecoder::Responses(responses::ResponsesDecoder::default()),
            Self::Messages => StreamDecoder::Messages(messages::MessagesDecoder::default()),
        }
    }

    fn stream_encoder(self, head: ResponseHead) -> StreamEncoder {
        match self {
            Self::Chat => StreamEncoder::Chat(chat::ChatEncoder::new(head)),
            Self::Responses => StreamEncoder::Responses(responses::ResponsesEncoder::new(head)),
            Self::Messages => StreamEncoder::Messages(messages::MessagesEncoder::new(head)),
        }
    }
}

impl StreamDecoder {
    /// Passes dialect-specific content through as raw events instead of rejecting it.
    #[must_use]
    pub fn preserve_raw(self) -> Self {
        match self {
            Self::Chat(decoder) => Self::Chat(decoder),
            Self::Responses(decoder) => Self::Responses(decoder.preserve_raw()),
            Self::Messages(decoder) => Self::Messages(decoder.preserve_raw()),
        }
    }

    /// Decodes one server-sent event and appends the resulting events to `out`.
    pub fn decode(
        &mut self,
        event: &sse::SseEvent,
        out: &mut Vec<TurnEvent>,
    ) -> Result<(), ResponseDecodeError> {
        match self {
            Self::Chat(decoder) => decoder.decode(event, out),
            Self::Responses(decoder) => decoder.decode(event, out),
            Self::Messages(decoder) => decoder.decode(event, out),
        }
    }

    /// Returns whether the stream completed rather than being cut off.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Chat(decoder) => decoder.is_done(),
            Self::Responses(decoder) => decoder.is_done(),
            Self::Messages(decoder) => decoder.is_done(),
        }
    }
}

impl StreamEncoder {
    /// Appends the wire form of an event to `out`.
    pub fn encode(&mut self, event: &TurnEvent, out: &mut String) {
        match self {
            Self::Chat(encoder) => encoder.encode(event, out),
            Self::Responses(encoder) => encoder.encode(event, out),
            Self::Messages(encoder) => encoder.encode(event, out),
        }
    }

    /// Sets the `toolgate` member of the final event.
    pub fn set_note(&mut self, note: Value) {
        match self {
            Self::Chat(encoder) => encoder.note = Some(note),
            Self::Responses(encoder) => encoder.note = Some(note),
            Self::Messages(encoder) => encoder.note = Some(note),
        }
    }

    /// Appends the end of the stream.
    pub fn finish(&mut self, out: &mut String) {
        match self {
            Self::Chat(encoder) => encoder.finish(out),
            Self::Responses(encoder) => encoder.finish(out),
            Self::Messages(encoder) => encoder.finish(out),
        }
    }
}
