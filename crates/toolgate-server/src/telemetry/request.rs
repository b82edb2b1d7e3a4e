//! The span of an HTTP request, which ends when the response body is complete.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Error;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use toolgate::trace::TARGET;
use toolgate::{TraceContext, Tracer as _};
use tracing::Span;
use tracing::field::Empty;

use super::OtelTracer;

/// The span of an HTTP request; costs nothing if tracing is off.
#[derive(Debug)]
pub(crate) struct RequestSpan(Span);

impl RequestSpan {
    pub(crate) fn start(request: &Request, id: &str) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            "http",
            "otel.name" = span_name(request),
            "otel.kind" = "server",
            "otel.status_code" = Empty,
            "http.request.method" = request.method().as_str(),
            "http.route" = route(request),
            "http.response.status_code" = Empty,
            "toolgate.request.id" = id,
            "error.type" = Empty,
        );
        if !span.is_disabled() {
            OtelTracer.join(&span, &TraceContext::from_headers(request.headers()));
        }
        Self(span)
    }

    pub(crate) fn span(&self) -> Span {
        self.0.clone()
    }

    /// Records the response and moves the span into its body.
    pub(crate) fn attach_to(self, response: Response) -> Response {
        let Self(span) = self;
        if span.is_disabled() {
            return response;
        }
        let status = response.status();
        span.record("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            span.record("error.type", status.as_str());
            span.record("otel.status_code", "error");
        }
        response.map(|body| Body::new(TracedBody { body, span }))
    }
}

fn span_name(request: &Request) -> String {
    let method = request.method();
    match route(request) {
        Some(route) => format!("{method} {route}"),
        None => method.to_string(),
    }
}

/// Returns the matched route pattern, which contains no identifiers.
fn route(request: &Request) -> Option<&str> {
    let route = request.extensions().get::<MatchedPath>();
    route.map(MatchedPath::as_str)
}

/// A response body that is sent within a span and keeps the span open.
struct TracedBody {
    body: Body,
    span: Span,
}

impl hyper::body::Body for TracedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self { body, span } = &mut *self;
        let _entered = span.enter();
        Pin::new(body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
