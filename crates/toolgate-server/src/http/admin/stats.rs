//! `/api/stats`: what servers and tools did.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolgate::metrics::Figures;
use utoipa::ToSchema;

use crate::http::App;

/// Figures since the gateway started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsView {
    servers: Vec<ServerStats>,
    tools: Vec<ToolStats>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ServerStats {
    server: String,
    figures: FiguresView,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolStats {
    server: String,
    tool: String,
    figures: FiguresView,
}

/// Calls, errors, bytes and percentiles of latency.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct FiguresView {
    calls: u64,
    errors: u64,
    bytes_sent: u64,
    bytes_received: u64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
}

/// Figures of every server and tool that was called.
#[utoipa::path(get, path = "/api/stats", tag = "api", responses((status = 200, body = StatsView)))]
pub(crate) async fn stats(State(app): State<App>) -> Json<StatsView> {
    let stats = app.gateway().stats();
    let servers = stats.servers.iter().map(|(server, figures)| ServerStats {
        server: server.clone(),
        figures: figures.into(),
    });
    let tools = stats.tools.iter().map(|(tool, figures)| ToolStats {
        server: tool.server.to_string(),
        tool: tool.tool.to_string(),
        figures: figures.into(),
    });
    Json(StatsView {
        servers: servers.collect(),
        tools: tools.collect(),
    })
}

impl From<&Figures> for FiguresView {
    fn from(figures: &Figures) -> Self {
        Self {
            calls: figures.calls,
            errors: figures.errors,
            bytes_sent: figures.bytes_sent,
            bytes_received: figures.bytes_received,
            p50_ms: figures.p50_ms,
            p90_ms: figures.p90_ms,
            p99_ms: figures.p99_ms,
        }
    }
}
