//! Between our spans and the traces of OpenTelemetry.

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use toolgate::{TraceContext, Tracer};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Knows the traces that spans belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bridge;

impl Tracer for Bridge {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let span = context.span();
        let known = span.span_context();
        let flags = known.trace_flags().to_u8();
        let state = known.trace_state().header();
        known.is_valid().then(|| TraceContext {
            traceparent: Some(format!(
                "00-{}-{}-{flags:02x}",
                known.trace_id(),
                known.span_id()
            )),
            tracestate: (!state.is_empty()).then_some(state),
            baggage: None,
        })
    }

    fn join(&self, span: &Span, trace: &TraceContext) {
        let propagator = TraceContextPropagator::new();
        let context = propagator.extract_with_context(&Context::new(), &Parts(trace));
        if context.span().span_context().is_valid() {
            // Fails only for a span that is not traced, or has begun elsewhere already.
            let _ = span.set_parent(context);
        }
    }
}

struct Parts<'a>(&'a TraceContext);

impl Extractor for Parts<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let part = match key {
            "traceparent" => &self.0.traceparent,
            "tracestate" => &self.0.tracestate,
            _ => &None,
        };
        part.as_deref()
    }

    fn keys(&self) -> Vec<&str> {
        TraceContext::NAMES.to_vec()
    }
}
