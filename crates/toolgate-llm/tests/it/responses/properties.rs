//! Properties that hold for every turn and every prompt.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Number, Value, json};
use toolgate_llm::event::{FinishReason, ReasoningProof};
use toolgate_llm::prompt::{
    IgnoredFields, MediaSource, MessageRole, OpenAiSettings, Prompt, PromptMessage, PromptPart,
    PromptTool, ReasoningEffort, RequestedToolCall, ResponseFormat, ResponseLimits, Sampling,
    ToolChoice,
};
use toolgate_llm::{ModelTurn, TokenUsage, TurnEvent, responses};

use super::{comparable, decode, encode, head};

fn word() -> impl Strategy<Value = String> {
    "[a-zé\"\\\\\n ]{1,6}"
}

/// A part of a turn, split into deltas.
#[derive(Clone, Debug)]
enum TurnPart {
    Text(Vec<String>),
    Refusal(String),
    Reasoning(Vec<String>, Option<String>),
    Calls(Vec<Vec<String>>),
}

fn turn_part() -> impl Strategy<Value = TurnPart> {
    prop_oneof![
        vec(word(), 1..4).prop_map(TurnPart::Text),
        word().prop_map(TurnPart::Refusal),
        (vec(word(), 0..3), option::of(word()))
            .prop_map(|(text, proof)| TurnPart::Reasoning(text, proof)),
        vec(vec(word(), 0..4), 1..4).prop_map(TurnPart::Calls),
    ]
}

/// The events of a turn; deltas of consecutive calls are interleaved.
fn events(
    parts: &[TurnPart],
    usage: Option<TokenUsage>,
    cut: Option<FinishReason>,
) -> Vec<TurnEvent> {
    let mut events = vec![TurnEvent::Start {
        id: "up".to_owned(),
        model: "m".to_owned(),
    }];
    let mut calls = 0;
    for (number, part) in parts.iter().enumerate() {
        match part {
            TurnPart::Text(texts) => events.extend(texts.iter().cloned().map(TurnEvent::Text)),
            TurnPart::Refusal(text) => events.push(TurnEvent::Refusal(text.clone())),
            TurnPart::Reasoning(texts, content) => {
                let (id, content) = (format!("rs_up{number}"), content.clone());
                events.push(TurnEvent::ReasoningStart(id.clone()));
                events.extend(texts.iter().cloned().map(TurnEvent::Reasoning));
                events.push(TurnEvent::ReasoningEnd(Some(ReasoningProof::Encrypted {
                    id,
                    content,
                })));
            }
            TurnPart::Calls(all) => {
                let first = calls;
                calls += all.len();
                events.extend((first..calls).map(|index| TurnEvent::CallStart {
                    index,
                    id: format!("c{index}"),
                    name: "add".to_owned(),
                }));
                for round in 0..all.iter().map(Vec::len).max().unwrap_or_default() {
                    for (call, pieces) in all.iter().enumerate() {
                        let index = first + call;
                        let arguments = pieces.get(round).cloned();
                        let delta =
                            arguments.map(|arguments| TurnEvent::CallDelta { index, arguments });
                        events.extend(delta);
                    }
                }
                events.extend((first..calls).map(|index| TurnEvent::CallEnd { index }));
            }
        }
    }
    events.extend(usage.map(TurnEvent::Usage));
    let finish = match calls {
        0 => FinishReason::Stop,
        _ => FinishReason::ToolCalls,
    };
    events.push(TurnEvent::Finish(cut.unwrap_or(finish)));
    events
}

fn usage() -> impl Strategy<Value = TokenUsage> {
    (0..99_u64, 0..99_u64, 0..99_u64, 0..99_u64, 0..99_u64).prop_map(
        |(input, output, cached, cache_written, reasoning)| TokenUsage {
            input,
            output,
            cached,
            cache_written,
            reasoning,
        },
    )
}

fn cut() -> impl Strategy<Value = FinishReason> {
    prop_oneof![
        Just(FinishReason::Length),
        Just(FinishReason::ContentFilter),
        word().prop_map(FinishReason::Other)
    ]
}

fn content(texts_only: bool) -> BoxedStrategy<PromptPart> {
    let text = word().prop_map(PromptPart::Text);
    if texts_only {
        return prop_oneof![text, word().prop_map(PromptPart::Refusal)].boxed();
    }
    let source = prop_oneof![
        word().prop_map(|path| MediaSource::Url(format!("https://x.test/{path}"))),
        Just(MediaSource::Data {
            media_type: "image/png".to_owned(),
            data: "AAAA".to_owned(),
        }),
    ];
    let detail = option::of(prop_oneof![Just("low".to_owned()), Just("high".to_owned())]);
    let image = (source, detail).prop_map(|(source, detail)| PromptPart::Image { source, detail });
    let file = word().prop_map(|name| PromptPart::File {
        source: MediaSource::Data {
            media_type: "application/pdf".to_owned(),
            data: "AAAA".to_owned(),
        },
        name: Some(name),
    });
    prop_oneof![text, image, file].boxed()
}

