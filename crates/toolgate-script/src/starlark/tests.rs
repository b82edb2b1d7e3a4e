//! Tests of the engine against a fake host.

use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::{Host, HostGone, STACK_BYTES, run};
use crate::protocol::{
    FailureKind, Language, ScriptCall, ScriptCallResult, ScriptFailure, ScriptParameter,
    ScriptRequest, ScriptServer, ScriptTool, WorkerLimits,
};

mod answers;
mod calls;
mod hints;
mod idioms;
mod limits;
mod values;

/// Host whose tools return their arguments, except for a few with special behavior.
#[derive(Debug, Default)]
pub(super) struct FakeHost {
    /// Names and arguments of the calls, by batch.
    pub(super) batches: Vec<Vec<String>>,
    pub(super) lines: Vec<u32>,
    pub(super) printed: String,
    /// The result as raw JSON.
    pub(super) raw: String,
    /// Number of batches after which the host is gone.
    pub(super) max_batches: Option<usize>,
}

impl Host for FakeHost {
    fn call(&mut self, calls: Vec<ScriptCall>) -> Result<Vec<ScriptCallResult>, HostGone> {
        if self.max_batches == Some(self.batches.len()) {
            return Err(HostGone);
        }
        self.lines.extend(calls.iter().map(|call| call.line));
        let name = |call: &ScriptCall| format!("{}.{}{}", call.server, call.tool, call.arguments);
        self.batches.push(calls.iter().map(name).collect());
        Ok(calls.iter().map(call_result).collect())
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

fn call_result(call: &ScriptCall) -> ScriptCallResult {
    let arguments: Json = serde_json::from_str(call.arguments.get()).unwrap();
    let value = match call.tool.as_str() {
        "delete" => return ScriptCallResult::Error("it is protected".to_owned()),
        "raw" => arguments["json"].as_str().unwrap().to_owned(),
        _ => json!({"items": [{"id": 1}, {"id": 2}], "args": arguments}).to_string(),
    };
    ScriptCallResult::Value(RawValue::from_string(value).unwrap())
}

pub(super) fn servers() -> Vec<ScriptServer> {
    let tool = |name: &str, parameters: &[(&str, Option<&str>)]| ScriptTool {
        name: name.to_owned(),
        parameters: parameters
            .iter()
            .map(|(name, wire)| ScriptParameter {
                name: (*name).to_owned(),
                wire: wire.map(str::to_owned),
                required: false,
            })
            .collect(),
    };
    vec![
        ScriptServer {
            name: "youtube".to_owned(),
            tools: vec![
                tool("search", &[("query", None), ("max_results", None)]),
                tool("delete", &[("id", None)]),
                tool("raw", &[("json", None)]),
            ],
        },
        ScriptServer {
            name: "files".to_owned(),
            tools: vec![
                tool("read", &[("path", None), ("from_", Some("from"))]),
                tool("open", &[]),
            ],
        },
    ]
}

pub(super) fn script(code: &str) -> ScriptRequest {
    ScriptRequest {
        language: Language::Starlark,
        code: code.to_owned(),
        servers: servers(),
        bounds: WorkerLimits {
            compute_ms: 5_000,
            memory: 128 * 1024 * 1024,
            calls: 100,
            result: 1024 * 1024,
            printed: 256 * 1024,
        },
    }
}

/// Runs a script on a stack of the size that workers have.
pub(super) fn run_script(
    script: ScriptRequest,
    mut host: FakeHost,
) -> (Result<Option<Json>, ScriptFailure>, FakeHost) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        let result = run(&script, &mut host);
        let result = result.map(|value| {
            let raw = value.value?;
            raw.get().clone_into(&mut host.raw);
            Some(serde_json::from_str(raw.get()).unwrap())
        });
        (result, host)
    });
    thread.unwrap().join().unwrap()
}

/// Returns the result of a script that succeeds, or null if it only prints.
pub(super) fn value(code: &str) -> Json {
    match run_script(script(code), FakeHost::default()).0 {
        Ok(value) => value.unwrap_or_default(),
        Err(failure) => panic!("{code}\n{failure:?}"),
    }
}

/// Returns the result of a script that succeeds as raw JSON, to compare floats and key order.
pub(super) fn text(code: &str) -> String {
    let (result, host) = run_script(script(code), FakeHost::default());
    result.unwrap();
    host.raw
}

pub(super) fn failure(code: &str) -> ScriptFailure {
    match run_script(script(code), FakeHost::default()).0 {
        Ok(value) => panic!("{code}\n{value:?}"),
        Err(failure) => failure,
    }
}
