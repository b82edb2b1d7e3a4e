//! `/api/permissions`: permission rules, approval settings and permanent grants.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value};
use toolgate::approval::{ApprovalGrant, Decider};
use toolgate_core::Config;
use toolgate_core::config::{Approver, NameOwner, NameProblem, PermissionSettings};
use toolgate_core::policy::{Hint, RuleSpec, Verdict};
use utoipa::ToSchema;

use super::{Deleted, format_duration, format_time};
use crate::configuration::{ChangeError, ConfigSource};
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::{ApiObject, ApiPath};
use crate::http::schema::VerdictSchema;

/// Permission rules, approval settings and permanent grants.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PermissionsView {
    /// Verdict if no rule matches; applies only where it is stricter than the server's tool lists.
    #[schema(value_type = Option<VerdictSchema>, required)]
    default: Option<Verdict>,
    rules: Vec<RuleView>,
    /// Who may decide calls with the verdict `ask`: `admin`, `client`.
    #[schema(value_type = Vec<String>)]
    approval_by: Vec<Approver>,
    /// Time until a pending approval expires, such as `15m`.
    approval_expiry: String,
    /// Time that a call waits for a decision before it returns, such as `10s`.
    approval_wait: String,
    /// Standing approvals.
    grants: Vec<GrantView>,
    /// `file`, or `api` if the permissions were set through the API.
    source: &'static str,
    /// Rules and lists (`mcp.blocked_tools`, `security.mcp_server_allowlist`) that name servers or tools
    /// that do not exist.
    problems: Vec<String>,
}

/// A permission rule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleView {
    /// Location of the rule in the configuration.
    place: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    server: Option<String>,
    /// Resources that the rule is about, as `SERVER:URI`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    resource: Option<String>,
    /// Prompts that the rule is about, as `SERVER.NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    prompt: Option<String>,
    /// Patterns by argument name.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    environment: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    hint: Option<Hint>,
    /// Who may approve the calls for which the rule asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    approval_by: Option<Vec<Approver>>,
    #[schema(value_type = VerdictSchema)]
    action: Verdict,
}

/// A permanent approval of all calls of one tool by one caller.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GrantView {
    id: String,
    /// Name of the caller's key; null for a caller without a key.
    #[schema(required)]
    caller: Option<String>,
    server: String,
    tool: String,
    /// Id of the approval that created the grant.
    approval: String,
    granted_by: String,
    created_at: String,
}

/// Get the permissions in force.
#[utoipa::path(get, path = "/api/permissions", tag = "api", responses((status = 200, body = PermissionsView)))]
pub(crate) async fn get(State(app): State<App>) -> Result<Json<PermissionsView>, ApiError> {
    let snapshot = app.configuration().snapshot();
    let grants = app.gateway().approvals().grants().await;
    let grants = grants.map_err(ChangeError::Store)?;
    let PermissionSettings {
        rules,
        default,
        approvals,
    } = &snapshot.config.permissions;
    Ok(Json(PermissionsView {
        default: *default,
        rules: rules.iter().map(RuleView::new).collect(),
        approval_by: approvals.by.iter().collect(),
        approval_expiry: format_duration(approvals.expiry),
        approval_wait: format_duration(approvals.wait),
        grants: grants.into_iter().map(GrantView::new).collect(),
        source: snapshot
            .permissions_source
            .unwrap_or(ConfigSource::File)
            .as_str(),
        problems: find_problems(&app, &snapshot.config),
    }))
}

/// Replace all rules. They override the rules in the configuration files until those change.
#[utoipa::path(put, path = "/api/permissions", tag = "api", request_body = Object,
    responses((status = 200, body = PermissionsView), (status = 400, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    ApiObject(mut section): ApiObject,
) -> Result<Json<PermissionsView>, ApiError> {
    // Accept the output of GET as input: drop its read-only fields.
    for read_only in ["grants", "source", "problems"] {
        section.shift_remove(read_only);
    }
    if !section.get("rules").is_some_and(Value::is_array) {
        return Err(ApiError::bad_request(
            "`rules` must be a list: the request replaces all rules, so omitting it would remove them all",
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

/// Restore the rules of the configuration files.
#[utoipa::path(delete, path = "/api/permissions", tag = "api", responses((status = 200, body = PermissionsView)))]
pub(crate) async fn reset(State(app): State<App>) -> Result<Json<PermissionsView>, ApiError> {
    app.configuration().set_permissions(None).await?;
    get(State(app)).await
}

/// Revoke a permanent grant.
#[utoipa::path(delete, path = "/api/permissions/grants/{id}", tag = "api", params(("id" = String, Path)),
    responses((status = 200, body = Deleted), (status = 404, body = ErrorBody)))]
pub(crate) async fn revoke_grant(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Deleted>, ApiError> {
    let removed = app
        .gateway()
        .approvals()
        .revoke_grant(&id, &Decider::Admin)
        .await;
    if removed.map_err(ChangeError::Store)? {
        Ok(Json(Deleted { deleted: id }))
    } else {
        Err(ApiError::not_found(format!(
            "no grant with id `{id}`; see /api/permissions"
        )))
    }
}

fn find_problems(app: &App, config: &Config) -> Vec<String> {
    let problems = config.find_name_problems(&app.gateway().catalog());
    let is_restriction = |problem: &&NameProblem| match problem.owner {
        NameOwner::Rule(_) | NameOwner::BlockedTools | NameOwner::Allowlist => true,
        NameOwner::Key(_)
        | NameOwner::Role(_)
        | NameOwner::VirtualServer(_)
        | NameOwner::Server(_) => false,
    };
    let problems = problems.iter().filter(is_restriction);
    problems.map(ToString::to_string).collect()
}

impl RuleView {
    fn new(rule: &RuleSpec) -> Self {
        let when = &rule.when;
        let arguments = when.arguments.iter();
        let to_json = |(name, patterns): &(String, Vec<String>)| {
            let value = match patterns.as_slice() {
                [one] => Value::from(one.as_str()),
                several => Value::from(several),
            };
            (name.clone(), value)
        };
        Self {
            place: rule.config_key.clone(),
            tool: rule.tool.clone(),
            server: rule.server.clone(),
            resource: rule.resource.clone(),
            prompt: rule.prompt.clone(),
            arguments: arguments.map(to_json).collect(),
            roles: when.roles.clone(),
            environment: when.environments.clone(),
            hint: when.hint,
            approval_by: rule.approval_by.map(|by| by.iter().collect()),
            action: rule.verdict,
        }
    }
}

impl GrantView {
    fn new(grant: ApprovalGrant) -> Self {
        Self {
            id: grant.id,
            caller: grant.caller,
            server: grant.server,
            tool: grant.tool,
            approval: grant.approval,
            granted_by: grant.granted_by,
            created_at: format_time(grant.created_at),
        }
    }
}
