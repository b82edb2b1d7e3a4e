//! What a request says about itself: its id, and the filters that narrow what it sees.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use toolgate_core::scope::Filters;
use tracing::Instrument as _;
use uuid::Uuid;

use super::error::ApiError;
use super::{App, models};
use crate::telemetry::RequestSpan;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const PARENT_ID: &str = "x-bf-parent-request-id";
const LONGEST_ID: usize = 128;
/// Bytes that one filter may have; a longer one is a mistake, or worse.
const LONGEST_FILTER: usize = 16 * 1024;
const MOST_NAMES: usize = 256;

/// The id under which a request is known in answers, logs and the audit trail.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// A request's headers, taken out of it rather than copied: for handlers that need nothing else of
/// it but its body.
#[derive(Debug)]
pub(crate) struct Sent(pub(crate) HeaderMap);

impl<S: Sync> FromRequestParts<S> for Sent {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(std::mem::take(&mut parts.headers)))
    }
}

/// What every request goes through, in one layer since each costs a few allocations: it gets an id,
/// its own or a new one, and its answer the same; it must be meant for us; errors are written as its
/// client expects them.
pub(crate) async fn enter(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let id = given_id(request.headers(), REQUEST_ID.as_str())
        .unwrap_or_else(|| Uuid::now_v7().to_string());
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", id);
    let traced = RequestSpan::begin(&request, &id);
    let is_messages = models::is_messages(&request);
    let answer = async {
        match app.0.guard.check(&request) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        }
    };
    let answer = answer.instrument(traced.span()).instrument(span).await;
    let answer = match is_messages {
        true => models::with_anthropic_error(answer),
        false => answer,
    };
    let mut response = traced.end_with(answer);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The request that led to this one.
pub(super) fn parent(headers: &HeaderMap) -> Option<String> {
    given_id(headers, PARENT_ID)
}

fn given_id(headers: &HeaderMap, name: &str) -> Option<String> {
    let id = headers.get(name)?.to_str().ok()?.trim();
    (!id.is_empty() && id.len() <= LONGEST_ID).then(|| id.to_owned())
}

/// The four filters. One that cannot be read is an error: leaving it away would widen the scope.
pub(super) fn filters(headers: &HeaderMap) -> Result<Filters, ApiError> {
    Ok(Filters {
        include_clients: filter(headers, Filters::INCLUDE_CLIENTS)?,
        exclude_clients: filter(headers, Filters::EXCLUDE_CLIENTS)?,
        include_tools: filter(headers, Filters::INCLUDE_TOOLS)?,
        exclude_tools: filter(headers, Filters::EXCLUDE_TOOLS)?,
        ..Filters::default()
    })
}

fn filter(headers: &HeaderMap, name: &str) -> Result<Option<Vec<String>>, ApiError> {
    let mut values = Vec::new();
    for value in headers.get_all(name) {
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| ApiError::bad_request(format!("`{name}` is not valid UTF-8")))?;
        values.push(text);
    }
    if values.iter().map(|text| text.len()).sum::<usize>() > LONGEST_FILTER {
        return Err(ApiError::bad_request(format!(
            "`{name}` is longer than {LONGEST_FILTER} bytes; use patterns such as `github.*`"
        )));
    }
    let names = Filters::list(values);
    if names.as_ref().is_some_and(|names| names.len() > MOST_NAMES) {
        return Err(ApiError::bad_request(format!(
            "`{name}` has more than {MOST_NAMES} names; use patterns such as `github.*`"
        )));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_headers_are_one_list_and_bad_ones_are_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(filters(&headers).unwrap(), Filters::default());
        headers.append(Filters::INCLUDE_TOOLS, HeaderValue::from_static("a.b, c.d"));
        headers.append(Filters::INCLUDE_TOOLS, HeaderValue::from_static("e.f"));
        headers.append(Filters::INCLUDE_CLIENTS, HeaderValue::from_static(" , "));
        let read = filters(&headers).unwrap();
        let names = ["a.b", "c.d", "e.f"].map(str::to_owned);
        assert_eq!(read.include_tools, Some(names.into()));
        assert_eq!(read.include_clients, Some(Vec::new()));
        headers.append(
            Filters::EXCLUDE_TOOLS,
            HeaderValue::from_bytes(b"\xff").unwrap(),
        );
        assert!(filters(&headers).is_err());
        let long = HeaderValue::from_str(&"x".repeat(20_000)).unwrap();
        headers.insert(Filters::EXCLUDE_TOOLS, long);
        assert!(filters(&headers).is_err());
    }
}
