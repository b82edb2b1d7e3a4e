//! `/api/approvals`: calls that wait for an approver's decision, or were decided.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::Arguments;
use toolgate::approval::{Approval, ApprovalScope, ApprovalState, DecideError, Decider, Ruling};
use toolgate_core::config::Approver;
use utoipa::{IntoParams, ToSchema};

use super::format_time;
use super::page::{PageParams, truncate_page};
use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiJson, ApiPath, ApiQuery};
use crate::http::schema::ApprovalStateSchema;

/// A call that needs approval, and the decision once it is made.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalView {
    id: String,
    #[schema(value_type = ApprovalStateSchema)]
    state: &'static str,
    server: String,
    tool: String,
    /// Tool name that the model used.
    alias: String,
    #[schema(value_type = Object)]
    arguments: Box<RawValue>,
    /// Arguments that replace `arguments`, if the approver edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    edited_arguments: Option<Box<RawValue>>,
    /// Config key that requires the approval.
    rule: String,
    /// Who may decide: `admin` (the administrator, and keys with the role `approver`), `client` (the user of
    /// the MCP client that made the call).
    approvers: Vec<&'static str>,
    /// Name of the caller's key; null for a caller without a key.
    #[schema(required)]
    caller: Option<String>,
    #[schema(required)]
    session: Option<String>,
    origin: String,
    request_id: String,
    #[schema(required)]
    run_id: Option<String>,
    /// Conversation so far, if the caller sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    conversation: Option<Box<RawValue>>,
    created_at: String,
    expires_at: String,
    #[schema(required)]
    decided_at: Option<String>,
    /// `admin`, `key:NAME`, `client`, or `configuration` if nobody could decide any more.
    #[schema(required)]
    decided_by: Option<String>,
    #[schema(required)]
    scope: Option<&'static str>,
    #[schema(required)]
    reason: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalPage {
    approvals: Vec<ApprovalView>,
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalFilter {
    /// A state, or `all`. Defaults to `pending`.
    state: Option<String>,
    /// Maximum number of items to return, up to 1000. Defaults to 100.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A decision on a pending call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// `approve` or `deny`.
    decision: String,
    /// Scope of the decision. An approval: `once` (default), `session` or `always`. A denial: `once` (default,
    /// the identical call in the same run, or outside of runs by the same caller until the denial expires) or
    /// `caller` (the identical call by the same caller, in any run, until the denial expires).
    scope: Option<String>,
    /// With `approve`: arguments to use instead of the call's.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Box<RawValue>>,
    /// With `deny`: the reason, passed on to the caller.
    reason: Option<String>,
}

/// List approvals, oldest first.
#[utoipa::path(get, path = "/api/approvals", tag = "api", params(ApprovalFilter),
    responses((status = 200, body = ApprovalPage), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<App>,
    ApiQuery(filter): ApiQuery<ApprovalFilter>,
) -> Result<Json<ApprovalPage>, ApiError> {
    let state = match filter.state.as_deref() {
        None => Some(ApprovalState::Pending),
        Some("all") => None,
        Some(name) => Some(ApprovalState::parse(name).ok_or_else(|| {
            let known = ApprovalState::ALL.map(ApprovalState::as_str).join(", ");
            ApiError::bad_request(format!("unknown state `{name}`; use one of: {known}, all"))
        })?),
    };
    let limit = PageParams::page_size(filter.limit)?;
    let found = app
        .gateway()
        .approvals()
        .list(state, filter.cursor.as_deref(), limit + 1);
    let mut found = found.await.map_err(ChangeError::Store)?;
    let next_cursor = truncate_page(&mut found, limit, |approval| approval.id.clone());
    Ok(Json(ApprovalPage {
        approvals: found.iter().map(ApprovalView::new).collect(),
        next_cursor,
    }))
}

/// Get an approval.
#[utoipa::path(get, path = "/api/approvals/{id}", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = ApprovalView), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<ApprovalView>, ApiError> {
    let approval = app
        .gateway()
        .approvals()
        .get(&id)
        .await
        .map_err(ChangeError::Store)?
        .ok_or(DecideError::NotFound(id))?;
    Ok(Json(ApprovalView::new(&approval)))
}

