//! Properties that hold for every turn and every prompt.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::sse;
use toolgate_llm::Dialect::Messages;
use toolgate_llm::event::ReasoningProof;
use toolgate_llm::prompt::{
    IgnoredFields, MediaSource, MessageRole, OpenAiSettings, Prompt, PromptMessage, PromptPart,
    PromptTool, ReasoningEffort, RequestedToolCall, ResponseFormat, ResponseLimits, Sampling,
    ToolChoice,
};
use toolgate_llm::{FinishReason, ModelTurn, TokenUsage, TurnEvent, WireFormat as _};

use super::{encode, head};

/// Text that is not blank.
fn words() -> impl Strategy<Value = String> {
    "[a-zé\"\\\\\n{}:😀]{1,12}".prop_filter("blank", |text| !text.trim().is_empty())
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_-]{1,8}"
}

fn proof() -> impl Strategy<Value = Option<ReasoningProof>> {
    prop_oneof![
        Just(None),
        words().prop_map(|text| Some(ReasoningProof::Signature(text))),
        words().prop_map(|text| Some(ReasoningProof::Redacted(text))),
    ]
}

/// Calls whose deltas may be interleaved.
fn calls() -> impl Strategy<Value = Vec<TurnEvent>> {
    let picks = vec((any::<prop::sample::Index>(), words()), 0..8);
    (vec(name(), 1..4), picks).prop_map(|(names, picks)| {
        let mut events = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let (id, name) = (format!("c{index}"), name.clone());
            events.push(TurnEvent::CallStart { index, id, name });
            let arguments = "{".to_owned();
            events.push(TurnEvent::CallDelta { index, arguments });
            let so_far = index + 1;
            for (pick, piece) in picks.iter().skip(index * 2).take(2) {
                let (index, arguments) = (pick.index(so_far), piece.clone());
                events.push(TurnEvent::CallDelta { index, arguments });
            }
        }
        let ends = (0..names.len()).map(|index| TurnEvent::CallEnd { index });
        events.extend(ends);
        events
    })
}

fn finish() -> impl Strategy<Value = FinishReason> {
    prop_oneof![
        Just(FinishReason::Stop),
        option::of(words()).prop_map(FinishReason::StopSequence),
        Just(FinishReason::Length),
        Just(FinishReason::ToolCalls),
        Just(FinishReason::ContentFilter),
        Just(FinishReason::Other("pause_turn".to_owned())),
    ]
}

fn usage() -> impl Strategy<Value = TokenUsage> {
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (counts, any::<u32>()).prop_map(|((fresh, read, written, output), reasoning)| TokenUsage {
        input: u64::from(fresh) + u64::from(read) + u64::from(written),
        output: output.into(),
        cached: read.into(),
        cache_written: written.into(),
        reasoning: reasoning.into(),
    })
}

/// The events of a turn, as a decoder could emit them.
fn turn() -> impl Strategy<Value = Vec<TurnEvent>> {
    let part = prop_oneof![
        vec(words().prop_map(TurnEvent::Text), 1..4),
        (vec(words().prop_map(TurnEvent::Reasoning), 0..3), proof()).prop_map(
            |(mut events, proof)| {
                events.push(TurnEvent::ReasoningEnd(proof));
                events
            }
        ),
        calls(),
    ];
    let late = any::<bool>();
    (vec(part, 0..5), finish(), usage(), late).prop_map(|(parts, finish, usage, late)| {
        let mut events: Vec<TurnEvent> = parts.into_iter().flatten().collect();
        // Call indexes increase throughout a turn.
        let (mut started, mut before) = (0, 0);
        for event in &mut events {
            match event {
                TurnEvent::CallStart { index, id, .. } => {
                    if *index == 0 {
                        before = started;
                    }
                    started += 1;
                    *index += before;
                    *id = format!("c{index}");
                }
                TurnEvent::CallDelta { index, .. } | TurnEvent::CallEnd { index } => {
                    *index += before
                }
                _ => {}
            }
        }
        // Some dialects have no event for the end of a call.
        if late {
            let is_end = |event: &TurnEvent| matches!(event, TurnEvent::CallEnd { .. });
            events.sort_by_key(is_end);
        }
        let head = head();
        let (id, model) = (head.id, head.model);
        events.insert(0, TurnEvent::Start { id, model });
        events.extend([TurnEvent::Usage(usage), TurnEvent::Finish(finish)]);
        events
    })
}

