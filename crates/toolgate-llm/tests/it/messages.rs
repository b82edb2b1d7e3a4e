//! Anthropic Messages, to and from the hub.

mod properties;
mod requests;
mod response_bodies;
mod streams;

use toolgate_core::sse;
use toolgate_llm::event::ResponseDecodeError;
use toolgate_llm::messages::MessagesDecoder;
use toolgate_llm::prompt::IgnoredFields;
use toolgate_llm::turn::ResponseHead;
use toolgate_llm::{Dialect, TurnEvent, WireFormat as _};

fn head() -> ResponseHead {
    ResponseHead {
        id: "msg_1".to_owned(),
        model: "m".to_owned(),
        created: 7,
        stream_usage: true,
        namespaces: Vec::new(),
    }
}

/// Pretty-prints JSON for snapshots.
fn pretty(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

/// Translates a request between dialects; the error is the offending field.
fn translate(from: Dialect, to: Dialect, body: &str) -> Result<String, String> {
    let prompt = from.decode_request(body, &IgnoredFields::default());
    let prompt = prompt.map_err(|error| error.field)?;
    to.encode_request(&prompt).map_err(|error| error.field)
}

/// Encodes events as a stream.
fn encode(dialect: Dialect, events: &[TurnEvent]) -> String {
    let (mut encoder, mut stream) = (dialect.stream_encoder(head()), String::new());
    events
        .iter()
        .for_each(|event| encoder.encode(event, &mut stream));
    encoder.finish(&mut stream);
    stream
}

/// Decodes a stream and returns whether it completed.
fn decode(stream: &str) -> Result<(Vec<TurnEvent>, bool), ResponseDecodeError> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let mut bytes = sse::SseDecoder::new(1 << 20);
    bytes.feed(stream.as_bytes(), &mut raw).unwrap();
    let mut decoder = MessagesDecoder::default();
    for event in &raw {
        decoder.decode(event, &mut out)?;
    }
    Ok((out, decoder.is_done()))
}

/// Decodes a complete stream.
fn decode_complete(stream: &str) -> Vec<TurnEvent> {
    let (events, done) = decode(stream).unwrap();
    assert!(done, "{stream}");
    events
}
