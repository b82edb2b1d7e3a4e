//! The web page, as `make web` built it: its files, and the headers that fence it in.
//!
//! It is open to everyone and holds nothing; what it shows it asks the API for, with the key of
//! whoever looks at it.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::error::ApiError;

/// Nothing from elsewhere, nothing inline, no strings as markup, in nobody's frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'";

const FENCES: [(HeaderName, HeaderValue); 4] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Names of assets change with what is in them.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
const ASK_FIRST: &str = "no-cache";

const NOT_BUILT: &str = "This gateway was built without its web page.\n\n\
    Build both with `make build`, or the page alone with `make web` and then the gateway again.\n\
    The API is there all the same: see /api/openapi.json.\n";

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Files;

/// The page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    match Files::get("index.html") {
        Some(file) => answer(&headers, "index.html", file, ASK_FIRST),
        None => fenced((StatusCode::NOT_FOUND, NOT_BUILT).into_response()),
    }
}

/// Its sign in a browser's tab.
pub(super) async fn favicon(headers: HeaderMap) -> Result<Response, ApiError> {
    let name = "favicon.svg";
    let file = Files::get(name).ok_or_else(|| unknown(name))?;
    Ok(answer(&headers, name, file, ASK_FIRST))
}

/// A script or style.
pub(super) async fn asset(
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name?;
    let path = format!("assets/{name}");
    // While it is developed, files come from the disk, where `..` leads elsewhere.
    let file = Some(&path).filter(|_| !name.contains(['/', '\\']));
    let file = file.and_then(|path| Files::get(path));
    let file = file.ok_or_else(|| unknown(&path))?;
    Ok(answer(&headers, &path, file, FOR_EVER))
}

fn unknown(path: &str) -> ApiError {
    ApiError::not_found(format!(
        "no such path `/{path}`; see /api/openapi.json for what there is"
    ))
}

/// A file, or that it is still the one the browser has.
fn answer(headers: &HeaderMap, path: &str, file: EmbeddedFile, caching: &'static str) -> Response {
    let tag = tag(&file);
    let mut response = match is_known(headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let body = match file.data {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => Bytes::from(bytes),
            };
            ([(CONTENT_TYPE, kind(path))], Body::from(body)).into_response()
        }
    };
    let caching = HeaderValue::from_static(caching);
    response.headers_mut().insert(CACHE_CONTROL, caching);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    fenced(response)
}

fn fenced(mut response: Response) -> Response {
    response.headers_mut().extend(FENCES);
    response
}

fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let mut tag = String::from("\"");
    for byte in &hash[..16] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    known.any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == tag)
}

/// What the build makes, and nothing else.
fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_whatever_browsers_send() {
        let sent = |value: &'static str| {
            HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(value))])
        };
        for value in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(is_known(&sent(value), "\"a\""), "{value}");
        }
        for value in ["\"b\"", "a", ""] {
            assert!(!is_known(&sent(value), "\"a\""), "{value}");
        }
        assert!(!is_known(&HeaderMap::new(), "\"a\""));
    }
}
