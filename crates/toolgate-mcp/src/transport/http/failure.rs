//! What broke, in words that hold no secret, and whether the request may have been sent.

use std::error::Error;

use crate::transport::RequestError;

pub(in crate::transport) fn unreachable(error: &reqwest::Error) -> RequestError {
    match error.is_connect() {
        true => not_sent(&cause(error)),
        false => lost(&cause(error)),
    }
}

pub(super) fn not_sent(cause: &str) -> RequestError {
    RequestError::NotSent(format!("the server cannot be reached: {cause}"))
}

pub(super) fn lost(cause: &str) -> RequestError {
    RequestError::Lost(format!("the connection broke: {cause}"))
}

/// The innermost cause; the outer ones repeat the URL, which may hold a secret.
pub(super) fn cause(error: &reqwest::Error) -> String {
    error
        .source()
        .map_or_else(|| "it failed".to_owned(), innermost)
}

pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
