//! Whole conversations that nobody thought of: whatever a model asks for, in every dialect, streamed
//! and not, at every chunking, each call is run once, left or refused, and nothing is lost.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_testkit::model::{Chunking, Model, Reply};

use crate::agent::{PATHS, Seen, ask, request};
use crate::gate::{TestGate, zoo};

const SEED: u64 = 20_261_115;
const CASES: usize = 24;

/// A small generator that needs no crate.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What is to become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server sees it.
    Runs,
    /// It is answered without the server.
    Refused,
    Left,
}

#[derive(Clone, Debug)]
struct Call {
    id: String,
    name: &'static str,
    arguments: Value,
    fate: Fate,
}

#[derive(Clone, Debug)]
struct Turn {
    text: String,
    calls: Vec<Call>,
}

/// The turns of a conversation; the model is not asked again after one whose calls are left.
fn conversation(case: usize, dice: &mut Dice) -> Vec<Turn> {
    let mut turns = Vec::new();
    for turn in 0..=dice.roll(4) {
        let text = ["", "Hm.", "Eins, zwei – drei.", "a\n\nb"][dice.roll(4) as usize].to_owned();
        let call = |at: u64, dice: &mut Dice| {
            let n = dice.roll(1000);
            let kinds = [
                ("zoo_add", json!({"a": n, "b": turn}), Fate::Runs),
                ("zoo_add", json!({"a": n, "b": at}), Fate::Runs),
                (
                    "zoo_say",
                    json!({"text": format!("n{n}"), "fails": true}),
                    Fate::Runs,
                ),
                ("zoo_add", json!({"a": "no number"}), Fate::Refused),
                ("zoo_echo", json!({"path": "secret", "n": n}), Fate::Refused),
                ("nobodys_tool", json!({"n": n}), Fate::Refused),
                ("zoo_kinds", json!({}), Fate::Left),
                ("mine", json!({"x": n}), Fate::Left),
            ];
            let (name, arguments, fate) = kinds[dice.roll(8) as usize].clone();
            let id = format!("k{case}t{turn}c{at}");
            Call {
                id,
                name,
                arguments,
                fate,
            }
        };
        let calls: Vec<Call> = (0..=dice.roll(3)).map(|at| call(at, dice)).collect();
        let left = calls.iter().any(|call| call.fate == Fate::Left);
        turns.push(Turn { text, calls });
        if left {
            return turns;
        }
    }
    turns.push(Turn {
        text: format!("case {case} is done"),
        calls: Vec::new(),
    });
    turns
}

/// The model's part in all of them: the turn after the last one of which it is told.
fn answer(cases: &[Vec<Turn>], body: &Value) -> Reply {
    let said = body.to_string();
    let case = said.split("case number ").nth(1).unwrap();
    let case: String = case.chars().take_while(char::is_ascii_digit).collect();
    let turns = &cases[case.parse::<usize>().unwrap()];
    let told = |turn: &&Turn| {
        turn.calls
            .iter()
            .any(|call| said.contains(&format!("\"{}\"", call.id)))
    };
    let turn = &turns[turns.iter().filter(told).count()];
    let calls = turn.calls.iter();
    let reply =
        Reply::calls(calls.map(|call| (call.id.clone(), call.name, call.arguments.clone())));
    match turn.text.is_empty() {
        true => reply,
        false => reply.with_text(&turn.text),
    }
    .chunked(Chunking::Bytes(1 + said.len() % 40))
}

fn ids(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one["id"].as_str().unwrap()).collect()
}

fn checks(what: &str, turns: &[Turn], seen: &Seen, stream: bool) {
    let fated = |left: bool| {
        let calls = turns.iter().flat_map(|turn| &turn.calls);
        let calls = calls.filter(move |call| (call.fate == Fate::Left) == left);
        calls.map(|call| call.id.as_str()).collect::<Vec<_>>()
    };
    let note = &seen.note;
    assert_eq!(ids(&note["executed"]), fated(false), "{what}");
    assert_eq!(ids(&note["pending"]), fated(true), "{what}");
    assert_eq!(seen.calls.len(), fated(true).len(), "{what}");
    let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
    assert_eq!(note["turns"], json!(texts), "{what}");
    let last = turns.last().unwrap();
    if stream {
        let said = texts.iter().filter(|text| !text.is_empty());
        let joined = said.copied().collect::<Vec<_>>().join("\n\n");
        assert_eq!(seen.text, joined, "{what}");
    } else if last.calls.is_empty() || fated(false).is_empty() {
        assert_eq!(seen.text, last.text, "{what}");
    } else {
        assert!(seen.text.starts_with(&last.text), "{what}");
        assert!(
            seen.text
                .contains("The Output from allowed tools calls is - {"),
            "{what}"
        );
    }
}

