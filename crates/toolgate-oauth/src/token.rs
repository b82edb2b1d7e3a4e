//! Requests to the token and revocation endpoints.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::form_urlencoded::{self, Serializer};

use crate::fetch::{Answer, FetchError, Fetcher};

/// How a client proves its identity to the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    None,
    ClientSecretBasic,
    ClientSecretPost,
    PrivateKeyJwt,
}

impl AuthMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }
}

/// Credentials of a client at the token endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientAuth {
    pub client_id: String,
    pub method: AuthMethod,
    /// The secret, or the signed assertion.
    pub secret: Option<String>,
}

/// What a token is asked for with.
#[derive(Clone, Copy)]
pub enum Grant<'a> {
    AuthorizationCode {
        code: &'a str,
        code_verifier: &'a str,
        redirect_uri: &'a str,
    },
    RefreshToken(&'a str),
    ClientCredentials,
    /// RFC 7523.
    JwtBearer(&'a str),
    /// RFC 8628.
    DeviceCode(&'a str),
    /// RFC 8693: exchanges an ID token for an assertion that the resource's authorization server
    /// accepts.
    IdentityAssertion {
        id_token: &'a str,
        audience: &'a str,
    },
}

/// A successful answer of the token endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    pub access_token: String,
    pub token_type: String,
    /// Lifetime in seconds.
    pub expires_in: Option<u64>,
    pub refresh_token: Option<String>,
    /// Granted scopes, if they differ from the requested ones.
    pub scope: Option<String>,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the authorization server refused: {0}")]
    Refused(ErrorAnswer),
    #[error("the token endpoint's answer has no `{0}`")]
    Incomplete(&'static str),
}

/// An error answer of an authorization server, made safe to display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    pub status: StatusCode,
    pub error: String,
    pub description: Option<String>,
}

impl TokenError {
    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Fetch(error) => error.is_temporary(),
            Self::Refused(answer) => {
                matches!(
                    answer.error.as_str(),
                    "temporarily_unavailable" | "server_error"
                )
            }
            Self::Incomplete(_) => false,
        }
    }

    /// The error code of the authorization server.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(answer) => Some(&answer.error),
            _ => None,
        }
    }
}

impl ErrorAnswer {
    pub(crate) fn of(answer: &Answer) -> Self {
        let fields: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(printable);
        Self {
            status: answer.status,
            error: text("error").unwrap_or_else(|| format!("HTTP {}", answer.status.as_u16())),
            description: text("error_description"),
        }
    }
}

impl fmt::Display for ErrorAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "{} ({description})", self.error),
            None => f.write_str(&self.error),
        }
    }
}

/// Text of another party, bounded and without control characters.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Requests tokens. `resource` must be the same in all requests for a resource; `headers` holds a
/// proof of possession, if the tokens are bound to a key.
pub async fn request(
    fetcher: &Fetcher,
    endpoint: &str,
    client: &ClientAuth,
    grant: Grant<'_>,
    resource: Option<&str>,
    scopes: &[String],
    headers: HeaderMap,
) -> Result<Tokens, TokenError> {
    let mut form = Serializer::new(String::new());
    grant.write(&mut form);
    if let Some(resource) = resource {
        form.append_pair("resource", resource);
    }
    if !scopes.is_empty() {
        form.append_pair("scope", &scopes.join(" "));
    }
    let answer = post(fetcher, endpoint, client, form, headers).await?;
    Tokens::parse(&answer)
}

/// Revokes a token (RFC 7009).
pub async fn revoke(
    fetcher: &Fetcher,
    endpoint: &str,
    client: &ClientAuth,
    token: &str,
    hint: &str,
) -> Result<(), TokenError> {
    let mut form = Serializer::new(String::new());
    form.append_pair("token", token)
        .append_pair("token_type_hint", hint);
    post(fetcher, endpoint, client, form, HeaderMap::new())
        .await
        .map(drop)
}

async fn post(
    fetcher: &Fetcher,
    endpoint: &str,
    client: &ClientAuth,
    mut form: Serializer<'_, String>,
    mut headers: HeaderMap,
) -> Result<Answer, TokenError> {
    client.write(&mut form, &mut headers);
    let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let body = form.finish().into_bytes();
    let answer = fetcher.send(Method::POST, endpoint, headers, body).await?;
    if answer.status.is_success() {
        return Ok(answer);
    }
    if answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS {
        return Err(TokenError::Fetch(FetchError::Status {
            url: endpoint.to_owned(),
            status: answer.status,
        }));
    }
    Err(TokenError::Refused(ErrorAnswer::of(&answer)))
}

