//! Liveness and readiness probes, and Prometheus metrics.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use toolgate::LoadLevel;
use toolgate::registry::ServerState;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::ApiQuery;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    /// `ready`, `stopping`, `not_writable` if the gateway's store or the second audit sink cannot be
    /// written, `overloaded` if only probes and the administrator are served, or `servers_missing` with
    /// `servers=all`.
    status: &'static str,
    /// Why the gateway is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// `normal`; `high` while new sessions, streams, runs and large bodies are refused; `critical` while
    /// everything but probes and the administrator is.
    load: &'static str,
    /// Why the load is not normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    load_reason: Option<String>,
    /// Number of configured servers.
    servers: usize,
    /// Number of servers whose tools can be called now.
    connected: usize,
}

/// Liveness probe: succeeds while the process runs.
#[utoipa::path(get, path = "/health", tag = "probes", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ReadyParams {
    /// `all` succeeds only once every enabled server is connected.
    #[param(inline)]
    servers: Option<RequiredServers>,
}

/// Servers that must be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequiredServers {
    All,
}

/// Readiness probe: succeeds while the gateway accepts and records requests, even if servers are still
/// connecting, unless the query asks for them.
#[utoipa::path(get, path = "/ready", tag = "probes", params(ReadyParams),
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "the gateway is stopping, cannot record requests, is overloaded, or lacks servers that the query asks for")))]
pub(crate) async fn ready(
    State(app): State<App>,
    ApiQuery(params): ApiQuery<ReadyParams>,
) -> (StatusCode, Json<Ready>) {
    let states: Vec<ServerState> = app
        .gateway()
        .servers()
        .list()
        .iter()
        .map(|server| server.status().state)
        .collect();
    let count = |matches: fn(&ServerState) -> bool| states.iter().filter(|s| matches(s)).count();
    let connected = count(|state| {
        matches!(
            state,
            ServerState::Healthy | ServerState::Degraded | ServerState::Asleep
        )
    });
    let missing = states.len() - connected - count(|state| *state == ServerState::Disabled);
    let lacks_servers = params.servers == Some(RequiredServers::All) && missing > 0;
    let store = app.gateway().store().write_problem();
    let store = store.map(|problem| format!("the store cannot be written: {problem}"));
    let problem = store.or_else(|| {
        let sink = app.gateway().audit().sink_problem();
        sink.map(|problem| format!("the second audit sink does not accept records: {problem}"))
    });
    let missing = lacks_servers.then(|| format!("{missing} servers are not connected"));
    let load = app.gateway().load();
    let (code, status) = if app.is_stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if problem.is_some() {
        (StatusCode::SERVICE_UNAVAILABLE, "not_writable")
    } else if load.level == LoadLevel::Critical {
        (StatusCode::SERVICE_UNAVAILABLE, "overloaded")
    } else if lacks_servers {
        (StatusCode::SERVICE_UNAVAILABLE, "servers_missing")
    } else {
        (StatusCode::OK, "ready")
    };
    let ready = Ready {
        status,
        reason: problem.or(missing),
        load: load.level.as_str(),
        load_reason: Some(load.reason).filter(|reason| !reason.is_empty()),
        servers: states.len(),
        connected,
    };
    (code, Json(ready))
}

/// Prometheus metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "probes",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    app.gateway().servers().refresh_process_usage().await;
    if let Err(error) = app.gateway().approvals().count_waiting().await {
        tracing::warn!(%error, "cannot count the approvals that wait for a decision");
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], app.gateway().metrics())
}
