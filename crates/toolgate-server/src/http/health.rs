//! Liveness and readiness probes, and Prometheus metrics.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use toolgate::ServerState;
use utoipa::ToSchema;

use super::App;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ready {
    /// `ready` or `stopping`.
    status: &'static str,
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

/// Readiness probe: succeeds while the gateway accepts requests, even if servers are still connecting.
#[utoipa::path(get, path = "/ready", tag = "probes",
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "the gateway is stopping")))]
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, Json<Ready>) {
    let servers = app.gateway().servers().list();
    let is_connected = |state| {
        matches!(
            state,
            ServerState::Healthy | ServerState::Degraded | ServerState::Asleep
        )
    };
    let (code, status) = if app.is_stopping() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else {
        (StatusCode::OK, "ready")
    };
    let ready = Ready {
        status,
        servers: servers.len(),
        connected: servers
            .iter()
            .filter(|server| is_connected(server.status().state))
            .count(),
    };
    (code, Json(ready))
}

/// Prometheus metrics in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "probes",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], app.gateway().metrics())
}
