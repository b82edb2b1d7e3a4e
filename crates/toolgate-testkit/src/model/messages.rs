//! Anthropic Messages.

use bytes::Bytes;
use serde_json::{Value, json};

use super::api::named;
use super::turn::{Ask, Call, Turn, Usage, shreds, words};

pub(crate) fn whole(turn: &Turn, ask: Ask<'_>) -> Value {
    let mut blocks = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        let signature = signature(ask);
        blocks.push(json!({ "type": "thinking", "thinking": reasoning, "signature": signature }));
    }
    if let Some(text) = &turn.text {
        blocks.push(json!({ "type": "text", "text": text }));
    }
    blocks.extend(turn.calls.iter().map(|call| {
        // Arguments that are broken on purpose cannot be told here: only a stream has them as text.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        tool_use(call, &input)
    }));
    message(turn, ask, &blocks, Some(stop_reason(turn)), turn.usage)
}

pub(crate) fn events(turn: &Turn, ask: Ask<'_>) -> Vec<Bytes> {
    // What came out is known at the end only, and the beginning says 1.
    let so_far = Usage {
        output: 1,
        ..turn.usage
    };
    let opening = message(turn, ask, &[], None, so_far);
    let mut events = vec![json!({ "type": "message_start", "message": opening })];
    let mut blocks = blocks(turn, ask).into_iter().enumerate();
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
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": counts(turn.usage) }));
    events.push(json!({ "type": "message_stop" }));
    events
        .into_iter()
        .map(|event| named(&turn.dress(event)))
        .collect()
}

pub(crate) fn error(status: u16, message: &str) -> Value {
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

/// One block of a stream: how it opens, and what is added to it.
struct Block {
    opening: Value,
    deltas: Vec<Value>,
}

fn blocks(turn: &Turn, ask: Ask<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(reasoning) = &turn.reasoning {
        let thoughts =
            words(reasoning).map(|word| json!({ "type": "thinking_delta", "thinking": word }));
        let seal = json!({ "type": "signature_delta", "signature": signature(ask) });
        blocks.push(Block {
            opening: json!({ "type": "thinking", "thinking": "", "signature": "" }),
            deltas: thoughts.chain([seal]).collect(),
        });
    }
    if let Some(text) = &turn.text {
        let words = words(text).map(|word| json!({ "type": "text_delta", "text": word }));
        blocks.push(Block {
            opening: json!({ "type": "text", "text": "" }),
            deltas: words.collect(),
        });
    }
    for call in &turn.calls {
        let shreds = [String::new()].into_iter().chain(shreds(&call.arguments));
        let deltas = shreds.map(|json| json!({ "type": "input_json_delta", "partial_json": json }));
        blocks.push(Block {
            opening: tool_use(call, &json!({})),
            deltas: deltas.collect(),
        });
    }
    blocks
}

fn block_events(index: usize, block: &Block) -> Vec<Value> {
    let opening = &block.opening;
    let mut events =
        vec![json!({ "type": "content_block_start", "index": index, "content_block": opening })];
    let deltas = block.deltas.iter();
    events.extend(
        deltas
            .map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
    );
    events.push(json!({ "type": "content_block_stop", "index": index }));
    events
}

fn message(
    turn: &Turn,
    ask: Ask<'_>,
    content: &[Value],
    stop: Option<&str>,
    usage: Usage,
) -> Value {
    let mut counts = counts(usage);
    counts["cache_creation"] =
        json!({ "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 });
    counts["service_tier"] = json!("standard");
    turn.dress(json!({
        "id": format!("msg_{}", ask.number),
        "type": "message",
        "role": "assistant",
        "model": ask.model(),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": counts,
    }))
}

/// Here `input_tokens` is only what was not cached.
fn counts(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

fn tool_use(call: &Call, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

fn stop_reason(turn: &Turn) -> &str {
    match turn.finish() {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    }
}

fn signature(ask: Ask<'_>) -> String {
    format!("signature-{}", ask.number)
}