/// Approve or deny a pending call. The first decision wins; later ones get 409.
#[utoipa::path(post, path = "/api/approvals/{id}", tag = "api", params(("id" = String, Path)), request_body = DecisionBody,
    responses((status = 200, body = ApprovalView), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn decide(
    State(app): State<App>,
    Extension(decider): Extension<Decider>,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<DecisionBody>,
) -> Result<Json<ApprovalView>, ApiError> {
    let ruling = body.ruling()?;
    let decided = app
        .gateway()
        .approvals()
        .decide(&id, ruling, &decider)
        .await?;
    tracing::info!(
        approval = id,
        tool = %decided.request.tool,
        state = decided.state.as_str(),
        by = %decider,
        "approval decided"
    );
    Ok(Json(ApprovalView::new(&decided)))
}

impl DecisionBody {
    fn ruling(self) -> Result<Ruling, ApiError> {
        let scope = match self.scope.as_deref() {
            None => ApprovalScope::Once,
            Some(name) => ApprovalScope::parse(name).ok_or_else(|| {
                ApiError::bad_request("`scope` must be `once`, `session`, `always` or `caller`")
            })?,
        };
        match self.decision.as_str() {
            "approve" => {
                let arguments = self.arguments.map(|raw| Arguments::parse(raw.get()));
                let arguments = arguments
                    .transpose()
                    .map_err(|error| ApiError::bad_request(error.to_string()))?;
                Ok(Ruling::Approve { scope, arguments })
            }
            "deny" if self.arguments.is_some() => Err(ApiError::bad_request(
                "`arguments` can be sent only with `approve`",
            )),
            "deny" => Ok(Ruling::Deny {
                reason: self.reason,
                scope,
            }),
            _ => Err(ApiError::bad_request(
                "`decision` must be `approve` or `deny`",
            )),
        }
    }
}

impl ApprovalView {
    pub(crate) fn new(approval: &Approval) -> Self {
        let Approval {
            id,
            state,
            request: ask,
            edited,
            created_at,
            expires_at,
            decision: decided,
        } = approval;
        let decided = decided.as_ref();
        Self {
            id: id.clone(),
            state: state.as_str(),
            server: ask.tool.server.to_string(),
            tool: ask.tool.tool.to_string(),
            alias: ask.alias.clone(),
            arguments: ask.arguments.clone(),
            edited_arguments: edited.clone(),
            rule: ask.rule.clone(),
            approvers: ask.approvers.iter().map(Approver::as_str).collect(),
            caller: ask.from.caller.clone(),
            session: ask.from.session.clone(),
            origin: ask.from.origin.clone(),
            request_id: ask.from.request_id.clone(),
            run_id: ask.from.run_id.clone(),
            conversation: ask.conversation.clone(),
            created_at: format_time(*created_at),
            expires_at: format_time(*expires_at),
            decided_at: decided.map(|decided| format_time(decided.at)),
            decided_by: decided.map(|decided| decided.by.clone()),
            scope: decided.map(|decided| decided.scope.as_str()),
            reason: decided.and_then(|decided| decided.reason.clone()),
        }
    }
}

impl From<DecideError> for ApiError {
    fn from(error: DecideError) -> Self {
        let (status, code) = match error {
            DecideError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            DecideError::AlreadyDecided(_) => (StatusCode::CONFLICT, "settled"),
            DecideError::ToolChanged(_) => (StatusCode::CONFLICT, "tool_changed"),
            DecideError::OwnCall => (StatusCode::FORBIDDEN, "own_call"),
            DecideError::DeciderNotAllowed => (StatusCode::FORBIDDEN, "forbidden"),
            DecideError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            DecideError::Store(error) => return ChangeError::Store(error).into(),
            // `NoSession`, `OnlyOnce`, `WrongScope`, `InvalidArguments`: the decision does not fit the call.
            _ => (StatusCode::BAD_REQUEST, "invalid_request"),
        };
        Self::new(status, code, error.to_string())
    }
}
