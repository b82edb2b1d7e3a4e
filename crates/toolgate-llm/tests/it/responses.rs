//! OpenAI Responses, into the hub and out of it.

mod answers;
mod properties;
mod requests;
mod streams;

use serde_json::Value;
use toolgate_core::sse;
use toolgate_llm::event::BadAnswer;
use toolgate_llm::responses::{Decoder, Encoder};
use toolgate_llm::turn::Head;
use toolgate_llm::{Event, Turn};

fn head() -> Head {
    Head {
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

fn encoded(events: &[Event]) -> String {
    let (mut encoder, mut out) = (Encoder::new(head()), String::new());
    for event in events {
        encoder.put(event, &mut out);
    }
    encoder.end(&mut out);
    out
}

/// The events of a stream that arrives in chunks of a size, and whether it came to its end.
fn decode(stream: &str, size: usize) -> Result<(Vec<Event>, bool), BadAnswer> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let mut bytes = sse::Decoder::new(1 << 20);
    for chunk in stream.as_bytes().chunks(size) {
        bytes.feed(chunk, &mut raw).unwrap();
    }
    let mut decoder = Decoder::default();
    for event in &raw {
        decoder.take(event, &mut out)?;
    }
    Ok((out, decoder.is_done()))
}

fn decoded(stream: &str) -> Vec<Event> {
    let (events, is_done) = decode(stream, 11).unwrap();
    assert!(is_done, "{stream}");
    events
}

/// A stream of events that are written as their data only.
fn stream(data: &[&str]) -> String {
    let events = data.iter().map(|data| format!("data: {data}\n\n"));
    events.collect()
}

/// What a turn is, whatever it is called.
fn essence(turn: &Turn) -> impl PartialEq + std::fmt::Debug + '_ {
    (&turn.items, &turn.usage, &turn.finish, &turn.failure)
}
