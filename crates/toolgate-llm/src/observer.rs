//! Observes responses passing through unmodified, to record token usage, the finish reason and the ids
//! that a provider issues.
//!
//! Most lines of a stream contain none of them, so only lines that mention them are parsed.

use bytes::Bytes;
use memchr::{memchr, memmem};
use serde::Deserialize;
use serde_json::Value;
use toolgate_core::config::Dialect;

use crate::event::TokenUsage;
use crate::{chat, messages, responses};

/// Maximum length of a buffered line. Longer lines hold content, never usage.
const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of a finish reason.
const MAX_FINISH_REASON_BYTES: usize = 64;

/// Usage, finish reason and ids seen in a response so far.
#[derive(Debug)]
pub struct ResponseObserver {
    dialect: Dialect,
    usage: Option<TokenUsage>,
    /// Finish reason, as the provider spells it.
    finish: Option<String>,
    /// Ids of the response and its items, in the Responses dialect.
    ids: Vec<String>,
    /// Incomplete last line.
    line: Vec<u8>,
    /// Whether the last line is too long to buffer; the rest of it is skipped.
    skips_line: bool,
    ended: bool,
}

/// The members of an event that may carry usage.
#[derive(Deserialize, Default)]
#[serde(default)]
struct UsageFields {
    usage: Option<Value>,
    message: Option<NestedUsage>,
    response: Option<NestedUsage>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NestedUsage {
    usage: Option<Value>,
}

impl ResponseObserver {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            usage: None,
            finish: None,
            ids: Vec::new(),
            line: Vec::new(),
            skips_line: false,
            ended: false,
        }
    }

    /// Extracts the usage from a complete response.
    pub fn usage_from_body(dialect: Dialect, body: &[u8]) -> Option<TokenUsage> {
        let mut observer = Self::new(dialect);
        observer.record_usage(body);
        observer.usage
    }

    /// Processes a chunk of a stream.
    pub fn feed(&mut self, mut chunk: &[u8]) {
        while let Some(end) = memchr(b'\n', chunk) {
            if self.line.is_empty() && !self.skips_line {
                self.inspect_line(&chunk[..end]); // avoids a copy
            } else {
                self.buffer_line(&chunk[..end]);
                let line = std::mem::take(&mut self.line);
                self.skips_line = false;
                self.inspect_line(&line);
            }
            chunk = &chunk[end + 1..];
        }
        self.buffer_line(chunk);
    }

    pub fn usage(&self) -> Option<TokenUsage> {
        self.usage
    }

    /// Returns the finish reason as the provider spells it.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish.as_deref()
    }

    /// Returns the ids that the provider issued since the last call.
    pub fn take_ids(&mut self) -> Vec<String> {
        std::mem::take(&mut self.ids)
    }

    /// Returns whether the stream completed rather than being cut off.
    pub fn is_done(&self) -> bool {
        self.ended
    }

    fn buffer_line(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MAX_LINE_BYTES {
            // A line with a gap must not be inspected, so nothing of it is kept.
            self.skips_line = true;
            self.line = Vec::new();
        }
        if !self.skips_line {
            self.line.extend_from_slice(part);
        }
    }

    fn inspect_line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else {
            return;
        };
        let has = |text: &str| memmem::find(data, text.as_bytes()).is_some();
        let has_usage = has_usage_object(data);
        let finish = match self.dialect {
            Dialect::Chat => finish(self.dialect, data),
            Dialect::Messages if has_usage => finish(self.dialect, data),
            Dialect::Messages => None,
            Dialect::Responses => {
                // Most lines are deltas, so one cheap search comes first.
                let statuses = ["completed", "incomplete", "failed", "cancelled"];
                let mut statuses = statuses.into_iter().filter(|_| has("\"response."));
                statuses.find(|status| has(&format!("\"response.{status}\"")))
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
        if self.dialect == Dialect::Responses {
            self.ids
                .extend(responses::references::issued_ids_of_event(data));
        }
        if has_usage {
            self.record_usage(data);
        }
    }

    fn record_usage(&mut self, data: &[u8]) {
        // Only an observer: a malformed response goes to the caller, who sees the error.
        let Ok(fields) = serde_json::from_slice::<UsageFields>(data) else {
            return;
        };
        let nested = [fields.message, fields.response].into_iter().flatten();
        let usages = nested.filter_map(|nested| nested.usage).chain(fields.usage);
        for value in usages.filter(Value::is_object) {
            let reported = match self.dialect {
                Dialect::Chat => chat::decode_usage(&value),
                Dialect::Responses => responses::decode_usage(&value),
                Dialect::Messages => messages::decode_usage(&value),
            };
            // A stream may report input tokens at its start and output tokens at its end.
            let before = self.usage.unwrap_or_default();
            self.usage = Some(TokenUsage {
                input: reported.input.max(before.input),
                output: reported.output.max(before.output),
                cached: reported.cached.max(before.cached),
                cache_written: reported.cache_written.max(before.cache_written),
                reasoning: reported.reasoning.max(before.reasoning),
            });
        }
    }
}

