//! `/api/runs`: agent runs, their timelines, and cancelling or resuming them. A caller key can access
//! only its own runs.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::Arguments;
use toolgate::agent::{
    CallDecision, ResumeError, ResumeRequest, RunDetails, RunQuery, RunRecord, RunState, RunStep,
};
use toolgate::approval::{ApprovalScope, DecideError, Decider, Ruling};
use toolgate::audit::AdminAction;
use toolgate::metrics::micro_usd_to_dollars;
use utoipa::{IntoParams, ToSchema};

use super::format_time;
use super::page::{PageParams, truncate_page};
use crate::actor::current_actor;
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiBytes, ApiPath, ApiQuery};
use crate::http::models;
use crate::http::schema::{ApprovalStateSchema, RunStateSchema};

/// Identity of a request to `/api/runs`, which determines the runs it can access.
#[derive(Clone, Debug)]
pub(crate) enum RunAccess {
    Admin,
    Key(String),
}

/// An agent run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    id: String,
    #[schema(value_type = RunStateSchema)]
    state: &'static str,
    #[schema(required)]
    stop_reason: Option<String>,
    /// Name of the caller's key; null for a caller without a key.
    #[schema(required)]
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
    #[schema(required)]
    ended_at: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    runs: Vec<RunView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A run and its timeline.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunDetail {
    #[serde(flatten)]
    run: RunView,
    /// Text of the model's answer, once the run is done.
    #[schema(required)]
    answer: Option<String>,
    timeline: Vec<RunStepView>,
    /// Approvals that calls of the run needed, with their states.
    approvals: Vec<RunApprovalView>,
}

/// An approval that a call of a run needed.
#[derive(Debug, Serialize, ToSchema)]
struct RunApprovalView {
    id: String,
    #[schema(value_type = ApprovalStateSchema)]
    state: &'static str,
    /// Why it was denied.
    #[schema(required)]
    reason: Option<String>,
}

/// A step of a run: `turn`, `call_opened`, `call_closed`, `call_waits`, `answered`, `resumed` or `ended`.
#[derive(Debug, Serialize, ToSchema)]
struct RunStepView {
    at: String,
    #[schema(value_type = Object)]
    step: Value,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunParams {
    /// Only runs in this state.
    state: Option<String>,
    /// Maximum number of items to return, up to 1000. Defaults to 100.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Decisions on the calls that a run is waiting for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {
    #[serde(default)]
    #[schema(required = false)]
    decisions: Vec<CallDecisionBody>,
    /// Whether to stream the response. Defaults to the mode of the original request.
    stream: Option<bool>,
}

/// A decision on one pending call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CallDecisionBody {
    /// Id that the model assigned to the call.
    id: String,
    /// `approve`, `deny`, or `result` for a tool that the caller executes.
    decision: String,
    /// With `approve`: arguments to use instead of the model's.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// With `deny`: the reason, passed on to the model.
    reason: Option<String>,
    /// With `result`: the tool's output.
    result: Option<String>,
    /// With `result`: whether the tool failed.
    #[serde(default)]
    is_error: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cancelled {
    cancelled: String,
}

/// List runs, newest first.
#[utoipa::path(get, path = "/api/runs", tag = "api", params(RunParams), responses((status = 200, body = RunPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    Extension(access): Extension<RunAccess>,
    ApiQuery(params): ApiQuery<RunParams>,
) -> Result<Json<RunPage>, ApiError> {
    if let Some(state) = &params.state
        && RunState::from_name(state).is_none()
    {
        let message =
            "`state` must be `running`, `done`, `waiting`, `failed`, `cancelled` or `interrupted`";
        return Err(ApiError::bad_request(message));
    }
    let limit = PageParams::page_size(params.limit)?;
    let query = RunQuery {
        caller: match access {
            RunAccess::Admin => None,
            RunAccess::Key(key) => Some(key),
        },
        state: params.state,
        before: params.cursor,
        limit: limit + 1,
    };
    let runs = app.gateway().runs().list(&query).await;
    let mut runs = runs.map_err(ChangeError::Store)?;
    let next_cursor = truncate_page(&mut runs, limit, |run| run.id.clone());
    Ok(Json(RunPage {
        runs: runs.into_iter().map(RunView::new).collect(),
        next_cursor,
    }))
}