impl ClientAuth {
    fn write(&self, form: &mut Serializer<'_, String>, headers: &mut HeaderMap) {
        let secret = self.secret.as_deref().unwrap_or_default();
        match self.method {
            AuthMethod::None => {
                form.append_pair("client_id", &self.client_id);
            }
            AuthMethod::ClientSecretPost => {
                form.append_pair("client_id", &self.client_id)
                    .append_pair("client_secret", secret);
            }
            AuthMethod::PrivateKeyJwt => {
                form.append_pair("client_id", &self.client_id)
                    .append_pair("client_assertion_type", ASSERTION_TYPE)
                    .append_pair("client_assertion", secret);
            }
            AuthMethod::ClientSecretBasic => {
                let encode = |text: &str| -> String {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect()
                };
                let pair = format!("{}:{}", encode(&self.client_id), encode(secret));
                let value = format!("Basic {}", STANDARD.encode(pair));
                if let Ok(mut value) = HeaderValue::from_str(&value) {
                    value.set_sensitive(true);
                    headers.insert(AUTHORIZATION, value);
                }
            }
        }
    }
}

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
const ID_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:id_token";
const ID_JAG_TYPE: &str = "urn:ietf:params:oauth:token-type:id-jag";

impl Grant<'_> {
    fn write(self, form: &mut Serializer<'_, String>) {
        let mut set = |name: &str, value: &str| {
            form.append_pair(name, value);
        };
        match self {
            Self::AuthorizationCode {
                code,
                code_verifier,
                redirect_uri,
            } => {
                set("grant_type", "authorization_code");
                set("code", code);
                set("code_verifier", code_verifier);
                set("redirect_uri", redirect_uri);
            }
            Self::RefreshToken(token) => {
                set("grant_type", "refresh_token");
                set("refresh_token", token);
            }
            Self::ClientCredentials => set("grant_type", "client_credentials"),
            Self::JwtBearer(assertion) => {
                set("grant_type", JWT_BEARER);
                set("assertion", assertion);
            }
            Self::DeviceCode(code) => {
                set("grant_type", DEVICE_CODE);
                set("device_code", code);
            }
            Self::IdentityAssertion { id_token, audience } => {
                set("grant_type", TOKEN_EXCHANGE);
                set("subject_token", id_token);
                set("subject_token_type", ID_TOKEN_TYPE);
                set("requested_token_type", ID_JAG_TYPE);
                set("audience", audience);
            }
        }
    }
}

impl Tokens {
    fn parse(answer: &Answer) -> Result<Self, TokenError> {
        let fields: Value = match serde_json::from_slice(&answer.body) {
            Ok(fields) => fields,
            // GitHub answers with a form unless it is asked for JSON, some ignore the question.
            Err(_) => form_urlencoded::parse(&answer.body)
                .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
                .collect(),
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        if let Some(error) = text("error") {
            // GitHub answers errors with status 200.
            return Err(TokenError::Refused(ErrorAnswer {
                status: answer.status,
                error: printable(&error),
                description: text("error_description").as_deref().map(printable),
            }));
        }
        let seconds = |value: &Value| match value {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64().or_else(|| number.to_string().parse().ok()),
        };
        Ok(Self {
            access_token: text("access_token").ok_or(TokenError::Incomplete("access_token"))?,
            token_type: text("token_type").unwrap_or_else(|| "Bearer".to_owned()),
            expires_in: fields.get("expires_in").and_then(seconds),
            refresh_token: text("refresh_token"),
            scope: text("scope"),
        })
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("token_type", &self.token_type)
            .field("expires_in", &self.expires_in)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuth")
            .field("client_id", &self.client_id)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grant(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Tokens, TokenError> {
        Tokens::parse(&Answer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
        })
    }

    #[test]
    fn answers_in_json_and_as_a_form() {
        let json = r#"{"access_token":"a","token_type":"bearer","expires_in":"3600","scope":"x"}"#;
        let tokens = parse(json).unwrap();
        assert_eq!(tokens.expires_in, Some(3600));
        assert_eq!(
            parse(r#"{"access_token":"a","expires_in":5}"#)
                .unwrap()
                .expires_in,
            Some(5)
        );
        let form = parse("access_token=a%20b&token_type=bearer").unwrap();
        assert_eq!(form.access_token, "a b");
        let error = parse("error=bad_verification_code&error_description=no").unwrap_err();
        assert_eq!(error.code(), Some("bad_verification_code"));
        assert!(matches!(
            parse("{}"),
            Err(TokenError::Incomplete("access_token"))
        ));
    }

    #[test]
    fn basic_encodes_both_parts() {
        let client = ClientAuth {
            client_id: "a:b".to_owned(),
            method: AuthMethod::ClientSecretBasic,
            secret: Some("c d".to_owned()),
        };
        let mut headers = HeaderMap::new();
        let mut form = Serializer::new(String::new());
        client.write(&mut form, &mut headers);
        let expected = format!("Basic {}", STANDARD.encode("a%3Ab:c+d"));
        assert_eq!(headers[AUTHORIZATION], expected.as_str());
        assert_eq!(form.finish(), "");
    }
}
