//! The span of an HTTP request, which ends when the answer's body has.

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

use super::Bridge;

/// A request as it is traced; costs nothing where it is not.
#[derive(Debug)]
pub(crate) struct RequestSpan(Span);

impl RequestSpan {
    pub(crate) fn begin(request: &Request, id: &str) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            "http",
            "otel.name" = name(request),
            "otel.kind" = "server",
            "otel.status_code" = Empty,
            "http.request.method" = request.method().as_str(),
            "http.route" = route(request),
            "http.response.status_code" = Empty,
            "toolgate.request.id" = id,
            "error.type" = Empty,
        );
        if !span.is_disabled() {
            Bridge.join(&span, &TraceContext::of_headers(request.headers()));
        }
        Self(span)
    }

    pub(crate) fn span(&self) -> Span {
        self.0.clone()
    }

    /// The answer, with the span in its body.
    pub(crate) fn end_with(self, response: Response) -> Response {
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
        response.map(|body| Body::new(Traced { body, span }))
    }
}

fn name(request: &Request) -> String {
    let method = request.method();
    match route(request) {
        Some(route) => format!("{method} {route}"),
        None => method.to_string(),
    }
}

/// The pattern that the path fits, which names no one and nothing.
fn route(request: &Request) -> Option<&str> {
    let route = request.extensions().get::<MatchedPath>();
    route.map(MatchedPath::as_str)
}

/// A body that is sent on behalf of a span.
struct Traced {
    body: Body,
    span: Span,
}

impl hyper::body::Body for Traced {
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
