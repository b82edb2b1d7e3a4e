//! Random conversations in every dialect, streamed and not, with every chunking: each call runs
//! once, is returned or is refused, and nothing is lost.

use std::sync::Arc;

use serde_json::{Value, json};
use toolgate_testkit::model::{Chunking, Reply, ScriptedModel};

use crate::agent::{AgentResponse, PATHS, request, run_agent};
use crate::gate::{TestGate, zoo};

const SEED: u64 = 20_261_115;
const CASES: usize = 24;

/// A linear congruential generator, so that the conversations are reproducible.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Expected handling of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The server receives the call.
    Runs,
    /// The gateway answers without the server.
    Refused,
    /// The call is returned to the caller.
    Returned,
}

#[derive(Clone, Debug)]
struct GeneratedCall {
    id: String,
    name: &'static str,
    arguments: Value,
    expected: Expected,
}

#[derive(Clone, Debug)]
struct GeneratedTurn {
    text: String,
    calls: Vec<GeneratedCall>,
}

/// Generates a conversation; it ends after a turn with calls that are returned.
fn conversation(case: usize, random: &mut Random) -> Vec<GeneratedTurn> {
    let mut turns = Vec::new();
    for turn in 0..=random.below(4) {
        let text = ["", "Hm.", "Eins, zwei – drei.", "a\n\nb"][random.below(4) as usize].to_owned();
        let call = |index: u64, random: &mut Random| {
            let n = random.below(1000);
            let kinds = [
                ("zoo_add", json!({"a": n, "b": turn}), Expected::Runs),
                ("zoo_add", json!({"a": n, "b": index}), Expected::Runs),
                (
                    "zoo_say",
                    json!({"text": format!("n{n}"), "fails": true}),
                    Expected::Runs,
                ),
                ("zoo_add", json!({"a": "no number"}), Expected::Refused),
                (
                    "zoo_echo",
                    json!({"path": "secret", "n": n}),
                    Expected::Refused,
                ),
                ("nobodys_tool", json!({"n": n}), Expected::Refused),
                ("zoo_kinds", json!({}), Expected::Returned),
                ("mine", json!({"x": n}), Expected::Returned),
            ];
            let (name, arguments, expected) = kinds[random.below(8) as usize].clone();
            let id = format!("k{case}t{turn}c{index}");
            GeneratedCall {
                id,
                name,
                arguments,
                expected,
            }
        };
        let calls: Vec<GeneratedCall> = (0..=random.below(3))
            .map(|index| call(index, random))
            .collect();
        let has_returned = calls.iter().any(|call| call.expected == Expected::Returned);
        turns.push(GeneratedTurn { text, calls });
        if has_returned {
            return turns;
        }
    }
    turns.push(GeneratedTurn {
        text: format!("case {case} is done"),
        calls: Vec::new(),
    });
    turns
}

/// Replies with the turn after the last one that appears in the request.
fn reply(cases: &[Vec<GeneratedTurn>], body: &Value) -> Reply {
    let request = body.to_string();
    let case = request.split("case number ").nth(1).unwrap();
    let case: String = case.chars().take_while(char::is_ascii_digit).collect();
    let turns = &cases[case.parse::<usize>().unwrap()];
    let is_in_request = |turn: &&GeneratedTurn| {
        turn.calls
            .iter()
            .any(|call| request.contains(&format!("\"{}\"", call.id)))
    };
    let turn = &turns[turns.iter().filter(is_in_request).count()];
    let calls = turn.calls.iter();
    let reply =
        Reply::calls(calls.map(|call| (call.id.clone(), call.name, call.arguments.clone())));
    let reply = if turn.text.is_empty() {
        reply
    } else {
        reply.with_text(&turn.text)
    };
    reply.with_chunking(Chunking::Bytes(1 + request.len() % 40))
}

fn ids(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|call| call["id"].as_str().unwrap()).collect()
}

fn check_response(what: &str, turns: &[GeneratedTurn], response: &AgentResponse, stream: bool) {
    let call_ids = |returned: bool| {
        let calls = turns.iter().flat_map(|turn| &turn.calls);
        let calls = calls.filter(move |call| (call.expected == Expected::Returned) == returned);
        calls.map(|call| call.id.as_str()).collect::<Vec<_>>()
    };
    let note = &response.note;
    assert_eq!(ids(&note["executed"]), call_ids(false), "{what}");
    assert_eq!(ids(&note["pending"]), call_ids(true), "{what}");
    assert_eq!(response.calls.len(), call_ids(true).len(), "{what}");
    let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
    assert_eq!(note["turns"], json!(texts), "{what}");
    let last = turns.last().unwrap();
    let text = if stream {
        let non_empty = texts.iter().filter(|text| !text.is_empty());
        non_empty.copied().collect::<Vec<_>>().join("\n\n")
    } else {
        last.text.clone()
    };
    if last.calls.is_empty() || call_ids(false).is_empty() {
        assert_eq!(response.text, text, "{what}");
    } else {
        let separator = if text.is_empty() { "" } else { "\n\n" };
        let start = format!("{text}{separator}The Output from allowed tools calls is - {{");
        assert!(response.text.starts_with(&start), "{what}");
    }
}

