//! Probes and figures.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Serialize;
use toolgate::State as ServerState;
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
    /// Servers that are configured.
    servers: usize,
    /// Servers whose tools can be called now.
    connected: usize,
}

/// Whether the process lives.
#[utoipa::path(get, path = "/health", tag = "probes", responses((status = 200, body = Health)))]
pub(crate) async fn health() -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Whether requests are taken; servers join as they come up and are not waited for.
#[utoipa::path(get, path = "/ready", tag = "probes",
    responses((status = 200, body = Ready), (status = 503, body = Ready, description = "the gateway is stopping")))]
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, Json<Ready>) {
    let servers = app.gateway().servers();
    let up = |state| {
        matches!(
            state,
            ServerState::Healthy | ServerState::Degraded | ServerState::Asleep
        )
    };
    let (code, status) = match app.is_stopping() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        false => (StatusCode::OK, "ready"),
    };
    let ready = Ready {
        status,
        servers: servers.len(),
        connected: servers
            .iter()
            .filter(|server| up(server.status().state))
            .count(),
    };
    (code, Json(ready))
}

/// Figures for Prometheus, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "probes",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], app.gateway().metrics())
}
