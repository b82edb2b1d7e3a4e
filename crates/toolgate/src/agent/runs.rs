//! Handle for agent runs. Decides whether a model request becomes a run, and lists, cancels and resumes
//! runs.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::config::{ConfigDuration, Dialect, RunLimits, ToolInjection};
use toolgate_llm::tools::CallerTools;
use toolgate_llm::{FieldError, RequestBody, TokenUsage};
use uuid::Uuid;

use super::journal::RunJournal;
use super::loop_guard::LoopGuard;
use super::resume::{self, ResumeError, ResumeRequest};
use super::store::{RunStep, RunStore};
use super::{AgentRun, RunRecord, RunState, stored_request, task};
use crate::active_set::ActiveSet;
use crate::call::{CallError, LimitReached, RequestContext};
use crate::caller::Caller;
use crate::engine::{Engine, MissingServers};
use crate::metrics::Bound;
use crate::models::{ModelCall, ModelError, ModelRequest, ModelResponse, Models, Operation};
use crate::store::{StoreError, unix_millis};
use toolgate_mcp::fair_queue::{FairQueue, QueueLimits, Slot};

const MAX_DEPTH_HEADER: &str = "x-toolgate-max-depth";
/// Time after which a refused run is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const BUDGET_HEADER: &str = "x-toolgate-budget";
const STARTUP_WAIT_HEADER: &str = "x-toolgate-startup-wait";
/// Longest wait that a request can ask for.
const MAX_STARTUP_WAIT: Duration = Duration::from_secs(60);
/// Response header that names servers whose tools were missing.
const MISSING_SERVERS_HEADER: &str = "x-toolgate-missing-servers";

/// Handle for agent runs; clones share its state.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    engine: Engine,
    models: Models,
    store: RunStore,
    tasks: TaskTracker,
    /// Ends the watch for decided approvals.
    stop: CancellationToken,
    active: Arc<ActiveSet>,
    slots: FairQueue,
}

/// Filter and page for listing runs.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Name of the caller's key.
    pub caller: Option<String>,
    /// Name of a [`RunState`].
    pub state: Option<String>,
    /// Return only runs before this id, the last one of the previous page.
    pub before: Option<String>,
    /// Maximum number of runs to return.
    pub limit: usize,
}

/// A run with the steps in its journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunDetails {
    /// Summary of the run.
    pub record: RunRecord,
    /// Steps in order.
    pub steps: Vec<RunStep>,
}

impl Runs {
    pub(crate) fn new(engine: Engine, models: Models, store: RunStore, config: &Config) -> Self {
        Self(Arc::new(Inner {
            slots: FairQueue::new(queue_limits(config)),
            engine,
            models,
            store,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            active: Arc::default(),
        }))
    }

    /// Applies a new configuration; active runs continue.
    pub(crate) fn apply(&self, config: &Config) {
        self.0.slots.resize(queue_limits(config));
    }

    /// Returns the number of runs in progress.
    pub fn active_count(&self) -> usize {
        self.0.active.len()
    }

    /// Counts a run that stopped.
    pub(super) fn count_end(&self, stop_reason: &'static str) {
        self.0.engine.count_run(stop_reason);
    }

    /// Takes a slot for a run of a caller.
    pub(super) fn acquire_slot(&self, caller: &Caller) -> Result<Slot, CallError> {
        let engine = &self.0.engine;
        engine
            .load()
            .check()
            .inspect_err(|_| engine.report_bound(engine.load().bound(), caller))?;
        let owner = caller.share_owner().cloned();
        self.0.slots.try_acquire(&owner).ok_or_else(|| {
            let runs = engine.capacity().runs;
            let (bound, max) = match self.0.slots.free() {
                0 => (Bound::Runs, runs.max),
                _ => (Bound::RunsPerKey, runs.max_per_key),
            };
            engine.report_bound(bound, caller);
            CallError::Limited {
                limit: LimitReached::share(owner.as_deref(), bound, max),
                retry_after: Some(RETRY_AFTER),
            }
        })
    }

