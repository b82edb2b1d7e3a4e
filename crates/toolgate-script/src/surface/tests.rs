use serde_json::Value as Json;
use serde_json::value::to_raw_value;

use super::*;
use crate::protocol::{Answer, Bounds, Call, Language, Parameter, Script, Server, Tool};
use crate::starlark::{self, Gone, Host};
use crate::tokens;

/// What the servers of the token benchmark answer.
#[path = "../../benches/tokens/records.rs"]
mod records;

#[test]
fn the_texts_are_small() {
    let sent: Vec<String> = TOOLS.iter().map(Definition::for_chat).collect();
    let sent = format!("[{}]", sent.join(","));
    let value: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(value[3]["function"]["name"], EXECUTE);
    assert!(sent.chars().count() <= 3000, "{}", sent.chars().count());
    assert!(tokens::count(&sent) <= 600, "{}", tokens::count(&sent));
}

#[test]
fn what_a_model_sees_of_a_run() {
    let called = |tool: &str, succeeded, failed| Called {
        tool: tool.to_owned(),
        succeeded,
        failed,
    };
    let shown = Shown::default();
    assert_eq!(
        answer(
            Some("{\"a\":1}"),
            "",
            &[called("crm.get", 6, 0), called("fs.write", 0, 1)],
            shown
        ),
        "{\"a\":1}\ncalls: crm.get×6, fs.write failed"
    );
    assert_eq!(
        answer(
            None,
            "hello\ncalls: none\n",
            &[called("crm.get", 1, 0), called("b.c", 2, 1)],
            shown
        ),
        "calls: crm.get, b.c×3 (1 failed)\nprinted:\nhello\ncalls: none"
    );
    assert_eq!(
        answer(None, "\n", &[], shown),
        "no result: assign to `result` or print()"
    );
    let small = Shown {
        result: 4,
        printed: 3,
        calls: 1,
    };
    assert_eq!(
        answer(
            Some("\"ééé\""),
            "abcdef",
            &[called("a.b", 1, 0), called("a.c", 1, 0)],
            small
        ),
        "\"é… (5 more bytes; assign less to `result`)\ncalls: a.b, and 1 more tools\nprinted:\nabc… (3 more bytes; print less)"
    );
}

/// The servers of the token benchmark.
struct Office;

impl Host for Office {
    fn call(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, Gone> {
        let answers = calls.iter().map(|call| {
            let arguments: Json = serde_json::from_str(call.arguments.get()).unwrap();
            let number = |name: &str| -> usize {
                let text = arguments[name].as_str().unwrap();
                text.trim_start_matches(|c: char| !c.is_ascii_digit())
                    .parse()
                    .unwrap()
            };
            let answer = match call.tool.as_str() {
                "get_record" => records::record(number("id")),
                "get_dataset" => {
                    let region = records::REGIONS
                        .iter()
                        .position(|region| arguments["name"] == *region);
                    records::dataset(region.unwrap())
                }
                "next" => records::step(number("cursor")),
                "list_employees" => records::employees(),
                _ => records::employee(number("id")),
            };
            Answer::Value(to_raw_value(&answer).unwrap())
        });
        Ok(answers.collect())
    }

    fn print(&mut self, _: &str) {}
}

fn server(name: &str, tools: &[(&str, &[&str])]) -> Server {
    let tool = |(name, parameters): &(&str, &[&str])| Tool {
        name: (*name).to_owned(),
        parameters: parameters
            .iter()
            .map(|name| Parameter {
                name: (*name).to_owned(),
                wire: None,
                required: false,
            })
            .collect(),
    };
    Server {
        name: name.to_owned(),
        tools: tools.iter().map(tool).collect(),
    }
}

#[test]
fn the_scripts_of_the_benchmark_give_what_it_says() {
    let map = |members: Vec<(String, Json)>| Json::from_iter(members);
    for (code, expected) in [
        (
            include_str!("../../benches/tokens/scripts/one.star"),
            Json::from(records::amount(7)),
        ),
        (
            include_str!("../../benches/tokens/scripts/six.star"),
            map((1..=6)
                .map(|n| (format!("R-{n:04}"), records::amount(n).into()))
                .collect()),
        ),
        (
            include_str!("../../benches/tokens/scripts/regions.star"),
            map((0..4)
                .map(|at| (records::REGIONS[at].to_owned(), records::won(at).into()))
                .collect()),
        ),
        (
            include_str!("../../benches/tokens/scripts/cursor.star"),
            Json::from(126.0),
        ),
        (
            include_str!("../../benches/tokens/scripts/salaries.star"),
            records::averages(),
        ),
    ] {
        let script = Script {
            language: Language::Starlark,
            code: code.to_owned(),
            servers: vec![
                server(
                    "crm",
                    &[
                        ("get_record", &["id"]),
                        ("get_dataset", &["name"]),
                        ("next", &["cursor"]),
                    ],
                ),
                server(
                    "hr",
                    &[("list_employees", &["team"]), ("get_employee", &["id"])],
                ),
            ],
            bounds: Bounds {
                own_ms: 60_000,
                memory: 1 << 30,
                calls: 100,
                result: 1 << 20,
                printed: 1 << 20,
            },
        };
        let value = starlark::run(&script, &mut Office).unwrap().value.unwrap();
        let value: Json = serde_json::from_str(value.get()).unwrap();
        assert_eq!(value, expected, "{code}");
    }
}
