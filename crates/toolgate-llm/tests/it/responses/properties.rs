//! What holds for every turn and every prompt.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Number, Value, json};
use toolgate_llm::event::{Finish, Proof};
use toolgate_llm::prompt::{
    Call, Choice, Effort, Format, Ignored, Limits, Message, Part, Prompt, Role, Sampling, Source,
    Tool,
};
use toolgate_llm::{Event, Turn, Usage, responses};

use super::{decode, encoded, essence, head};

fn word() -> impl Strategy<Value = String> {
    "[a-zé\"\\\\\n ]{1,6}"
}

/// A part of a turn, made of pieces.
#[derive(Clone, Debug)]
enum Made {
    Text(Vec<String>),
    Refusal(String),
    Reasoning(Vec<String>, Option<String>),
    Calls(Vec<Vec<String>>),
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        vec(word(), 1..4).prop_map(Made::Text),
        word().prop_map(Made::Refusal),
        (vec(word(), 0..3), option::of(word()))
            .prop_map(|(text, proof)| Made::Reasoning(text, proof)),
        vec(vec(word(), 0..4), 1..4).prop_map(Made::Calls),
    ]
}

/// The events of a turn; the deltas of calls that follow one another are interleaved.
fn events(made: &[Made], usage: Option<Usage>, cut: Option<Finish>) -> Vec<Event> {
    let mut events = vec![Event::Start {
        id: "up".to_owned(),
        model: "m".to_owned(),
    }];
    let mut calls = 0;
    for (number, made) in made.iter().enumerate() {
        match made {
            Made::Text(texts) => events.extend(texts.iter().cloned().map(Event::Text)),
            Made::Refusal(text) => events.push(Event::Refusal(text.clone())),
            Made::Reasoning(texts, content) => {
                let (id, content) = (format!("rs_up{number}"), content.clone());
                events.push(Event::ReasoningStart(id.clone()));
                events.extend(texts.iter().cloned().map(Event::Reasoning));
                events.push(Event::ReasoningEnd(Some(Proof::Encrypted { id, content })));
            }
            Made::Calls(all) => {
                let first = calls;
                calls += all.len();
                events.extend((first..calls).map(|index| Event::CallStart {
                    index,
                    id: format!("c{index}"),
                    name: "add".to_owned(),
                }));
                for round in 0..all.iter().map(Vec::len).max().unwrap_or_default() {
                    for (call, pieces) in all.iter().enumerate() {
                        let index = first + call;
                        let arguments = pieces.get(round).cloned();
                        let delta =
                            arguments.map(|arguments| Event::CallDelta { index, arguments });
                        events.extend(delta);
                    }
                }
                events.extend((first..calls).map(|index| Event::CallEnd { index }));
            }
        }
    }
    events.extend(usage.map(Event::Usage));
    let finish = match calls {
        0 => Finish::Stop,
        _ => Finish::Calls,
    };
    events.push(Event::Finish(cut.unwrap_or(finish)));
    events
}

fn usage() -> impl Strategy<Value = Usage> {
    (0..99_u64, 0..99_u64, 0..99_u64, 0..99_u64, 0..99_u64).prop_map(
        |(input, output, cached, cache_written, reasoning)| Usage {
            input,
            output,
            cached,
            cache_written,
            reasoning,
        },
    )
}

fn cut() -> impl Strategy<Value = Finish> {
    prop_oneof![
        Just(Finish::Length),
        Just(Finish::Filter),
        word().prop_map(Finish::Other)
    ]
}

fn content(texts_only: bool) -> BoxedStrategy<Part> {
    let text = word().prop_map(Part::Text);
    if texts_only {
        return prop_oneof![text, word().prop_map(Part::Refusal)].boxed();
    }
    let source = prop_oneof![
        word().prop_map(|path| Source::Url(format!("https://x.test/{path}"))),
        Just(Source::Data {
            media_type: "image/png".to_owned(),
            data: "AAAA".to_owned(),
        }),
    ];
    let detail = option::of(prop_oneof![Just("low".to_owned()), Just("high".to_owned())]);
    let image = (source, detail).prop_map(|(source, detail)| Part::Image { source, detail });
    let file = word().prop_map(|name| Part::File {
        source: Source::Data {
            media_type: "application/pdf".to_owned(),
            data: "AAAA".to_owned(),
        },
        name: Some(name),
    });
    prop_oneof![text, image, file].boxed()
}

