//! The authorization request and its response: PKCE (RFC 7636), resource indicators (RFC 8707) and
//! the issuer in the response (RFC 9207).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use url::Url;

use crate::discovery::ServerMetadata;

/// Random text that is hard to guess: 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    #[allow(
        clippy::expect_used,
        reason = "the operating system's random numbers do not fail once they have started"
    )]
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.expect("random numbers are available");
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(***)")
    }
}

/// The challenge of PKCE's method S256 for a verifier.
pub fn code_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Parameters of an authorization request.
#[derive(Debug)]
pub struct AuthorizationRequest<'a> {
    pub client_id: &'a str,
    pub redirect_uri: &'a str,
    pub state: &'a str,
    pub code_verifier: &'a str,
    pub scopes: &'a [String],
    pub resource: Option<&'a str>,
    /// Parameters that a provider needs in addition, such as Google's `access_type`.
    pub extra: &'a [(String, String)],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    #[error("the authorization server has no authorization endpoint")]
    NoEndpoint,
    #[error("its authorization endpoint `{0}` is neither https nor on the local machine")]
    InsecureEndpoint(String),
    #[error(
        "the authorization server does not say that it supports PKCE with S256; \
         if it does, set `allow_missing_pkce_metadata`"
    )]
    NoPkce,
    #[error("the response came from another authorization server than the one that was asked")]
    IssuerMismatch,
    #[error("the response does not name its issuer, although the authorization server promises it")]
    IssuerMissing,
}

/// The URL to open in a browser.
pub fn authorization_url(
    server: &ServerMetadata,
    request: &AuthorizationRequest<'_>,
) -> Result<Url, AuthorizationError> {
    let endpoint = server.authorization_endpoint.as_deref();
    let endpoint = endpoint.ok_or(AuthorizationError::NoEndpoint)?;
    let insecure = || AuthorizationError::InsecureEndpoint(endpoint.to_owned());
    let mut url = Url::parse(endpoint).map_err(|_| insecure())?;
    let is_local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        _ => return Err(insecure()),
    }
    let challenge = code_challenge(request.code_verifier);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("client_id", request.client_id)
        .append_pair("redirect_uri", request.redirect_uri)
        .append_pair("state", request.state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256");
    if !request.scopes.is_empty() {
        query.append_pair("scope", &request.scopes.join(" "));
    }
    if let Some(resource) = request.resource {
        query.append_pair("resource", resource);
    }
    for (name, value) in request.extra {
        query.append_pair(name, value);
    }
    drop(query);
    Ok(url)
}

/// Refuses a server that does not announce PKCE.
pub fn require_pkce(server: &ServerMetadata) -> Result<(), AuthorizationError> {
    let methods = server.code_challenge_methods_supported.iter().flatten();
    let mut methods = methods.filter(|method| *method == "S256");
    methods.next().map(drop).ok_or(AuthorizationError::NoPkce)
}

/// Checks the `iss` parameter of a response, before anything else in the response is used.
pub fn check_issuer(server: &ServerMetadata, iss: Option<&str>) -> Result<(), AuthorizationError> {
    match iss {
        Some(iss) if iss == server.issuer => Ok(()),
        Some(_) => Err(AuthorizationError::IssuerMismatch),
        None if server.authorization_response_iss_parameter_supported => {
            Err(AuthorizationError::IssuerMissing)
        }
        None => Ok(()),
    }
}

/// The scopes to ask for: what the challenge names, otherwise what the resource publishes; plus what
/// was asked for before. `offline_access` is added where the authorization server lists it, since
/// some give refresh tokens only then.
pub fn scopes_to_request(
    challenged: &[String],
    published: &[String],
    before: &[String],
    server: &ServerMetadata,
) -> Vec<String> {
    let wanted = if challenged.is_empty() {
        published
    } else {
        challenged
    };
    let mut scopes: Vec<String> = Vec::new();
    for scope in before.iter().chain(wanted) {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
    let offline = "offline_access".to_owned();
    if !scopes.is_empty()
        && !scopes.contains(&offline)
        && server.scopes_supported.contains(&offline)
    {
        scopes.push(offline);
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerMetadata {
        ServerMetadata {
            issuer: "https://as.example".to_owned(),
            authorization_endpoint: Some("https://as.example/authorize?tenant=1".to_owned()),
            ..ServerMetadata::default()
        }
    }

    #[test]
    fn url_keeps_the_endpoints_query_and_the_exact_resource() {
        let request = AuthorizationRequest {
            client_id: "c",
            redirect_uri: "http://127.0.0.1:1/callback",
            state: "s",
            code_verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
            scopes: &[],
            resource: Some("https://rs.example"),
            extra: &[],
        };
        let url = authorization_url(&server(), &request).unwrap();
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let value = |name: &str| {
            let mut found = pairs.iter().filter(|(key, _)| key == name);
            let value = found.next().map(|(_, value)| value.as_str());
            assert!(found.next().is_none(), "{name} appears twice");
            value
        };
        assert_eq!(value("tenant"), Some("1"));
        assert_eq!(value("resource"), Some("https://rs.example"));
        // The example of RFC 7636, appendix B.
        assert_eq!(
            value("code_challenge"),
            Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
        );
        assert_eq!(value("scope"), None);
    }

    #[test]
    fn only_web_addresses_are_opened() {
        for endpoint in [
            "file:///etc/passwd",
            "http://as.example/",
            "javascript:alert(1)",
        ] {
            let server = ServerMetadata {
                authorization_endpoint: Some(endpoint.to_owned()),
                ..server()
            };
            let request = AuthorizationRequest {
                client_id: "",
                redirect_uri: "",
                state: "",
                code_verifier: "",
                scopes: &[],
                resource: None,
                extra: &[],
            };
            let error = authorization_url(&server, &request).unwrap_err();
            assert!(matches!(error, AuthorizationError::InsecureEndpoint(_)));
        }
    }

    #[test]
    fn issuer_of_the_response_is_compared_byte_for_byte() {
        let mut server = server();
        assert_eq!(check_issuer(&server, None), Ok(()));
        assert_eq!(check_issuer(&server, Some("https://as.example")), Ok(()));
        for foreign in [
            "https://as.example/",
            "https://AS.example",
            "https://b.example",
            "",
        ] {
            let result = check_issuer(&server, Some(foreign));
            assert_eq!(result, Err(AuthorizationError::IssuerMismatch));
        }
        server.authorization_response_iss_parameter_supported = true;
        assert_eq!(
            check_issuer(&server, None),
            Err(AuthorizationError::IssuerMissing)
        );
    }

    #[test]
    fn challenge_wins_over_published_scopes_and_adds_to_earlier_ones() {
        let list = |scopes: &str| crate::challenge::split_scopes(scopes);
        let mut server = server();
        let request = |challenged: &str, published: &str, before: &str, server: &ServerMetadata| {
            scopes_to_request(&list(challenged), &list(published), &list(before), server).join(" ")
        };
        assert_eq!(request("a", "x y", "", &server), "a");
        assert_eq!(request("", "x y", "", &server), "x y");
        assert_eq!(request("b a", "x y", "a", &server), "a b");
        assert_eq!(request("", "", "", &server), "");
        server.scopes_supported = list("offline_access");
        assert_eq!(request("a", "", "", &server), "a offline_access");
        assert_eq!(request("", "", "", &server), "");
    }
}