/// Decodes a stream that arrives in chunks.
fn decode_in_chunks(stream: &str, cuts: &[prop::sample::Index]) -> Vec<TurnEvent> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
    cuts.sort_unstable();
    cuts.push(stream.len());
    let (mut bytes, mut raw, mut at) = (sse::SseDecoder::new(1 << 20), Vec::new(), 0);
    for cut in cuts {
        bytes.feed(&stream.as_bytes()[at..cut], &mut raw).unwrap();
        at = cut;
    }
    let (mut decoder, mut out) = (Messages.stream_decoder(), Vec::new());
    for event in &raw {
        decoder.decode(event, &mut out).unwrap();
    }
    assert!(decoder.is_done());
    out
}

/// Checks what SDKs rely on: the order of events, and one open block at a time, counted from zero.
fn check_order(stream: &str) {
    let mut raw = Vec::new();
    sse::SseDecoder::new(1 << 20)
        .feed(stream.as_bytes(), &mut raw)
        .unwrap();
    let (mut blocks, mut open) = (0, false);
    let last = raw.len() - 1;
    for (at, event) in raw.iter().enumerate() {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["type"], event.name.as_str());
        match event.name.as_str() {
            "message_start" => assert_eq!(at, 0),
            "content_block_start" => {
                assert!(!std::mem::replace(&mut open, true));
                assert_eq!(data["index"], blocks);
            }
            "content_block_delta" => {
                assert!(open);
                assert_eq!(data["index"], blocks);
            }
            "content_block_stop" => {
                assert!(std::mem::take(&mut open));
                assert_eq!(data["index"], blocks);
                blocks += 1;
            }
            "message_delta" => assert_eq!((at, open), (last - 1, false)),
            "message_stop" => assert_eq!(at, last),
            other => panic!("{other}"),
        }
    }
}

fn source(types: &'static [&'static str]) -> impl Strategy<Value = MediaSource> {
    prop_oneof![
        name().prop_map(|name| MediaSource::Url(format!("https://x.test/{name}"))),
        prop::sample::select(types).prop_map(|media_type| MediaSource::Data {
            media_type: media_type.to_owned(),
            data: "aGk=".to_owned(),
        }),
    ]
}

fn user_part() -> impl Strategy<Value = PromptPart> {
    let files = &["application/pdf", "text/plain"];
    prop_oneof![
        words().prop_map(PromptPart::Text),
        source(&["image/png", "image/webp"]).prop_map(|source| PromptPart::Image {
            source,
            detail: None
        }),
        (source(files), option::of(words()))
            .prop_map(|(source, name)| PromptPart::File { source, name }),
    ]
}

fn tool_result() -> impl Strategy<Value = PromptPart> {
    (name(), vec(user_part(), 0..3), any::<bool>()).prop_map(|(id, parts, is_error)| {
        PromptPart::ToolResult {
            id,
            parts,
            is_error,
        }
    })
}

fn user() -> impl Strategy<Value = PromptMessage> {
    (vec(tool_result(), 0..3), vec(user_part(), 1..3)).prop_map(|(mut parts, more)| {
        parts.extend(more);
        let role = MessageRole::User;
        PromptMessage { role, parts }
    })
}

fn assistant() -> impl Strategy<Value = PromptMessage> {
    let call = (name(), name(), words()).prop_map(|(id, name, text)| {
        let arguments = json!({"a": text, "b": 1.50}).to_string();
        PromptPart::ToolCall(RequestedToolCall {
            id,
            name,
            arguments,
        })
    });
    let part = prop_oneof![words().prop_map(PromptPart::Text), call];
    vec(part, 1..4).prop_map(|parts| {
        let role = MessageRole::Assistant;
        PromptMessage { role, parts }
    })
}

fn messages() -> impl Strategy<Value = Vec<PromptMessage>> {
    let system = vec(words().prop_map(PromptPart::Text), 0..3);
    (system, vec((user(), assistant()), 0..3), user()).prop_map(|(parts, turns, last)| {
        let role = MessageRole::System;
        let system = (!parts.is_empty()).then_some(PromptMessage { role, parts });
        let turns = turns
            .into_iter()
            .flat_map(|(user, assistant)| [user, assistant]);
        system.into_iter().chain(turns).chain([last]).collect()
    })
}

