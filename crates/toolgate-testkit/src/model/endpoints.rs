//! Endpoints of OpenAI besides the three APIs, with fixed answers that do not use up the script.

use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

use super::server::{RecordedRequest, json_response, response};

/// Bytes of synthesized speech, which are not text.
const SPEECH: &[u8] = b"ID3\xff\xfb\x00speech";

/// Answers a request; `None` if there is no such endpoint.
pub(crate) fn answer(request: &RecordedRequest) -> Option<Response> {
    let route = request.route().strip_prefix("/v1/")?;
    let body = &request.body;
    let model = &body["model"];
    let answer = match (request.method.as_str(), route) {
        ("POST", "embeddings") => json!({
            "object": "list", "model": model,
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
            "usage": {"prompt_tokens": 7, "total_tokens": 7},
        }),
        ("POST", "completions") if body["stream"] == true => {
            let stream = Body::from(completion_events(body));
            return Some(response(200, "text/event-stream", stream));
        }
        ("POST", "completions") => completion(
            body,
            &json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
        ),
        ("POST", "moderations") => json!({
            "id": "modr-1", "model": model,
            "results": [{"flagged": false, "categories": {}, "category_scores": {}}],
        }),
        ("POST", "rerank") => json!({
            "model": model, "results": [{"index": 1, "relevance_score": 0.9}],
            "usage": {"total_tokens": 12},
        }),
        ("POST", "images/generations" | "images/edits" | "images/variations") => json!({
            "created": 1_700_000_000, "data": [{"b64_json": "aGk="}],
            "usage": {"input_tokens": 4, "output_tokens": 9, "total_tokens": 13},
        }),
        ("POST", "audio/speech") => return Some(response(200, "audio/mpeg", Body::from(SPEECH))),
        ("POST", "audio/transcriptions" | "audio/translations") => json!({
            "text": "hello", "usage": {"type": "tokens", "input_tokens": 6, "output_tokens": 1, "total_tokens": 7},
        }),
        ("POST", "responses/input_tokens") => {
            json!({"object": "response.input_tokens", "input_tokens": 11})
        }
        ("POST", "messages/count_tokens") => json!({"input_tokens": 13}),
        (method, route) => stored_response(method, route.strip_prefix("responses/")?)?,
    };
    Some(json_response(200, &answer))
}

/// Answers a request for a stored response, whatever its id.
fn stored_response(method: &str, rest: &str) -> Option<Value> {
    let stored = |id: &str, status: &str| {
        json!({
            "id": id, "object": "response", "created_at": 1_700_000_000, "status": status,
            "model": "m", "output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": true,
            "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13},
        })
    };
    match (method, rest.split_once('/')) {
        ("GET", None) => Some(stored(rest, "completed")),
        ("DELETE", None) => Some(json!({"id": rest, "object": "response", "deleted": true})),
        ("POST", Some((id, "cancel"))) => Some(stored(id, "cancelled")),
        ("GET", Some((_, "input_items"))) => Some(json!({
            "object": "list", "has_more": false, "first_id": "msg_1", "last_id": "msg_1",
            "data": [{"id": "msg_1", "type": "message", "role": "user", "status": "completed",
                "content": [{"type": "input_text", "text": "hello"}]}],
        })),
        _ => None,
    }
}

fn completion(body: &Value, usage: &Value) -> Value {
    json!({
        "id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": body["model"],
        "choices": [{"text": "hello", "index": 0, "logprobs": null, "finish_reason": "stop"}],
        "usage": usage,
    })
}

/// Encodes a streamed completion; the usage is an event of its own, if requested.
fn completion_events(body: &Value) -> String {
    let mut events = format!("data: {}\n\n", completion(body, &Value::Null));
    if body["stream_options"]["include_usage"] == true {
        let mut usage = completion(
            body,
            &json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
        );
        usage["choices"] = json!([]);
        events += &format!("data: {usage}\n\n");
    }
    events + "data: [DONE]\n\n"
}
