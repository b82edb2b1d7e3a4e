//! Models: where a request goes, which tools it is given, what comes back, and what it used.
//!
//! A request that goes out in its own dialect keeps its bytes but for the model's name and the
//! tools that are spliced in; its answer passes through as it comes. Others are translated.

mod answer;
mod asked;
mod error;
mod headers;
mod ledger;
mod memory;
mod offer;
mod table;
mod under_way;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use answer::{LONGEST_EVENT, failure as answer_failure, is_stream, whole};
use arc_swap::ArcSwap;
pub(crate) use asked::Asked;
use bytes::Bytes;
pub use error::ModelError;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
pub(crate) use headers::returned;
use http::{HeaderMap, StatusCode};
pub use ledger::ModelRecord;
pub(crate) use ledger::{Ledger, Recording};
use memory::Memory;
use offer::Offers;
use serde_json::Value;
use table::Table;
pub(crate) use table::Target;
use tokio_util::task::TaskTracker;
use toolgate_core::Config;
use toolgate_core::config::{Dialect, RunLimits};
pub use toolgate_llm::event::{Failure, Usage};
use toolgate_llm::prompt::Ignored;
use toolgate_llm::tools::{Form, OwnTools};
use toolgate_llm::upstream::{Clients, Outgoing};
use toolgate_llm::{BadField, Body, Wire as _};
use toolgate_mcp::Environment;
pub(crate) use under_way::{Place, UnderWay};

use crate::agent::{self, CallDecision, ResumeError, RunRecord};
use crate::call::{CallError, Request};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::store::{Store, StoreError, millis};

const DEPTH: &str = "x-toolgate-max-depth";
const BUDGET: &str = "x-toolgate-budget";

/// The way to models; clones share it.
#[derive(Clone, Debug)]
pub struct Models(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    environment: Environment,
    clients: Clients,
    ledger: Ledger,
    table: ArcSwap<Table>,
    offers: Offers,
    memory: Memory,
    /// Runs of agents.
    tasks: TaskTracker,
    runs: Arc<UnderWay>,
    store: Store,
}

/// A request to a model, as a caller sent it.
#[derive(Debug)]
pub struct ModelRequest {
    pub dialect: Dialect,
    pub operation: Operation,
    pub body: Bytes,
    /// The query of the caller's URL, which goes on to a provider of the same dialect.
    pub query: Option<String>,
    pub request: Arc<Request>,
}

impl ModelRequest {
    /// A request in the words of a dialect.
    pub fn new(dialect: Dialect, body: &Value) -> Self {
        Self {
            dialect,
            operation: Operation::Complete,
            body: body.to_string().into(),
            query: None,
            request: Arc::default(),
        }
    }

    /// One with an id, filters and headers.
    #[must_use]
    pub fn of(self, request: &Arc<Request>) -> Self {
        Self {
            request: Arc::clone(request),
            ..self
        }
    }
}

impl ModelAnswer {
    /// All of it, once it is complete; of a stream, all its events.
    pub async fn bytes(self) -> Bytes {
        match self.body {
            AnswerBody::Whole(bytes) => bytes,
            AnswerBody::Stream(mut pieces) => {
                let mut all = Vec::new();
                while let Some(piece) = pieces.next().await {
                    all.extend_from_slice(&piece);
                }
                all.into()
            }
        }
    }
}

/// What is asked of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    #[default]
    Complete,
    /// How many tokens a request has, which only Anthropic's dialect can ask.
    CountTokens,
}

/// The answer to a request.
pub struct ModelAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: AnswerBody,
}

pub enum AnswerBody {
    Whole(Bytes),
    /// Ends early if the provider's does, with an error event.
    Stream(BoxStream<'static, Bytes>),
}

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// As it can be asked for: `provider/model`, or an alias.
    pub name: String,
    pub provider: String,
}

