//! `/api/stats`: usage statistics of servers, tools, models and callers.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolgate::metrics::{CallStats, micro_usd_to_dollars};
use toolgate::models::TokenUsage;
use utoipa::ToSchema;

use crate::http::App;

/// Statistics since the gateway started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsView {
    servers: Vec<ServerStats>,
    tools: Vec<ToolStats>,
    /// Models that received requests.
    models: Vec<ModelStats>,
    /// Model usage by caller key.
    callers: Vec<CallerStats>,
    /// Tokens that code mode saved in model requests by not sending tool definitions.
    saved_tokens: u64,
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

#[derive(Debug, Serialize, ToSchema)]
struct ModelStats {
    provider: String,
    model: String,
    requests: u64,
    errors: u64,
    tokens: TokensView,
    /// Computed from `prices` or list prices; 0 for models without a price.
    cost_usd: f64,
}

#[derive(Debug, Serialize, ToSchema)]
struct CallerStats {
    key: String,
    requests: u64,
    errors: u64,
    tokens: TokensView,
    cost_usd: f64,
}

/// Token counts. `cached` is part of `input`, `reasoning` is part of `output`.
#[derive(Debug, Serialize, ToSchema)]
struct TokensView {
    input: u64,
    output: u64,
    cached: u64,
    reasoning: u64,
}

/// Calls, errors, bytes and latency percentiles.
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

/// Get statistics of all servers, tools and models that were called, and of all callers.
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
    let models = stats.models.iter();
    let models = models.map(|((provider, model), figures)| ModelStats {
        provider: provider.clone(),
        model: model.clone(),
        requests: figures.requests,
        errors: figures.errors,
        tokens: figures.usage.into(),
        cost_usd: micro_usd_to_dollars(figures.cost_micro_usd),
    });
    let callers = stats.callers.iter().map(|(key, figures)| CallerStats {
        key: key.clone(),
        requests: figures.requests,
        errors: figures.errors,
        tokens: figures.usage.into(),
        cost_usd: micro_usd_to_dollars(figures.cost_micro_usd),
    });
    Json(StatsView {
        servers: servers.collect(),
        tools: tools.collect(),
        models: models.collect(),
        callers: callers.collect(),
        saved_tokens: stats.saved_tokens,
    })
}

impl From<TokenUsage> for TokensView {
    fn from(usage: TokenUsage) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cached: usage.cached,
            reasoning: usage.reasoning,
        }
    }
}

impl From<&CallStats> for FiguresView {
    fn from(figures: &CallStats) -> Self {
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
