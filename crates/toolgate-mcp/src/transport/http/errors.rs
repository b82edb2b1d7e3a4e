//! Maps HTTP client errors to [`RequestError`]: free of secrets, and precise about whether the
//! request may have been sent.

use std::error::Error;

use crate::transport::RequestError;

pub(in crate::transport) fn send_error(error: &reqwest::Error) -> RequestError {
    if error.is_connect() {
        not_sent_error(&root_cause(error))
    } else {
        lost_error(&root_cause(error))
    }
}

pub(super) fn not_sent_error(cause: &str) -> RequestError {
    RequestError::NotSent(format!("the server cannot be reached: {cause}"))
}

pub(super) fn lost_error(cause: &str) -> RequestError {
    RequestError::Lost(format!("connection lost: {cause}"))
}

/// Returns the innermost cause; the outer ones repeat the URL, which may contain a secret.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    error
        .source()
        .map_or_else(|| "unknown cause".to_owned(), innermost_source)
}

pub(super) fn innermost_source(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
