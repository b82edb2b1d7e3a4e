//! Wire format of Anthropic Messages.

use bytes::Bytes;
use serde_json::{Value, json};

use super::api::named_event;
use super::turn::{
    RequestInfo, ScriptedCall, ScriptedTurn, ScriptedUsage, split_fragments, split_words,
};

pub(crate) fn response_body(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Value {
    let mut blocks = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        let signature = signature(request);
        blocks.push(json!({ "type": "thinking", "thinking": reasoning, "signature": signature }));
    }
    if let Some(text) = &turn.text {
        blocks.push(json!({ "type": "text", "text": text }));
    }
    blocks.extend(turn.calls.iter().map(|call| {
        // Deliberately invalid arguments cannot be represented here: only a stream has them as text.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        tool_use(call, &input)
    }));
    message(turn, request, &blocks, Some(stop_reason(turn)), turn.usage)
}

pub(crate) fn stream_events(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Vec<Bytes> {
    // The output count is known only at the end; Anthropic's first event says 1.
    let initial_usage = ScriptedUsage {
        output: 1,
        ..turn.usage
    };
    let initial = message(turn, request, &[], None, initial_usage);
    let mut events = vec![json!({ "type": "message_start", "message": initial })];
    let mut blocks = stream_blocks(turn, request).into_iter().enumerate();
    if let Some((index, block)) = blocks.next() {
        let mut first = block_events(index, &block).into_iter();
        events.extend(first.next());
        events.push(json!({ "type": "ping" }));
        events.extend(first);
    }
    for (index, block) in blocks {
        events.extend(block_events(index, &block));
    }
    let delta = json!({ "stop_reason": stop_reason(turn), "stop_sequence": null });
    events.push(
        json!({ "type": "message_delta", "delta": delta, "usage": usage_fields(turn.usage) }),
    );
    events.push(json!({ "type": "message_stop" }));
    events
        .into_iter()
        .map(|event| named_event(&turn.add_extra_fields(event)))
        .collect()
}

pub(crate) fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": "req_scripted",
    })
}

/// One block of a stream: its initial form and its deltas.
struct StreamBlock {
    initial: Value,
    deltas: Vec<Value>,
}

fn stream_blocks(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Vec<StreamBlock> {
    let mut blocks = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        let thoughts = split_words(reasoning)
            .map(|word| json!({ "type": "thinking_delta", "thinking": word }));
        let signature_delta = json!({ "type": "signature_delta", "signature": signature(request) });
        blocks.push(StreamBlock {
            initial: json!({ "type": "thinking", "thinking": "", "signature": "" }),
            deltas: thoughts.chain([signature_delta]).collect(),
        });
    }
    if let Some(text) = &turn.text {
        let words = split_words(text).map(|word| json!({ "type": "text_delta", "text": word }));
        blocks.push(StreamBlock {
            initial: json!({ "type": "text", "text": "" }),
            deltas: words.collect(),
        });
    }
    for call in &turn.calls {
        let fragments = [String::new()]
            .into_iter()
            .chain(split_fragments(&call.arguments));
        let deltas =
            fragments.map(|json| json!({ "type": "input_json_delta", "partial_json": json }));
        blocks.push(StreamBlock {
            initial: tool_use(call, &json!({})),
            deltas: deltas.collect(),
        });
    }
    blocks
}

fn block_events(index: usize, block: &StreamBlock) -> Vec<Value> {
    let initial = &block.initial;
    let mut events =
        vec![json!({ "type": "content_block_start", "index": index, "content_block": initial })];
    let deltas = block.deltas.iter();
    events.extend(
        deltas
            .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
    );
    events.push(json!({ "type": "content_block_stop", "index": index }));
    events
}

fn message(
    turn: &ScriptedTurn,
    request: RequestInfo<'_>,
    content: &[Value],
    stop: Option<&str>,
    usage: ScriptedUsage,
) -> Value {
    let mut usage_fields = usage_fields(usage);
    usage_fields["cache_creation"] =
        json!({ "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 });
    usage_fields["service_tier"] = json!("standard");
    turn.add_extra_fields(json!({
        "id": format!("msg_{}", request.number),
        "type": "message",
        "role": "assistant",
        "model": request.model(),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": usage_fields,
    }))
}

/// Builds the usage fields; here `input_tokens` excludes cached tokens.
fn usage_fields(usage: ScriptedUsage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

fn tool_use(call: &ScriptedCall, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

fn stop_reason(turn: &ScriptedTurn) -> &str {
    match turn.finish_reason() {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

fn signature(request: RequestInfo<'_>) -> String {
    format!("signature-{}", request.number)
}
