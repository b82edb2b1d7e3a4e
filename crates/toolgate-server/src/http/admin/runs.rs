//! `/api/runs`: what agents did, and going on with runs that wait. A caller's key sees and resumes
//! its own runs alone.

use std::collections::HashMap;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::Arguments;
use toolgate::agent::{CallDecision, ResumeError, RunRecord, RunState};
use toolgate::approval::{ApprovalScope, DecideError, Decider, Ruling};
use toolgate::metrics::dollars;
use toolgate::models::RunQuery;
use utoipa::{IntoParams, ToSchema};

use super::page::Page;
use super::time;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::models;

/// Who looks at runs.
#[derive(Clone, Debug)]
pub(crate) enum Runner {
    Admin,
    Key(String),
}

/// A run of an agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    id: String,
    /// `running`, `done`, `waiting`, `failed`, `cancelled` or `interrupted`.
    state: &'static str,
    stop_reason: Option<String>,
    /// The name of the caller's key; null for callers who need none.
    caller: Option<String>,
    request_id: String,
    model: String,
    /// `openai`, `responses` or `anthropic`.
    dialect: String,
    stream: bool,
    iterations: i64,
    input_tokens: i64,
    output_tokens: i64,
    cost_usd: f64,
    started_at: String,
    ended_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    runs: Vec<RunView>,
    next_cursor: Option<String>,
}

/// A run with all that happened in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    run: RunView,
    timeline: Vec<StepView>,
}

/// One step of a run: `turn`, `call_opened`, `call_closed`, `call_waits`, `answered`, `resumed` or `ended`.
#[derive(Debug, Serialize, ToSchema)]
struct StepView {
    at: String,
    #[schema(value_type = Object)]
    step: Value,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Params {
    /// Only runs in this state.
    state: Option<String>,
    /// How many to answer with, at most 1000. Default 100.
    limit: Option<usize>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// What to do with the calls that a run waits for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {
    #[serde(default)]
    #[schema(required = false)]
    decisions: Vec<DecisionBody>,
    /// Answer as a stream; as the run was asked for where absent.
    stream: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct DecisionBody {
    /// The call, by the id that the model gave it.
    id: String,
    /// `approve`, `deny`, or `result` for a tool of your own.
    decision: String,
    /// Run it with these arguments instead.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// Why it is denied; the model is told.
    reason: Option<String>,
    /// What the tool answered.
    result: Option<String>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cancelled {
    cancelled: String,
}

/// Runs, the newest first.
#[utoipa::path(get, path = "/api/runs", tag = "api", params(Params), responses((status = 200, body = RunPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(runner): Extension<Runner>,
    params: Result<Query<Params>, QueryRejection>,
) -> Result<Json<RunPage>, ApiError> {
    let Query(params) = params?;
    if let Some(state) = &params.state
        && RunState::named(state).is_none()
    {
        let message =
            "`state` must be `running`, `done`, `waiting`, `failed`, `cancelled` or `interrupted`";
        return Err(ApiError::bad_request(message));
    }
    let limit = Page::limit(params.limit)?;
    let query = RunQuery {
        caller: match runner {
            Runner::Admin => None,
            Runner::Key(key) => Some(key),
        },
        state: params.state,
        before: params.cursor,
        limit: limit + 1,
    };
    let runs = app.gateway().models().list_runs(&query).await;
    let mut runs = runs.map_err(ChangeError::Store)?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next_cursor = runs.last().filter(|_| more).map(|run| run.id.clone());
    Ok(Json(RunPage {
        runs: runs.into_iter().map(RunView::new).collect(),
        next_cursor,
    }))
}

/// A run and its timeline.
#[utoipa::path(get, path = "/api/runs/{id}", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = RunDetail), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(runner): Extension<Runner>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<RunDetail>, ApiError> {
    let Path(id) = id?;
    let (record, steps) = found(&app, &runner, &id).await?;
    let timeline = steps
        .into_iter()
        .map(|(at, step)| StepView { at: time(at), step });
    Ok(Json(RunDetail {
        run: RunView::new(record),
        timeline: timeline.collect(),
    }))
}

/// Cut a run off: its tools are cancelled, and the model is hung up on.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = Cancelled), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(runner): Extension<Runner>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Cancelled>, ApiError> {
    let Path(id) = id?;
    let (record, _) = found(&app, &runner, &id).await?;
    match app.gateway().models().cancel_run(&id) {
        true => Ok(Json(Cancelled { cancelled: id })),
        false => {
            let message = format!("run `{id}` is {}, not running", record.state.as_str());
            Err(ApiError::new(StatusCode::CONFLICT, "conflict", message))
        }
    }
}

/// Go on with a run: run what is approved, and answer in the dialect in which it was asked for.
#[utoipa::path(post, path = "/api/runs/{id}/resume", tag = "api", params(("id" = String, Path)), request_body = ResumeBody,
    responses((status = 200, description = "the model's answer, or an event stream"), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(runner): Extension<Runner>,
    id: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let (Path(id), body) = (id?, body?);
    let body: ResumeBody = match body.trim_ascii().is_empty() {
        true => ResumeBody::default(),
        false => serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad_request(format!("Invalid request payload: {error}")))?,
    };
    let (_, steps) = found(&app, &runner, &id).await?;
    let mut decisions = HashMap::new();
    for decision in body.decisions {
        let (approvals, is_begun) = waits(&steps, &decision.id);
        if is_begun && decision.arguments.is_some() {
            return Err(ResumeError::Begun(decision.id).into());
        }
        let (call, decision) = decision.read()?;
        let decision = decide(&app, &runner, &approvals, decision).await?;
        decisions.insert(call, decision);
    }
    let models = app.gateway().models();
    let resumed = models.resume(&id, &decisions, runner.name(), body.stream);
    Ok(models::written(resumed.await?))
}

