//! Dynamic client registration (RFC 7591) and the choice of a client authentication method.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde::{Deserialize, Serialize};

use crate::discovery::ServerMetadata;
use crate::fetch::{FetchError, Fetcher};
use crate::token::{AuthMethod, ErrorAnswer};

const CLIENT_NAME: &str = "Toolgate";

/// A client as the authorization server knows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub client_id: String,
    pub client_secret: Option<String>,
    #[serde(default, rename = "token_endpoint_auth_method")]
    pub auth_method: Option<AuthMethod>,
    /// Seconds since 1970; 0 means never.
    #[serde(default)]
    pub client_secret_expires_at: u64,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistrationError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the authorization server refused to register a client: {0}")]
    Refused(ErrorAnswer),
}

#[derive(Serialize)]
struct Request<'a> {
    client_name: &'a str,
    redirect_uris: [&'a str; 1],
    grant_types: [&'a str; 2],
    response_types: [&'a str; 1],
    token_endpoint_auth_method: AuthMethod,
    application_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

/// Registers the gateway as a client with one redirect URI.
pub async fn register(
    fetcher: &Fetcher,
    endpoint: &str,
    server: &ServerMetadata,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<Registration, RegistrationError> {
    let request = Request {
        client_name: CLIENT_NAME,
        redirect_uris: [redirect_uri],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: preferred_method(server),
        application_type: application_type(redirect_uri),
        scope: (!scopes.is_empty()).then(|| scopes.join(" ")),
    };
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json.clone());
    headers.insert(ACCEPT, json);
    let body = serde_json::to_vec(&request).map_err(|error| FetchError::InvalidJson {
        url: endpoint.to_owned(),
        reason: error.to_string(),
    })?;
    let answer = fetcher.send(Method::POST, endpoint, headers, body).await?;
    if answer.status.is_success() {
        let mut registration: Registration = answer.json(endpoint)?;
        // What the answer leaves out is as it was asked for.
        let asked = request.token_endpoint_auth_method;
        registration.auth_method.get_or_insert(asked);
        return Ok(registration);
    }
    if answer.status.is_server_error() {
        return Err(RegistrationError::Fetch(FetchError::Status {
            url: endpoint.to_owned(),
            status: answer.status,
        }));
    }
    Err(RegistrationError::Refused(ErrorAnswer::of(&answer)))
}

/// The method to use with a server: one without a secret if it is offered, since a secret that
/// anybody can obtain by registering proves nothing.
pub fn preferred_method(server: &ServerMetadata) -> AuthMethod {
    let Some(supported) = &server.token_endpoint_auth_methods_supported else {
        return AuthMethod::None;
    };
    [
        AuthMethod::None,
        AuthMethod::ClientSecretBasic,
        AuthMethod::ClientSecretPost,
    ]
    .into_iter()
    .find(|method| supported.iter().any(|name| name == method.name()))
    .unwrap_or(AuthMethod::ClientSecretBasic)
}

/// The method for a secret that was registered by hand.
pub fn method_for_secret(server: &ServerMetadata) -> AuthMethod {
    let supported = server.token_endpoint_auth_methods_supported.as_deref();
    let supported = supported.unwrap_or_default();
    let offers = |method: AuthMethod| supported.iter().any(|name| name == method.name());
    if offers(AuthMethod::ClientSecretPost) && !offers(AuthMethod::ClientSecretBasic) {
        AuthMethod::ClientSecretPost
    } else {
        AuthMethod::ClientSecretBasic
    }
}

fn application_type(redirect_uri: &str) -> &'static str {
    if redirect_uri.starts_with("https://") {
        "web"
    } else {
        "native"
    }
}
