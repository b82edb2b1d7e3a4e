//! Content types of requests to `/api`.
//!
//! A page of another site can make a browser send a form or plain text to the gateway without asking
//! first, but not JSON. Requests that a browser sent, and those that are admitted without a credential,
//! must therefore be JSON.

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HeaderName, ORIGIN};
use axum::http::{HeaderValue, Method, StatusCode};

use super::presented_keys;
use crate::http::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns an error if a request that must be JSON is not. Requests that change nothing pass.
pub(super) fn check(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let from_browser = headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE);
    let must_be_json = from_browser || presented_keys(headers).next().is_none();
    // Browsers never send another method to another site without asking, but any POST without a body.
    let is_checked = match *request.method() {
        Method::GET | Method::HEAD | Method::OPTIONS => false,
        Method::POST => true,
        _ => !request.body().is_end_stream(),
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter().peekable();
    if !must_be_json || !is_checked || (types.peek().is_some() && types.all(is_json)) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "this request must be sent with `Content-Type: application/json`",
    ))
}

/// Returns whether a content type is `application/json` or `application/*+json`.
fn is_json(value: &HeaderValue) -> bool {
    let Ok(text) = value.to_str() else {
        return false;
    };
    let essence = text.split(';').next().unwrap_or(text).trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let subtype = subtype.to_ascii_lowercase();
    // A comma would start a second type, which browsers may prefer.
    kind.eq_ignore_ascii_case("application")
        && !text.contains(',')
        && (subtype == "json" || subtype.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn is_accepted(method: &Method, headers: &[(&str, &str)], body: &'static str) -> bool {
        let mut request = Request::builder().method(method).uri("/api/mcp/client");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(Body::from(body)).unwrap()).is_ok()
    }

    #[test]
    fn requests_from_browsers_or_without_credential_must_be_json() {
        let senders: [(&[(&str, &str)], bool); 6] = [
            (&[], true),
            (&[("origin", "http://127.0.0.1:8080")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("origin", "null"), ("x-api-key", "k")], true),
            (&[("authorization", "Bearer k")], false),
            (&[("x-api-key", "k")], false),
        ];
        let types = [
            (None, false),
            (Some("application/json"), true),
            (Some("Application/JSON; charset=utf-8"), true),
            (Some("application/merge-patch+json"), true),
            (Some("text/plain"), false),
            (Some("text/plain; application/json"), false),
            (Some("text/plain, application/json"), false),
            (Some("application/json, text/plain"), false),
            (Some("application/x-www-form-urlencoded"), false),
            (Some("multipart/form-data; boundary=json"), false),
            (Some("application/jsonx"), false),
            (Some("json"), false),
            (Some(""), false),
        ];
        for (sender, must_be_json) in senders {
            for (content_type, is_json) in types {
                let given = content_type.map(|value| ("content-type", value));
                let headers: Vec<_> = sender.iter().copied().chain(given).collect();
                let expected = is_json || !must_be_json;
                for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                    let accepted = is_accepted(&method, &headers, "{}");
                    assert_eq!(accepted, expected, "{method} {headers:?}");
                }
                let without_body = is_accepted(&Method::POST, &headers, "");
                assert_eq!(without_body, expected, "{headers:?}");
                assert!(is_accepted(&Method::DELETE, &headers, ""));
                assert!(is_accepted(&Method::GET, &headers, "{}"));
            }
        }
        let twice = [
            ("content-type", "application/json"),
            ("content-type", "text/plain"),
        ];
        assert!(!is_accepted(&Method::POST, &twice, "{}"));
    }
}
