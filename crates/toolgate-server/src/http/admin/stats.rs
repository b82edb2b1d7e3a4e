//! `/api/stats`: what servers and tools did.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolgate::metrics::{Figures, dollars};
use toolgate::models::Usage;
use utoipa::ToSchema;

use crate::http::App;

/// Figures since the gateway started.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsView {
    servers: Vec<ServerStats>,
    tools: Vec<ToolStats>,
    /// Models that were asked.
    models: Vec<ModelStats>,
    /// What the keys of callers used of models.
    callers: Vec<CallerStats>,
    /// Tokens that model requests needed less because tools were shown to scripts (code mode).
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
    /// By `prices`, or list prices; nothing for models without one.
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

/// Tokens: all of the prompts, all of the answers, and which of them were cached or reasoning.
#[derive(Debug, Serialize, ToSchema)]
struct TokensView {
    input: u64,
    output: u64,
    cached: u64,
    reasoning: u64,
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

/// Figures of every server, tool and model that was called.
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
        cost_usd: dollars(figures.cost_micro_usd),
    });
    let callers = stats.callers.iter().map(|(key, figures)| CallerStats {
        key: key.clone(),
        requests: figures.requests,
        errors: figures.errors,
        tokens: figures.usage.into(),
        cost_usd: dollars(figures.cost_micro_usd),
    });
    Json(StatsView {
        servers: servers.collect(),
        tools: tools.collect(),
        models: models.collect(),
        callers: callers.collect(),
        saved_tokens: stats.saved_tokens,
    })
}

impl From<Usage> for TokensView {
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input,
            output: usage.output,
            cached: usage.cached,
            reasoning: usage.reasoning,
        }
    }
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
