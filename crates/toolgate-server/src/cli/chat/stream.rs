//! A model's answer as it arrives: its text, the tool calls and their results.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Context as _, bail};
use reqwest::Response;
use serde_json::Value;
use toolgate_core::plural::count;
use toolgate_core::sse;

use super::super::output::sanitize_for_terminal;

/// Maximum size of a server-sent event.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// Start of the text with which a run reports its executed calls if others are pending.
const SUMMARY_START: &str = "The Output from allowed tools calls is - ";
/// Characters of a result that are shown.
const FOLDED_CHARS: usize = 100;

/// A model's answer, collected from a stream.
#[derive(Default)]
pub(super) struct StreamedAnswer {
    pub(super) text: String,
    /// The gateway's `toolgate` object: run id and pending calls.
    pub(super) metadata: Value,
}

impl StreamedAnswer {
    pub(super) fn pending(&self) -> Vec<Value> {
        let pending = self.metadata["pending"].as_array();
        pending.cloned().unwrap_or_default()
    }

    pub(super) fn run_id(&self) -> Option<String> {
        self.metadata["run_id"].as_str().map(str::to_owned)
    }
}

/// Reads a streamed answer, printing text and tool calls as they arrive.
pub(super) async fn read_answer(mut response: Response) -> anyhow::Result<StreamedAnswer> {
    let mut answer = StreamedAnswer::default();
    let mut decoder = sse::SseDecoder::new(MAX_EVENT_BYTES);
    while let Some(chunk) = response
        .chunk()
        .await
        .context("the connection was lost before the answer was complete")?
    {
        let mut events = Vec::new();
        decoder.feed(&chunk, &mut events)?;
        for event in events {
            if event.data == "[DONE]" {
                continue;
            }
            let data: Value = serde_json::from_str(&event.data)
                .context("the gateway sent an event that cannot be parsed")?;
            match event.name.as_str() {
                "toolgate.tool_call.started" => print_now(&format!(
                    "\n[{} {}]\n",
                    str_or_empty(&data["name"]),
                    str_or_empty(&data["arguments"])
                )),
                "toolgate.tool_call.ended" => print_now(&format_call_end(&data)),
                _ => {}
            }
            if let Some(message) = data["error"]["message"].as_str() {
                bail!("{message}");
            }
            if let Some(text) = data["choices"][0]["delta"]["content"].as_str() {
                answer.text.push_str(text);
                // Written for models: the calls and their outcomes have been shown already.
                if !text.trim_start().starts_with(SUMMARY_START) {
                    print_now(text);
                }
            }
            if data["toolgate"].is_object() {
                answer.metadata = data["toolgate"].clone();
            }
        }
    }
    Ok(answer)
}

/// Formats the outcome of a call and the beginning of its result.
fn format_call_end(event: &Value) -> String {
    let (name, outcome) = (
        str_or_empty(&event["name"]),
        str_or_empty(&event["outcome"]),
    );
    let result = event["result"].as_str().map(fold);
    match (outcome, result) {
        ("ok", Some(result)) => format!("  → {result}\n"),
        ("ok", None) => String::new(),
        (outcome, Some(result)) => format!("[{name}: {outcome}]\n  → {result}\n"),
        (outcome, None) => format!("[{name}: {outcome}]\n"),
    }
}

/// Shortens a result to one line that says how much is left out.
fn fold(result: &str) -> String {
    let text = result.trim();
    let lines = text.lines().count() as u64;
    let first = text.lines().next().unwrap_or_default();
    let cut = first.char_indices().nth(FOLDED_CHARS).map(|(cut, _)| cut);
    match (cut, lines) {
        (None, 0..=1) => first.to_owned(),
        (cut, _) => format!(
            "{}… ({}; /result shows all)",
            first[..cut.unwrap_or(first.len())].trim_end(),
            count(lines, "line", "lines")
        ),
    }
}

pub(super) fn str_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes text immediately, without a trailing newline.
pub(super) fn print_now(text: &str) {
    let mut out = std::io::stdout();
    let text = sanitize_for_terminal(text, out.is_terminal());
    // A closed pipe is not an error, as with `head`.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_folded_to_one_line() {
        assert_eq!(fold("42\n"), "42");
        assert_eq!(fold("a\nb\nc"), "a… (3 lines; /result shows all)");
        let long = "é".repeat(FOLDED_CHARS + 1);
        let folded = fold(&long);
        assert!(folded.contains("… (1 line;"), "{folded}");
        assert_eq!(folded.matches('é').count(), FOLDED_CHARS);
    }
}
