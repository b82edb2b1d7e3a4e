//! Code mode: models reach the tools of some servers by scripts, which they write after reading what
//! there is.
//!
//! Scripts run in processes of their own ([`pool`]); every call that one makes goes through the
//! engine as its caller's. A call that somebody must decide about stops the script before it runs,
//! and the script is gone on with by its [`journal`].

pub(crate) mod answer;
mod journal;
mod pool;
mod run;
mod saving;
mod value;

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use http::HeaderMap;
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
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::policy::Verdict;
use toolgate_core::scope::{Filters, Scope};
use toolgate_script::preview;
use toolgate_script::protocol::Call;
use toolgate_script::stubs::{Bindings, Level};
use toolgate_script::surface;

use crate::call::{CallError, ScriptWaits, WaitingCall};
use crate::caller::Caller;
use crate::result::ToolResult;
use crate::store::{Store, millis};

/// How long what scripts can call in a scope is kept, unused.
const IDLE: Duration = Duration::from_secs(300);
const MOST_CATALOGS: u64 = 4;
/// Tools in all scopes together that are kept.
const MOST_TOOLS: u64 = 400_000;

const NO_PROGRAM: &str = "the program that embeds the gateway must call `toolgate_script::worker::main` when it is started as a worker and say so to the builder, or set `code_mode.worker_command`";

/// What scripts are run with.
#[derive(Debug)]
pub(crate) struct CodeMode {
    /// The program itself, if it becomes a worker when asked to.
    own: Option<Program>,
    now: ArcSwap<Now>,
    /// What scripts could call if they saw everything, by the catalog and which servers are scripted.
    named: Cache<(u64, Vec<ServerName>), Arc<Bindings>>,
    /// By the address of a scope, which is its own as long as the scope is held here.
    bound: Cache<usize, Bound>,
    saving: Saving,
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
    /// Tokens that a request with the scope needs less, once they are counted.
    saved: Arc<OnceLock<u64>>,
    _scope: Arc<Scope>,
}

