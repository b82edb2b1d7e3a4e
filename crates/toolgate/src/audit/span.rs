//! Spans of tool calls.

use tracing::Span;
use tracing::field::Empty;

use super::AuditRecord;
use crate::call::RequestContext;
use crate::metrics;
use crate::trace::{TARGET, Tracer, mark_failed};

/// Starts the span of a tool call. If the client sent a trace context in its message, the span joins that
/// trace and only links to the surrounding request.
pub(crate) fn start_call_span(tracer: &dyn Tracer, request: &RequestContext) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "execute_tool",
        "otel.name" = Empty,
        "otel.kind" = "client",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = Empty,
        "gen_ai.tool.type" = "function",
        "mcp.method.name" = "tools/call",
        "toolgate.server.name" = Empty,
        "toolgate.call.outcome" = Empty,
        "toolgate.audit.id" = Empty,
        "error.type" = Empty,
    );
    if !span.is_disabled() && request.trace.traceparent.is_some() {
        span.follows_from(Span::current());
        tracer.join(&span, &request.trace);
    }
    span
}

/// Names the span after its tool. Call this only with names from the catalog: names invented by callers
/// would make the number of span names unbounded.
pub(super) fn set_span_name(span: &Span, tool: &str) {
    if !span.is_disabled() {
        span.record("otel.name", format!("execute_tool {tool}"));
    }
}

/// Records the outcome of a call.
pub(super) fn record_outcome(span: &Span, record: &AuditRecord) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.tool.name", record.tool.as_deref());
    span.record("toolgate.server.name", record.server.as_deref());
    span.record("toolgate.call.outcome", record.outcome.as_str());
    span.record("toolgate.audit.id", record.id.as_str());
    if metrics::is_failure(&record.outcome) {
        mark_failed(span, &record.outcome);
    }
}
