//! Code mode: models use the tools of some servers through scripts, which they write after reading
//! generated documentation.
//!
//! Scripts run in separate worker processes ([`pool`]). Every call goes through the engine on behalf of
//! the script's caller. A call that needs a decision suspends the script before the call is made; the
//! script is resumed by replaying its [`journal`].

mod deletion;
mod journal;
mod pool;
mod results;
mod run;
mod store;
mod token_savings;
mod value;
mod worker_process;

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
pub(crate) use deletion::{delete_expired_scripts, delete_scripts_of};
use http::HeaderMap;
use journal::{ScriptKey, ScriptState, ScriptStep, StoredScript};
use moka::sync::Cache;
use pool::WorkerPool;
pub(crate) use pool::WorkerProgram;
pub(crate) use run::ToolCaller;
use run::{ScriptEnd, ScriptRun, WorkerAcquisition};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use store::ScriptStore;
use token_savings::TokenSavings;
use toolgate_core::Config;
use toolgate_core::catalog::ClientProfile;
use toolgate_core::config::{self, BindingLevel};
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::policy::Verdict;
use toolgate_core::scope::{Filters, Scope};
use toolgate_script::preview;
use toolgate_script::protocol::ScriptCall;
use toolgate_script::stubs::{Bindings, FileLevel};
use toolgate_script::surface;

use crate::call::{CallError, PendingCall, SuspendedScript};
use crate::caller::Caller;
use crate::result::{ToolResult, error_result};
use crate::store::{Store, unix_millis};
use toolgate_mcp::fair_queue::QueueLimits;

/// Time after which unused bindings are evicted.
const BINDINGS_IDLE_TTL: Duration = Duration::from_secs(300);
const MAX_CACHED_CATALOGS: u64 = 4;
/// Tools held in the bindings of all cached scopes together.
const MAX_CACHED_TOOLS: u64 = 400_000;

/// Scripts of one caller that may wait for a worker.
const MAX_WAITING_SCRIPTS: usize = 256;

const NO_WORKER_PROGRAM: &str = "the embedding program must call `toolgate::script_worker::main` when started as a worker and declare that to the builder, or set `code_mode.worker_command`";

/// Identifies the code-mode tools of a catalog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CatalogKey {
    generation: u64,
    client: Option<ClientProfile>,
    code_mode_servers: Vec<ServerName>,
}

/// Runtime of code mode: settings, worker pool and cached bindings.
#[derive(Debug)]
pub(crate) struct CodeMode {
    /// The current program, if it can act as a worker.
    own_program: Option<WorkerProgram>,
    active: ArcSwap<ActiveSettings>,
    /// Unfiltered bindings.
    catalog_bindings: Cache<CatalogKey, Arc<Bindings>>,
    /// Bindings by scope address, which is unique because the value keeps the scope alive.
    scope_bindings: Cache<usize, ScopeBindings>,
    token_savings: TokenSavings,
    store: ScriptStore,
}

/// Settings in effect and the pool that belongs to them.
#[derive(Debug)]
struct ActiveSettings {
    settings: config::CodeModeSettings,
    queue_limits: QueueLimits,
    level: FileLevel,
    /// `None` while no server uses code mode.
    pool: Option<WorkerPool>,
}

/// Tools that scripts can call in a scope.
#[derive(Clone, Debug)]
struct ScopeBindings {
    bindings: Arc<Bindings>,
    /// Prompt tokens saved by code mode per request, once counted.
    saved_tokens: Arc<OnceLock<u64>>,
    _scope: Arc<Scope>,
}

/// Request to execute a script.
pub(crate) struct ExecuteRequest<'a> {
    pub(crate) scope: &'a Arc<Scope>,
    pub(crate) caller: &'a Caller,
    /// Id the model gave the call.
    pub(crate) call: Option<&'a str>,
    /// Agent run the call belongs to.
    pub(crate) run: Option<&'a str>,
    pub(crate) filters: &'a Filters,
    /// Headers that servers receive with this request.
    pub(crate) forwarded_headers: Vec<HeaderMap>,
    pub(crate) code: &'a str,
    pub(crate) tool_caller: &'a dyn ToolCaller,
}

