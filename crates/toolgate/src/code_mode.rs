//! Code mode: models reach the tools of some servers by scripts, which they write after reading what
//! there is.
//!
//! Scripts run in processes of their own ([`pool`]); every call that one makes goes through the
//! engine as its caller's. A call that somebody must decide about stops the script before it runs,
//! and the script is gone on with by its [`journal`].

mod answer;
mod journal;
mod pool;
mod run;
mod saving;
mod value;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
pub(crate) use journal::{KeptScript, ScriptKey, ScriptState, Step, steps_of, steps_value};
use moka::sync::Cache;
use pool::Pool;
pub(crate) use pool::Program;
pub(crate) use run::Door;
use run::{End, Run};
use saving::Saving;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolgate_core::Config;
use toolgate_core::config::{self, BindingLevel};
use toolgate_core::name::ToolId;
use toolgate_core::policy::Verdict;
use toolgate_core::scope::Scope;
use toolgate_script::preview;
use toolgate_script::protocol::Call;
use toolgate_script::stubs::{Bindings, Level};
use toolgate_script::surface;

use crate::call::{CallError, ScriptWaits, WaitingCall};
use crate::caller::Caller;
use crate::result::ToolResult;
use crate::store::{Store, StoreError, millis};

/// How long what scripts can call in a scope is kept, unused.
const IDLE: Duration = Duration::from_secs(300);
const MOST_SCOPES: u64 = 1000;

const NO_PROGRAM: &str = "the program that embeds the gateway must call `toolgate_script::worker::main` when it is started as a worker and say so to the builder, or set `code_mode.worker_command`";

/// What scripts are run with.
#[derive(Debug)]
pub(crate) struct CodeMode {
    /// The program itself, if it becomes a worker when asked to.
    own: Option<Program>,
    now: ArcSwap<Now>,
    /// By the address of a scope, which is its own as long as the scope is held here.
    bound: Cache<usize, Bound>,
    store: Store,
}

#[derive(Debug)]
struct Now {
    settings: config::CodeMode,
    level: Level,
    /// None while no server is scripted.
    pool: Option<Pool>,
}

/// What scripts can call in a scope.
#[derive(Clone, Debug)]
struct Bound {
    bindings: Arc<Bindings>,
    saving: Arc<Saving>,
    _scope: Arc<Scope>,
}

/// A script that somebody wants to run.
pub(crate) struct Job<'a> {
    pub(crate) scope: &'a Arc<Scope>,
    pub(crate) caller: &'a Caller,
    /// The id that the model gave its call.
    pub(crate) call: Option<&'a str>,
    pub(crate) code: &'a str,
    pub(crate) door: &'a dyn Door,
}

/// What came of a script, and what is recorded of it.
#[derive(Debug)]
pub(crate) struct Executed {
    pub(crate) result: ToolResult,
    pub(crate) record: Value,
}

impl CodeMode {
    pub(crate) fn new(config: &Config, own: Option<Program>, store: Store) -> Self {
        let code_mode = Self {
            own,
            now: ArcSwap::from_pointee(Now {
                settings: config::CodeMode::default(),
                level: Level::Server,
                pool: None,
            }),
            bound: Cache::builder()
                .max_capacity(MOST_SCOPES)
                .time_to_idle(IDLE)
                .build(),
            store,
        };
        code_mode.apply(config);
        code_mode
    }

    /// Takes up a new configuration; scripts under way are not touched.
    pub(crate) fn apply(&self, config: &Config) {
        let before = self.now.load();
        let settings = config.code_mode.clone();
        let is_used = config.servers.iter().any(|server| server.code_mode);
        let pool = match &before.pool {
            Some(pool) if before.settings == settings => Some(pool.clone()),
            _ if is_used => self.pool(&settings),
            _ => None,
        };
        if let Some(pool) = &pool {
            pool.warm();
        }
        self.now.store(Arc::new(Now {
            settings,
            level: match config.tool_manager.binding_level {
                BindingLevel::Server => Level::Server,
                BindingLevel::Tool => Level::Tool,
            },
            pool,
        }));
    }

