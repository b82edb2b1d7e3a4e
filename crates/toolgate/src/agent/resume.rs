//! Going on with a run: after somebody has decided about its calls, or after a crash.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::policy::Verdict;
use toolgate_core::scope::Filters;
use toolgate_llm::prompt::{Call, Part};
use toolgate_llm::tools::OwnTools;
use toolgate_llm::turn::awaits_caller;
use toolgate_llm::{Body, Usage};

use super::act::{AT_ONCE, Came, Executed, Pending, tool_call};
use super::guard::Guard;
use super::journal::{Journal, call_of, part_of};
use super::sink::{CallEar, Sink};
use super::task::Started;
use super::{Run, RunRecord};
use crate::call::Request;
use crate::caller::Caller;
use crate::models::{Asked, ModelAnswer, ModelError, ModelRequest, Models, Operation};
use crate::store::StoreError;

/// What is decided about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// Run it, perhaps with other arguments.
    Approve {
        arguments: Option<String>,
    },
    Deny {
        reason: Option<String>,
    },
    /// It was run elsewhere, with this result.
    Result {
        text: String,
        is_error: bool,
    },
}

/// Why a run cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error("no run is called `{0}`")]
    Unknown(String),
    #[error("run `{id}` is {state}; only one that waits, failed or was interrupted can go on")]
    NotWaiting { id: String, state: &'static str },
    #[error("say what to do with the calls {}", .0.join(", "))]
    Undecided(Vec<String>),
    #[error("call `{call}` needs an approver; approval `{approval}` is still open")]
    NeedsApprover { call: String, approval: String },
    #[error(
        "the script of call `{0}` has made calls already; it can go on or be denied, and not be changed"
    )]
    Begun(String),
    #[error(
        "run `{0}` waits for a call in a form that only its caller can answer; send the conversation with that answer"
    )]
    CallersOwn(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the run could not be read or written; try again in a moment")]
    Store(#[from] StoreError),
}

/// The request of a run, as it is kept.
pub(super) fn request_value(asked: &Asked) -> Value {
    let headers = asked.context.headers.iter();
    let kept = headers.filter(|(name, _)| is_kept(name.as_str()));
    let headers: Vec<Value> = kept
        .filter_map(|(name, value)| Some(json!([name.as_str(), value.to_str().ok()?])))
        .collect();
    let Filters {
        include_clients,
        exclude_clients,
        include_tools,
        exclude_tools,
        ..
    } = &asked.context.filters;
    json!({
        "body": asked.body.text(),
        "headers": headers,
        "filters": [include_clients, exclude_clients, include_tools, exclude_tools],
    })
}

/// Headers that change what a run does; credentials are not among them.
fn is_kept(name: &str) -> bool {
    name.starts_with("x-toolgate-")
        || name.starts_with("anthropic-")
        || matches!(
            name,
            "traceparent" | "tracestate" | "openai-beta" | "user-agent"
        )
}

fn asked_of(record: &RunRecord, request: &Value) -> Result<Asked, ModelError> {
    let mut headers = HeaderMap::new();
    for pair in request["headers"].as_array().into_iter().flatten() {
        let name = pair[0]
            .as_str()
            .and_then(|name| HeaderName::try_from(name).ok());
        let value = pair[1]
            .as_str()
            .and_then(|value| HeaderValue::from_str(value).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let list = |at: usize| {
        serde_json::from_value(request["filters"][at].clone())
            .ok()
            .flatten()
    };
    let context = Arc::new(Request {
        id: Some(record.request_id.clone()),
        filters: Filters {
            include_clients: list(0),
            exclude_clients: list(1),
            include_tools: list(2),
            exclude_tools: list(3),
            ..Filters::default()
        },
        headers,
        ..Request::default()
    });
    let dialect = Dialect::ALL
        .into_iter()
        .find(|dialect| dialect.as_str() == record.dialect);
    let text = request["body"].as_str().unwrap_or_default().to_owned();
    let body = Body::read(Bytes::from(text))?;
    let caller = match &record.caller {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    };
    let request = ModelRequest {
        dialect: dialect.unwrap_or(Dialect::Chat),
        operation: Operation::Complete,
        body: body.bytes().clone(),
        query: None,
        request: Arc::clone(&context),
    };
    Ok(Asked::new(request, body, caller)?.in_context(context))
}

/// What was decided about a run, and how it stands.
pub(super) struct Decided {
    told: Told,
    /// Calls that have no answer.
    left: Vec<Call>,
    decisions: HashMap<String, CallDecision>,
    by: String,
    /// As it was before.
    pub(super) record: RunRecord,
}

/// What a journal tells of a run.
#[derive(Default)]
pub(super) struct Told {
    run: Vec<Value>,
    pub(super) turns: Vec<String>,
    pub(super) iterations: u32,
    pub(super) executed: Vec<Executed>,
    pub(super) usage: Usage,
    pub(super) micro_usd: u64,
    /// The calls of the last turn, and its items, while they are not answered.
    calls: Vec<Call>,
    items: Vec<Value>,
    /// Calls of the last turn that were about to run.
    pub(super) opened: Vec<String>,
    /// Calls whose scripts wait in the middle, and what those have made already, in words.
    begun: HashMap<String, String>,
    next: i64,
}

impl Told {
    pub(super) fn read(steps: &[(i64, i64, Value)]) -> Self {
        let mut told = Self::default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        for (seq, _, step) in steps {
            told.next = seq + 1;
            let id = step["id"].as_str().unwrap_or_default().to_owned();
            match step["kind"].as_str().unwrap_or_default() {
                "turn" => {
                    told.iterations += 1;
                    told.turns
                        .push(step["text"].as_str().unwrap_or_default().to_owned());
                    told.calls = list(&step["calls"]).iter().map(call_of).collect();
                    told.items = list(&step["items"]);
                    told.opened.clear();
                    told.usage = told.usage.and(Usage {
                        input: count(&step["input_tokens"]),
                        output: count(&step["output_tokens"]),
                        cached: count(&step["cached_tokens"]),
                        cache_written: 0,
                        reasoning: count(&step["reasoning_tokens"]),
                    });
                    told.micro_usd += count(&step["cost_micro_usd"]);
                }
                "call_opened" => told.opened.push(id),
                "call_waits" => {
                    told.opened.retain(|known| *known != id);
                    if step["inner"].is_array() {
                        let made = step["made"].as_str().unwrap_or_default();
                        told.begun.insert(id, made.to_owned());
                    }
                }
                "call_closed" => {
                    told.executed.push(Executed {
                        call: call_of(step),
                        turn: u32::try_from(count(&step["turn"])).unwrap_or_default(),
                        parts: list(&step["result"]).iter().map(part_of).collect(),
                        is_error: step["is_error"] == true,
                        ms: count(&step["ms"]),
                    });
                }
                "answered" => {
                    told.run.append(&mut told.items);
                    told.run.extend(list(&step["items"]));
                    told.calls.clear();
                }
                _ => {}
            }
        }
        told
    }

    /// Calls of the last turn that have no answer.
    pub(super) fn left(&self) -> Vec<Call> {
        let turn = self.iterations;
        let answered = |call: &Call| {
            let mut executed = self.executed.iter();
            executed.any(|one| one.turn == turn && one.call.id == call.id)
        };
        self.calls
            .iter()
            .filter(|call| !answered(call))
            .cloned()
            .collect()
    }
}

/// Goes on with a run; one that was taken has an owner, whenever its caller leaves.
pub(crate) async fn resume(
    models: &Models,
    id: &str,
    decisions: &HashMap<String, CallDecision>,
    (by, stream): (&str, Option<bool>),
) -> Result<ModelAnswer, ResumeError> {
    let (own, run, by) = (models.clone(), id.to_owned(), by.to_owned());
    let decisions = decisions.clone();
    let work = async move { go_on(&own, &run, decisions, (by, stream)).await };
    let started = models.tasks().spawn(work).await;
    let started = started.unwrap_or(Err(ResumeError::Model(ModelError::Cancelled)))?;
    Ok(started.answer(id).await??)
}

async fn go_on(
    models: &Models,
    id: &str,
    decisions: HashMap<String, CallDecision>,
    (by, stream): (String, Option<bool>),
) -> Result<Started, ResumeError> {
    let store = models.store();
    let found = store.run(id).await?;
    let (record, request) = found.ok_or_else(|| ResumeError::Unknown(id.to_owned()))?;
    let told = Told::read(&store.steps(id).await?);
    let left = told.left();
    let mut asked = asked_of(&record, &request)?;
    if awaits_caller(&told.items.iter().collect::<Vec<_>>()) {
        return Err(ResumeError::CallersOwn(id.to_owned()));
    }
    let undecided = undecided(models, &asked, (&told, &left, &record), &decisions);
    if !undecided.is_empty() {
        return Err(ResumeError::Undecided(undecided));
    }
    asked.stream = stream.unwrap_or(record.stream);
    let limits = models.run_limits(&asked)?;
    if !store.take_run(id).await? {
        return Err(ResumeError::NotWaiting {
            id: id.to_owned(),
            state: record.state.as_str(),
        });
    }
    let run = Run {
        id: id.to_owned(),
        models: models.clone(),
        own: OwnTools::of(&asked.body),
        limits,
        began: Instant::now(),
        history: told.run.clone(),
        iterations: told.iterations,
        turns: told.turns.clone(),
        guard: Guard::after(&told.executed),
        executed: told.executed.clone(),
        usage: told.usage,
        micro_usd: told.micro_usd,
        last: None,
        journal: Journal::new(store, id, told.next),
        record: RunRecord {
            state: super::RunState::Running,
            ended_at: None,
            stop_reason: None,
            ..record.clone()
        },
        asked,
    };
    let decided = Decided {
        told,
        left,
        decisions,
        by,
        record,
    };
    Ok(super::task::begin(run, Some(decided)))
}

/// Calls about which somebody must decide. What was under way when the gateway ended, and what
/// would have run unasked, needs nobody.
fn undecided(
    models: &Models,
    asked: &Asked,
    (told, left, record): (&Told, &[Call], &RunRecord),
    decisions: &HashMap<String, CallDecision>,
) -> Vec<String> {
    let interrupted = record.state == super::RunState::Interrupted;
    let own = OwnTools::of(&asked.body);
    let goes_on = |call: &Call| {
        let tool_call = tool_call(call, &asked.context);
        let unasked = || models.engine().preview(&asked.caller, &tool_call) == Verdict::Allow;
        interrupted && !own.contains(&call.name) && (told.opened.contains(&call.id) || unasked())
    };
    let needs = left
        .iter()
        .filter(|call| !decisions.contains_key(&call.id) && !goes_on(call));
    needs.map(|call| call.id.clone()).collect()
}

impl Run {
    /// Gives every call of the last turn its answer, and goes on with the conversation.
    pub(super) async fn decide(
        &mut self,
        decided: &Decided,
        sink: &mut Sink,
    ) -> Result<(), ResumeError> {
        let Decided { told, left, .. } = decided;
        self.journal.resumed(&decided.by).await?;
        if told.calls.is_empty() {
            return Ok(());
        }
        let asked = self.next()?;
        let (request, ear) = (self.request(&asked), sink.ear());
        let answers: Vec<Result<Executed, ResumeError>> = {
            let run = &*self;
            let work = left
                .iter()
                .map(|call| Box::pin(run.decided(call, decided, (&request, &ear))));
            let work: Vec<_> = work.collect();
            let mut work = stream::iter(work).buffered(AT_ONCE).collect();
            loop {
                tokio::select! {
                    answers = &mut work => break answers,
                    () = sink.begin_or_keep_alive() => {}
                }
            }
        };
        // Whatever else happens, what ran is known.
        let mut refused = None;
        for answer in answers {
            match answer {
                Ok(executed) => self.executed.push(executed),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        let turn = self.iterations;
        let of_turn = |call: &Call| {
            let found = self
                .executed
                .iter()
                .rfind(|one| one.turn == turn && one.call.id == call.id);
            found.map(Executed::answered)
        };
        let parts: Vec<Part> = told.calls.iter().filter_map(of_turn).collect();
        let items = super::act::items(self.asked.request.dialect, parts);
        self.journal.answered(&items).await?;
        self.history.extend(told.items.clone());
        self.history.extend(items);
        Ok(())
    }

    /// What a call is answered with, by what was decided about it.
    async fn decided(
        &self,
        call: &Call,
        Decided {
            told, decisions, ..
        }: &Decided,
        (request, ear): (&Arc<Request>, &CallEar),
    ) -> Result<Executed, ResumeError> {
        let executed = match decisions.get(&call.id) {
            Some(CallDecision::Deny { reason }) => {
                let reason = reason.as_deref().unwrap_or("no reason was given");
                let made = told.begun.get(&call.id).map(String::as_str);
                let made = made.unwrap_or_default();
                self.answered_with(call, format!("the call was denied: {reason}{made}"), true)
            }
            Some(CallDecision::Result { text, is_error }) => {
                self.answered_with(call, text.clone(), *is_error)
            }
            // It may have run, so it is not run again, whoever approves it.
            _ if told.opened.contains(&call.id) => self.answered_with(
                call,
                "the run ended while the call was under way: its outcome is unknown, it may have run".to_owned(),
                true,
            ),
            Some(CallDecision::Approve {
                arguments: Some(arguments),
            }) if told.begun.contains_key(&call.id) && *arguments != call.arguments => {
                return Err(ResumeError::Begun(call.id.clone()));
            }
            Some(CallDecision::Approve { arguments }) => {
                self.approved(call, arguments.as_deref(), (request, ear)).await?
            }
            // It was never begun, and runs unasked.
            None => {
                return match self.one(call.clone(), request, ear.clone()).await? {
                    Came::Ran(executed) => Ok(executed),
                    Came::Waits(_) | Came::Late => {
                        Err(ResumeError::Undecided(vec![call.id.clone()]))
                    }
                };
            }
        };
        self.journal.closed(&executed).await?;
        Ok(executed)
    }

    /// Runs a call that was approved, on record before it runs.
    async fn approved(
        &self,
        call: &Call,
        arguments: Option<&str>,
        (request, ear): (&Arc<Request>, &CallEar),
    ) -> Result<Executed, ResumeError> {
        let mut call = call.clone();
        if let Some(arguments) = arguments {
            arguments.clone_into(&mut call.arguments);
        }
        self.journal.opened(&call).await?;
        match self.explicit(call.clone(), request, ear).await {
            Ok(executed) => Ok(executed),
            Err(error) => {
                let pending = Pending::new(call.clone(), false).because(&error);
                self.journal.waits(&pending).await?;
                let Some(approval) = pending.approval else {
                    return Err(ResumeError::Model(ModelError::Refused(error)));
                };
                Err(ResumeError::NeedsApprover {
                    call: call.name,
                    approval,
                })
            }
        }
    }

    fn answered_with(&self, call: &Call, text: String, is_error: bool) -> Executed {
        Executed {
            call: call.clone(),
            turn: self.iterations,
            parts: vec![Part::Text(text)],
            is_error,
            ms: 0,
        }
    }
}