impl CodeMode {
    pub(crate) fn new(config: &Config, own_program: Option<WorkerProgram>, store: Store) -> Self {
        let code_mode = Self {
            own_program,
            active: ArcSwap::from_pointee(ActiveSettings {
                settings: config::CodeModeSettings::default(),
                queue_limits: queue_limits(&Config::default()),
                level: FileLevel::Server,
                pool: None,
            }),
            catalog_bindings: Cache::builder()
                .max_capacity(MAX_CACHED_CATALOGS)
                .time_to_idle(BINDINGS_IDLE_TTL)
                .build(),
            scope_bindings: Cache::builder()
                .max_capacity(MAX_CACHED_TOOLS)
                .weigher(|_, scope_bindings: &ScopeBindings| scope_bindings.weight())
                .time_to_idle(BINDINGS_IDLE_TTL)
                .build(),
            token_savings: TokenSavings::new(),
            store: ScriptStore::new(store),
        };
        code_mode.apply(config);
        code_mode
    }

    /// Applies a new configuration; running scripts are not affected.
    pub(crate) fn apply(&self, config: &Config) {
        let previous = self.active.load();
        let settings = config.code_mode.clone();
        let queue_limits = queue_limits(config);
        let is_used = config.servers.iter().any(|server| server.code_mode);
        let pool = match &previous.pool {
            _ if !is_used => None,
            Some(pool)
                if previous.settings == settings && previous.queue_limits == queue_limits =>
            {
                Some(pool.clone())
            }
            _ => self.new_pool(&settings, queue_limits),
        };
        if let Some(pool) = &pool {
            pool.warm();
        }
        self.active.store(Arc::new(ActiveSettings {
            settings,
            queue_limits,
            level: match config.tool_manager.binding_level {
                BindingLevel::Server => FileLevel::Server,
                BindingLevel::Tool => FileLevel::Tool,
            },
            pool,
        }));
    }

    fn new_pool(
        &self,
        settings: &config::CodeModeSettings,
        queue_limits: QueueLimits,
    ) -> Option<WorkerPool> {
        let configured = settings
            .worker_command
            .as_deref()
            .and_then(WorkerProgram::new);
        let program = configured.or_else(|| self.own_program.clone());
        if program.is_none() {
            tracing::error!(reason = NO_WORKER_PROGRAM, "code mode is disabled");
        }
        let program = program?;
        Some(WorkerPool::new(
            program,
            settings.limits.max_memory_bytes,
            queue_limits,
        ))
    }

    /// Stops all workers.
    pub(crate) async fn close(&self) {
        if let Some(pool) = &self.active.load_full().pool {
            pool.close().await;
        }
    }

    /// Returns the tools that scripts can call in a scope.
    fn bindings(&self, scope: &Arc<Scope>) -> Arc<Bindings> {
        self.scope_bindings(scope).bindings
    }

    /// Returns the prompt tokens that code mode saves per request in a scope; 0 until counted.
    pub(crate) fn saved_tokens(&self, scope: &Arc<Scope>) -> u64 {
        let scope_bindings = self.scope_bindings(scope);
        if let Some(saved_tokens) = scope_bindings.saved_tokens.get() {
            return *saved_tokens;
        }
        let active = self.active.load();
        let counted = active
            .pool
            .as_ref()
            .and_then(|pool| self.token_savings.saved_tokens(scope, pool));
        counted.map_or(0, |saved_tokens| {
            *scope_bindings.saved_tokens.get_or_init(|| saved_tokens)
        })
    }

    fn scope_bindings(&self, scope: &Arc<Scope>) -> ScopeBindings {
        let key = Arc::as_ptr(scope).addr();
        if let Some(scope_bindings) = self.scope_bindings.get(&key) {
            return scope_bindings;
        }
        let visible = |id: &ToolId| {
            let entry = scope.catalog().tool(id);
            entry.is_some_and(|entry| scope.judgement(entry).is_some())
        };
        let scope_bindings = ScopeBindings {
            bindings: Arc::new(self.catalog_bindings(scope).filter_tools(visible)),
            saved_tokens: Arc::default(),
            _scope: Arc::clone(scope),
        };
        self.scope_bindings.insert(key, scope_bindings.clone());
        scope_bindings
    }

    /// Returns the bindings for all code-mode tools of a catalog. Identifiers are assigned here, so
    /// that they do not depend on what a caller may see.
    fn catalog_bindings(&self, scope: &Scope) -> Arc<Bindings> {
        let servers: Vec<ServerName> = scope.code_mode_servers().cloned().collect();
        let catalog = scope.catalog();
        let key = CatalogKey {
            generation: catalog.generation(),
            client: catalog.profile().cloned(),
            code_mode_servers: servers,
        };
        self.catalog_bindings.get_with(key, || {
            let entries = scope.catalog().tools().iter();
            let code_mode_tools = entries.filter(|entry| scope.is_code_mode_tool(entry));
            Arc::new(Bindings::new(code_mode_tools.map(|entry| &entry.tool)))
        })
    }