    /// Handles a model request: as a run if tools in its scope run without approval, otherwise by
    /// relaying the model's response.
    pub(crate) async fn complete(
        &self,
        caller: &Caller,
        request: ModelRequest,
    ) -> Result<ModelResponse, ModelError> {
        if self.0.tasks.is_closed() {
            return Err(ModelError::Refused(CallError::Stopping));
        }
        let body = RequestBody::parse(request.body.clone())?;
        let request = self.with_request_id(request);
        let model_call = ModelCall::new(request, body, caller.clone())?;
        let limits = self.limits(&model_call)?;
        let missing = self.wait_for_servers(&model_call).await?;
        let names = missing.names.join(", ");
        let response = if self.needs_run(&model_call, &missing) {
            // Boxed to keep the future of ordinary requests small.
            Box::pin(self.run(model_call, limits, missing)).await
        } else {
            self.0.models.relay(&model_call).await
        };
        let mut response = response?;
        if !names.is_empty()
            && let Ok(names) = HeaderValue::from_str(&names)
        {
            response.headers.insert(MISSING_SERVERS_HEADER, names);
        }
        Ok(response)
    }

    /// Waits for servers that connect for the first time, if the request would get their tools. Returns those
    /// that are still missing.
    async fn wait_for_servers(&self, model_call: &ModelCall) -> Result<MissingServers, ModelError> {
        let engine = &self.0.engine;
        let (context, operation) = (&model_call.context, model_call.request.operation);
        let header = context.headers.get(STARTUP_WAIT_HEADER);
        let wait = match header.map(|value| value.to_str().unwrap_or("?")) {
            None => engine.startup_wait(),
            Some(text) => {
                let wait = ConfigDuration::parse(text.trim()).map_err(|problem| FieldError {
                    field: STARTUP_WAIT_HEADER.to_owned(),
                    problem,
                })?;
                wait.0.min(MAX_STARTUP_WAIT)
            }
        };
        if operation != Operation::Complete || !self.offers_tools(model_call) {
            return Ok(MissingServers::default());
        }
        let filters = &context.filters;
        let waiting = engine.wait_for_startup(&model_call.caller, filters, wait);
        Ok(Box::pin(waiting).await)
    }

    /// Returns whether tools are added to a request.
    fn offers_tools(&self, model_call: &ModelCall) -> bool {
        // An invalid header is refused when the request is sent.
        let injection = model_call.tool_injection(&self.0.engine);
        injection.is_ok_and(|injection| injection != ToolInjection::None)
    }

    /// Generates the id of a request that has none.
    fn with_request_id(&self, request: ModelRequest) -> ModelRequest {
        if request.request.id.is_some() {
            return request;
        }
        let context = RequestContext {
            id: Some(self.0.engine.hooks().request_id()),
            ..(*request.request).clone()
        };
        request.with_request(&Arc::new(context))
    }

    /// Lists runs of one caller or of all, newest first.
    pub async fn list(&self, query: &RunQuery) -> Result<Vec<RunRecord>, StoreError> {
        self.0.store.list(query).await
    }

    /// Returns a run with its steps.
    pub async fn get(&self, id: &str) -> Result<Option<RunDetails>, StoreError> {
        let Some((record, _)) = self.0.store.get(id).await? else {
            return Ok(None);
        };
        let steps = self.0.store.steps(id).await?;
        Ok(Some(RunDetails { record, steps }))
    }

    /// Cancels a run. Returns false if it is not active in this process.
    pub fn cancel(&self, id: &str) -> bool {
        self.0.active.cancel(id)
    }

    /// Resumes a run after its pending calls were decided, or after a crash.
    pub async fn resume(
        &self,
        id: &str,
        request: ResumeRequest,
    ) -> Result<ModelResponse, ResumeError> {
        resume::resume(self, id, request).await
    }

    /// Deletes runs older than a time, except active ones.
    pub(crate) async fn delete_expired(&self, before: i64) -> Result<(), StoreError> {
        self.0.store.delete_expired(before).await
    }