    fn pool(&self, settings: &config::CodeMode) -> Option<Pool> {
        let configured = settings.worker_command.as_deref().and_then(Program::new);
        let program = configured.or_else(|| self.own.clone());
        if program.is_none() {
            tracing::error!("code mode is off: {NO_PROGRAM}");
        }
        let program = program?;
        Some(Pool::new(program, settings.limits.memory, settings.workers))
    }

    /// Ends all workers.
    pub(crate) async fn close(&self) {
        if let Some(pool) = &self.now.load_full().pool {
            pool.close().await;
        }
    }

    /// What scripts can call in a scope.
    fn bindings(&self, scope: &Arc<Scope>) -> Arc<Bindings> {
        self.bound(scope).bindings
    }

    /// Tokens that a request with a scope needs less, as far as they are counted.
    pub(crate) fn saved_tokens(&self, scope: &Arc<Scope>) -> u64 {
        match &self.now.load().pool {
            Some(pool) => self.bound(scope).saving.get(scope, pool),
            None => 0,
        }
    }

    fn bound(&self, scope: &Arc<Scope>) -> Bound {
        let key = Arc::as_ptr(scope).addr();
        if let Some(bound) = self.bound.get(&key) {
            return bound;
        }
        // Named among all of them, so that a name means the same to everyone.
        let entries = scope.catalog().tools().iter();
        let scripted = entries.filter(|entry| scope.is_in_code(entry));
        let all = Bindings::new(scripted.map(|entry| &entry.tool));
        let visible = |id: &ToolId| {
            let entry = scope.catalog().tool(id);
            entry.is_some_and(|entry| scope.judgement(entry).is_some())
        };
        let bound = Bound {
            bindings: Arc::new(all.only(visible)),
            saving: Arc::default(),
            _scope: Arc::clone(scope),
        };
        self.bound.insert(key, bound.clone());
        bound
    }

    /// `listToolFiles`.
    pub(crate) fn list(&self, scope: &Arc<Scope>) -> ToolResult {
        answer::text(&self.bindings(scope).list(self.now.load().level))
    }

    /// `readToolFile`.
    pub(crate) fn read(&self, scope: &Arc<Scope>, arguments: &Value) -> ToolResult {
        let level = self.now.load().level;
        let line = |name: &str| {
            let number = arguments[name].as_i64().map(|line| line.max(1));
            number.and_then(|line| usize::try_from(line).ok())
        };
        let Some(file) = arguments["fileName"].as_str() else {
            return answer::advice("`fileName` is missing; listToolFiles lists the files");
        };
        let bindings = self.bindings(scope);
        match bindings.read(level, file, line("startLine"), line("endLine")) {
            Ok(text) => answer::text(&text),
            Err(unknown) => answer::advice(&unknown.to_string()),
        }
    }

    /// `getToolDocs`.
    pub(crate) fn docs(&self, scope: &Arc<Scope>, arguments: &Value) -> ToolResult {
        let text = |name: &str| arguments[name].as_str();
        let (Some(server), Some(tool)) = (text("server"), text("tool")) else {
            return answer::advice(
                "`server` and `tool` are needed; listToolFiles lists the servers",
            );
        };
        match self.bindings(scope).docs(server, tool) {
            Ok(text) => answer::text(&text),
            Err(unknown) => answer::advice(&unknown.to_string()),
        }
    }

    /// What would become of a script, as far as its text tells: whether it names a tool that does
    /// not run unasked, or uses a server in a way that cannot be seen through.
    pub(crate) fn preview(&self, scope: &Arc<Scope>, code: &str) -> Verdict {
        let bindings = self.bindings(scope);
        let servers = bindings.servers();
        let names: Vec<&str> = servers.iter().map(|server| &*server.identifier).collect();
        let mentions = preview::mentions(code, &names);
        let is_unasked = |id: &ToolId| {
            let entry = scope.catalog().tool(id);
            let judgement = entry.and_then(|entry| scope.judgement(entry));
            judgement.is_some_and(|judgement| {
                // What depends on arguments is decided when it is called.
                judgement.decision().verdict == Verdict::Allow || judgement.depends_on_arguments()
            })
        };
        let named = servers.iter().flat_map(|server| {
            let tools = server.tools().iter();
            tools.filter(|tool| mentions.may_call(&server.identifier, &tool.identifier))
        });
        match named.into_iter().all(|tool| is_unasked(&tool.source.id)) {
            true => Verdict::Allow,
            false => Verdict::Manual,
        }
    }