/// Get a run and its timeline.
#[utoipa::path(get, path = "/api/runs/{id}", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = RunDetail), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    Extension(access): Extension<RunAccess>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<RunDetail>, ApiError> {
    let RunDetails { record, steps, .. } = find_run(&app, &access, &id).await?;
    let answer = (record.state == RunState::Done).then(|| last_text(&steps));
    let approvals = run_approvals(&app, &steps).await?;
    let timeline = steps
        .into_iter()
        .map(|RunStep { at, step, .. }| RunStepView {
            at: format_time(at),
            step,
        });
    Ok(Json(RunDetail {
        run: RunView::new(record),
        answer: answer.flatten(),
        timeline: timeline.collect(),
        approvals,
    }))
}

/// Returns the text of the last turn.
fn last_text(steps: &[RunStep]) -> Option<String> {
    let turn = steps.iter().rfind(|step| step.step["kind"] == "turn")?;
    turn.step["text"].as_str().map(str::to_owned)
}

/// Reads the approvals that the calls of a run needed. Those that were deleted meanwhile are left out.
async fn run_approvals(app: &App, steps: &[RunStep]) -> Result<Vec<RunApprovalView>, ApiError> {
    let mut ids: Vec<String> = Vec::new();
    let waiting = steps
        .iter()
        .filter(|step| step.step["kind"] == "call_waits");
    for step in waiting {
        let (approvals, _) = waiting_approvals(&step.step);
        ids.extend(
            approvals
                .into_iter()
                .filter(|id| !ids.contains(id))
                .collect::<Vec<_>>(),
        );
    }
    let mut views = Vec::new();
    for id in ids {
        let approval = app.gateway().approvals().get(&id).await;
        if let Some(approval) = approval.map_err(ChangeError::Store)? {
            views.push(RunApprovalView {
                id,
                state: approval.state.as_str(),
                reason: approval.decision.and_then(|decision| decision.reason),
            });
        }
    }
    Ok(views)
}

/// Cancel a run, including its tool calls and model request in flight.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = Cancelled), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(access): Extension<RunAccess>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Cancelled>, ApiError> {
    let RunDetails { record, .. } = find_run(&app, &access, &id).await?;
    if record.state == RunState::Running {
        let action = AdminAction::new(&current_actor(), "run.cancel", &id);
        app.gateway()
            .audit()
            .record_action(action)
            .await
            .map_err(ChangeError::from)?;
    }
    if app.gateway().runs().cancel(&id) {
        Ok(Json(Cancelled { cancelled: id }))
    } else {
        let message = format!("run `{id}` is {}, not running", record.state.as_str());
        Err(ApiError::new(StatusCode::CONFLICT, "conflict", message))
    }
}

/// Resume a waiting run: execute the approved calls and respond in the dialect of the original request. Decisions
/// that approvers have made elsewhere need not be repeated.
#[utoipa::path(post, path = "/api/runs/{id}/resume", tag = "api", params(("id" = String, Path)), request_body = ResumeBody,
    responses((status = 200, description = "the model's response, or an event stream"), (status = 400, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(access): Extension<RunAccess>,
    ApiPath(id): ApiPath<String>,
    ApiBytes(body): ApiBytes,
) -> Result<Response, ApiError> {
    let body: ResumeBody = if body.trim_ascii().is_empty() {
        ResumeBody::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::bad_request(format!("Invalid request payload: {error}")))?
    };
    let RunDetails { steps, .. } = find_run(&app, &access, &id).await?;
    let mut decisions = HashMap::new();
    for decision in body.decisions {
        let (approvals, is_suspended_script) = pending_approvals(&steps, &decision.id);
        if is_suspended_script && decision.arguments.is_some() {
            return Err(ResumeError::ScriptStarted(decision.id).into());
        }
        let (call, decision) = decision.into_decision()?;
        let decision = decide_approvals(&app, &access, &approvals, decision).await?;
        decisions.insert(call, decision);
    }
    let request = ResumeRequest {
        decisions,
        decided_by: access.name().to_owned(),
        stream: body.stream,
    };
    let resumed = app.gateway().runs().resume(&id, request);
    Ok(models::model_response(resumed.await?))
}