fn tool() -> impl Strategy<Value = PromptTool> {
    (name(), option::of(words()), option::of(any::<bool>())).prop_map(
        |(name, description, strict)| PromptTool {
            name,
            description,
            parameters: Some(json!({"type": "object", "properties": {"a": {"minimum": 1.0}}})),
            strict,
        },
    )
}

fn choice() -> impl Strategy<Value = Option<ToolChoice>> {
    option::of(prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        name().prop_map(ToolChoice::Named),
    ])
}

fn effort() -> impl Strategy<Value = Option<ReasoningEffort>> {
    option::of(prop_oneof![
        Just(ReasoningEffort::Off),
        (1024_u64..9000).prop_map(ReasoningEffort::Tokens)
    ])
}

/// A prompt that this dialect can express completely.
fn prompt() -> impl Strategy<Value = Prompt> {
    let tools = (vec(tool(), 0..3), choice(), option::of(any::<bool>()));
    let limits = (9001_u64..20000, vec(words(), 0..3));
    let settings = (effort(), option::of(name()), any::<bool>(), any::<bool>());
    (messages(), tools, limits, settings).prop_map(|(messages, tools, limits, settings)| {
        let (tools, mut choice, mut parallel) = tools;
        let (effort, user, formatted, stream) = settings;
        let has_tool_result = |message: &PromptMessage| {
            let mut parts = message.parts.iter();
            parts.any(|part| matches!(part, PromptPart::ToolResult { .. }))
        };
        let after_tools = messages.last().is_some_and(has_tool_result);
        let effort = effort.filter(|effort| !after_tools || *effort == ReasoningEffort::Off);
        let reasons = matches!(effort, Some(ReasoningEffort::Tokens(_)));
        let forced = matches!(choice, Some(ToolChoice::Required | ToolChoice::Named(_)));
        if tools.is_empty() || (reasons && forced) {
            choice = None;
        }
        if matches!(choice, None | Some(ToolChoice::None)) {
            parallel = None;
        }
        let number = |value: Value| value.as_number().cloned();
        let sampling = if reasons {
            Sampling::default()
        } else {
            Sampling {
                temperature: number(json!(0.5)),
                top_p: number(json!(0.9)),
                top_k: number(json!(40)),
                ..Sampling::default()
            }
        };
        let schema = ResponseFormat::Schema {
            name: "output".to_owned(),
            description: None,
            schema: json!({"type": "object", "b": 1, "a": 2}),
            strict: Some(true),
        };
        Prompt {
            openai: OpenAiSettings::default(),
            model: "m".to_owned(),
            messages,
            tools,
            tool_choice: choice,
            parallel_tool_calls: parallel,
            limits: ResponseLimits {
                max_tokens: Some(limits.0.into()),
                stop: limits.1,
                ..ResponseLimits::default()
            },
            sampling,
            format: formatted.then_some(schema),
            effort,
            user,
            stream,
            stream_usage: stream,
        }
    })
}

proptest! {
    #[test]
    fn turn_round_trips_through_stream(events in turn(), cuts in vec(any::<prop::sample::Index>(), 0..40)) {
        let stream = encode(Messages, &events);
        check_order(&stream);
        let again = ModelTurn::from_events(&decode_in_chunks(&stream, &cuts));
        prop_assert_eq!(again, ModelTurn::from_events(&events), "{}", stream);
    }

    #[test]
    fn turn_round_trips_through_response(events in turn()) {
        let mut turn = ModelTurn::from_events(&events);
        for item in &mut turn.items {
            if let toolgate_llm::turn::TurnItem::ToolCall(call) = item {
                call.arguments = json!({"a": call.arguments}).to_string();
            }
        }
        let response = Messages.encode_response(&head(), &turn);
        let again = ModelTurn::from_events(&Messages.decode_response(&response).unwrap());
        prop_assert_eq!(again, turn, "{}", response);
    }

    #[test]
    fn prompt_round_trips_through_request(prompt in prompt()) {
        let written = Messages.encode_request(&prompt).unwrap();
        let again = Messages.decode_request(&written, &IgnoredFields::default()).unwrap();
        prop_assert_eq!(again, prompt, "{}", written);
    }
}