    /// `executeToolCode`: runs a script, or goes on with it if it waited.
    pub(crate) async fn execute(&self, job: Job<'_>) -> Result<Executed, CallError> {
        let now = self.now.load_full();
        let pool = now.pool.as_ref().ok_or(CallError::NoWorker(NO_PROGRAM))?;
        let key = ScriptKey::new(job.caller, job.call, job.code);
        let kept = self.store.script(&key).await?;
        let has_waited = kept.is_some();
        let steps = match kept {
            None => Vec::new(),
            Some(kept) => {
                let is_taken =
                    kept.state == ScriptState::Waiting && self.store.take_script(&key).await?;
                if !is_taken {
                    return Ok(Executed::of(answer::begun(&kept)));
                }
                kept.steps
            }
        };
        let bindings = self.bindings(job.scope);
        let mut run = Run {
            code: job.code,
            bindings: &bindings,
            limits: now.settings.limits,
            door: job.door,
            steps,
            calls: Vec::new(),
            printed: String::new(),
        };
        let end = run.go(pool).await?;
        if let End::Waits(waiting) = end {
            let made = answer::made(&run);
            self.keep(&key, ScriptState::Waiting, run.steps).await?;
            let waits = waits(&bindings, waiting, made);
            return Err(CallError::ScriptWaits(Box::new(waits)));
        }
        if has_waited {
            self.ended(&key).await?;
        }
        Ok(Executed {
            record: answer::record(&run, &end, self.saved_tokens(job.scope)),
            result: answer::of(&run, &end),
        })
    }

    async fn keep(
        &self,
        key: &ScriptKey,
        state: ScriptState,
        steps: Vec<Option<Step>>,
    ) -> Result<(), StoreError> {
        let script = KeptScript { state, steps };
        let now = millis(SystemTime::now());
        self.store.keep_script(key, &script, now).await
    }

    /// A script that waited has ended. Where its call has an id, the same call does not run it once
    /// more; where it has none, the same code may be another wish.
    async fn ended(&self, key: &ScriptKey) -> Result<(), StoreError> {
        match key.call.is_empty() {
            true => self.store.forget_script(key).await,
            false => self.keep(key, ScriptState::Done, Vec::new()).await,
        }
    }
}

impl Executed {
    fn of(result: ToolResult) -> Self {
        Self {
            result,
            record: json!({}),
        }
    }
}

fn waits(bindings: &Bindings, waiting: Vec<(Call, CallError)>, made: String) -> ScriptWaits {
    let mut calls = Vec::new();
    let mut cause = None;
    for (call, error) in waiting {
        let Some(tool) = bindings.called(&call.server, &call.tool) else {
            continue;
        };
        calls.push(WaitingCall {
            tool: tool.source.id.clone(),
            arguments: call.arguments,
            line: call.line,
            approval: error.needed().map(|needed| needed.id.to_owned()),
        });
        let better = |known: &CallError| known.needed().is_none() && error.needed().is_some();
        if cause.as_ref().is_none_or(better) {
            cause = Some(error);
        }
    }
    ScriptWaits {
        cause: cause.unwrap_or(CallError::Cancelled),
        calls,
        made,
    }
}

/// Reads the code of an `executeToolCode` call.
pub(crate) fn code(arguments: &Value) -> Option<&str> {
    arguments["code"].as_str()
}

/// The four tools as MCP clients are told of them, by name.
pub(crate) fn definitions() -> &'static [(String, Box<RawValue>)] {
    static DEFINITIONS: LazyLock<Vec<(String, Box<RawValue>)>> =
        LazyLock::new(|| surface::TOOLS.iter().map(definition).collect());
    &DEFINITIONS
}

fn definition(tool: &surface::Definition) -> (String, Box<RawValue>) {
    let reads_only = tool.name != surface::EXECUTE;
    let schema: Value = serde_json::from_str(tool.parameters).unwrap_or_default();
    let definition = json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": reads_only, "openWorldHint": !reads_only},
    });
    let raw = serde_json::value::to_raw_value(&definition);
    (
        tool.name.to_owned(),
        raw.unwrap_or_else(|_| RawValue::NULL.to_owned()),
    )
}
