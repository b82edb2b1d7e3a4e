//! Token cost of a conversation.

use serde_json::{Value, json};
use toolgate_script::stubs::{Bindings, FileLevel};
use toolgate_script::surface::{self, OutputLimits, ToolDefinition};
use toolgate_script::tokens;

use crate::catalog::{self, FillerTool};
use crate::task::Task;

const SYSTEM: &str = "You are an assistant with tools. Use them when needed and answer briefly.";

/// A catalog and the token cost of presenting it to a model.
pub(crate) struct Scenario {
    pub(crate) tools: usize,
    pub(crate) servers: usize,
    bindings: Bindings,
    /// Tokens of the definitions sent with every request.
    pub(crate) direct_tokens: usize,
    pub(crate) script_tokens: usize,
}

/// Cost of a conversation.
pub(crate) struct Cost {
    pub(crate) requests: usize,
    pub(crate) tokens: usize,
}

/// A conversation that counts its requests.
struct Conversation {
    /// Tokens of the definitions.
    definitions: usize,
    messages: Vec<Value>,
    calls: usize,
    cost: Cost,
}

impl Scenario {
    pub(crate) fn new(fillers: &[FillerTool]) -> Self {
        let tools = catalog::tools(fillers);
        let direct: Vec<Value> = tools
            .iter()
            .map(|tool| catalog::chat_function(tool))
            .collect();
        let definitions: Vec<String> = surface::TOOLS
            .iter()
            .map(ToolDefinition::to_chat_json)
            .collect();
        let bindings = Bindings::new(&tools);
        Self {
            tools: tools.len(),
            servers: bindings.servers().len(),
            bindings,
            direct_tokens: tokens::count_tokens(&Value::from(direct).to_string()),
            script_tokens: tokens::count_tokens(&format!("[{}]", definitions.join(","))),
        }
    }

    pub(crate) fn list_tokens(&self) -> usize {
        tokens::count_tokens(&self.bindings.list(FileLevel::Server))
    }

    pub(crate) fn file_tokens(&self, server: &str) -> usize {
        tokens::count_tokens(&self.file(server))
    }

    fn file(&self, server: &str) -> String {
        let file = format!("servers/{server}.pyi");
        let text = self.bindings.read(FileLevel::Server, &file, None, None);
        text.expect("the file exists")
    }

    /// Computes the cost of direct calls: the model sees every tool and every result.
    pub(crate) fn direct_cost(&self, task: Task) -> Cost {
        let mut conversation = Conversation::new(self.direct_tokens, task);
        for turn in task.turns() {
            let steps = turn.iter().map(|step| {
                (
                    step.tool,
                    step.arguments.to_string(),
                    step.answer.to_string(),
                )
            });
            conversation.add_turn(steps.collect());
        }
        conversation.finish()
    }

    /// Computes the cost of code mode: the model lists the files, reads one and runs a script.
    pub(crate) fn script_cost(&self, task: Task) -> Cost {
        let script = task.script();
        let file = format!("servers/{}.pyi", script.server);
        let answer = surface::format_run(
            Some(&script.result.to_string()),
            "",
            &script.calls,
            OutputLimits::default(),
        );
        let mut conversation = Conversation::new(self.script_tokens, task);
        for (tool, arguments, answer) in [
            (
                surface::LIST_TOOL_FILES,
                json!({}),
                self.bindings.list(FileLevel::Server),
            ),
            (
                surface::READ_TOOL_FILE,
                json!({"fileName": file}),
                self.file(script.server),
            ),
            (
                surface::EXECUTE_TOOL_CODE,
                json!({"code": script.code}),
                answer,
            ),
        ] {
            conversation.add_turn(vec![(tool, arguments.to_string(), answer)]);
        }
        conversation.finish()
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

    /// Adds a turn in which the model makes concurrent calls, given as (tool, arguments, result).
    fn add_turn(&mut self, calls: Vec<(&str, String, String)>) {
        self.count_request();
        let mut tool_calls = Vec::new();
        let mut answers = Vec::new();
        for (tool, arguments, answer) in calls {
            self.calls += 1;
            let id = format!("call_{}", self.calls);
            tool_calls.push(json!({"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}));
            answers.push(json!({"role": "tool", "tool_call_id": id, "content": answer}));
        }
        self.messages
            .push(json!({"role": "assistant", "content": null, "tool_calls": tool_calls}));
        self.messages.append(&mut answers);
    }

    /// Adds the model's final answer and returns the cost.
    fn finish(mut self) -> Cost {
        self.count_request();
        self.cost
    }

    fn count_request(&mut self) {
        let messages = Value::from(self.messages.clone()).to_string();
        self.cost.requests += 1;
        self.cost.tokens += self.definitions + tokens::count_tokens(&messages);
    }
}
