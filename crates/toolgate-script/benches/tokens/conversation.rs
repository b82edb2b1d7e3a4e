//! What a model reads over a conversation.

use serde_json::{Value, json};
use toolgate_script::stubs::{Bindings, Level};
use toolgate_script::surface::{self, Definition, Shown};
use toolgate_script::tokens;

use crate::catalog::{self, Ballast};
use crate::task::Task;

const SYSTEM: &str = "You are an assistant with tools. Use them when needed and answer briefly.";

/// A catalog, as both ways show it.
pub(crate) struct Setting {
    pub(crate) tools: usize,
    pub(crate) servers: usize,
    bindings: Bindings,
    /// Tokens of the definitions that every request carries.
    pub(crate) direct_tokens: usize,
    pub(crate) script_tokens: usize,
}

/// What a conversation cost.
pub(crate) struct Cost {
    pub(crate) requests: usize,
    pub(crate) tokens: usize,
}

/// A conversation whose requests are counted as they are made.
struct Conversation {
    /// Tokens of the definitions.
    definitions: usize,
    messages: Vec<Value>,
    calls: usize,
    cost: Cost,
}

impl Setting {
    pub(crate) fn new(ballast: &[Ballast]) -> Self {
        let tools = catalog::tools(ballast);
        let direct: Vec<Value> = tools.iter().map(|tool| catalog::function(tool)).collect();
        let four: Vec<String> = surface::TOOLS.iter().map(Definition::for_chat).collect();
        let bindings = Bindings::new(&tools);
        Self {
            tools: tools.len(),
            servers: bindings.servers().len(),
            bindings,
            direct_tokens: tokens::count(&Value::from(direct).to_string()),
            script_tokens: tokens::count(&format!("[{}]", four.join(","))),
        }
    }

    pub(crate) fn list_tokens(&self) -> usize {
        tokens::count(&self.bindings.list(Level::Server))
    }

    pub(crate) fn file_tokens(&self, server: &str) -> usize {
        tokens::count(&self.file(server))
    }

    fn file(&self, server: &str) -> String {
        let file = format!("servers/{server}.pyi");
        let text = self.bindings.read(Level::Server, &file, None, None);
        text.expect("a file that is listed")
    }

    /// Every tool is shown, and every answer is read.
    pub(crate) fn direct(&self, task: Task) -> Cost {
        let mut conversation = Conversation::new(self.direct_tokens, task);
        for turn in task.turns() {
            let steps = turn.iter().map(|step| {
                (
                    step.tool,
                    step.arguments.to_string(),
                    step.answer.to_string(),
                )
            });
            conversation.turn(steps.collect());
        }
        conversation.ended()
    }

    /// The four tools are shown: list, read, run.
    pub(crate) fn script(&self, task: Task) -> Cost {
        let script = task.script();
        let file = format!("servers/{}.pyi", script.server);
        let answer = surface::answer(
            Some(&script.result.to_string()),
            "",
            &script.calls,
            Shown::default(),
        );
        let mut conversation = Conversation::new(self.script_tokens, task);
        for (tool, arguments, answer) in [
            (surface::LIST, json!({}), self.bindings.list(Level::Server)),
            (
                surface::READ,
                json!({"fileName": file}),
                self.file(script.server),
            ),
            (surface::EXECUTE, json!({"code": script.code}), answer),
        ] {
            conversation.turn(vec![(tool, arguments.to_string(), answer)]);
        }
        conversation.ended()
    }
}

impl Conversation {
    fn new(definitions: usize, task: Task) -> Self {
        Self {
            definitions,
            messages: vec![
                json!({"role": "system", "content": SYSTEM}),
                json!({"role": "user", "content": task.question()}),
            ],
            calls: 0,
            cost: Cost {
                requests: 0,
                tokens: 0,
            },
        }
    }

    /// The model asks for calls (tool, arguments, answer), side by side.
    fn turn(&mut self, calls: Vec<(&str, String, String)>) {
        self.request();
        let mut asked = Vec::new();
        let mut answers = Vec::new();
        for (tool, arguments, answer) in calls {
            self.calls += 1;
            let id = format!("call_{}", self.calls);
            asked.push(json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}));
            answers.push(json!({"role": "tool", "tool_call_id": id, "content": answer}));
        }
        self.messages
            .push(json!({"role": "assistant", "content": null, "tool_calls": asked}));
        self.messages.append(&mut answers);
    }

    /// The model answers.
    fn ended(mut self) -> Cost {
        self.request();
        self.cost
    }

    fn request(&mut self) {
        let messages = Value::from(self.messages.clone()).to_string();
        self.cost.requests += 1;
        self.cost.tokens += self.definitions + tokens::count(&messages);
    }
}