/// A provider, as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderStatus {
    pub name: String,
    pub base_url: String,
    pub dialects: Vec<Dialect>,
    pub models: Vec<String>,
    /// The names of its keys.
    pub keys: Vec<String>,
    /// Whether it can be asked.
    pub ready: bool,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// The key of the caller.
    pub caller: Option<String>,
    pub state: Option<String>,
    /// Only runs before this id: the last one of the page before.
    pub before: Option<String>,
    pub limit: usize,
}

/// A request that was answered, if only with an error.
pub(crate) struct Sent {
    pub(crate) spoken: Dialect,
    pub(crate) response: reqwest::Response,
    pub(crate) recording: Recording,
}

impl Models {
    pub(crate) fn new(
        config: &Config,
        engine: Engine,
        environment: Environment,
        (ledger, store): (Ledger, Store),
    ) -> Self {
        let clients = Clients::default();
        let table = Table::new(&config.models, &environment, &clients);
        Self(Arc::new(Inner {
            engine,
            environment,
            clients,
            ledger,
            table: ArcSwap::from_pointee(table),
            offers: Offers::new(),
            memory: Memory::new(),
            tasks: TaskTracker::new(),
            runs: Arc::default(),
            store,
        }))
    }

    /// Takes up a new configuration; requests under way are not touched.
    pub(crate) fn apply(&self, config: &Config) {
        let table = Table::new(&config.models, &self.0.environment, &self.0.clients);
        self.0.table.store(Arc::new(table));
    }

    /// All providers, and whether they can be asked.
    pub fn providers(&self) -> Vec<ProviderStatus> {
        self.0.table.load().providers()
    }

    /// The models that are known by name.
    pub async fn list(&self) -> Vec<ModelName> {
        self.0.table.load_full().list().await
    }

    /// Answers a request: as an agent if tools in its scope run unasked, else with what the model
    /// says.
    pub async fn complete(
        &self,
        caller: &Caller,
        request: ModelRequest,
    ) -> Result<ModelAnswer, ModelError> {
        if self.0.tasks.is_closed() {
            return Err(ModelError::Refused(CallError::Stopping));
        }
        let body = Body::read(request.body.clone())?;
        let asked = Asked::new(request, body, caller.clone())?;
        let limits = self.run_limits(&asked)?;
        if self.is_for_agent(&asked) {
            // Boxed, as all that is rare, so that it does not make every request larger.
            return Box::pin(agent::run(self, asked, limits)).await;
        }
        let Sent {
            spoken,
            response,
            recording,
        } = self.send(&asked).await?;
        answer::answer(&asked, spoken, response, (recording, &self.0.memory)).await
    }

    /// Several answers at once are nobody's turn, and calls in another form that Chat has for them are
    /// not known to the agent.
    fn is_for_agent(&self, asked: &Asked) -> bool {
        let filters = &asked.context.filters;
        let engine = &self.0.engine;
        let several = asked.body.get("n").is_some_and(|n| n != "1" && n != "null");
        let offered = engine.injects_tools() || !filters.is_empty();
        asked.request.operation == Operation::Complete
            && !several
            && offered
            && engine.has_unasked_tools(&asked.caller, filters)
            && (asked.request.dialect != Dialect::Chat || !OwnTools::of(&asked.body).has_foreign())
    }

    /// The bounds of a run, from the configuration, the key and the request.
    pub(crate) fn run_limits(&self, asked: &Asked) -> Result<RunLimits, ModelError> {
        let headers = &asked.context.headers;
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let wrong = |header: &str, problem: String| {
            ModelError::Field(BadField {
                field: header.to_owned(),
                problem,
            })
        };
        let mut own = match text(BUDGET) {
            Some(budget) => RunLimits::parse(budget).map_err(|problem| wrong(BUDGET, problem))?,
            None => RunLimits::default(),
        };
        if let Some(depth) = text(DEPTH) {
            let depth = depth.trim().parse::<u32>().ok();
            let problem = || wrong(DEPTH, "must be a whole number".to_owned());
            own.depth = Some(depth.ok_or_else(problem)?);
        }
        Ok(self.0.engine.run_limits(&asked.caller).and(own))
    }

