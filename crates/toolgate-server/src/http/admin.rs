//! `/api`: the administration API.

pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod clients;
pub(crate) mod code;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod key_requirement;
pub(crate) mod keys;
pub(crate) mod page;
pub(crate) mod permissions;
pub(crate) mod problems;
pub(crate) mod process_usage;
pub(crate) mod providers;
mod resource;
pub(crate) mod roles;
pub(crate) mod runs;
pub(crate) mod sandbox;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod tools;
pub(crate) mod virtual_servers;

use std::time::Duration;

use axum::Json;
use serde::Serialize;
use toolgate_core::config::ConfigDuration;
use utoipa::ToSchema;

/// Confirmation of a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    /// Name or id of the deleted object.
    deleted: String,
}

/// Get this OpenAPI document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "api", responses((status = 200, description = "OpenAPI 3.1")))]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::router::openapi())
}

/// Formats a duration as it is written in configuration files.
fn format_duration(duration: Duration) -> String {
    ConfigDuration(duration).to_string()
}

/// Formats milliseconds since the Unix epoch as RFC 3339.
fn format_time(millis: i64) -> String {
    humantime::format_rfc3339_millis(toolgate::store::from_unix_millis(millis)).to_string()
}
