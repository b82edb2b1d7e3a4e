//! Wire format of OpenAI Chat Completions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::api::data_event;
use super::turn::{
    RequestInfo, ScriptedCall, ScriptedTurn, ScriptedUsage, split_fragments, split_words,
};

const CREATED: u64 = 1_700_000_000;

pub(crate) fn response_body(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Value {
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
        message["tool_calls"] = turn.calls.iter().map(tool_call).collect();
    }
    turn.add_extra_fields(json!({
        "id": id(request),
        "object": "chat.completion",
        "created": CREATED,
        "model": request.model(),
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": turn.finish_reason(),
        }],
        "usage": usage(turn.usage),
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }))
}

pub(crate) fn stream_events(turn: &ScriptedTurn, request: RequestInfo<'_>) -> Vec<Bytes> {
    let include_usage = request.body["stream_options"]["include_usage"] == true;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": id(request),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": request.model(),
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
            "choices": choices,
        });
        if include_usage {
            chunk["usage"] = usage;
        }
        data_event(&turn.add_extra_fields(chunk))
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
    events.push(choice(&json!({}), Some(turn.finish_reason())));
    if include_usage {
        events.push(chunk(json!([]), usage(turn.usage)));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

fn deltas(turn: &ScriptedTurn) -> Vec<Value> {
    let empty = turn.text.as_ref().map(|_| "");
    let mut deltas = vec![json!({ "role": "assistant", "content": empty, "refusal": null })];
    let reasoning = split_words(turn.reasoning.as_deref().unwrap_or_default());
    deltas.extend(reasoning.map(|word| json!({ "reasoning_content": word })));
    let text = split_words(turn.text.as_deref().unwrap_or_default());
    deltas.extend(text.map(|word| json!({ "content": word })));
    for (index, call) in turn.calls.iter().enumerate() {
        let opening = json!({
            "index": index, "id": call.id, "type": "function",
            "function": { "name": call.name, "arguments": "" },
        });
        deltas.push(json!({ "tool_calls": [opening] }));
        deltas.extend(split_fragments(&call.arguments).map(|fragment| {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": fragment } }] })
        }));
    }
    deltas
}

fn tool_call(call: &ScriptedCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

fn usage(usage: ScriptedUsage) -> Value {
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

fn id(request: RequestInfo<'_>) -> String {
    format!("chatcmpl-{}", request.number)
}