    /// Implements `listToolFiles`.
    pub(crate) fn list_tool_files(&self, scope: &Arc<Scope>) -> ToolResult {
        results::text_result(&self.bindings(scope).list(self.active.load().level))
    }

    /// Implements `readToolFile`.
    pub(crate) fn read_tool_file(&self, scope: &Arc<Scope>, arguments: &Value) -> ToolResult {
        let level = self.active.load().level;
        let line = |name: &str| {
            let number = arguments[name].as_i64().map(|line| line.max(1));
            number.and_then(|line| usize::try_from(line).ok())
        };
        let Some(file) = arguments["fileName"].as_str() else {
            return error_result("`fileName` is missing; listToolFiles lists the files");
        };
        let bindings = self.bindings(scope);
        match bindings.read(level, file, line("startLine"), line("endLine")) {
            Ok(text) => results::text_result(&text),
            Err(unknown) => error_result(&unknown.to_string()),
        }
    }

    /// Implements `getToolDocs`.
    pub(crate) fn tool_docs(&self, scope: &Arc<Scope>, arguments: &Value) -> ToolResult {
        let text = |name: &str| arguments[name].as_str();
        let (Some(server), Some(tool)) = (text("server"), text("tool")) else {
            return error_result(
                "`server` and `tool` are required; listToolFiles lists the servers",
            );
        };
        match self.bindings(scope).docs(server, tool) {
            Ok(text) => results::text_result(&text),
            Err(unknown) => error_result(&unknown.to_string()),
        }
    }

    /// Predicts the verdict on a script from its text: `manual` if it mentions a tool that does not run
    /// without approval, or uses a server in a way that cannot be analyzed.
    pub(crate) fn preview(&self, scope: &Arc<Scope>, code: &str) -> Verdict {
        if code.len() > self.active.load().settings.limits.max_source_bytes {
            // Execution rejects it, which the model should see as an error.
            return Verdict::Allow;
        }
        let bindings = self.bindings(scope);
        let servers = bindings.servers();
        let names: Vec<&str> = servers.iter().map(|server| &*server.identifier).collect();
        let mentions = preview::find_mentions(code, &names);
        let runs_unasked = |id: &ToolId| {
            let entry = scope.catalog().tool(id);
            let judgement = entry.and_then(|entry| scope.judgement(entry));
            judgement.is_some_and(|judgement| {
                // Rules that depend on arguments are evaluated when the call is made.
                judgement.decision().verdict == Verdict::Allow || judgement.depends_on_arguments()
            })
        };
        let mut mentioned = servers.iter().flat_map(|server| {
            let tools = server.tools().iter();
            tools.filter(|tool| mentions.may_call(&server.identifier, &tool.identifier))
        });
        if mentioned.all(|tool| runs_unasked(&tool.source.id)) {
            Verdict::Allow
        } else {
            Verdict::Manual
        }
    }

    /// Implements `executeToolCode`: runs a script, or resumes it if it was suspended. `record` receives
    /// its audit details however it ends.
    pub(crate) async fn execute(
        &self,
        request: ExecuteRequest<'_>,
        record: &mut Option<Value>,
    ) -> Result<ToolResult, CallError> {
        let active = self.active.load_full();
        let pool = active
            .pool
            .as_ref()
            .ok_or(CallError::NoWorker(NO_WORKER_PROGRAM))?;
        let bindings = self.bindings(request.scope);
        let mut run = ScriptRun::new(
            request.code,
            &bindings,
            active.settings.limits,
            request.tool_caller,
        );
        let worker = match run
            .acquire_worker(pool, &request.caller.share_owner().cloned())
            .await?
        {
            WorkerAcquisition::Acquired(worker) => worker,
            WorkerAcquisition::ScriptEnded(end) => {
                return Ok(results::script_result(&run, &end));
            }
        };
        let key = ScriptKey::new(&request);
        let stored = self
            .store
            .find(&key, unix_millis(SystemTime::now()))
            .await?;
        if let Some(stored) = &stored {
            let is_claimed =
                stored.state == ScriptState::Waiting && self.store.claim(&stored.id).await?;
            if !is_claimed {
                worker.release();
                return Ok(results::already_started(stored));
            }
            run.steps.clone_from(&stored.steps);
        }
        let end = run.execute(worker).await;
        *record = Some(results::audit_details(
            &run,
            &end,
            self.saved_tokens(request.scope),
        ));
        if let ScriptEnd::Waiting(waiting) = end {
            let suspended = describe_waiting(&bindings, waiting, results::calls_made_text(&run));
            return Err(self.suspend(&key, stored, run.steps, suspended).await);
        }
        if let Some(stored) = stored {
            self.close_suspended(&key, stored).await;
        }
        Ok(results::script_result(&run, &end))
    }