/// A script that somebody wants to run.
pub(crate) struct Job<'a> {
    pub(crate) scope: &'a Arc<Scope>,
    pub(crate) caller: &'a Caller,
    /// The id that the model gave its call.
    pub(crate) call: Option<&'a str>,
    /// The agent's run that it belongs to.
    pub(crate) run: Option<&'a str>,
    pub(crate) filters: &'a Filters,
    /// What servers are told of the request.
    pub(crate) told: Vec<HeaderMap>,
    pub(crate) code: &'a str,
    pub(crate) door: &'a dyn Door,
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
            named: Cache::builder()
                .max_capacity(MOST_CATALOGS)
                .time_to_idle(IDLE)
                .build(),
            bound: Cache::builder()
                .max_capacity(MOST_TOOLS)
                .weigher(|_, bound: &Bound| bound.weight())
                .time_to_idle(IDLE)
                .build(),
            saving: Saving::new(),
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
            _ if !is_used => None,
            Some(pool) if before.settings == settings => Some(pool.clone()),
            _ => self.pool(&settings),
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
        let bound = self.bound(scope);
        if let Some(saved) = bound.saved.get() {
            return *saved;
        }
        let now = self.now.load();
        let counted = now
            .pool
            .as_ref()
            .and_then(|pool| self.saving.of(scope, pool));
        counted.map_or(0, |saved| *bound.saved.get_or_init(|| saved))
    }

    fn bound(&self, scope: &Arc<Scope>) -> Bound {
        let key = Arc::as_ptr(scope).addr();
        if let Some(bound) = self.bound.get(&key) {
            return bound;
        }
        let visible = |id: &ToolId| {
            let entry = scope.catalog().tool(id);
            entry.is_some_and(|entry| scope.judgement(entry).is_some())
        };
        let bound = Bound {
            bindings: Arc::new(self.named(scope).only(visible)),
            saved: Arc::default(),
            _scope: Arc::clone(scope),
        };
        self.bound.insert(key, bound.clone());
        bound
    }

    /// All scripted tools of a catalog, as whoever sees all of them knows them.
    fn named(&self, scope: &Scope) -> Arc<Bindings> {
        let servers: Vec<ServerName> = scope.scripted_servers().cloned().collect();
        let key = (scope.catalog().generation(), servers);
        self.named.get_with(key, || {
            let entries = scope.catalog().tools().iter();
            let scripted = entries.filter(|entry| scope.is_in_code(entry));
            Arc::new(Bindings::new(scripted.map(|entry| &entry.tool)))
        })
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
        if code.len() > self.now.load().settings.limits.source {
            return Verdict::Allow; // it is refused, which is for the model to hear
        }
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

    /// `executeToolCode`: runs a script, or goes on with it if it waited. What is recorded of it is
    /// told however it ends.
    pub(crate) async fn execute(
        &self,
        job: Job<'_>,
        record: &mut Option<Value>,
    ) -> Result<ToolResult, CallError> {
        let now = self.now.load_full();
        let pool = now.pool.as_ref().ok_or(CallError::NoWorker(NO_PROGRAM))?;
        let bindings = self.bindings(job.scope);
        let mut run = Run::new(job.code, &bindings, now.settings.limits, job.door);
        let worker = match run.worker(pool).await? {
            Ok(worker) => worker,
            Err(end) => return Ok(answer::of(&run, &end)),
        };
        let about = (job.filters, job.told.as_slice());
        let key = ScriptKey::new(job.caller, (job.call, job.run), job.code, about);
        let kept = self.store.script(&key, millis(SystemTime::now())).await?;
        if let Some(kept) = &kept {
            let is_taken =
                kept.state == ScriptState::Waiting && self.store.take_script(&kept.id).await?;
            if !is_taken {
                worker.give_back();
                return Ok(answer::begun(kept));
            }
            run.steps.clone_from(&kept.steps);
        }
        let end = run.go(worker).await;
        *record = Some(answer::record(&run, &end, self.saved_tokens(job.scope)));
        if let End::Waits(waiting) = end {
            let waits = waits(&bindings, waiting, answer::made(&run));
            return Err(self.wait(&key, kept, run.steps, waits).await);
        }
        if let Some(kept) = kept {
            self.ended(&key, kept).await;
        }
        Ok(answer::of(&run, &end))
    }

    /// Keeps a script that waits, and says why.
    async fn wait(
        &self,
        key: &ScriptKey,
        kept: Option<KeptScript>,
        steps: Vec<Option<Step>>,
        waits: ScriptWaits,
    ) -> CallError {
        // A run can be gone on with as long as it is kept; else the approval says how long.
        let until = (!key.is_unique()).then(|| waits.until()).flatten();
        let mut script = KeptScript::new(steps, until);
        if let Some(kept) = kept {
            script.id = kept.id;
        }
        let now = millis(SystemTime::now());
        match self.store.keep_script(key, &script, now).await {
            Ok(()) => CallError::ScriptWaits(Box::new(waits)),
            Err(error) => {
                tracing::error!(%error, "a script that waits could not be kept");
                CallError::ScriptLost { made: waits.made }
            }
        }
    }

    /// A script that waited has ended. That of a run is not begun again by the same call; any other
    /// may be another wish.
    async fn ended(&self, key: &ScriptKey, kept: KeptScript) {
        let script = KeptScript {
            state: ScriptState::Done,
            steps: Vec::new(),
            ..kept
        };
        let now = millis(SystemTime::now());
        let written = match key.is_unique() || script.expires_at == i64::MAX {
            true => self.store.keep_script(key, &script, now).await,
            false => self.store.forget_script(&script.id).await,
        };
        if let Err(error) = written {
            tracing::error!(%error, "the end of a script could not be written");
        }
    }
}

impl Bound {
    fn weight(&self) -> u32 {
        let tools = self.bindings.servers().iter();
        let tools: usize = tools.map(|server| server.tools().len()).sum();
        u32::try_from(tools + 16).unwrap_or(u32::MAX)
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
