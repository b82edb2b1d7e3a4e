//! The span of a tool call.

use tracing::Span;
use tracing::field::Empty;

use super::{TARGET, Tracer, fail};
use crate::audit::Record;
use crate::call::Request;

/// The span of a tool call. A client may say by itself to which trace its call belongs; then the
/// request that brought it is only linked.
pub(crate) fn begin(tracer: &dyn Tracer, request: &Request) -> Span {
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

/// Names the span of a call after its tool. Names that callers make up are not taken.
pub(crate) fn name(span: &Span, tool: &str) {
    if !span.is_disabled() {
        span.record("otel.name", format!("execute_tool {tool}"));
    }
}

/// Notes what came of a call.
pub(crate) fn close(span: &Span, record: &Record) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.tool.name", record.tool.as_deref());
    span.record("toolgate.server.name", record.server.as_deref());
    span.record("toolgate.call.outcome", record.outcome.as_str());
    span.record("toolgate.audit.id", record.id.as_str());
    // A call that waits for an approval has not failed.
    if !matches!(record.outcome.as_str(), "ok" | "ask") {
        fail(span, &record.outcome);
    }
}