/// The approvals that a call waits for, and whether it is a script that waits in the middle.
fn waits(steps: &[(i64, Value)], call: &str) -> (Vec<String>, bool) {
    let mut steps = steps.iter().rev().map(|(_, step)| step);
    let waits = steps.find(|step| step["kind"] == "call_waits" && step["id"] == call);
    let inner = waits.and_then(|step| step["inner"].as_array());
    let asked: Vec<&Value> = match inner {
        Some(inner) => inner.iter().collect(),
        None => waits.into_iter().collect(),
    };
    let approvals = asked
        .iter()
        .filter_map(|step| step["approval_id"].as_str().map(str::to_owned));
    (approvals.collect(), inner.is_some())
}

/// A call that an approver must decide about is decided there, by whoever may; the run then takes
/// it like anyone else's.
async fn decide(
    app: &App,
    runner: &Runner,
    approvals: &[String],
    decision: CallDecision,
) -> Result<CallDecision, ApiError> {
    let decider = match runner {
        Runner::Admin => Some(Decider::Admin),
        Runner::Key(key) if app.gateway().is_approver(key) => Some(Decider::Key(key.clone())),
        Runner::Key(_) => None,
    };
    let Some(decider) = decider.filter(|_| !approvals.is_empty()) else {
        return Ok(decision);
    };
    let ruling = match &decision {
        CallDecision::Approve { arguments } => {
            let arguments = arguments.as_deref().map(Arguments::parse).transpose();
            Ruling::Approve {
                scope: ApprovalScope::Once,
                arguments: arguments.map_err(|error| ApiError::bad_request(error.to_string()))?,
            }
        }
        CallDecision::Deny { reason } => Ruling::Deny {
            reason: reason.clone(),
        },
        CallDecision::Result { .. } => return Ok(decision),
    };
    for approval in approvals {
        let decided = app.gateway().decide(approval, ruling.clone(), &decider);
        match decided.await {
            // Whoever decided before has decided.
            Ok(_) | Err(DecideError::Settled(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match decision {
        // The approval holds the arguments.
        CallDecision::Approve { .. } => CallDecision::Approve { arguments: None },
        decision => decision,
    })
}

/// A run that this one may see; another's is as unknown as one that never was.
async fn found(
    app: &App,
    runner: &Runner,
    id: &str,
) -> Result<(RunRecord, Vec<(i64, Value)>), ApiError> {
    let found = app.gateway().models().run(id).await;
    let found = found.map_err(ChangeError::Store)?;
    let mine = |record: &RunRecord| match runner {
        Runner::Admin => true,
        Runner::Key(key) => record.caller.as_ref() == Some(key),
    };
    let found = found.filter(|(record, _)| mine(record));
    found.ok_or_else(|| ApiError::not_found(format!("no run is called `{id}`")))
}

impl Runner {
    fn name(&self) -> &str {
        match self {
            Self::Admin => "admin",
            Self::Key(key) => key,
        }
    }
}

impl DecisionBody {
    fn read(self) -> Result<(String, CallDecision), ApiError> {
        let decision = match (self.decision.as_str(), self.result) {
            ("approve", None) => CallDecision::Approve {
                arguments: self.arguments.map(|raw| raw.get().to_owned()),
            },
            ("deny", None) => CallDecision::Deny {
                reason: self.reason,
            },
            ("result", Some(text)) => CallDecision::Result {
                text,
                is_error: self.is_error,
            },
            _ => {
                let message =
                    "`decision` must be `approve`, `deny`, or `result` together with `result`";
                return Err(ApiError::bad_request(message));
            }
        };
        Ok((self.id, decision))
    }
}

impl RunView {
    fn new(record: RunRecord) -> Self {
        Self {
            id: record.id,
            state: record.state.as_str(),
            stop_reason: record.stop_reason,
            caller: record.caller,
            request_id: record.request_id,
            model: record.model,
            dialect: record.dialect,
            stream: record.stream,
            iterations: record.iterations,
            input_tokens: record.input_tokens,
            output_tokens: record.output_tokens,
            cost_usd: dollars(record.cost_micro_usd.unsigned_abs()),
            started_at: time(record.started_at),
            ended_at: record.ended_at.map(time),
        }
    }
}

impl From<ResumeError> for ApiError {
    fn from(error: ResumeError) -> Self {
        let message = error.to_string();
        match error {
            ResumeError::Unknown(_) => Self::not_found(message),
            ResumeError::NotWaiting { .. }
            | ResumeError::NeedsApprover { .. }
            | ResumeError::CallersOwn(_)
            | ResumeError::Begun(_) => Self::new(StatusCode::CONFLICT, "conflict", message),
            ResumeError::Undecided(_) => Self::bad_request(message),
            ResumeError::Model(error) => Self::new(error.status(), "model", message),
            ResumeError::Store(_) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", message),
        }
    }
}
