//! The layer that every request passes through, and the request headers shared by several routes:
//! request id, parent id and the filters that narrow the scope.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{CONTENT_LENGTH, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use toolgate::Caller;
use toolgate::metrics::Bound;
use toolgate_core::scope::Filters;
use tracing::Instrument as _;
use uuid::Uuid;

use super::connections::Connection;
use super::error::ApiError;
use super::router::MAX_BODY_BYTES;
use super::{App, models};
use crate::telemetry::RequestSpan;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Lists the names in the request's filters that match nothing.
const WARNING: HeaderName = HeaderName::from_static("x-toolgate-warning");
const PARENT_ID: &str = "x-bf-parent-request-id";
/// Says how to authenticate, in every response with status 401.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"toolgate\"");
const MAX_ID_BYTES: usize = 128;
/// Maximum size of one name in a filter header.
const MAX_FILTER_NAME_BYTES: usize = 512;
/// Maximum total size of one filter header; anything longer is a mistake or an attack.
const MAX_FILTER_BYTES: usize = 16 * 1024;
const MAX_FILTER_NAMES: usize = 256;
/// Maximum number of names that one warning lists.
const MAX_WARNINGS: usize = 16;

/// Id that identifies a request in responses, logs and the audit trail.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Extractor that moves the headers out of the request instead of cloning them. It must come after
/// all other extractors that read headers.
#[derive(Debug)]
pub(crate) struct OwnedHeaders(pub(crate) HeaderMap);

impl<S: Sync> FromRequestParts<S> for OwnedHeaders {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(std::mem::take(&mut parts.headers)))
    }
}

/// Refuses a body that is too large before it is read.
fn check_length(request: &Request) -> Result<(), ApiError> {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_none_or(|length| length <= MAX_BODY_BYTES) {
        return Ok(());
    }
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        connection.report(Bound::BodySize, request.uri().path());
    }
    let message = format!("the request's body is larger than {MAX_BODY_BYTES} bytes");
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    Err(ApiError::new(status, "invalid_request", message))
}

/// Assigns the request id, checks `Host` and `Origin`, starts the trace span, completes 401 responses, and
/// rewrites errors for Anthropic clients.
///
/// This is one layer rather than four because each layer costs a few allocations per request.
pub(crate) async fn request_layer(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = id_header(request.headers(), REQUEST_ID.as_str())
        .unwrap_or_else(|| Uuid::now_v7().to_string());
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", id);
    let traced = RequestSpan::start(&request, &id);
    let is_messages = models::is_messages(&request);
    let handle = async {
        match app
            .0
            .guard
            .check(&request)
            .and_then(|()| check_length(&request))
        {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        }
    };
    let mut response = handle.instrument(traced.span()).instrument(span).await;
    if is_messages {
        response = models::with_anthropic_error(response);
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        headers.entry(WWW_AUTHENTICATE).or_insert(CHALLENGE);
    }
    response = traced.attach_to(response);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Returns the id of the request that caused this one, if the caller sent it.
pub(super) fn parent_id(headers: &HeaderMap) -> Option<String> {
    id_header(headers, PARENT_ID)
}

fn id_header(headers: &HeaderMap, name: &str) -> Option<String> {
    let id = headers.get(name)?.to_str().ok()?.trim();
    (!id.is_empty() && id.len() <= MAX_ID_BYTES).then(|| id.to_owned())
}

/// Parses the four filter headers. A malformed filter is an error, because ignoring it would widen the
/// scope.
pub(super) fn parse_filters(headers: &HeaderMap) -> Result<Filters, ApiError> {
    Ok(Filters {
        include_clients: parse_filter(headers, Filters::INCLUDE_CLIENTS)?,
        exclude_clients: parse_filter(headers, Filters::EXCLUDE_CLIENTS)?,
        include_tools: parse_filter(headers, Filters::INCLUDE_TOOLS)?,
        exclude_tools: parse_filter(headers, Filters::EXCLUDE_TOOLS)?,
        ..Filters::default()
    })
}

/// Adds a warning header to the response if names in the request's filters match nothing that exists for
/// the caller: they may be misspelt.
pub(super) fn warn_of_unmatched_filters(
    app: &App,
    caller: &Caller,
    filters: &Filters,
    response: &mut Response,
) {
    if filters.name_count() == 0 {
        return;
    }
    // A filter or key that is not valid has its own error.
    let Ok(scope) = app.gateway().scope(caller, filters) else {
        return;
    };
    let unmatched = scope.unmatched_filters().iter();
    let warnings: Vec<String> = unmatched
        .take(MAX_WARNINGS)
        .map(ToString::to_string)
        .collect();
    if warnings.is_empty() {
        return;
    }
    if let Ok(value) = HeaderValue::from_bytes(warnings.join("; ").as_bytes()) {
        response.headers_mut().insert(WARNING, value);
    }
}

fn parse_filter(headers: &HeaderMap, name: &str) -> Result<Option<Vec<String>>, ApiError> {
    let mut values = Vec::new();
    for value in headers.get_all(name) {
        let text = std::str::from_utf8(value.as_bytes())
            .map_err(|_| ApiError::bad_request(format!("`{name}` is not valid UTF-8")))?;
        values.push(text);
    }
    let mut names = values.iter().flat_map(|text| text.split(','));
    if names.any(|text| text.trim().len() > MAX_FILTER_NAME_BYTES) {
        return Err(ApiError::bad_request(format!(
            "a name in `{name}` is longer than {MAX_FILTER_NAME_BYTES} bytes"
        )));
    }
    if values.iter().map(|text| text.len()).sum::<usize>() > MAX_FILTER_BYTES {
        return Err(ApiError::bad_request(format!(
            "`{name}` is longer than {MAX_FILTER_BYTES} bytes; use patterns such as `github.*`"
        )));
    }
    let names = Filters::parse_list(values);
    if names
        .as_ref()
        .is_some_and(|names| names.len() > MAX_FILTER_NAMES)
    {
        return Err(ApiError::bad_request(format!(
            "`{name}` has more than {MAX_FILTER_NAMES} names; use patterns such as `github.*`"
        )));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_filter_headers_are_merged_and_malformed_ones_rejected() {
        let mut headers = HeaderMap::new();
        assert_eq!(parse_filters(&headers).unwrap(), Filters::default());
        headers.append(Filters::INCLUDE_TOOLS, HeaderValue::from_static("a.b, c.d"));
        headers.append(Filters::INCLUDE_TOOLS, HeaderValue::from_static("e.f"));
        headers.append(Filters::INCLUDE_CLIENTS, HeaderValue::from_static(" , "));
        let parsed = parse_filters(&headers).unwrap();
        let names = ["a.b", "c.d", "e.f"].map(str::to_owned);
        assert_eq!(parsed.include_tools, Some(names.into()));
        assert_eq!(parsed.include_clients, Some(Vec::new()));
        headers.append(
            Filters::EXCLUDE_TOOLS,
            HeaderValue::from_bytes(b"\xff").unwrap(),
        );
        assert!(parse_filters(&headers).is_err());
        let long = HeaderValue::from_str(&"x".repeat(20_000)).unwrap();
        headers.insert(Filters::EXCLUDE_TOOLS, long);
        assert!(parse_filters(&headers).is_err());
    }
}
