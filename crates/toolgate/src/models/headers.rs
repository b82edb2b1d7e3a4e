//! Header filtering: few request headers reach a provider, most response headers reach the caller.

use http::{HeaderMap, HeaderName};
use toolgate_core::config::Dialect;
use toolgate_mcp::TraceContext;

/// Request headers forwarded to every provider, in addition to `x-bf-eh-*`.
const FORWARDED_HEADERS: [&str; 4] = ["traceparent", "tracestate", "baggage", "idempotency-key"];
const ANTHROPIC_HEADERS: [&str; 2] = ["anthropic-version", "anthropic-beta"];
const OPENAI_HEADERS: [&str; 1] = ["openai-beta"];
const EXTRA_HEADER_PREFIX: &str = "x-bf-eh-";

/// Headers that `x-bf-eh-*` cannot set: credentials belong to the gateway, and connection headers to
/// the HTTP client.
const NEVER_FORWARDED: [&str; 15] = [
    "accept-encoding",
    "te",
    "upgrade",
    "expect",
    "proxy-authorization",
    "x-goog-api-key",
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
];

/// Response headers that are not returned: they concern the provider's connection or are set by the
/// gateway.
const NEVER_RETURNED: [&str; 15] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "proxy-authenticate",
    "content-length",
    "set-cookie",
    "date",
    "server",
    "alt-svc",
    "strict-transport-security",
    "x-request-id",
    "access-control-allow-origin",
];

/// Selects the request headers to forward to a provider, replacing the caller's trace context with the
/// gateway's if there is one.
pub(super) fn provider_headers(
    headers: &HeaderMap,
    dialect: Dialect,
    trace: Option<&TraceContext>,
) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    let dialect_headers: &[&str] = match dialect {
        Dialect::Messages => &ANTHROPIC_HEADERS,
        Dialect::Chat | Dialect::Responses => &OPENAI_HEADERS,
    };
    for (name, value) in headers {
        let extra = name.as_str().strip_prefix(EXTRA_HEADER_PREFIX);
        let extra = extra.filter(|name| !NEVER_FORWARDED.contains(name));
        if let Some(Ok(name)) = extra.map(HeaderName::try_from) {
            forwarded.append(name, value.clone());
        } else if FORWARDED_HEADERS.contains(&name.as_str())
            || dialect_headers.contains(&name.as_str())
        {
            forwarded.append(name.clone(), value.clone());
        }
    }
    if let Some(trace) = trace {
        forwarded.remove("tracestate");
        trace.insert_into_headers(&mut forwarded);
    }
    forwarded
}

/// Selects the response headers to return to the caller.
pub(crate) fn caller_headers(headers: &HeaderMap) -> HeaderMap {
    headers
        .iter()
        .filter(|(name, _)| !NEVER_RETURNED.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
