//! Anthropic Messages, into the hub and out of it.

mod answers;
mod properties;
mod requests;
mod streams;

use toolgate_core::sse;
use toolgate_llm::event::BadAnswer;
use toolgate_llm::messages::Decoder;
use toolgate_llm::prompt::Ignored;
use toolgate_llm::turn::Head;
use toolgate_llm::{Dialect, Event, Wire as _};

fn head() -> Head {
    Head {
        id: "msg_1".to_owned(),
        model: "m".to_owned(),
        created: 7,
        stream_usage: true,
        namespaces: Vec::new(),
    }
}

/// JSON, to be looked at.
fn pretty(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

/// A request of one dialect, said in another.
fn translated(from: Dialect, to: Dialect, body: &str) -> Result<String, String> {
    let prompt = from.read(body, &Ignored::default());
    let prompt = prompt.map_err(|error| error.field)?;
    to.write(&prompt).map_err(|error| error.field)
}

/// A stream that tells of these events.
fn encoded(dialect: Dialect, events: &[Event]) -> String {
    let (mut encoder, mut stream) = (dialect.encoder(head()), String::new());
    events
        .iter()
        .for_each(|event| encoder.put(event, &mut stream));
    encoder.end(&mut stream);
    stream
}

/// What a stream means, and whether it came to its end.
fn decode(stream: &str) -> Result<(Vec<Event>, bool), BadAnswer> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let mut bytes = sse::Decoder::new(1 << 20);
    bytes.feed(stream.as_bytes(), &mut raw).unwrap();
    let mut decoder = Decoder::default();
    for event in &raw {
        decoder.take(event, &mut out)?;
    }
    Ok((out, decoder.is_done()))
}

/// The events of a stream that is whole.
fn decoded(stream: &str) -> Vec<Event> {
    let (events, done) = decode(stream).unwrap();
    assert!(done, "{stream}");
    events
}
