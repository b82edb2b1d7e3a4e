//! Token budget of the definitions, and the output of the benchmark's scripts.

use serde_json::Value as Json;
use serde_json::value::to_raw_value;

use super::*;
use crate::protocol::{
    Language, ScriptCall, ScriptCallResult, ScriptParameter, ScriptRequest, ScriptServer,
    ScriptTool, WorkerLimits,
};
use crate::starlark::{self, Host, HostGone};
use crate::tokens;

/// Results of the token benchmark's servers.
#[path = "../../benches/tokens/records.rs"]
mod records;

#[test]
fn definitions_fit_the_token_budget() {
    let definitions: Vec<String> = TOOLS.iter().map(ToolDefinition::to_chat_json).collect();
    let definitions = format!("[{}]", definitions.join(","));
    let value: serde_json::Value = serde_json::from_str(&definitions).unwrap();
    assert_eq!(value[3]["function"]["name"], EXECUTE_TOOL_CODE);
    assert!(
        definitions.chars().count() <= 3000,
        "{}",
        definitions.chars().count()
    );
    assert!(
        tokens::count_tokens(&definitions) <= 600,
        "{}",
        tokens::count_tokens(&definitions)
    );
}

#[test]
fn format_run_shows_result_calls_and_output() {
    let count = |tool: &str, succeeded, failed| CallCount {
        tool: tool.to_owned(),
        succeeded,
        failed,
    };
    let limits = OutputLimits::default();
    assert_eq!(
        format_run(
            Some("{\"a\":1}"),
            "",
            &[count("crm.get", 6, 0), count("fs.write", 0, 1)],
            limits
        ),
        "{\"a\":1}\ncalls: crm.get×6, fs.write failed"
    );
    assert_eq!(
        format_run(
            None,
            "hello\ncalls: none\n",
            &[count("crm.get", 1, 0), count("b.c", 2, 1)],
            limits
        ),
        "calls: crm.get, b.c×3 (1 failed)\nprinted:\nhello\ncalls: none"
    );
    assert_eq!(
        format_run(None, "\n", &[], limits),
        "no result: assign to `result` or print()"
    );
    let small_limits = OutputLimits {
        result: 4,
        printed: 3,
        calls: 1,
    };
    assert_eq!(
        format_run(
            Some("\"ééé\""),
            "abcdef",
            &[count("a.b", 1, 0), count("a.c", 1, 0)],
            small_limits
        ),
        "\"é… (5 more bytes; assign less to `result`)\ncalls: a.b, and 1 more tools\nprinted:\nabc… (3 more bytes; print less)"
    );
}

/// Host that implements the token benchmark's servers.
struct BenchmarkHost;

impl Host for BenchmarkHost {
    fn call(&mut self, calls: Vec<ScriptCall>) -> Result<Vec<ScriptCallResult>, HostGone> {
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
            ScriptCallResult::Value(to_raw_value(&answer).unwrap())
        });
        Ok(answers.collect())
    }

    fn print(&mut self, _: &str) {}
}

fn server(name: &str, tools: &[(&str, &[&str])]) -> ScriptServer {
    let tool = |(name, parameters): &(&str, &[&str])| ScriptTool {
        name: (*name).to_owned(),
        parameters: parameters
            .iter()
            .map(|name| ScriptParameter {
                name: (*name).to_owned(),
                wire: None,
                required: false,
            })
            .collect(),
    };
    ScriptServer {
        name: name.to_owned(),
        tools: tools.iter().map(tool).collect(),
    }
}

#[test]
fn benchmark_scripts_return_the_expected_results() {
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
        let script = ScriptRequest {
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
            bounds: WorkerLimits {
                compute_ms: 60_000,
                memory: 1 << 30,
                calls: 100,
                result: 1 << 20,
                printed: 1 << 20,
            },
        };
        let value = starlark::run(&script, &mut BenchmarkHost)
            .unwrap()
            .value
            .unwrap();
        let value: Json = serde_json::from_str(value.get()).unwrap();
        assert_eq!(value, expected, "{code}");
    }
}
