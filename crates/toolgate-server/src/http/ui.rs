//! Serves the web page built by `make web`, with strict security headers.
//!
//! The page needs no authentication because it holds no data: it fetches everything from the API with
//! the user's key.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::error::ApiError;
use super::extract::ApiPath;

/// Only same-origin resources, no inline scripts or styles, no strings as markup, no framing.
const CONTENT_POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'";

const SECURITY_HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(CONTENT_POLICY),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// For assets, whose names contain a hash of their content.
const CACHE_IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// For files with stable names: browsers revalidate them by ETag.
const CACHE_REVALIDATE: &str = "no-cache";

const NOT_BUILT: &str = "This gateway was built without the web page.\n\n\
    Run `make build` to build both, or `make web` and then rebuild the gateway.\n\
    The API is available regardless: see /api/openapi.json.\n";

#[derive(RustEmbed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct WebFiles;

/// Serves the page.
pub(super) async fn index(headers: HeaderMap) -> Response {
    match WebFiles::get("index.html") {
        Some(file) => serve_file(&headers, "index.html", file, CACHE_REVALIDATE),
        None => with_security_headers((StatusCode::NOT_FOUND, NOT_BUILT).into_response()),
    }
}

/// Serves the favicon.
pub(super) async fn favicon(headers: HeaderMap) -> Result<Response, ApiError> {
    let name = "favicon.svg";
    let file = WebFiles::get(name).ok_or_else(|| file_not_found(name))?;
    Ok(serve_file(&headers, name, file, CACHE_REVALIDATE))
}

/// Serves a script, style or font.
pub(super) async fn asset(
    headers: HeaderMap,
    ApiPath(name): ApiPath<String>,
) -> Result<Response, ApiError> {
    let path = format!("assets/{name}");
    // Debug builds read files from disk, where `..` would escape the folder.
    let file = Some(&path)
        .filter(|_| !name.contains(['/', '\\']))
        .and_then(|path| WebFiles::get(path))
        .ok_or_else(|| file_not_found(&path))?;
    Ok(serve_file(&headers, &path, file, CACHE_IMMUTABLE))
}

fn file_not_found(path: &str) -> ApiError {
    ApiError::not_found(format!(
        "unknown path `/{path}`; /api/openapi.json lists all routes"
    ))
}

/// Sends a file, or 304 if the browser's copy is current.
fn serve_file(
    headers: &HeaderMap,
    path: &str,
    file: EmbeddedFile,
    cache_control: &'static str,
) -> Response {
    let etag = etag(&file);
    let mut response = if matches_etag(headers, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let body = match file.data {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        ([(CONTENT_TYPE, content_type(path))], Body::from(body)).into_response()
    };
    let cache_control = HeaderValue::from_static(cache_control);
    response.headers_mut().insert(CACHE_CONTROL, cache_control);
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        response.headers_mut().insert(ETAG, etag);
    }
    with_security_headers(response)
}

fn with_security_headers(mut response: Response) -> Response {
    response.headers_mut().extend(SECURITY_HEADERS);
    response
}

fn etag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let mut etag = String::from("\"");
    for byte in &hash[..16] {
        let _ = write!(etag, "{byte:02x}");
    }
    etag + "\""
}

fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut known = known
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    known.any(|known| matches!(known.trim(), "*") || known.trim().trim_start_matches("W/") == etag)
}

/// Returns the content type of a file; covers only the types that the build produces.
fn content_type(path: &str) -> &'static str {
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
    fn if_none_match_accepts_weak_tags_lists_and_wildcard() {
        let headers = |value: &'static str| {
            HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(value))])
        };
        for value in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(matches_etag(&headers(value), "\"a\""), "{value}");
        }
        for value in ["\"b\"", "a", ""] {
            assert!(!matches_etag(&headers(value), "\"a\""), "{value}");
        }
        assert!(!matches_etag(&HeaderMap::new(), "\"a\""));
    }
}
