//! Tracing: what the spans of tool calls (`audit/span.rs`) and model requests (`models/span.rs`) have in
//! common, and the trace context sent along with outgoing requests. Fields follow OpenTelemetry's
//! semantic conventions.
//!
//! The spans use a separate [`TARGET`], so that logs can exclude them; they cost nothing without a
//! subscriber. Arguments, results and message contents are never recorded as fields.

pub use toolgate_mcp::TraceContext;
use tracing::Span;

use crate::call::RequestContext;

/// Target of all spans meant for traces.
pub const TARGET: &str = "toolgate::trace";

/// Connects spans with distributed traces.
pub trait Tracer: std::fmt::Debug + Send + Sync {
    /// Returns the context to propagate for a span; `None` if it is not traced.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Makes a new span part of a trace that started elsewhere.
    fn join(&self, span: &Span, trace: &TraceContext);
}

/// Tracer that traces nothing.
#[derive(Debug)]
pub(crate) struct NoTracer;

impl Tracer for NoTracer {
    fn context(&self, _: &Span) -> Option<TraceContext> {
        None
    }

    fn join(&self, _: &Span, _: &TraceContext) {}
}

/// Returns the trace context for outgoing requests: the span's context if it is traced, otherwise the
/// one received with the request. Baggage always comes from the request.
pub(crate) fn outgoing_context(
    tracer: &dyn Tracer,
    span: &Span,
    request: &RequestContext,
) -> TraceContext {
    let incoming = if request.trace.is_empty() {
        TraceContext::from_headers(&request.headers)
    } else {
        request.trace.clone()
    };
    match tracer.context(span) {
        Some(context) => TraceContext {
            baggage: incoming.baggage,
            ..context
        },
        None => incoming,
    }
}

/// Marks a span as failed with an error type.
pub(crate) fn mark_failed(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "error");
}