/// Finds the finish reason of a response, as the provider spells it.
///
/// Searches the bytes instead of parsing them, which is safe because quotes are escaped in model
/// output.
pub fn finish(dialect: Dialect, response: &[u8]) -> Option<&str> {
    let (key, at) = match dialect {
        Dialect::Chat => (
            "\"finish_reason\"",
            memmem::find(response, b"\"finish_reason\""),
        ),
        // Takes the last match: tool arguments come earlier, as unescaped JSON.
        Dialect::Messages => (
            "\"stop_reason\"",
            memmem::rfind(response, b"\"stop_reason\""),
        ),
        Dialect::Responses => ("\"status\"", memmem::find(response, b"\"status\"")),
    };
    let rest = response[at? + key.len()..].trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let word = &rest[..memchr(b'"', rest)?];
    std::str::from_utf8(word)
        .ok()
        .filter(|word| word.len() <= MAX_FINISH_REASON_BYTES)
}

/// Removes the usage chunk from a stream of chat completions, for callers that did not request
/// usage.
#[derive(Debug, Default)]
pub struct UsageChunkFilter {
    /// Incomplete last event.
    event: Vec<u8>,
}

impl UsageChunkFilter {
    /// Returns the events completed by a chunk, except the usage chunk.
    pub fn filter(&mut self, chunk: &[u8]) -> Bytes {
        self.event.extend_from_slice(chunk);
        let mut out = Vec::with_capacity(self.event.len());
        let mut at = 0;
        while let Some(end) = find_event_end(&self.event[at..]) {
            let event = &self.event[at..at + end];
            if !is_usage_only(event) {
                out.extend_from_slice(event);
            }
            at += end;
        }
        self.event.drain(..at);
        if self.event.len() > MAX_LINE_BYTES {
            // A usage chunk is never this large, so stop buffering.
            out.append(&mut self.event);
        }
        Bytes::from(out)
    }

    /// Returns the remaining bytes at the end of the stream.
    pub fn into_rest(self) -> Bytes {
        Bytes::from(self.event)
    }
}

/// Returns the end of the first event, for either style of line break.
fn find_event_end(text: &[u8]) -> Option<usize> {
    let breaks = [&b"\n\n"[..], &b"\r\n\r\n"[..]];
    let ends = breaks
        .iter()
        .filter_map(|end| Some(memmem::find(text, end)? + end.len()));
    ends.min()
}

fn is_usage_only(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Chunk {
        choices: Vec<Value>,
    }
    let Some(data) = event
        .strip_prefix(b"data:")
        .filter(|data| has_usage_object(data))
    else {
        return false;
    };
    serde_json::from_slice::<Chunk>(data).is_ok_and(|chunk| chunk.choices.is_empty())
}

/// Returns whether a line contains `"usage"` with an object rather than `null`.
fn has_usage_object(data: &[u8]) -> bool {
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
    fn observer_is_independent_of_chunk_boundaries() {
        for size in 1..STREAM.len() {
            let mut observer = ResponseObserver::new(Dialect::Chat);
            STREAM
                .as_bytes()
                .chunks(size)
                .for_each(|chunk| observer.feed(chunk));
            let usage = observer.usage().unwrap();
            assert_eq!(
                (usage.input, usage.output, observer.is_done()),
                (7, 3, true)
            );
            assert_eq!(observer.finish_reason(), Some("stop"));
        }
    }

    #[test]
    fn filter_removes_unrequested_usage_chunk() {
        let windows = STREAM.replace('\n', "\r\n");
        for (stream, size) in [STREAM, &windows]
            .iter()
            .flat_map(|stream| (1..STREAM.len()).map(move |size| (stream, size)))
        {
            let mut filter = UsageChunkFilter::default();
            let chunks = stream.as_bytes().chunks(size);
            let mut out: Vec<u8> = chunks.flat_map(|chunk| filter.filter(chunk)).collect();
            out.extend(filter.into_rest());
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains("prompt_tokens") && out.trim_end().ends_with("data: [DONE]"));
            assert_eq!(out.matches("data:").count(), 3);
        }
    }

    #[test]
    fn finish_reason_is_found_in_complete_responses() {
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
        for (dialect, response, expected) in cases {
            assert_eq!(finish(dialect, response.as_bytes()), expected, "{response}");
        }
    }

    #[test]
    fn oversized_line_is_skipped_as_a_whole() {
        let mut observer = ResponseObserver::new(Dialect::Chat);
        observer.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"");
        observer.feed(&vec![b'x'; MAX_LINE_BYTES]);
        // The text of the line's end would be taken for members if the middle was cut out.
        observer.feed(br#""},"finish_reason":"length"}],"usage":{"prompt_tokens":9}}"#);
        assert_eq!(observer.line.len(), 0);
        observer.feed(b"\n\n");
        assert_eq!((observer.finish_reason(), observer.usage()), (None, None));
        observer.feed(STREAM.as_bytes());
        assert_eq!(observer.finish_reason(), Some("stop"));
        assert_eq!(observer.usage().map(|usage| usage.input), Some(7));
    }

    #[test]
    fn cut_off_stream_is_not_done() {
        let mut observer = ResponseObserver::new(Dialect::Chat);
        observer.feed(STREAM.split_inclusive('\n').next().unwrap().as_bytes());
        assert!(!observer.is_done() && observer.usage().is_none());
    }
}