fn user_parts() -> impl Strategy<Value = Vec<PromptPart>> {
    let tool_result =
        (word(), vec(content(false), 0..3)).prop_map(|(id, parts)| PromptPart::ToolResult {
            id,
            parts,
            is_error: false,
        });
    vec(prop_oneof![tool_result, content(false)], 1..4)
}

fn assistant_parts() -> impl Strategy<Value = Vec<PromptPart>> {
    let call = (word(), word(), word()).prop_map(|(id, name, arguments)| {
        PromptPart::ToolCall(RequestedToolCall {
            id,
            name,
            arguments,
        })
    });
    vec(prop_oneof![call, content(true)], 1..4)
}

/// Alternating messages, with system messages before and between them.
fn messages() -> impl Strategy<Value = Vec<PromptMessage>> {
    let system = || vec(vec(word().prop_map(PromptPart::Text), 1..3), 0..3);
    vec((system(), user_parts(), assistant_parts()), 1..3).prop_map(|rounds| {
        let message = |role, parts| PromptMessage { role, parts };
        let rounds = rounds.into_iter().flat_map(|(systems, user, assistant)| {
            let systems = systems
                .into_iter()
                .map(|parts| message(MessageRole::System, parts));
            let round = [
                message(MessageRole::User, user),
                message(MessageRole::Assistant, assistant),
            ];
            systems.chain(round).collect::<Vec<_>>()
        });
        rounds.collect()
    })
}

fn number() -> impl Strategy<Value = Number> {
    (0..9_u32, 0..99_u32).prop_map(|(whole, part)| {
        let text = format!("{whole}.{part:02}0");
        serde_json::from_str(&text).unwrap()
    })
}

fn schema() -> impl Strategy<Value = Value> {
    word().prop_map(|word| json!({"type": "object", "properties": {word: {"type": "string"}}}))
}

fn tool() -> impl Strategy<Value = PromptTool> {
    (word(), option::of(word()), schema(), any::<bool>()).prop_map(
        |(name, description, schema, strict)| PromptTool {
            name,
            description,
            parameters: Some(schema),
            strict: strict.then_some(true),
        },
    )
}

fn format() -> impl Strategy<Value = ResponseFormat> {
    let schema = (
        word(),
        option::of(word()),
        schema(),
        option::of(any::<bool>()),
    );
    let schema = schema.prop_map(
        |(name, description, schema, strict)| ResponseFormat::Schema {
            name,
            description,
            schema,
            strict,
        },
    );
    prop_oneof![Just(ResponseFormat::Json), schema]
}

fn choice() -> impl Strategy<Value = ToolChoice> {
    prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        word().prop_map(ToolChoice::Named)
    ]
}

fn prompt() -> impl Strategy<Value = Prompt> {
    let settings = (
        option::of(choice()),
        option::of(any::<bool>()),
        option::of(format()),
        option::of(word().prop_map(ReasoningEffort::Level)),
        option::of(word()),
        any::<bool>(),
    );
    let numbers = (
        option::of(number()),
        option::of(number()),
        option::of(number()),
    );
    (word(), messages(), vec(tool(), 0..3), settings, numbers).prop_map(
        |(model, messages, tools, settings, (max_tokens, temperature, top_p))| {
            let (choice, parallel, format, effort, user, stream) = settings;
            let stop = Vec::new();
            Prompt {
                openai: OpenAiSettings::default(),
                model,
                messages,
                tools,
                tool_choice: choice,
                parallel_tool_calls: parallel,
                limits: ResponseLimits {
                    max_tokens,
                    stop,
                    ..ResponseLimits::default()
                },
                sampling: Sampling {
                    temperature,
                    top_p,
                    ..Sampling::default()
                },
                format,
                effort,
                user,
                stream,
                stream_usage: true,
            }
        },
    )
}

proptest! {
    #[test]
    fn turn_round_trips_through_stream_and_response(
        parts in vec(turn_part(), 0..6),
        usage in option::of(usage()),
        cut in option::of(cut()),
        size in 1..200_usize,
    ) {
        let events = events(&parts, usage, cut);
        let turn = ModelTurn::from_events(&events);
        let (again, is_done) = decode(&encode(&events), size).unwrap();
        prop_assert!(is_done);
        prop_assert!(comparable(&ModelTurn::from_events(&again)) == comparable(&turn), "{:?}\n{:?}", again, turn);
        let whole = responses::decode_response(&responses::encode_response(&head(), &turn)).unwrap();
        prop_assert!(comparable(&ModelTurn::from_events(&whole)) == comparable(&turn), "{:?}\n{:?}", whole, turn);
    }

    #[test]
    fn stream_ends_with_complete_response(parts in vec(turn_part(), 0..6), usage in option::of(usage())) {
        let events = events(&parts, usage, None);
        let stream = encode(&events);
        let last = stream.trim_end().rsplit("data: ").next().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        let whole = responses::encode_response(&head(), &ModelTurn::from_events(&events));
        prop_assert_eq!(last["response"].to_string(), whole);
    }

    #[test]
    fn prompt_round_trips_through_request(prompt in prompt()) {
        let written = responses::encode_request(&prompt).unwrap();
        let again = responses::decode_request(&written, &IgnoredFields::default()).unwrap();
        prop_assert_eq!(again, prompt);
    }
}
