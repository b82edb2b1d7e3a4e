//! What must hold for every turn and every prompt.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_core::sse;
use toolgate_llm::Dialect::Messages;
use toolgate_llm::event::Proof;
use toolgate_llm::prompt::{
    Call, Choice, Effort, Format, Ignored, Limits, Message, Part, Prompt, Role, Sampling, Source,
    Tool,
};
use toolgate_llm::{Event, Finish, Turn, Usage, Wire as _};

use super::{encoded, head};

/// Something to say.
fn words() -> impl Strategy<Value = String> {
    "[a-zé\"\\\\\n{}:😀]{1,12}".prop_filter("blank", |text| !text.trim().is_empty())
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_-]{1,8}"
}

fn proof() -> impl Strategy<Value = Option<Proof>> {
    prop_oneof![
        Just(None),
        words().prop_map(|text| Some(Proof::Signature(text))),
        words().prop_map(|text| Some(Proof::Redacted(text))),
    ]
}

/// Calls whose deltas may be interleaved: which call each piece is of, and when calls end.
fn calls() -> impl Strategy<Value = Vec<Event>> {
    let picks = vec((any::<prop::sample::Index>(), words()), 0..8);
    (vec(name(), 1..4), picks).prop_map(|(names, picks)| {
        let mut events = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let (id, name) = (format!("c{index}"), name.clone());
            events.push(Event::CallStart { index, id, name });
            let arguments = "{".to_owned();
            events.push(Event::CallDelta { index, arguments });
            let so_far = index + 1;
            for (pick, piece) in picks.iter().skip(index * 2).take(2) {
                let (index, arguments) = (pick.index(so_far), piece.clone());
                events.push(Event::CallDelta { index, arguments });
            }
        }
        let ends = (0..names.len()).map(|index| Event::CallEnd { index });
        events.extend(ends);
        events
    })
}

fn finish() -> impl Strategy<Value = Finish> {
    prop_oneof![
        Just(Finish::Stop),
        option::of(words()).prop_map(Finish::Sequence),
        Just(Finish::Length),
        Just(Finish::Calls),
        Just(Finish::Filter),
        Just(Finish::Other("pause_turn".to_owned())),
    ]
}

fn usage() -> impl Strategy<Value = Usage> {
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (counts, any::<u32>()).prop_map(|((fresh, read, written, output), reasoning)| Usage {
        input: u64::from(fresh) + u64::from(read) + u64::from(written),
        output: output.into(),
        cached: read.into(),
        cache_written: written.into(),
        reasoning: reasoning.into(),
    })
}

/// The events of a turn, as a decoder could tell them.
fn turn() -> impl Strategy<Value = Vec<Event>> {
    let part = prop_oneof![
        vec(words().prop_map(Event::Text), 1..4),
        (vec(words().prop_map(Event::Reasoning), 0..3), proof()).prop_map(|(mut events, proof)| {
            events.push(Event::ReasoningEnd(proof));
            events
        }),
        calls(),
    ];
    let late = any::<bool>();
    (vec(part, 0..5), finish(), usage(), late).prop_map(|(parts, finish, usage, late)| {
        let mut events: Vec<Event> = parts.into_iter().flatten().collect();
        // Calls count through a turn.
        let (mut started, mut before) = (0, 0);
        for event in &mut events {
            match event {
                Event::CallStart { index, id, .. } => {
                    if *index == 0 {
                        before = started;
                    }
                    started += 1;
                    *index += before;
                    *id = format!("c{index}");
                }
                Event::CallDelta { index, .. } | Event::CallEnd { index } => *index += before,
                _ => {}
            }
        }
        // Some dialects do not tell when a call is complete.
        if late {
            let is_end = |event: &Event| matches!(event, Event::CallEnd { .. });
            events.sort_by_key(is_end);
        }
        let head = head();
        let (id, model) = (head.id, head.model);
        events.insert(0, Event::Start { id, model });
        events.extend([Event::Usage(usage), Event::Finish(finish)]);
        events
    })
}

/// The events of a stream that comes in chunks.
fn decoded_in_chunks(stream: &str, cuts: &[prop::sample::Index]) -> Vec<Event> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
    cuts.sort_unstable();
    cuts.push(stream.len());
    let (mut bytes, mut raw, mut at) = (sse::Decoder::new(1 << 20), Vec::new(), 0);
    for cut in cuts {
        bytes.feed(&stream.as_bytes()[at..cut], &mut raw).unwrap();
        at = cut;
    }
    let (mut decoder, mut out) = (Messages.decoder(), Vec::new());
    for event in &raw {
        decoder.take(event, &mut out).unwrap();
    }
    assert!(decoder.is_done());
    out
}

/// What SDKs rely on: the order of events, and one block at a time, counted from zero.
fn check_order(stream: &str) {
    let mut raw = Vec::new();
    sse::Decoder::new(1 << 20)
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

fn source(types: &'static [&'static str]) -> impl Strategy<Value = Source> {
    prop_oneof![
        name().prop_map(|name| Source::Url(format!("https://x.test/{name}"))),
        prop::sample::select(types).prop_map(|media_type| Source::Data {
            media_type: media_type.to_owned(),
            data: "aGk=".to_owned(),
        }),
    ]
}

