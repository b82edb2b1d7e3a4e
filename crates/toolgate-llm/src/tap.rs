//! Watches an answer that passes through for what it used, without taking it apart.
//!
//! Most lines of a stream say nothing about that; only those that do are parsed.

use bytes::Bytes;
use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::Value;
use toolgate_core::config::Dialect;

use crate::event::Usage;
use crate::{chat, messages, responses};

/// Longest line that is kept to be looked at; a longer one says nothing that is missed.
const LONGEST: usize = 4 * 1024 * 1024;
/// Longest word for why an answer ended.
const LONGEST_WORD: usize = 64;

/// What was seen of an answer so far.
#[derive(Debug)]
pub struct Tap {
    dialect: Dialect,
    usage: Option<Usage>,
    /// Why the answer ended.
    finish: Option<String>,
    /// The line that has begun.
    line: Vec<u8>,
    ended: bool,
}

/// The places where an answer speaks of usage.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Told {
    usage: Option<Value>,
    message: Option<Inner>,
    response: Option<Inner>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Inner {
    usage: Option<Value>,
}

impl Tap {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            usage: None,
            finish: None,
            line: Vec::new(),
            ended: false,
        }
    }

    /// Looks at an answer that came whole.
    pub fn whole(dialect: Dialect, body: &[u8]) -> Option<Usage> {
        let mut tap = Self::new(dialect);
        tap.parse(body);
        tap.usage
    }

    /// Looks at a piece of a stream.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        while let Some(end) = memchr(b'\n', chunk) {
            match self.line.is_empty() {
                true => self.look(&chunk[..end]),
                false => {
                    self.keep(&chunk[..end]);
                    let line = std::mem::take(&mut self.line);
                    self.look(&line);
                }
            }
            chunk = &chunk[end + 1..];
        }
        self.keep(chunk);
    }

    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Why the answer ended, in the provider's words.
    pub fn finish(&self) -> Option<&str> {
        self.finish.as_deref()
    }

    /// Whether the stream came to its end, rather than breaking off.
    pub fn is_done(&self) -> bool {
        self.ended
    }

    fn keep(&mut self, part: &[u8]) {
        if self.line.len() + part.len() <= LONGEST {
            self.line.extend_from_slice(part);
        }
    }

    fn look(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else {
            return;
        };
        let has = |text: &str| memmem::find(data, text.as_bytes()).is_some();
        let speaks_of_usage = speaks_of_usage(data);
        let finish = match self.dialect {
            Dialect::Chat => finish(self.dialect, data),
            Dialect::Messages if speaks_of_usage => finish(self.dialect, data),
            Dialect::Messages => None,
            Dialect::Responses => {
                let mut ends = ["completed", "incomplete", "failed", "cancelled"].into_iter();
                let ends = ends.find(|end| has(&format!("\"response.{end}\"")));
                ends.filter(|_| has("\"response."))
            }
        };
        self.ended |= match self.dialect {
            Dialect::Chat => finish.is_some() || has("[DONE]"),
            Dialect::Messages => has("\"message_stop\"") || has("\"error\""),
            Dialect::Responses => finish.is_some() || has("\"type\":\"error\""),
        };
        if let Some(finish) = finish {
            self.finish = Some(finish.to_owned());
        }
        if speaks_of_usage {
            self.parse(data);
        }
    }

    fn parse(&mut self, data: &[u8]) {
        let told: Told = serde_json::from_slice(data).unwrap_or_default();
        let inner = [told.message, told.response].into_iter().flatten();
        let usages = inner.filter_map(|inner| inner.usage).chain(told.usage);
        for value in usages.filter(Value::is_object) {
            let seen = match self.dialect {
                Dialect::Chat => chat::usage(&value),
                Dialect::Responses => responses::usage(&value),
                Dialect::Messages => messages::usage(&value),
            };
            // A stream may tell of the prompt first and of the answer at its end.
            let before = self.usage.unwrap_or_default();
            self.usage = Some(Usage {
                input: seen.input.max(before.input),
                output: seen.output.max(before.output),
                cached: seen.cached.max(before.cached),
                cache_written: seen.cache_written.max(before.cache_written),
                reasoning: seen.reasoning.max(before.reasoning),
            });
        }
    }
}

/// Why an answer ended, in the words of whoever gave it.
///
/// It is looked for rather than parsed: in what a model says, quotes are escaped.
pub fn finish(dialect: Dialect, answer: &[u8]) -> Option<&str> {
    let (key, at) = match dialect {
        Dialect::Chat => (
            "\"finish_reason\"",
            memmem::find(answer, b"\"finish_reason\""),
        ),
        // After the content, in which arguments of calls are not escaped.
        Dialect::Messages => ("\"stop_reason\"", memmem::rfind(answer, b"\"stop_reason\"")),
        Dialect::Responses => ("\"status\"", memmem::find(answer, b"\"status\"")),
    };
    let rest = answer[at? + key.len()..].trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let word = &rest[..memchr(b'"', rest)?];
    std::str::from_utf8(word)
        .ok()
        .filter(|word| word.len() <= LONGEST_WORD)
}

