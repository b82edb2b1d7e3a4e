//! OpenAI Responses, to and from the hub.

mod properties;
mod requests;
mod response_bodies;
mod streams;

use serde_json::Value;
use toolgate_core::sse;
use toolgate_llm::event::ResponseDecodeError;
use toolgate_llm::responses::{ResponsesDecoder, ResponsesEncoder};
use toolgate_llm::turn::ResponseHead;
use toolgate_llm::{ModelTurn, TurnEvent};

fn head() -> ResponseHead {
    ResponseHead {
        id: "resp_1".to_owned(),
        model: "m".to_owned(),
        created: 7,
        stream_usage: true,
        namespaces: Vec::new(),
    }
}

fn pretty(json: &str) -> String {
    let value: Value = serde_json::from_str(json).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

fn encode(events: &[TurnEvent]) -> String {
    let (mut encoder, mut out) = (ResponsesEncoder::new(head()), String::new());
    for event in events {
        encoder.encode(event, &mut out);
    }
    encoder.finish(&mut out);
    out
}

/// Decodes a stream in chunks of `size` bytes and returns whether it completed.
fn decode(stream: &str, size: usize) -> Result<(Vec<TurnEvent>, bool), ResponseDecodeError> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let mut bytes = sse::SseDecoder::new(1 << 20);
    for chunk in stream.as_bytes().chunks(size) {
        bytes.feed(chunk, &mut raw).unwrap();
    }
    let mut decoder = ResponsesDecoder::default();
    for event in &raw {
        decoder.decode(event, &mut out)?;
    }
    Ok((out, decoder.is_done()))
}

fn decode_complete(stream: &str) -> Vec<TurnEvent> {
    let (events, is_done) = decode(stream, 11).unwrap();
    assert!(is_done, "{stream}");
    events
}

/// Builds a stream from the data of its events.
fn stream(data: &[&str]) -> String {
    let events = data.iter().map(|data| format!("data: {data}\n\n"));
    events.collect()
}

/// The parts of a turn to compare, without its id and model.
fn comparable(turn: &ModelTurn) -> impl PartialEq + std::fmt::Debug + '_ {
    (&turn.items, &turn.usage, &turn.finish, &turn.error)
}