    /// Stores a suspended script and returns the error that reports what it is waiting for.
    async fn suspend(
        &self,
        key: &ScriptKey,
        stored: Option<StoredScript>,
        steps: Vec<Option<ScriptStep>>,
        suspended: SuspendedScript,
    ) -> CallError {
        // A run's script stays resumable as long as the run; others expire with their approval.
        let until = match suspended.cause.required_approval() {
            Some(required) if !key.belongs_to_run() => Some(required.expires_at),
            _ => None,
        };
        let mut script = StoredScript::new(steps, until);
        if let Some(stored) = stored {
            script.id = stored.id;
        }
        let now = unix_millis(SystemTime::now());
        match self.store.put(key, &script, now).await {
            Ok(()) => CallError::ScriptSuspended(Box::new(suspended)),
            Err(error) => {
                tracing::error!(%error, "failed to store suspended script");
                CallError::ScriptNotSaved {
                    made: suspended.made,
                }
            }
        }
    }

    /// Closes a suspended script that has ended. A run's script must not start again with the same
    /// call, so it is marked as done; any other is deleted, since the same code may be sent again.
    async fn close_suspended(&self, key: &ScriptKey, stored: StoredScript) {
        let script = StoredScript {
            state: ScriptState::Done,
            steps: Vec::new(),
            ..stored
        };
        let now = unix_millis(SystemTime::now());
        let written = if key.belongs_to_run() || script.expires_at == i64::MAX {
            self.store.put(key, &script, now).await
        } else {
            self.store.delete(&script.id).await
        };
        if let Err(error) = written {
            tracing::error!(%error, "failed to record the end of a script");
        }
    }
}

impl ScopeBindings {
    fn weight(&self) -> u32 {
        let tools = self.bindings.servers().iter();
        let tools: usize = tools.map(|server| server.tools().len()).sum();
        u32::try_from(tools + 16).unwrap_or(u32::MAX)
    }
}

/// Describes the calls a script is waiting for. The cause is the first error, or one with an approval.
fn describe_waiting(
    bindings: &Bindings,
    waiting: Vec<(ScriptCall, CallError)>,
    made: String,
) -> SuspendedScript {
    let mut calls = Vec::new();
    let mut cause = None;
    for (call, error) in waiting {
        let Some(tool) = bindings.tool(&call.server, &call.tool) else {
            continue;
        };
        calls.push(PendingCall {
            tool: tool.source.id.clone(),
            arguments: call.arguments,
            line: call.line,
            approval: error
                .required_approval()
                .map(|required| required.id.to_owned()),
        });
        let lacks_approval = |cause: &CallError| {
            cause.required_approval().is_none() && error.required_approval().is_some()
        };
        if cause.as_ref().is_none_or(lacks_approval) {
            cause = Some(error);
        }
    }
    SuspendedScript {
        cause: cause.unwrap_or(CallError::Cancelled),
        calls,
        made,
    }
}

/// Returns the code of an `executeToolCode` call.
pub(crate) fn code_argument(arguments: &Value) -> Option<&str> {
    arguments["code"].as_str()
}

/// MCP definitions of the four code-mode tools, by name.
pub(crate) fn definitions() -> &'static [(String, Box<RawValue>)] {
    static DEFINITIONS: LazyLock<Vec<(String, Box<RawValue>)>> =
        LazyLock::new(|| surface::TOOLS.iter().map(definition).collect());
    &DEFINITIONS
}

fn definition(tool: &surface::ToolDefinition) -> (String, Box<RawValue>) {
    let is_read_only = tool.name != surface::EXECUTE_TOOL_CODE;
    let schema: Value = serde_json::from_str(tool.parameters).unwrap_or_default();
    let definition = json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": is_read_only, "openWorldHint": !is_read_only},
    });
    let raw = serde_json::value::to_raw_value(&definition);
    (
        tool.name.to_owned(),
        raw.unwrap_or_else(|_| RawValue::NULL.to_owned()),
    )
}

/// Returns how callers share the workers.
fn queue_limits(config: &Config) -> QueueLimits {
    let slots = config.code_mode.workers;
    QueueLimits {
        slots,
        slots_per_owner: config
            .capacity
            .max_scripts_per_key
            .unwrap_or_else(|| slots.div_ceil(2)),
        max_waiting: 4 * MAX_WAITING_SCRIPTS,
        max_waiting_per_owner: MAX_WAITING_SCRIPTS,
    }
}