/// Takes the chunk with the usage out of a stream of chat completions, for callers who did not ask
/// for it.
#[derive(Debug, Default)]
pub struct UsageChunk {
    /// The event that has begun.
    event: Vec<u8>,
}

impl UsageChunk {
    /// The events that a piece of the stream completes, but for that one.
    pub fn taken_out(&mut self, chunk: &[u8]) -> Bytes {
        self.event.extend_from_slice(chunk);
        let mut out = Vec::with_capacity(self.event.len());
        let mut at = 0;
        while let Some(end) = event_end(&self.event[at..]) {
            let event = &self.event[at..at + end];
            if !is_usage_alone(event) {
                out.extend_from_slice(event);
            }
            at += end;
        }
        self.event.drain(..at);
        if self.event.len() > LONGEST {
            // No usage is told in so many bytes.
            out.append(&mut self.event);
        }
        Bytes::from(out)
    }

    /// What is left at the end.
    pub fn rest(self) -> Bytes {
        Bytes::from(self.event)
    }
}

/// Where the first event ends, whichever line breaks it has.
fn event_end(text: &[u8]) -> Option<usize> {
    let breaks = [&b"\n\n"[..], &b"\r\n\r\n"[..]];
    let ends = breaks
        .iter()
        .filter_map(|end| Some(memmem::find(text, end)? + end.len()));
    ends.min()
}

fn is_usage_alone(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk {
        choices: Vec<Value>,
    }
    let Some(data) = event
        .strip_prefix(b"data:")
        .filter(|data| speaks_of_usage(data))
    else {
        return false;
    };
    serde_json::from_slice::<Chunk>(data).is_ok_and(|chunk| chunk.choices.is_empty())
}

/// Whether a line holds `"usage"` with an object, rather than `null`.
fn speaks_of_usage(data: &[u8]) -> bool {
    memmem::find_iter(data, b"\"usage\"").any(|at| {
        let rest = &data[at + "\"usage\"".len()..];
        let mut rest = rest.iter().filter(|byte| !byte.is_ascii_whitespace());
        rest.next() == Some(&b':') && rest.next() == Some(&b'{')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"usage\"},\"finish_reason\":null}],\"usage\":null}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\": {\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";

    #[test]
    fn the_same_at_every_chunking() {
        for size in 1..STREAM.len() {
            let mut tap = Tap::new(Dialect::Chat);
            STREAM
                .as_bytes()
                .chunks(size)
                .for_each(|chunk| tap.feed(chunk));
            let usage = tap.usage().unwrap();
            assert_eq!((usage.input, usage.output, tap.is_done()), (7, 3, true));
            assert_eq!(tap.finish(), Some("stop"));
        }
    }

    #[test]
    fn the_usage_that_nobody_asked_for_is_taken_out() {
        let windows = STREAM.replace('\n', "\r\n");
        for (stream, size) in [STREAM, &windows]
            .iter()
            .flat_map(|stream| (1..STREAM.len()).map(move |size| (stream, size)))
        {
            let mut without = UsageChunk::default();
            let chunks = stream.as_bytes().chunks(size);
            let mut out: Vec<u8> = chunks.flat_map(|chunk| without.taken_out(chunk)).collect();
            out.extend(without.rest());
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains("prompt_tokens") && out.trim_end().ends_with("data: [DONE]"));
            assert_eq!(out.matches("data:").count(), 3);
        }
    }

    #[test]
    fn why_a_whole_answer_ended() {
        let cases = [
            (
                Dialect::Chat,
                r#"{"choices":[{"message":{"content":"\"finish_reason\":\"no\""},"finish_reason": "length"}]}"#,
                Some("length"),
            ),
            (
                Dialect::Chat,
                r#"{"choices":[{"finish_reason":null}]}"#,
                None,
            ),
            (
                Dialect::Messages,
                r#"{"content":[{"input":{"stop_reason":"no"}}],"stop_reason":"tool_use"}"#,
                Some("tool_use"),
            ),
            (
                Dialect::Responses,
                r#"{"status":"incomplete","output":[{"status":"completed"}]}"#,
                Some("incomplete"),
            ),
            (Dialect::Responses, r#"{"status""#, None),
        ];
        for (dialect, answer, wanted) in cases {
            assert_eq!(finish(dialect, answer.as_bytes()), wanted, "{answer}");
        }
    }

    #[test]
    fn what_breaks_off_has_not_ended() {
        let mut tap = Tap::new(Dialect::Chat);
        tap.feed(STREAM.split_inclusive('\n').next().unwrap().as_bytes());
        assert!(!tap.is_done() && tap.usage().is_none());
    }
}