fn said() -> impl Strategy<Value = Part> {
    let files = &["application/pdf", "text/plain"];
    prop_oneof![
        words().prop_map(Part::Text),
        source(&["image/png", "image/webp"]).prop_map(|source| Part::Image {
            source,
            detail: None
        }),
        (source(files), option::of(words())).prop_map(|(source, name)| Part::File { source, name }),
    ]
}

fn answered() -> impl Strategy<Value = Part> {
    (name(), vec(said(), 0..3), any::<bool>()).prop_map(|(id, parts, is_error)| Part::Answered {
        id,
        parts,
        is_error,
    })
}

fn user() -> impl Strategy<Value = Message> {
    (vec(answered(), 0..3), vec(said(), 1..3)).prop_map(|(mut parts, said)| {
        parts.extend(said);
        let role = Role::User;
        Message { role, parts }
    })
}

fn assistant() -> impl Strategy<Value = Message> {
    let call = (name(), name(), words()).prop_map(|(id, name, text)| {
        let arguments = json!({"a": text, "b": 1.50}).to_string();
        Part::Call(Call {
            id,
            name,
            arguments,
        })
    });
    let part = prop_oneof![words().prop_map(Part::Text), call];
    vec(part, 1..4).prop_map(|parts| {
        let role = Role::Assistant;
        Message { role, parts }
    })
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let system = vec(words().prop_map(Part::Text), 0..3);
    (system, vec((user(), assistant()), 0..3), user()).prop_map(|(parts, turns, last)| {
        let role = Role::System;
        let system = (!parts.is_empty()).then_some(Message { role, parts });
        let turns = turns.into_iter().flat_map(|(user, answer)| [user, answer]);
        system.into_iter().chain(turns).chain([last]).collect()
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    (name(), option::of(words()), option::of(any::<bool>())).prop_map(
        |(name, description, strict)| Tool {
            name,
            description,
            parameters: Some(json!({"type": "object", "properties": {"a": {"minimum": 1.0}}})),
            strict,
        },
    )
}

fn choice() -> impl Strategy<Value = Option<Choice>> {
    option::of(prop_oneof![
        Just(Choice::Auto),
        Just(Choice::None),
        Just(Choice::Required),
        name().prop_map(Choice::Named),
    ])
}

fn effort() -> impl Strategy<Value = Option<Effort>> {
    option::of(prop_oneof![
        Just(Effort::Off),
        (1024_u64..9000).prop_map(Effort::Tokens)
    ])
}

/// A prompt that this dialect can say wholly.
fn prompt() -> impl Strategy<Value = Prompt> {
    let tools = (vec(tool(), 0..3), choice(), option::of(any::<bool>()));
    let limits = (9001_u64..20000, vec(words(), 0..3));
    let settings = (effort(), option::of(name()), any::<bool>(), any::<bool>());
    (messages(), tools, limits, settings).prop_map(|(messages, tools, limits, settings)| {
        let (tools, mut choice, mut parallel) = tools;
        let (effort, user, formatted, stream) = settings;
        let answers = |message: &Message| {
            let mut parts = message.parts.iter();
            parts.any(|part| matches!(part, Part::Answered { .. }))
        };
        let after_tools = messages.last().is_some_and(answers);
        let effort = effort.filter(|effort| !after_tools || *effort == Effort::Off);
        let reasons = matches!(effort, Some(Effort::Tokens(_)));
        let forced = matches!(choice, Some(Choice::Required | Choice::Named(_)));
        if tools.is_empty() || (reasons && forced) {
            choice = None;
        }
        if matches!(choice, None | Some(Choice::None)) {
            parallel = None;
        }
        let number = |value: Value| value.as_number().cloned();
        let sampling = match reasons {
            true => Sampling::default(),
            false => Sampling {
                temperature: number(json!(0.5)),
                top_p: number(json!(0.9)),
                top_k: number(json!(40)),
                ..Sampling::default()
            },
        };
        let schema = Format::Schema {
            name: "output".to_owned(),
            description: None,
            schema: json!({"type": "object", "b": 1, "a": 2}),
            strict: Some(true),
        };
        Prompt {
            model: "m".to_owned(),
            messages,
            tools,
            choice,
            parallel,
            limits: Limits {
                max_tokens: Some(limits.0.into()),
                stop: limits.1,
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
    fn a_turn_survives_its_stream(events in turn(), cuts in vec(any::<prop::sample::Index>(), 0..40)) {
        let stream = encoded(Messages, &events);
        check_order(&stream);
        let again = Turn::of(&decoded_in_chunks(&stream, &cuts));
        prop_assert_eq!(again, Turn::of(&events), "{}", stream);
    }

    #[test]
    fn a_turn_survives_its_answer(events in turn()) {
        let mut turn = Turn::of(&events);
        for item in &mut turn.items {
            if let toolgate_llm::turn::Item::Call(call) = item {
                call.arguments = json!({"a": call.arguments}).to_string();
            }
        }
        let answer = Messages.answer(&head(), &turn);
        let again = Turn::of(&Messages.events(&answer).unwrap());
        prop_assert_eq!(again, turn, "{}", answer);
    }

    #[test]
    fn a_prompt_survives_its_request(prompt in prompt()) {
        let written = Messages.write(&prompt).unwrap();
        let again = Messages.read(&written, &Ignored::default()).unwrap();
        prop_assert_eq!(again, prompt, "{}", written);
    }
}