/// Returns the approvals that a call waits for, and whether the call is a script suspended midway.
fn pending_approvals(steps: &[RunStep], call: &str) -> (Vec<String>, bool) {
    let mut steps = steps.iter().rev().map(|step| &step.step);
    let waiting = steps.find(|step| step["kind"] == "call_waits" && step["id"] == call);
    waiting.map(waiting_approvals).unwrap_or_default()
}

/// Returns the approvals that a waiting call needs, and whether the call is a script suspended midway.
fn waiting_approvals(step: &Value) -> (Vec<String>, bool) {
    let inner = step["inner"].as_array();
    let calls: Vec<&Value> = match inner {
        Some(inner) => inner.iter().collect(),
        None => vec![step],
    };
    let approvals = calls
        .iter()
        .filter_map(|step| step["approval_id"].as_str().map(str::to_owned));
    (approvals.collect(), inner.is_some())
}

/// Decides the approvals of a call if the requester is an approver. The run then uses the approvals as
/// if another approver had decided them.
async fn decide_approvals(
    app: &App,
    access: &RunAccess,
    approvals: &[String],
    decision: CallDecision,
) -> Result<CallDecision, ApiError> {
    let decider = match access {
        RunAccess::Admin => Some(Decider::Admin),
        RunAccess::Key(key) if app.gateway().keys().is_approver(key) => {
            Some(Decider::Key(key.clone()))
        }
        RunAccess::Key(_) => None,
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
            scope: ApprovalScope::Once,
        },
        CallDecision::Result { .. } => return Ok(decision),
    };
    for approval in approvals {
        let decided = app
            .gateway()
            .approvals()
            .decide(approval, ruling.clone(), &decider);
        match decided.await {
            // An earlier decision stands.
            Ok(_) | Err(DecideError::AlreadyDecided(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match decision {
        // The approval already holds the edited arguments.
        CallDecision::Approve { .. } => CallDecision::Approve { arguments: None },
        decision => decision,
    })
}

/// Finds a run that the requester can access. Runs of other callers are reported as not found, so that
/// their existence is not revealed.
async fn find_run(app: &App, access: &RunAccess, id: &str) -> Result<RunDetails, ApiError> {
    let is_accessible = |record: &RunRecord| match access {
        RunAccess::Admin => true,
        RunAccess::Key(key) => record.caller.as_ref() == Some(key),
    };
    app.gateway()
        .runs()
        .get(id)
        .await
        .map_err(ChangeError::Store)?
        .filter(|run| is_accessible(&run.record))
        .ok_or_else(|| ApiError::not_found(format!("no run with id `{id}`")))
}

impl RunAccess {
    fn name(&self) -> &str {
        match self {
            Self::Admin => "admin",
            Self::Key(key) => key,
        }
    }
}

impl CallDecisionBody {
    fn into_decision(self) -> Result<(String, CallDecision), ApiError> {
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
            cost_usd: micro_usd_to_dollars(record.cost_micro_usd.unsigned_abs()),
            started_at: format_time(record.started_at),
            ended_at: record.ended_at.map(format_time),
        }
    }
}

impl From<ResumeError> for ApiError {
    fn from(error: ResumeError) -> Self {
        let message = error.to_string();
        match error {
            ResumeError::Unknown(_) => Self::not_found(message),
            ResumeError::Undecided(_) => Self::bad_request(message),
            ResumeError::Model(error) => {
                let refused = Self::new(error.status(), "model", message);
                match models::retry_after(&error) {
                    Some(after) => refused.with_retry_after(after),
                    None => refused,
                }
            }
            ResumeError::Store(_) => Self::store_unavailable(message),
            // The others: the state of the run does not allow it.
            _ => Self::new(StatusCode::CONFLICT, "conflict", message),
        }
    }
}
