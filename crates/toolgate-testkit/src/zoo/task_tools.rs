//! Tools that run as tasks, under `--tasks`: those that the conformance suite expects of the tasks
//! extension, which the experimental tasks of 2025-11-25 can run too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::era::RequestEra;
use super::rpc::{INVALID_PARAMS, METHOD_NOT_FOUND, Request, RpcReply, ZooError};
use super::server::{CallOutcome, ZooCall};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const MISSING_CAPABILITY: i64 = -32021;
const INTERNAL_ERROR: i64 = -32603;
const CREATED_AT: &str = "2026-01-01T00:00:00Z";

/// The listed definitions.
const DEFINITIONS: &str = r#"[
    {"name":"greet","description":"Tests calls.","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}},
    {"name":"slow_compute","description":"Tests tasks.","inputSchema":{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}},"execution":{"taskSupport":"optional"}},
    {"name":"failing_job","description":"Tests tasks.","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},
    {"name":"required_job","description":"Tests tasks.","inputSchema":{"type":"object","properties":{"seconds":{"type":"number"}}},"execution":{"taskSupport":"required"}},
    {"name":"protocol_error_job","description":"Tests tasks.","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},
    {"name":"confirm_delete","description":"Tests tasks.","inputSchema":{"type":"object","properties":{"filename":{"type":"string"}}},"execution":{"taskSupport":"optional"}},
    {"name":"multi_input","description":"Tests tasks.","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}},
    {"name":"test_tool_with_task","description":"Tests tasks.","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}
]"#;

/// The tasks of a server.
#[derive(Debug, Default)]
pub(crate) struct TaskTools {
    tasks: Mutex<HashMap<String, Arc<ZooTask>>>,
}

#[derive(Debug)]
struct ZooTask {
    id: String,
    state: watch::Sender<TaskState>,
    cancel: CancellationToken,
}

#[derive(Debug, Default)]
struct TaskState {
    questions: Map<String, Value>,
    answers: Map<String, Value>,
    /// The raw result, an error, or nothing if the task was cancelled.
    end: Option<TaskEnd>,
}

#[derive(Debug, Clone)]
enum TaskEnd {
    Result(String),
    Failed { code: i64, message: String },
    Cancelled,
}

/// Returns the definitions of the tools.
pub(crate) fn definitions() -> Vec<Box<RawValue>> {
    serde_json::from_str(DEFINITIONS).expect("the definitions are valid")
}

/// Returns whether the request is about tasks.
pub(crate) fn is_task_method(method: &str, era: RequestEra) -> bool {
    match method {
        "tasks/get" | "tasks/cancel" => true,
        "tasks/update" => era == RequestEra::Modern,
        "tasks/list" | "tasks/result" => era == RequestEra::Legacy,
        _ => false,
    }
}

/// Refuses modern requests that need the extension from clients that do not declare it.
pub(crate) fn check_extension(request: &Request) -> Result<(), ZooError> {
    let name = request.params.name.as_deref().unwrap_or_default();
    let needs_tasks = request.method.starts_with("tasks/")
        || (request.method == "tools/call" && support(name) == Some("required"));
    if !needs_tasks || declares_tasks(request) {
        return Ok(());
    }
    let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    let error = ZooError::new(MISSING_CAPABILITY, "Missing required client capability");
    Err(error.with_data(data.to_string()))
}

/// Answers a request for one of the tools or about a task; `None` for others.
pub(crate) async fn answer(call: &ZooCall<'_>) -> Option<CallOutcome> {
    let tools = call.server.task_tools.as_ref()?;
    let method = call.request.method.as_str();
    if method == "tools/call" {
        let name = call.request.params.name.as_deref()?;
        return match name {
            "greet" => Some(greet(call)),
            name if support(name).is_some() => Some(tools.call(call, name).await),
            _ => None,
        };
    }
    if !is_task_method(method, call.era) {
        return None;
    }
    if method == "tasks/list" {
        let tasks = tools.tasks.lock();
        let tasks: Vec<Value> = tasks.values().map(|task| task.to_json(call.era)).collect();
        return Some(CallOutcome::Result(json!({ "tasks": tasks }).to_string()));
    }
    let id = call.request.params.task_id.as_deref().unwrap_or_default();
    let task = tools.tasks.lock().get(id).cloned();
    Some(match task {
        None => CallOutcome::Error(ZooError::new(INVALID_PARAMS, "Task not found")),
        Some(task) => task.answer(call).await,
    })
}

fn greet(call: &ZooCall<'_>) -> CallOutcome {
    let arguments = arguments(call);
    let name = arguments["name"].as_str().unwrap_or_default();
    CallOutcome::Result(text_result(&format!("Hello, {name}!")))
}

/// Returns the task support of a tool; `None` if it does not run as a task.
fn support(tool: &str) -> Option<&'static str> {
    match tool {
        "failing_job" | "required_job" | "test_tool_with_task" => Some("required"),
        "slow_compute" | "protocol_error_job" | "confirm_delete" | "multi_input" => {
            Some("optional")
        }
        _ => None,
    }
}

fn declares_tasks(request: &Request) -> bool {
    request.declared_capabilities()["extensions"][EXTENSION].is_object()
}

fn arguments(call: &ZooCall<'_>) -> Value {
    serde_json::from_str(call.request.arguments()).unwrap_or_default()
}

fn text_result(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

fn elicitation(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    })
}

impl TaskTools {
    async fn call(&self, call: &ZooCall<'_>, name: &str) -> CallOutcome {
        let is_task = match call.era {
            RequestEra::Modern => declares_tasks(call.request),
            RequestEra::Legacy => call.request.params.task.is_some(),
        };
        if !is_task && support(name) == Some("required") {
            let message = "Task augmentation required";
            return CallOutcome::Error(ZooError::new(METHOD_NOT_FOUND, message));
        }
        let mut arguments = arguments(call);
        if call.era == RequestEra::Modern && name == "test_tool_with_task" {
            let responses = call.request.params.input_responses.as_ref();
            let responses: Value = responses
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default();
            let Some(answer) = responses["user_name"]["content"]["name"].as_str() else {
                let requests = json!({"user_name": elicitation("What is your name?")});
                let result = json!({"resultType": "input_required", "inputRequests": requests});
                return CallOutcome::InputRequired(result.to_string());
            };
            arguments["answer"] = answer.into();
        }
        let name = name.to_owned();
        if !is_task {
            return match work(None, &name, &arguments).await {
                TaskEnd::Result(result) => CallOutcome::Result(result),
                TaskEnd::Failed { code, message } => {
                    CallOutcome::Error(ZooError::new(code, message))
                }
                TaskEnd::Cancelled => CallOutcome::Nothing,
            };
        }
        let task = Arc::new(ZooTask {
            // Not that of an earlier process.
            id: format!("task-{}-{}", std::process::id(), self.tasks.lock().len()),
            state: watch::Sender::new(TaskState::default()),
            cancel: CancellationToken::new(),
        });
        self.tasks.lock().insert(task.id.clone(), Arc::clone(&task));
        let created = task.to_json(call.era);
        call.server.tasks.spawn(async move {
            let end = tokio::select! {
                end = work(Some(&task), &name, &arguments) => end,
                () = task.cancel.cancelled() => TaskEnd::Cancelled,
            };
            task.state.send_modify(|state| {
                state.questions.clear();
                state.end = Some(end);
            });
        });
        match call.era {
            RequestEra::Legacy => CallOutcome::Result(json!({ "task": created }).to_string()),
            RequestEra::Modern => {
                let mut created = created;
                created["resultType"] = "task".into();
                CallOutcome::Task(created.to_string())
            }
        }
    }
}

/// Does what a tool does. Without a task, nobody is asked.
async fn work(task: Option<&ZooTask>, tool: &str, arguments: &Value) -> TaskEnd {
    let seconds = arguments["seconds"].as_f64().unwrap_or(0.0);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let questions: &[&str] = match tool {
        "confirm_delete" => &["confirm"],
        "multi_input" => &["first", "second"],
        "test_tool_with_task" if arguments["answer"].is_null() => &["user_name"],
        _ => &[],
    };
    let answers = match task {
        Some(task) if !questions.is_empty() => task.ask(questions).await,
        _ => Map::new(),
    };
    match tool {
        "failing_job" => TaskEnd::Result(
            json!({"content": [{"type": "text", "text": "the job failed"}], "isError": true})
                .to_string(),
        ),
        "protocol_error_job" => TaskEnd::Failed {
            code: INTERNAL_ERROR,
            message: "the job broke".to_owned(),
        },
        "test_tool_with_task" => {
            let asked = answers.get("user_name");
            let asked = asked.and_then(|answer| answer["content"]["name"].as_str());
            let name = arguments["answer"].as_str().or(asked);
            TaskEnd::Result(text_result(&format!(
                "Hello, {}!",
                name.unwrap_or_default()
            )))
        }
        _ if answers.is_empty() => TaskEnd::Result(text_result(&format!("{tool} done"))),
        _ => TaskEnd::Result(text_result(&Value::from(answers).to_string())),
    }
}

impl ZooTask {
    async fn ask(&self, questions: &[&str]) -> Map<String, Value> {
        self.state.send_modify(|state| {
            state.questions = questions
                .iter()
                .map(|key| ((*key).to_owned(), elicitation(&format!("{key}?"))))
                .collect();
        });
        let mut state = self.state.subscribe();
        let answered = state.wait_for(|state| state.questions.is_empty()).await;
        answered.map_or_else(|_| Map::new(), |state| state.answers.clone())
    }

    fn answer_question(&self, key: &str, answer: Value) {
        self.state.send_modify(|state| {
            if state.questions.remove(key).is_some() {
                state.answers.insert(key.to_owned(), answer);
            }
        });
    }

    fn to_json(&self, era: RequestEra) -> Value {
        let state = self.state.borrow();
        let status = match &state.end {
            Some(TaskEnd::Result(_)) => "completed",
            Some(TaskEnd::Failed { .. }) => "failed",
            Some(TaskEnd::Cancelled) => "cancelled",
            None if state.questions.is_empty() => "working",
            None => "input_required",
        };
        let (ttl, poll_interval) = match era {
            RequestEra::Legacy => ("ttl", "pollInterval"),
            RequestEra::Modern => ("ttlMs", "pollIntervalMs"),
        };
        json!({
            "taskId": self.id, "status": status, "statusMessage": format!("it is {status}"),
            "createdAt": CREATED_AT, "lastUpdatedAt": CREATED_AT, ttl: 60_000, poll_interval: 100,
        })
    }

    async fn answer(&self, call: &ZooCall<'_>) -> CallOutcome {
        match (call.request.method.as_str(), call.era) {
            ("tasks/get", RequestEra::Legacy) => {
                CallOutcome::Result(self.to_json(call.era).to_string())
            }
            ("tasks/get", RequestEra::Modern) => CallOutcome::Result(self.detailed()),
            ("tasks/update", _) => {
                let responses = call.request.params.input_responses.as_ref();
                let responses: Map<String, Value> = responses
                    .and_then(|raw| serde_json::from_str(raw.get()).ok())
                    .unwrap_or_default();
                for (key, answer) in responses {
                    self.answer_question(&key, answer);
                }
                CallOutcome::Result("{}".to_owned())
            }
            ("tasks/cancel", era) => {
                let is_over = self.state.borrow().end.is_some();
                if is_over && era == RequestEra::Legacy {
                    let message = "Task has already ended";
                    return CallOutcome::Error(ZooError::new(INVALID_PARAMS, message));
                }
                self.cancel.cancel();
                self.wait_for_end().await;
                CallOutcome::Result(match era {
                    RequestEra::Legacy => self.to_json(era).to_string(),
                    RequestEra::Modern => "{}".to_owned(),
                })
            }
            _ => self.result(call).await,
        }
    }

    fn detailed(&self) -> String {
        let mut task = self.to_json(RequestEra::Modern);
        let state = self.state.borrow();
        match &state.end {
            Some(TaskEnd::Result(result)) => {
                task["result"] = serde_json::from_str(result).unwrap_or_default();
            }
            Some(TaskEnd::Failed { code, message }) => {
                task["error"] = json!({"code": code, "message": message});
            }
            Some(TaskEnd::Cancelled) => {}
            None if state.questions.is_empty() => {}
            None => task["inputRequests"] = Value::from(state.questions.clone()),
        }
        task.to_string()
    }

    async fn wait_for_end(&self) -> Option<TaskEnd> {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| state.end.is_some()).await;
        ended.ok().and_then(|state| state.end.clone())
    }

    /// Waits for the result of a legacy task, and asks the client meanwhile.
    async fn result(&self, call: &ZooCall<'_>) -> CallOutcome {
        let mut state = self.state.subscribe();
        loop {
            let questions = state.borrow_and_update().questions.clone();
            for (key, question) in questions {
                let answer = ask_client(call, &question).await.unwrap_or_default();
                self.answer_question(&key, answer);
            }
            if state.borrow().end.is_some() || state.changed().await.is_err() {
                break;
            }
        }
        match self.wait_for_end().await {
            Some(TaskEnd::Result(result)) => {
                let mut result: Value = serde_json::from_str(&result).unwrap_or_default();
                let related = json!({"io.modelcontextprotocol/related-task": {"taskId": self.id}});
                result["_meta"] = related;
                CallOutcome::Result(result.to_string())
            }
            Some(TaskEnd::Failed { code, message }) => {
                CallOutcome::Error(ZooError::new(code, message))
            }
            Some(TaskEnd::Cancelled) | None => {
                CallOutcome::Error(ZooError::new(INVALID_PARAMS, "Task was cancelled"))
            }
        }
    }
}

async fn ask_client(call: &ZooCall<'_>, question: &Value) -> Option<Value> {
    let peers = &call.server.peers;
    let sent = peers.pending_requests.register(&call.origin.scope);
    let text = json!({
        "jsonrpc": "2.0",
        "id": serde_json::from_str::<Value>(&sent.id).unwrap_or_default(),
        "method": question["method"],
        "params": question["params"],
    });
    call.outbox.send_request(sent.id.clone(), text.to_string());
    let RpcReply { outcome, .. } = sent.reply.await.ok()?;
    outcome.ok()
}
