//! Traces: a span for every tool call and every model request, with the fields that OpenTelemetry's
//! conventions give them, and the context that goes along with what is sent on.
//!
//! The spans have a [`TARGET`] of their own, so that logs can leave them out; where nobody listens
//! to it they cost nothing. What callers, models and tools say to one another is never a field.

pub(crate) mod call;
pub(crate) mod model;

pub use toolgate_mcp::TraceContext;
use tracing::Span;

use crate::call::Request;

/// The target of all spans that are meant for traces.
pub const TARGET: &str = "toolgate::trace";

/// Knows the traces that spans belong to.
pub trait Tracer: std::fmt::Debug + Send + Sync {
    /// What to tell those who are asked on behalf of a span; none if it is not traced.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Makes a span that has just begun part of a trace that began elsewhere.
    fn join(&self, span: &Span, trace: &TraceContext);
}

/// Traces nothing.
#[derive(Debug)]
pub(crate) struct NoTracer;

impl Tracer for NoTracer {
    fn context(&self, _: &Span) -> Option<TraceContext> {
        None
    }

    fn join(&self, _: &Span, _: &TraceContext) {}
}

/// What goes along with whatever is asked for a request on behalf of a span: the span's own
/// context, else the one that came with the request.
pub(crate) fn outgoing(tracer: &dyn Tracer, span: &Span, request: &Request) -> TraceContext {
    let came = match request.trace.is_empty() {
        true => TraceContext::of_headers(&request.headers),
        false => request.trace.clone(),
    };
    match tracer.context(span) {
        Some(own) => TraceContext {
            baggage: came.baggage,
            ..own
        },
        None => came,
    }
}

/// Marks a span as failed, with a word for how.
fn fail(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "error");
}
