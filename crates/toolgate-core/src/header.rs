//! Names of HTTP headers that callers can never pass on through the gateway.

/// Headers that concern only the connection between the caller and the gateway.
const RESERVED: [&str; 22] = [
    "accept",
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-bf-vk",
    "x-goog-api-key",
    "x-real-ip",
];
const RESERVED_PREFIXES: [&str; 5] = ["mcp-", "proxy-", "x-forwarded-", "x-toolgate-", "x-bf-mcp-"];

/// Ends of the names of headers that carry credentials.
const CREDENTIAL_SUFFIXES: [&str; 10] = [
    "authorization",
    "-auth",
    "api-key",
    "apikey",
    "access-key",
    "subscription-key",
    "-token",
    "-secret",
    "-password",
    "cookie",
];
/// Headers by which a provider decides on whose account a request runs.
const ACCOUNT_HEADERS: [&str; 3] = [
    "openai-organization",
    "openai-project",
    "x-goog-user-project",
];

/// Returns whether a header, in lower case, is never forwarded from a caller.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Returns whether a header, in lower case, is one that a caller can never set at a model provider:
/// one of the connection, a credential, or one that selects the account.
pub fn is_reserved_for_providers(name: &str) -> bool {
    is_reserved(name)
        || CREDENTIAL_SUFFIXES.iter().any(|end| name.ends_with(end))
        || ACCOUNT_HEADERS.contains(&name)
}

/// Returns whether a text is a valid header name.
pub fn is_valid_name(text: &str) -> bool {
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_token_char)
}
