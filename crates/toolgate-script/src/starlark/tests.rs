//! A host that answers by itself, and what scripts do with it.

use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::{Gone, Host, STACK, run};
use crate::protocol::{
    Answer, Bounds, Call, Failure, FailureKind, Language, Parameter, Script, Server, Tool,
};

mod answers;
mod calls;
mod hints;
mod idioms;
mod limits;
mod values;

/// A host whose tools answer with their arguments, some of them in a special way.
#[derive(Debug, Default)]
pub(super) struct Fake {
    /// Each batch of calls: names and arguments.
    pub(super) batches: Vec<Vec<String>>,
    pub(super) lines: Vec<u32>,
    pub(super) printed: String,
    /// The result as it was given.
    pub(super) raw: String,
    /// After how many batches it goes away.
    pub(super) patience: Option<usize>,
}

impl Host for Fake {
    fn call(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, Gone> {
        if self.patience == Some(self.batches.len()) {
            return Err(Gone);
        }
        self.lines.extend(calls.iter().map(|call| call.line));
        let name = |call: &Call| format!("{}.{}{}", call.server, call.tool, call.arguments);
        self.batches.push(calls.iter().map(name).collect());
        Ok(calls.iter().map(reply).collect())
    }

    fn print(&mut self, text: &str) {
        self.printed.push_str(text);
    }
}

fn reply(call: &Call) -> Answer {
    let arguments: Json = serde_json::from_str(call.arguments.get()).unwrap();
    let value = match call.tool.as_str() {
        "delete" => return Answer::Error("it is protected".to_owned()),
        "raw" => arguments["json"].as_str().unwrap().to_owned(),
        _ => json!({"items": [{"id": 1}, {"id": 2}], "args": arguments}).to_string(),
    };
    Answer::Value(RawValue::from_string(value).unwrap())
}

pub(super) fn servers() -> Vec<Server> {
    let tool = |name: &str, parameters: &[(&str, Option<&str>)]| Tool {
        name: name.to_owned(),
        parameters: parameters
            .iter()
            .map(|(name, wire)| Parameter {
                name: (*name).to_owned(),
                wire: wire.map(str::to_owned),
                required: false,
            })
            .collect(),
    };
    vec![
        Server {
            name: "youtube".to_owned(),
            tools: vec![
                tool("search", &[("query", None), ("max_results", None)]),
                tool("delete", &[("id", None)]),
                tool("raw", &[("json", None)]),
            ],
        },
        Server {
            name: "files".to_owned(),
            tools: vec![
                tool("read", &[("path", None), ("from_", Some("from"))]),
                tool("open", &[]),
            ],
        },
    ]
}

pub(super) fn script(code: &str) -> Script {
    Script {
        language: Language::Starlark,
        code: code.to_owned(),
        servers: servers(),
        bounds: Bounds {
            own_ms: 5_000,
            memory: 128 * 1024 * 1024,
            calls: 100,
            result: 1024 * 1024,
            printed: 256 * 1024,
        },
    }
}

/// Runs on the stack that workers have.
pub(super) fn run_script(script: Script, mut fake: Fake) -> (Result<Option<Json>, Failure>, Fake) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    let thread = thread.spawn(move || {
        let ended = run(&script, &mut fake);
        let ended = ended.map(|value| {
            let raw = value.value?;
            raw.get().clone_into(&mut fake.raw);
            Some(serde_json::from_str(raw.get()).unwrap())
        });
        (ended, fake)
    });
    thread.unwrap().join().unwrap()
}

/// What a script that succeeds gives; null if it only prints.
pub(super) fn value(code: &str) -> Json {
    match run_script(script(code), Fake::default()).0 {
        Ok(value) => value.unwrap_or_default(),
        Err(failure) => panic!("{code}\n{failure:?}"),
    }
}

/// The text of what a script that succeeds gives, to see floats and order.
pub(super) fn text(code: &str) -> String {
    let (ended, fake) = run_script(script(code), Fake::default());
    ended.unwrap();
    fake.raw
}

pub(super) fn failure(code: &str) -> Failure {
    match run_script(script(code), Fake::default()).0 {
        Ok(value) => panic!("{code}\n{value:?}"),
        Err(failure) => failure,
    }
}
