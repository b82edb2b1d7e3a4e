//! `/api/permissions`: rules, how approvals are had, and what was granted for good.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::State;
use axum::extract::rejection::{BytesRejection, PathRejection};
use serde::Serialize;
use serde_json::{Map, Value};
use toolgate::approval::Grant;
use toolgate_core::config::{Approver, Permissions};
use toolgate_core::policy::{Hint, RuleSpec, Verdict};
use utoipa::ToSchema;

use super::changes::object;
use super::{Deleted, time};
use crate::configuration::{ChangeError, Source};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// Who decides about tool calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PermissionsView {
    /// Verdict where no rule matches, if it is stricter than the tool lists.
    #[schema(value_type = Option<String>)]
    default: Option<Verdict>,
    rules: Vec<RuleView>,
    /// Who may answer `ask`: `admin`, `client`.
    #[schema(value_type = Vec<String>)]
    approval_by: Vec<Approver>,
    /// In seconds.
    approval_expiry: f64,
    approval_wait: f64,
    /// Answers to `ask` that were given for good.
    grants: Vec<GrantView>,
    /// `file`, or `api` once it was set here.
    source: &'static str,
}

/// A rule as it was written.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleView {
    /// Where it stands.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Patterns for named arguments.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    environment: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    hint: Option<Hint>,
    /// `allow`, `manual`, `ask` or `deny`.
    #[schema(value_type = String)]
    action: Verdict,
}

/// A standing answer to every `ask` about one tool by one caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GrantView {
    id: String,
    /// The name of the caller's key; null for callers who need none.
    caller: Option<String>,
    server: String,
    tool: String,
    /// The approval with which it was given.
    approval: String,
    granted_by: String,
    created_at: String,
}

/// The rules in force.
#[utoipa::path(get, path = "/api/permissions", tag = "api", responses((status = 200, body = PermissionsView)))]
pub(crate) async fn get(State(app): State<App>) -> Result<Json<PermissionsView>, ApiError> {
    let published = app.configuration().published();
    let grants = app.gateway().store().grants().await;
    let grants = grants.map_err(ChangeError::Store)?;
    let Permissions {
        rules,
        default,
        approvals,
    } = &published.config.permissions;
    Ok(Json(PermissionsView {
        default: *default,
        rules: rules.iter().map(RuleView::new).collect(),
        approval_by: approvals.by.clone(),
        approval_expiry: approvals.expiry.as_secs_f64(),
        approval_wait: approvals.wait.as_secs_f64(),
        grants: grants.into_iter().map(GrantView::new).collect(),
        source: published.permissions_by.unwrap_or(Source::File).as_str(),
    }))
}

/// Set all rules. They hold instead of those in the configuration files until those change.
#[utoipa::path(put, path = "/api/permissions", tag = "api", request_body = Object,
    responses((status = 200, body = PermissionsView), (status = 400, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PermissionsView>, ApiError> {
    let mut section = object(&body?)?;
    // What GET shows may be sent back.
    for shown in ["grants", "source"] {
        section.shift_remove(shown);
    }
    if !section.get("rules").is_some_and(Value::is_array) {
        return Err(ApiError::bad_request(
            "`rules` must be a list: they are replaced as a whole, so leaving it away would remove them all",
        ));
    }
    section.retain(|_, value| !value.is_null());
    if let Some(Value::Array(rules)) = section.get_mut("rules") {
        for rule in rules.iter_mut().filter_map(Value::as_object_mut) {
            rule.shift_remove("place");
        }
    }
    let section = Value::Object(section);
    app.configuration().set_permissions(Some(section)).await?;
    get(State(app)).await
}

/// Go back to the rules of the configuration files.
#[utoipa::path(delete, path = "/api/permissions", tag = "api", responses((status = 200, body = PermissionsView)))]
pub(crate) async fn reset(State(app): State<App>) -> Result<Json<PermissionsView>, ApiError> {
    app.configuration().set_permissions(None).await?;
    get(State(app)).await
}

/// Take a standing grant back.
#[utoipa::path(delete, path = "/api/permissions/grants/{id}", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody)))]
pub(crate) async fn take_back(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(id) = id?;
    let dropped = app.gateway().store().drop_grant(&id).await;
    match dropped.map_err(ChangeError::Store)? {
        true => Ok(Json(Deleted { deleted: id })),
        false => Err(ApiError::not_found(format!(
            "no grant has the id `{id}`; see /api/permissions"
        ))),
    }
}

impl RuleView {
    fn new(rule: &RuleSpec) -> Self {
        let when = &rule.when;
        let arguments = when.arguments.iter();
        let written = |(name, patterns): &(String, Vec<String>)| {
            let value = match patterns.as_slice() {
                [one] => Value::from(one.as_str()),
                several => Value::from(several),
            };
            (name.clone(), value)
        };
        Self {
            place: rule.place.clone(),
            tool: rule.tool.clone(),
            server: rule.server.clone(),
            arguments: arguments.map(written).collect(),
            roles: when.roles.clone(),
            environment: when.environments.clone(),
            hint: when.hint,
            action: rule.verdict,
        }
    }
}

impl GrantView {
    fn new(grant: Grant) -> Self {
        Self {
            id: grant.id,
            caller: grant.caller,
            server: grant.server,
            tool: grant.tool,
            approval: grant.approval,
            granted_by: grant.granted_by,
            created_at: time(grant.created_at),
        }
    }
}