    /// Sends a request to its model, or to the next one that may answer instead.
    pub(crate) async fn send(&self, asked: &Asked) -> Result<Sent, ModelError> {
        let table = self.0.table.load_full();
        let targets = table.resolve(&asked.name, asked.body.get("fallbacks"))?;
        let place = self.0.engine.enter_model(&asked.caller).await?;
        let mut place = Some(place);
        let last = targets.len() - 1;
        for (at, target) in targets.iter().enumerate() {
            let parts = (&self.0.ledger, &self.0.engine);
            let mut recording = Recording::new(parts, asked, target, &table);
            let bounded = asked.counts_money || self.0.engine.has_money_budget(&asked.caller);
            if bounded && !table.prices.knows(&target.upstream.name, &target.model) {
                recording.failed(&Err(ModelError::NoPrice(target.shown())));
                return Err(ModelError::NoPrice(target.shown()));
            }
            let answer = self.ask(asked, target, &recording).await;
            let fails = match &answer {
                Ok(response) => table::may_fall_back(response.status().as_u16()),
                Err(ModelError::Send(_)) => true,
                Err(_) => false,
            };
            if fails && at < last {
                recording.failed(&answer);
                tracing::info!(model = %target.shown(), next = %targets[at + 1].shown(), "the next model is asked");
                continue;
            }
            if answer.is_err() {
                recording.failed(&answer);
            }
            return Ok(Sent {
                spoken: target.spoken(asked.request.dialect),
                recording: recording.holding(place.take()),
                response: answer?,
            });
        }
        Err(ModelError::NoModelNamed)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn runs(&self) -> &Arc<UnderWay> {
        &self.0.runs
    }

    /// Cuts a run off; false if it is not under way here.
    pub fn cancel_run(&self, id: &str) -> bool {
        self.0.runs.cancel(id)
    }

    /// Runs, the newest first: of one caller, or of all.
    pub async fn list_runs(&self, query: &RunQuery) -> Result<Vec<RunRecord>, StoreError> {
        let RunQuery {
            caller,
            state,
            before,
            limit,
        } = query;
        let (caller, state, before) = (caller.as_deref(), state.as_deref(), before.as_deref());
        self.0.store.runs(caller, state, before, *limit).await
    }

    /// A run and its steps, with their times.
    pub async fn run(
        &self,
        id: &str,
    ) -> Result<Option<(RunRecord, Vec<(i64, Value)>)>, StoreError> {
        let Some((record, _)) = self.0.store.run(id).await? else {
            return Ok(None);
        };
        let steps = self.0.store.steps(id).await?;
        let steps = steps.into_iter().map(|(_, at, step)| (at, step));
        Ok(Some((record, steps.collect())))
    }

    /// Goes on with a run after its calls were decided about, or after a crash.
    pub async fn resume(
        &self,
        id: &str,
        decisions: &HashMap<String, CallDecision>,
        by: &str,
        stream: Option<bool>,
    ) -> Result<ModelAnswer, ResumeError> {
        agent::resume(self, id, decisions, (by, stream)).await
    }

    /// Keeps an answer of a run that is known by an id of ours: as a conversation, or as another name
    /// for what its provider keeps, over restarts too.
    pub(crate) async fn remember(
        &self,
        asked: &Asked,
        (id, answer): (&str, &str),
        (spoken, known): (Dialect, &str),
    ) {
        let (memory, caller) = (&self.0.memory, &asked.caller);
        if spoken != Dialect::Responses {
            memory.keep(caller, asked.body.text(), answer);
            return;
        }
        memory.rename(caller, id, known);
        let key = caller.key().map(|key| &**key);
        let now = millis(SystemTime::now());
        let put = self.0.store.put_response_id((id, known), key, now).await;
        if let Err(error) = put {
            tracing::warn!(%error, "an answer can be referred to until the gateway ends only");
        }
    }

    /// The provider's id, as JSON, for the answer that a request refers to by one of ours.
    async fn known(&self, asked: &Asked, spoken: Dialect) -> Option<String> {
        let id = memory::reference(asked, spoken)?;
        let caller = &asked.caller;
        if let Some(known) = self.0.memory.known(caller, &id) {
            return Some(known);
        }
        let key = caller.key().map(|key| &**key);
        let known = Box::pin(self.0.store.response_id(&id, key)).await;
        let known = known.ok().flatten()?;
        Some(Value::from(known).to_string())
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// The id of a model call of a run.
    pub(crate) fn turn_id(&self, request: &str, turn: u32) -> String {
        self.0.engine.hook().turn_id(request, turn)
    }

    /// Lets runs end within a bound; those that last longer are cut off.
    pub(crate) async fn drain(&self, within: Duration) {
        self.0.tasks.close();
        let ended = tokio::time::timeout(within, self.0.tasks.wait()).await;
        if ended.is_err() {
            tracing::warn!(runs = self.0.tasks.len(), "runs are cut off");
            self.0.runs.stop();
            self.0.tasks.wait().await;
        }
    }

    async fn ask(
        &self,
        asked: &Asked,
        target: &Target,
        recording: &Recording,
    ) -> Result<reqwest::Response, ModelError> {
        let (wanted, spoken) = (asked.request.dialect, target.spoken(asked.request.dialect));
        let known = self.known(asked, spoken).await;
        let body = self.body(asked, target, known.as_deref())?;
        let mut path = spoken.path().to_owned();
        if asked.request.operation == Operation::CountTokens {
            if spoken != Dialect::Messages {
                return Err(ModelError::CannotCount(target.upstream.name.clone()));
            }
            path.push_str("/count_tokens");
        }
        if let Some(query) = asked.request.query.as_deref().filter(|_| wanted == spoken) {
            path.push('?');
            path.push_str(query);
        }
        let trace = self.0.engine.trace_context(recording.span());
        let outgoing = Outgoing {
            path: &path,
            dialect: spoken,
            model: &target.model,
            body,
            headers: headers::forwarded(&asked.context.headers, spoken, trace.as_ref()),
        };
        Ok(target.upstream.send(&outgoing).await?)
    }

    /// The request as its provider gets it.
    fn body(
        &self,
        asked: &Asked,
        target: &Target,
        known: Option<&str>,
    ) -> Result<Bytes, ModelError> {
        let (wanted, spoken) = (asked.request.dialect, target.spoken(asked.request.dialect));
        let form = Form {
            dialect: wanted,
            flat: target.upstream.flat_schemas,
        };
        let tools = self.0.offers.tools(&self.0.engine, asked, form)?;
        // There may be many of the caller's own, which matter only beside others.
        let tools = match tools.is_empty() {
            true => Cow::Borrowed(""),
            false => tools.besides(&OwnTools::of(&asked.body)),
        };
        let mut edit = asked.body.edit().append("tools", &tools);
        if target.model != asked.name {
            edit = edit.set(
                "model",
                &serde_json::Value::from(target.model.as_str()).to_string(),
            );
        }
        if asked.body.get("fallbacks").is_some_and(table::is_fallbacks) {
            edit = edit.remove("fallbacks");
        }
        if asked.counts_stream(&self.0.engine) {
            let mut options = asked.stream_options();
            options["include_usage"] = Value::Bool(true);
            edit = edit.set("stream_options", &options.to_string());
        }
        if let Some(known) = known {
            edit = edit.set("previous_response_id", known);
        }
        let body = edit.finish();
        if wanted == spoken {
            return Ok(body);
        }
        let text = std::str::from_utf8(&body).unwrap_or_default();
        let text = match wanted {
            Dialect::Responses => self.0.memory.expanded(&asked.caller, text)?,
            Dialect::Chat | Dialect::Messages => text.into(),
        };
        let ignored: &Ignored = &target.upstream.ignored;
        let prompt = wanted.read(&text, ignored)?;
        Ok(Bytes::from(spoken.write(&prompt)?))
    }
}

/// An error in the shape of a dialect.
pub fn error_body(dialect: Dialect, failure: &Failure) -> String {
    dialect.error(failure).to_string()
}

impl std::fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Stream(_) => "Stream",
        })
    }
}

impl std::fmt::Debug for ModelAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelAnswer")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