/// Rebuilds the conversation before the last turn from the note, as a Chat caller would.
fn rebuild_messages(turns: usize, note: &Value) -> Vec<Value> {
    let mut messages = Vec::new();
    for turn in 1..turns {
        let executed = note["executed"].as_array().unwrap().iter();
        let executed: Vec<&Value> = executed.filter(|call| call["turn"] == turn).collect();
        let calls: Vec<Value> = executed
            .iter()
            .map(|call| json!([call["id"], call["name"], call["arguments"]]))
            .collect();
        messages.push(json!(["assistant", note["turns"][turn - 1], calls]));
        messages.extend(
            executed
                .iter()
                .map(|call| json!(["tool", call["result"], call["id"]])),
        );
    }
    messages
}

/// Returns the same view of the messages sent to the model.
fn sent_messages(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().unwrap().iter().skip(1);
    let simplified = messages.map(|message| {
        if message["role"] == "tool" {
            json!(["tool", message["content"], message["tool_call_id"]])
        } else {
            let calls = message["tool_calls"].as_array().unwrap().iter();
            let calls = calls.map(|call| {
                let function = &call["function"];
                json!([call["id"], function["name"], function["arguments"]])
            });
            let content = message["content"].as_str().unwrap_or_default();
            json!(["assistant", content, calls.collect::<Vec<_>>()])
        }
    });
    simplified.collect()
}

#[tokio::test]
async fn random_conversations_run_every_call_once() {
    let mut random = Random(SEED);
    let cases: Vec<_> = (0..CASES)
        .map(|case| conversation(case, &mut random))
        .collect();
    let cases = Arc::new(cases);
    let script = Arc::clone(&cases);
    let model = ScriptedModel::start(vec![Reply::from_request(move |body| reply(&script, body))]);
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
    gate.wait_for_state("zoo", "healthy").await;
    let mut runs = 0;
    for (case, turns) in cases.iter().enumerate() {
        for (index, (client_dialect, path)) in PATHS.iter().enumerate() {
            // Covers every pair of dialects over the cases.
            let provider_dialect = PATHS[(index + case) % PATHS.len()].0;
            for stream in [false, true] {
                let mut body = request(client_dialect, &format!("{provider_dialect}/m"), stream);
                let messages = json!([{"role": "user", "content": format!("case number {case}")}]);
                body[if *client_dialect == "responses" {
                    "input"
                } else {
                    "messages"
                }] = messages;
                let schema = json!({"type": "object"});
                body["tools"] = match *client_dialect {
                    "responses" => {
                        json!([{"type": "function", "name": "mine", "parameters": schema}])
                    }
                    "anthropic" => json!([{"name": "mine", "input_schema": schema}]),
                    _ => {
                        json!([{"type": "function", "function": {"name": "mine", "parameters": schema}}])
                    }
                };
                let before = model.turns().len();
                let response = run_agent(&gate, path, &body).await;
                let what = format!(
                    "case {case}, {client_dialect} to {provider_dialect}, stream {stream}: {response:?}"
                );
                check_response(&what, turns, &response, stream);
                let requests = &model.turns()[before..];
                assert_eq!(requests.len(), turns.len(), "{what}");
                if provider_dialect == "openai" {
                    let sent = sent_messages(&requests.last().unwrap().body);
                    assert_eq!(
                        rebuild_messages(turns.len(), &response.note),
                        sent,
                        "{what}"
                    );
                }
                runs += 1;
            }
        }
    }
    assert_eq!(runs, CASES * 6);
    let ran = cases.iter().flatten().flat_map(|turn| &turn.calls);
    let ran = ran.filter(|call| call.expected == Expected::Runs).count();
    let calls = std::fs::read_to_string(&count).unwrap();
    let calls = calls.lines().filter(|line| line.starts_with("tools/call"));
    assert_eq!(calls.count(), ran * 6, "each call runs once per run");
}