/// The conversation before the last turn, as a caller of Chat rebuilds it from what it was told.
fn rebuilt(turns: usize, note: &Value) -> Vec<Value> {
    let mut messages = Vec::new();
    for turn in 1..turns {
        let executed = note["executed"].as_array().unwrap().iter();
        let executed: Vec<&Value> = executed.filter(|one| one["turn"] == turn).collect();
        let calls: Vec<Value> = executed
            .iter()
            .map(|one| json!([one["id"], one["name"], one["arguments"]]))
            .collect();
        messages.push(json!(["assistant", note["turns"][turn - 1], calls]));
        messages.extend(
            executed
                .iter()
                .map(|one| json!(["tool", one["result"], one["id"]])),
        );
    }
    messages
}

/// The same of what the model was sent.
fn sent(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().unwrap().iter().skip(1);
    let told = messages.map(|message| match message["role"] == "tool" {
        true => json!(["tool", message["content"], message["tool_call_id"]]),
        false => {
            let calls = message["tool_calls"].as_array().unwrap().iter();
            let calls = calls.map(|call| {
                let function = &call["function"];
                json!([call["id"], function["name"], function["arguments"]])
            });
            let content = message["content"].as_str().unwrap_or_default();
            json!(["assistant", content, calls.collect::<Vec<_>>()])
        }
    });
    told.collect()
}

#[tokio::test]
async fn whatever_a_model_asks_for() {
    let mut dice = Dice(SEED);
    let cases: Vec<_> = (0..CASES)
        .map(|case| conversation(case, &mut dice))
        .collect();
    let cases = Arc::new(cases);
    let script = Arc::clone(&cases);
    let model = Model::start(vec![Reply::with(move |body| answer(&script, body))]);
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut toml = zoo("zoo", &["--count", count.to_str().unwrap()]);
    toml += "tools_to_auto_execute = [\"add\", \"say\", \"echo\"]\n[[permissions.rules]]\ntool = \"zoo.echo\"\narguments = { path = \"secret\" }\naction = \"deny\"\n";
    for (dialect, _) in PATHS {
        toml += &format!(
            "[providers.{dialect}]\nbase_url = \"{}/v1\"\napi_key = \"k\"\ndialect = {dialect:?}\n",
            model.url()
        );
    }
    let gate = TestGate::start(&toml);
    gate.reaches("zoo", "healthy").await;
    let mut runs = 0;
    for (case, turns) in cases.iter().enumerate() {
        for (at, (wanted, path)) in PATHS.iter().enumerate() {
            // Every pair of dialects has its turn.
            let spoken = PATHS[(at + case) % PATHS.len()].0;
            for stream in [false, true] {
                let mut body = request(wanted, &format!("{spoken}/m"), stream);
                let said = json!([{"role": "user", "content": format!("case number {case}")}]);
                body[if *wanted == "responses" {
                    "input"
                } else {
                    "messages"
                }] = said;
                let own = json!({"type": "object"});
                body["tools"] = match *wanted {
                    "responses" => json!([{"type": "function", "name": "mine", "parameters": own}]),
                    "anthropic" => json!([{"name": "mine", "input_schema": own}]),
                    _ => {
                        json!([{"type": "function", "function": {"name": "mine", "parameters": own}}])
                    }
                };
                let before = model.turns().len();
                let seen = ask(&gate, path, &body).await;
                let what = format!("case {case}, {wanted} to {spoken}, stream {stream}: {seen:?}");
                checks(&what, turns, &seen, stream);
                let asked = &model.turns()[before..];
                assert_eq!(asked.len(), turns.len(), "{what}");
                if spoken == "openai" {
                    let told = sent(&asked.last().unwrap().body);
                    assert_eq!(rebuilt(turns.len(), &seen.note), told, "{what}");
                }
                runs += 1;
            }
        }
    }
    assert_eq!(runs, CASES * 6);
    let ran = cases.iter().flatten().flat_map(|turn| &turn.calls);
    let ran = ran.filter(|call| call.fate == Fate::Runs).count();
    let calls = std::fs::read_to_string(&count).unwrap();
    let calls = calls.lines().filter(|line| line.starts_with("tools/call"));
    assert_eq!(calls.count(), ran * 6, "each once in each run");
}
