//! `/api/status`: the gateway at a glance.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use toolgate::metrics::resident_memory;
use utoipa::ToSchema;

use crate::configuration::ChangeError;
use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};

/// The gateway at a glance.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct StatusView {
    pub(crate) version: String,
    pub(crate) uptime_seconds: u64,
    /// Resident memory of the gateway; null where the system does not tell.
    #[schema(required)]
    pub(crate) memory_bytes: Option<u64>,
    /// `normal`, `high` or `critical`.
    pub(crate) load: String,
    /// Why the load is not normal.
    #[schema(required)]
    pub(crate) load_reason: Option<String>,
    /// Number of servers by state.
    pub(crate) servers: BTreeMap<String, usize>,
    /// Number of tools of all servers.
    pub(crate) tools: usize,
    /// Open sessions of MCP clients.
    pub(crate) sessions: usize,
    /// Agent runs in progress.
    pub(crate) runs: usize,
    /// Calls that wait for an approver's decision.
    pub(crate) approvals_waiting: usize,
}

/// Get the state of the gateway.
#[utoipa::path(get, path = "/api/status", tag = "api",
    responses((status = 200, body = StatusView), (status = 503, body = ErrorBody)))]
pub(crate) async fn get(State(app): State<App>) -> Result<Json<StatusView>, ApiError> {
    let gateway = app.gateway();
    let waiting = gateway.approvals().count_waiting().await;
    let waiting = waiting.map_err(ChangeError::Store)?;
    let load = gateway.load();
    let mut servers = BTreeMap::new();
    for entry in gateway.servers().list() {
        let state = entry.status().state.as_str().to_owned();
        *servers.entry(state).or_insert(0) += 1;
    }
    Ok(Json(StatusView {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: gateway.uptime().as_secs(),
        memory_bytes: resident_memory(),
        load: load.level.as_str().to_owned(),
        load_reason: Some(load.reason).filter(|reason| !reason.is_empty()),
        servers,
        tools: gateway.catalog().tools().len(),
        sessions: gateway.session_count(),
        runs: gateway.runs().active_count(),
        approvals_waiting: usize::try_from(waiting).unwrap_or(0),
    }))
}
