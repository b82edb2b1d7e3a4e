//! Headers that go through: few towards a provider, most of what it answers.

use http::{HeaderMap, HeaderName};
use toolgate_core::config::Dialect;
use toolgate_mcp::TraceContext;

/// What a caller may say to a provider, besides `x-bf-eh-*`.
const FORWARDED: [&str; 4] = ["traceparent", "tracestate", "baggage", "idempotency-key"];
const OF_MESSAGES: [&str; 2] = ["anthropic-version", "anthropic-beta"];
const OF_OPENAI: [&str; 1] = ["openai-beta"];
const EXTRA: &str = "x-bf-eh-";

/// Credentials are the gateway's, and what concerns the connection is not the caller's business.
const NEVER: [&str; 15] = [
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

/// What does not go back: it concerns the provider's connection, or is said by the gateway itself.
const KEPT_BACK: [&str; 15] = [
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

/// The headers of a caller's request that go on to a provider, with the request's own trace
/// context in the place of the caller's if there is one.
pub(super) fn forwarded(
    headers: &HeaderMap,
    dialect: Dialect,
    trace: Option<&TraceContext>,
) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    let own: &[&str] = match dialect {
        Dialect::Messages => &OF_MESSAGES,
        Dialect::Chat | Dialect::Responses => &OF_OPENAI,
    };
    for (name, value) in headers {
        let extra = name.as_str().strip_prefix(EXTRA);
        let extra = extra.filter(|name| !NEVER.contains(name));
        if let Some(Ok(name)) = extra.map(HeaderName::try_from) {
            forwarded.append(name, value.clone());
        } else if FORWARDED.contains(&name.as_str()) || own.contains(&name.as_str()) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    if let Some(trace) = trace {
        forwarded.remove("tracestate");
        trace.onto_headers(&mut forwarded);
    }
    forwarded
}

/// The headers of a provider's answer that go back to the caller.
pub(crate) fn returned(headers: &HeaderMap) -> HeaderMap {
    let back = headers.iter();
    let back = back.filter(|(name, _)| !KEPT_BACK.contains(&name.as_str()));
    back.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
