//! Handle for agent runs. Decides whether a model request becomes a run, and lists, cancels and resumes
//! runs.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::config::{Dialect, RunLimits, ToolInjection};
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
use crate::engine::Engine;
use crate::metrics::Bound;
use crate::models::{ModelCall, ModelError, ModelRequest, ModelResponse, Models, Operation};
use crate::store::{StoreError, unix_millis};
use toolgate_mcp::fair_queue::{FairQueue, QueueLimits, Slot};

const MAX_DEPTH_HEADER: &str = "x-toolgate-max-depth";
/// Time after which a refused run is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const BUDGET_HEADER: &str = "x-toolgate-budget";

/// Handle for agent runs; clones share its state.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    models: Models,
    store: RunStore,
    tasks: TaskTracker,
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
            active: Arc::default(),
        }))
    }

    /// Applies a new configuration; active runs continue.
    pub(crate) fn apply(&self, config: &Config) {
        self.0.slots.resize(queue_limits(config));
    }

    /// Takes a slot for a run of a caller.
    pub(super) fn acquire_slot(&self, caller: &Caller) -> Result<Slot, CallError> {
        let engine = &self.0.engine;
        engine
            .load()
            .check()
            .inspect_err(|_| engine.report_bound(engine.load().bound(), caller))?;
        let key = caller.key().cloned();
        self.0.slots.try_acquire(&key).ok_or_else(|| {
            let runs = engine.capacity().runs;
            let (bound, max) = match self.0.slots.free() {
                0 => (Bound::Runs, runs.max),
                _ => (Bound::RunsPerKey, runs.max_per_key),
            };
            engine.report_bound(bound, caller);
            CallError::Limited {
                limit: LimitReached::share(key.as_deref(), bound, max),
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
        if self.needs_run(&model_call) {
            // Boxed to keep the future of ordinary requests small.
            return Box::pin(self.run(model_call, limits)).await;
        }
        self.0.models.relay(&model_call).await
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
        let Inner { tasks, active, .. } = &*self.0;
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
    /// Chat's provider-specific tool types.
    fn needs_run(&self, model_call: &ModelCall) -> bool {
        let filters = &model_call.context.filters;
        let engine = &self.0.engine;
        let multiple_choices = model_call
            .body
            .get("n")
            .is_some_and(|n| n != "1" && n != "null");
        // An invalid header is refused when the request is sent.
        let injection = model_call.tool_injection(engine);
        let offers_tools = injection.is_ok_and(|injection| injection != ToolInjection::None);
        model_call.request.operation == Operation::Complete
            && !multiple_choices
            && offers_tools
            && engine.has_auto_execute_tools(&model_call.caller, filters)
            && (model_call.request.dialect != Dialect::Chat
                || !CallerTools::from_body(&model_call.body).has_provider_tools())
    }

    /// Executes a model request as a run.
    async fn run(
        &self,
        model_call: ModelCall,
        limits: RunLimits,
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
            history: Vec::new(),
            iterations: 0,
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