    /// Waits for active runs to end and cancels those still running after the timeout.
    pub(crate) async fn drain(&self, within: Duration) {
        let Inner {
            tasks,
            active,
            stop,
            ..
        } = &*self.0;
        stop.cancel();
        tasks.close();
        if tokio::time::timeout(within, tasks.wait()).await.is_err() {
            tracing::warn!(
                runs = tasks.len(),
                "cancelling runs that did not end in time"
            );
            active.cancel_all();
            tasks.wait().await;
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(super) fn models(&self) -> &Models {
        &self.0.models
    }

    pub(super) fn store(&self) -> &RunStore {
        &self.0.store
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    pub(super) fn stop_token(&self) -> &CancellationToken {
        &self.0.stop
    }

    pub(super) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(inner: &Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(Self)
    }

    pub(super) fn active(&self) -> &Arc<ActiveSet> {
        &self.0.active
    }

    /// Combines the limits of a run from the configuration, the key and the request headers.
    pub(super) fn limits(&self, model_call: &ModelCall) -> Result<RunLimits, ModelError> {
        let headers = &model_call.context.headers;
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let invalid = |header: &str, problem: String| {
            ModelError::Field(FieldError {
                field: header.to_owned(),
                problem,
            })
        };
        let mut request_limits = match text(BUDGET_HEADER) {
            Some(budget) => {
                RunLimits::parse(budget).map_err(|problem| invalid(BUDGET_HEADER, problem))?
            }
            None => RunLimits::default(),
        };
        if let Some(depth) = text(MAX_DEPTH_HEADER) {
            let depth = depth.trim().parse::<u32>().ok();
            let problem = || invalid(MAX_DEPTH_HEADER, "must be a whole number".to_owned());
            request_limits.depth = Some(depth.ok_or_else(problem)?);
        }
        let configured = self.0.engine.limits().run_limits(&model_call.caller)?;
        Ok(configured.combine(request_limits))
    }

    /// Returns whether a request needs a run. The agent does not handle multiple choices (`n` > 1) or
    /// Chat's provider-specific tool types. While servers are starting, a run reports that their tools are missing.
    fn needs_run(&self, model_call: &ModelCall, missing: &MissingServers) -> bool {
        let filters = &model_call.context.filters;
        let engine = &self.0.engine;
        let multiple_choices = model_call
            .body
            .get("n")
            .is_some_and(|n| n != "1" && n != "null");
        model_call.request.operation == Operation::Complete
            && !multiple_choices
            && self.offers_tools(model_call)
            && (missing.is_starting || engine.has_auto_execute_tools(&model_call.caller, filters))
            && (model_call.request.dialect != Dialect::Chat
                || !CallerTools::from_body(&model_call.body).has_provider_tools())
    }

    /// Executes a model request as a run.
    async fn run(
        &self,
        model_call: ModelCall,
        limits: RunLimits,
        missing: MissingServers,
    ) -> Result<ModelResponse, ModelError> {
        let slot = self.acquire_slot(&model_call.caller);
        let slot = slot.map_err(ModelError::Refused)?;
        let id = format!("run_{}", Uuid::now_v7().simple());
        let record = RunRecord {
            id: id.clone(),
            caller: model_call.caller.key().map(ToString::to_string),
            request_id: model_call.context.id.clone().unwrap_or_default(),
            dialect: model_call.request.dialect.as_str().to_owned(),
            model: model_call.name().to_owned(),
            stream: model_call.stream,
            state: RunState::Running,
            stop_reason: None,
            iterations: 0,
            input_tokens: 0,
            output_tokens: 0,
            cost_micro_usd: 0,
            started_at: unix_millis(SystemTime::now()),
            ended_at: None,
        };
        let store = &self.0.store;
        store
            .put(&record, &stored_request::request_value(&model_call))
            .await?;
        let run = AgentRun {
            journal: RunJournal::new(store, &id, 0),
            id: id.clone(),
            runs: self.clone(),
            caller_tools: CallerTools::from_body(&model_call.body),
            limits,
            started_at: Instant::now(),
            earlier_time: Duration::ZERO,
            missing_servers: missing.names,
            history: Vec::new(),
            provider_turns: Vec::new(),
            turn_count: 0,
            tool_turn_count: 0,
            turns: Vec::new(),
            executed: Vec::new(),
            loop_guard: LoopGuard::default(),
            usage: TokenUsage::default(),
            micro_usd: 0,
            last_output: None,
            record,
            model_call,
            _slot: slot,
        };
        let response = task::start(run, None).response(&id).await;
        response.map_err(|error| match error {
            ResumeError::Model(error) => error,
            // The other errors refuse a resume, which cannot happen to a new run.
            _ => ModelError::Cancelled,
        })
    }
}

/// Returns how callers share concurrent runs. None of them waits.
fn queue_limits(config: &Config) -> QueueLimits {
    QueueLimits {
        slots: config.capacity.runs.max,
        slots_per_owner: config.capacity.runs.max_per_key,
        max_waiting: 0,
        max_waiting_per_owner: 0,
    }
}
