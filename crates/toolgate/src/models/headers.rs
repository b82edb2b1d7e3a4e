//! Header filtering: few request headers reach a provider, most response headers reach the caller.

use http::{HeaderMap, HeaderName};
use toolgate_core::config::Dialect;
use toolgate_mcp::TraceContext;

/// Request headers forwarded to every provider.
const FORWARDED_HEADERS: [&str; 4] = ["traceparent", "tracestate", "baggage", "idempotency-key"];
const ANTHROPIC_HEADERS: [&str; 2] = ["anthropic-version", "anthropic-beta"];
const OPENAI_HEADERS: [&str; 1] = ["openai-beta"];
/// Prefix of headers that callers send in order to set one at the provider.
const EXTRA_HEADER_PREFIX: &str = "x-bf-eh-";

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
/// gateway's if there is one. `allowed` lists the headers that `x-bf-eh-*` can set.
pub(super) fn provider_headers(
    headers: &HeaderMap,
    dialect: Dialect,
    allowed: &[String],
    trace: Option<&TraceContext>,
) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    let dialect_headers: &[&str] = match dialect {
        Dialect::Messages => &ANTHROPIC_HEADERS,
        Dialect::Chat | Dialect::Responses => &OPENAI_HEADERS,
    };
    let is_forwarded =
        |name: &str| FORWARDED_HEADERS.contains(&name) || dialect_headers.contains(&name);
    for (name, value) in headers {
        let extra = name.as_str().strip_prefix(EXTRA_HEADER_PREFIX);
        let Some(extra) = extra else {
            if is_forwarded(name.as_str()) {
                forwarded.append(name.clone(), value.clone());
            }
            continue;
        };
        let is_allowed = is_forwarded(extra) || allowed.iter().any(|name| name == extra);
        match HeaderName::try_from(extra) {
            Ok(name) if is_allowed => {
                forwarded.append(name, value.clone());
            }
            _ => tracing::debug!(
                header = extra,
                "dropping header that is not in the provider's `allowed_extra_headers`"
            ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_headers_are_forwarded() {
        let allowed = ["x-team".to_owned(), "x-title".to_owned()];
        let cases = [
            ("x-bf-eh-x-team", Some("x-team")),
            ("X-BF-EH-X-Title", Some("x-title")),
            ("x-bf-eh-anthropic-beta", Some("anthropic-beta")),
            ("anthropic-beta", Some("anthropic-beta")),
            ("idempotency-key", Some("idempotency-key")),
            ("x-team", None),
            ("x-bf-eh-x-teams", None),
            ("x-bf-eh-openai-beta", None),
            ("x-bf-eh-authorization", None),
            ("x-bf-eh-x-bf-eh-authorization", None),
            ("x-bf-eh-x-amz-security-token", None),
            ("x-bf-eh-connection", None),
            ("x-bf-eh-", None),
            ("x-api-key", None),
            ("cookie", None),
        ];
        for (sent, expected) in cases {
            let name: HeaderName = sent.parse().unwrap();
            let headers = HeaderMap::from_iter([(name, "v".parse().unwrap())]);
            let forwarded = provider_headers(&headers, Dialect::Messages, &allowed, None);
            let forwarded: Vec<&str> = forwarded.keys().map(HeaderName::as_str).collect();
            assert_eq!(forwarded.first().copied(), expected, "{sent}");
            assert!(forwarded.len() <= 1, "{sent}: {forwarded:?}");
        }
    }
}
