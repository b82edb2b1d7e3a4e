//! Mock model that responds immediately in three dialects, complete or as a stream of 16 pieces.
//!
//! The model name selects the behaviour: `rounds-5` calls a tool until the conversation has five
//! results, `piecewise` flushes each piece of a stream separately, and `keep` remembers the request.
//! All others return the same text and stream it without flushing in between.

use bytes::Bytes;
use memchr::memmem;
use serde_json::{Value, json};

use super::body::MockBody;

/// Text in every complete response.
pub(crate) const MARKER: &str = "bench-ok";
/// Text in each piece of a stream.
pub(crate) const PIECE: &str = "piece-";
/// Number of pieces in a stream.
pub(crate) const PIECES: usize = 16;

/// Length of the request prefix that is searched for `model` and `stream`.
const HEAD_BYTES: usize = 4096;

/// Alias of the tool that `rounds-N` calls.
const CALLED_TOOL: &str = "http25_tool_00000";

/// Dialect of the model API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Responses,
    Messages,
}

/// Pre-encoded responses in one dialect.
#[derive(Debug)]
pub(crate) struct MockModel {
    dialect: Dialect,
    whole: Bytes,
    pieces: Vec<Bytes>,
    call: Bytes,
}

impl Dialect {
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            _ => None,
        }
    }

    /// Returns the text that marks a tool result in a request.
    fn tool_result_marker(self) -> &'static str {
        match self {
            Self::Chat => r#""role":"tool""#,
            Self::Responses => r#""function_call_output""#,
            Self::Messages => r#""tool_result""#,
        }
    }

    /// Returns the text at the end of a complete stream.
    pub(crate) fn stream_end_marker(self) -> &'static str {
        match self {
            Self::Chat => "data: [DONE]",
            Self::Responses => "response.completed",
            Self::Messages => "message_stop",
        }
    }
}

impl MockModel {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            whole: complete_response(dialect).to_string().into(),
            pieces: stream_pieces(dialect),
            call: tool_call_response(dialect).to_string().into(),
        }
    }

    pub(crate) fn respond(&self, request: &[u8]) -> MockBody {
        let head = &request[..request.len().min(HEAD_BYTES)];
        let name = model_name(head);
        let rounds = name.strip_prefix("rounds-");
        if let Some(rounds) = rounds.and_then(|rounds| rounds.parse::<usize>().ok())
            && memmem::find_iter(request, self.dialect.tool_result_marker()).count() < rounds
        {
            return MockBody::Whole(self.call.clone());
        }
        match memmem::find(head, br#""stream":true"#) {
            Some(_) if name == "piecewise" => MockBody::piecewise(self.pieces.clone()),
            Some(_) => MockBody::stream(self.pieces.clone()),
            None => MockBody::Whole(self.whole.clone()),
        }
    }
}

/// Returns whether the request is to be remembered for `/remembered`.
pub(crate) fn is_remembered(request: &[u8]) -> bool {
    model_name(&request[..request.len().min(HEAD_BYTES)]) == "keep"
}

/// Returns the model name in a request, without its provider.
fn model_name(head: &[u8]) -> &str {
    let key = br#""model":""#;
    let start = memmem::find(head, key).map(|at| at + key.len());
    let rest = start.map_or(&[][..], |start| &head[start..]);
    let end = memchr::memchr(b'"', rest).unwrap_or(0);
    let name = std::str::from_utf8(&rest[..end]).unwrap_or_default();
    name.rsplit('/').next().unwrap_or_default()
}

fn response_text() -> String {
    format!(
        "{MARKER}: the collection has three open invoices, the oldest from the second of March."
    )
}