fn said() -> impl Strategy<Value = Vec<Part>> {
    let answered = (word(), vec(content(false), 0..3)).prop_map(|(id, parts)| Part::Answered {
        id,
        parts,
        is_error: false,
    });
    vec(prop_oneof![answered, content(false)], 1..4)
}

fn made_before() -> impl Strategy<Value = Vec<Part>> {
    let call = (word(), word(), word()).prop_map(|(id, name, arguments)| {
        Part::Call(Call {
            id,
            name,
            arguments,
        })
    });
    vec(prop_oneof![call, content(true)], 1..4)
}

/// Messages in turn, with what the program says before and between them.
fn messages() -> impl Strategy<Value = Vec<Message>> {
    let system = || vec(vec(word().prop_map(Part::Text), 1..3), 0..3);
    vec((system(), said(), made_before()), 1..3).prop_map(|rounds| {
        let message = |role, parts| Message { role, parts };
        let rounds = rounds.into_iter().flat_map(|(systems, said, made)| {
            let systems = systems
                .into_iter()
                .map(|parts| message(Role::System, parts));
            let round = [message(Role::User, said), message(Role::Assistant, made)];
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

fn tool() -> impl Strategy<Value = Tool> {
    (word(), option::of(word()), schema(), any::<bool>()).prop_map(
        |(name, description, schema, strict)| Tool {
            name,
            description,
            parameters: Some(schema),
            strict: strict.then_some(true),
        },
    )
}

fn format() -> impl Strategy<Value = Format> {
    let schema = (
        word(),
        option::of(word()),
        schema(),
        option::of(any::<bool>()),
    );
    let schema = schema.prop_map(|(name, description, schema, strict)| Format::Schema {
        name,
        description,
        schema,
        strict,
    });
    prop_oneof![Just(Format::Json), schema]
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        Just(Choice::Auto),
        Just(Choice::None),
        Just(Choice::Required),
        word().prop_map(Choice::Named)
    ]
}

fn prompt() -> impl Strategy<Value = Prompt> {
    let asked = (
        option::of(choice()),
        option::of(any::<bool>()),
        option::of(format()),
        option::of(word().prop_map(Effort::Word)),
        option::of(word()),
        any::<bool>(),
    );
    let numbers = (
        option::of(number()),
        option::of(number()),
        option::of(number()),
    );
    (word(), messages(), vec(tool(), 0..3), asked, numbers).prop_map(
        |(model, messages, tools, asked, (max_tokens, temperature, top_p))| {
            let (choice, parallel, format, effort, user, stream) = asked;
            let stop = Vec::new();
            Prompt {
                model,
                messages,
                tools,
                choice,
                parallel,
                limits: Limits { max_tokens, stop },
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
    fn a_turn_is_the_same_after_it_was_told(
        made in vec(made(), 0..6),
        usage in option::of(usage()),
        cut in option::of(cut()),
        size in 1..200_usize,
    ) {
        let events = events(&made, usage, cut);
        let turn = Turn::of(&events);
        let (again, is_done) = decode(&encoded(&events), size).unwrap();
        prop_assert!(is_done);
        prop_assert!(essence(&Turn::of(&again)) == essence(&turn), "{:?}\n{:?}", again, turn);
        let whole = responses::events(&responses::answer(&head(), &turn)).unwrap();
        prop_assert!(essence(&Turn::of(&whole)) == essence(&turn), "{:?}\n{:?}", whole, turn);
    }

    #[test]
    fn the_stream_ends_with_the_whole_answer(made in vec(made(), 0..6), usage in option::of(usage())) {
        let events = events(&made, usage, None);
        let stream = encoded(&events);
        let last = stream.trim_end().rsplit("data: ").next().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        let whole = responses::answer(&head(), &Turn::of(&events));
        prop_assert_eq!(last["response"].to_string(), whole);
    }

    #[test]
    fn a_prompt_is_the_same_after_it_was_said(prompt in prompt()) {
        let written = responses::write(&prompt).unwrap();
        let again = responses::read(&written, &Ignored::default()).unwrap();
        prop_assert_eq!(again, prompt);
    }
}
