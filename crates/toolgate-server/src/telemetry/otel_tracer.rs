//! Connects the gateway's spans with OpenTelemetry trace contexts.

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use toolgate::{TraceContext, Tracer};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Reads and sets the trace context of spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtelTracer;

impl Tracer for OtelTracer {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let span = context.span();
        let span_context = span.span_context();
        let flags = span_context.trace_flags().to_u8();
        let state = span_context.trace_state().header();
        span_context.is_valid().then(|| TraceContext {
            traceparent: Some(format!(
                "00-{}-{}-{flags:02x}",
                span_context.trace_id(),
                span_context.span_id()
            )),
            tracestate: (!state.is_empty()).then_some(state),
            baggage: None,
        })
    }

    fn join(&self, span: &Span, trace: &TraceContext) {
        let propagator = TraceContextPropagator::new();
        let context = propagator.extract_with_context(&Context::new(), &ContextExtractor(trace));
        if context.span().span_context().is_valid() {
            // Fails only for a span that is not traced or has already started.
            let _ = span.set_parent(context);
        }
    }
}

struct ContextExtractor<'a>(&'a TraceContext);

impl Extractor for ContextExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let value = match key {
            "traceparent" => &self.0.traceparent,
            "tracestate" => &self.0.tracestate,
            _ => &None,
        };
        value.as_deref()
    }

    fn keys(&self) -> Vec<&str> {
        TraceContext::NAMES.to_vec()
    }
}