fn complete_response(dialect: Dialect) -> Value {
    match dialect {
        Dialect::Chat => {
            json!({"id": "chatcmpl-bench", "object": "chat.completion", "created": 1_767_225_600, "model": "bench-model",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": response_text(), "refusal": null, "annotations": []}, "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 57, "completion_tokens": 17, "total_tokens": 74, "prompt_tokens_details": {"cached_tokens": 0}},
            "service_tier": "default"})
        }
        Dialect::Responses => responses_object(
            "completed",
            &json!([{"type": "message", "id": "msg_bench", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": response_text(), "annotations": []}]}]),
        ),
        Dialect::Messages => {
            json!({"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench-model",
            "content": [{"type": "text", "text": response_text()}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 57, "output_tokens": 17, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}})
        }
    }
}

fn responses_object(status: &str, output: &Value) -> Value {
    json!({"id": "resp_bench", "object": "response", "created_at": 1_767_225_600, "status": status, "model": "bench-model",
        "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "error": null, "incomplete_details": null,
        "usage": {"input_tokens": 57, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 17, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 74}})
}

fn tool_call_response(dialect: Dialect) -> Value {
    let arguments = super::tools::ARGUMENTS;
    match dialect {
        Dialect::Chat => {
            json!({"id": "chatcmpl-bench", "object": "chat.completion", "created": 1_767_225_600, "model": "bench-model",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null,
                "tool_calls": [{"id": "call_bench", "type": "function", "function": {"name": CALLED_TOOL, "arguments": arguments}}]}}],
            "usage": {"prompt_tokens": 57, "completion_tokens": 17, "total_tokens": 74}})
        }
        Dialect::Responses => responses_object(
            "completed",
            &json!([{"type": "function_call", "id": "fc_bench", "call_id": "call_bench",
            "name": CALLED_TOOL, "arguments": arguments, "status": "completed"}]),
        ),
        Dialect::Messages => {
            json!({"id": "msg_bench", "type": "message", "role": "assistant", "model": "bench-model",
            "content": [{"type": "tool_use", "id": "toolu_bench", "name": CALLED_TOOL,
                "input": serde_json::from_str::<Value>(arguments).unwrap_or_default()}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 57, "output_tokens": 17}})
        }
    }
}

/// Returns the events of a stream: start, text pieces, end.
fn stream_pieces(dialect: Dialect) -> Vec<Bytes> {
    let texts = (0..PIECES).map(|number| format!(" {PIECE}{number:02}"));
    let mut events = Vec::new();
    match dialect {
        Dialect::Chat => {
            let chunk = |choices: &Value, usage: &Value| {
                let chunk = json!({"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "bench-model", "choices": choices, "usage": usage});
                format!("data: {chunk}\n\n")
            };
            events.extend(texts.map(|text| {
                chunk(&json!([{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": null}]), &Value::Null)
            }));
            events.push(
                chunk(
                    &json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
                    &json!({"prompt_tokens": 57, "completion_tokens": 17, "total_tokens": 74}),
                ) + "data: [DONE]\n\n",
            );
        }
        Dialect::Responses => {
            let event = |kind: &str, rest: Value| {
                let mut data = json!({"type": kind, "sequence_number": 0});
                if let (Value::Object(data), Value::Object(rest)) = (&mut data, rest) {
                    data.extend(rest);
                }
                format!("event: {kind}\ndata: {data}\n\n")
            };
            let item = json!({"type": "message", "id": "msg_bench", "status": "in_progress", "role": "assistant", "content": []});
            events.push(
                event("response.created", json!({"response": responses_object("in_progress", &json!([]))}))
                    + &event("response.output_item.added", json!({"output_index": 0, "item": item}))
                    + &event("response.content_part.added", json!({"item_id": "msg_bench", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}})),
            );
            events.extend(texts.map(|text| {
                event("response.output_text.delta", json!({"item_id": "msg_bench", "output_index": 0, "content_index": 0, "delta": text}))
            }));
            events.push(event(
                "response.completed",
                json!({"response": responses_object("completed", &json!([]))}),
            ));
        }
        Dialect::Messages => {
            let event = |data: &Value| {
                format!(
                    "event: {}\ndata: {data}\n\n",
                    data["type"].as_str().unwrap_or_default()
                )
            };
            let mut start = complete_response(dialect);
            start["content"] = json!([]);
            start["stop_reason"] = Value::Null;
            events.push(
                event(&json!({"type": "message_start", "message": start}))
                    + &event(&json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})),
            );
            events.extend(texts.map(|text| {
                event(&json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}))
            }));
            events.push(
                event(&json!({"type": "content_block_stop", "index": 0}))
                    + &event(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 17}}))
                    + &event(&json!({"type": "message_stop"})),
            );
        }
    }
    events.into_iter().map(Bytes::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_has_all_pieces_and_end_marker() {
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
            let all = stream_pieces(dialect).concat();
            assert_eq!(memmem::find_iter(&all, PIECE).count(), PIECES);
            assert!(memmem::find(&all, dialect.stream_end_marker().as_bytes()).is_some());
        }
    }

    #[test]
    fn model_name_selects_behaviour() {
        let model = MockModel::new(Dialect::Chat);
        let respond = |request: &str| match model.respond(request.as_bytes()) {
            MockBody::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => "a stream".to_owned(),
        };
        assert!(respond(r#"{"model":"m"}"#).contains(MARKER));
        assert!(respond(r#"{"model":"a/rounds-1"}"#).contains("tool_calls"));
        assert!(respond(r#"{"model":"rounds-1","messages":[{"role":"tool"}]}"#).contains(MARKER));
        assert_eq!(respond(r#"{"model":"m","stream":true}"#), "a stream");
        assert!(is_remembered(br#"{"model":"mock/keep"}"#) && !is_remembered(b"{}"));
    }
}
