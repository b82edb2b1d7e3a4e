//! OpenAI Chat Completions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::api::unnamed;
use super::turn::{Ask, Call, Turn, Usage, shreds, words};

const CREATED: u64 = 1_700_000_000;

pub(crate) fn whole(turn: &Turn, ask: Ask<'_>) -> Value {
    let mut message = json!({
        "role": "assistant",
        "content": turn.text,
        "refusal": null,
        "annotations": [],
    });
    if let Some(reasoning) = &turn.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !turn.calls.is_empty() {
        message["tool_calls"] = turn.calls.iter().map(whole_call).collect();
    }
    turn.dress(json!({
        "id": id(ask),
        "object": "chat.completion",
        "created": CREATED,
        "model": ask.model(),
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": turn.finish(),
        }],
        "usage": usage(turn.usage),
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }))
}

pub(crate) fn events(turn: &Turn, ask: Ask<'_>) -> Vec<Bytes> {
    let counted = ask.body["stream_options"]["include_usage"] == true;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": id(ask),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": ask.model(),
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
            "choices": choices,
        });
        if counted {
            chunk["usage"] = usage;
        }
        unnamed(&turn.dress(chunk))
    };
    let choice = |delta: &Value, finish: Option<&str>| {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        chunk(json!([choice]), Value::Null)
    };
    let mut events: Vec<Bytes> = deltas(turn)
        .iter()
        .map(|delta| choice(delta, None))
        .collect();
    events.push(choice(&json!({}), Some(turn.finish())));
    if counted {
        events.push(chunk(json!([]), usage(turn.usage)));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

fn deltas(turn: &Turn) -> Vec<Value> {
    let nothing = turn.text.as_ref().map(|_| "");
    let mut deltas = vec![json!({ "role": "assistant", "content": nothing, "refusal": null })];
    let reasoning = words(turn.reasoning.as_deref().unwrap_or_default());
    deltas.extend(reasoning.map(|word| json!({ "reasoning_content": word })));
    let text = words(turn.text.as_deref().unwrap_or_default());
    deltas.extend(text.map(|word| json!({ "content": word })));
    for (index, call) in turn.calls.iter().enumerate() {
        let opening = json!({
            "index": index, "id": call.id, "type": "function",
            "function": { "name": call.name, "arguments": "" },
        });
        deltas.push(json!({ "tool_calls": [opening] }));
        deltas.extend(shreds(&call.arguments).map(|shred| {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": shred } }] })
        }));
    }
    deltas
}

fn whole_call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cached, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

fn id(ask: Ask<'_>) -> String {
    format!("chatcmpl-{}", ask.number)
}
