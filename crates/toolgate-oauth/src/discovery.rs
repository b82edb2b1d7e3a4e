//! Finds out which authorization server protects a resource and what it can do: protected resource
//! metadata (RFC 9728), authorization server metadata (RFC 8414) and OpenID Connect discovery.
//!
//! Identifiers are compared as strings and sent as they were published; a parsed URL adds a slash.

use serde::{Deserialize, Serialize};
use url::Url;

use crate::challenge::Challenge;
use crate::fetch::{FetchError, Fetcher};

/// Metadata of a protected resource.
#[derive(Clone, Debug, Deserialize)]
pub struct ResourceMetadata {
    pub resource: String,
    #[serde(default)]
    pub authorization_servers: Vec<String>,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
}

/// Metadata of an authorization server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    pub issuer: String,
    pub authorization_endpoint: Option<String>,
    #[serde(default)]
    pub token_endpoint: String,
    pub registration_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
    pub device_authorization_endpoint: Option<String>,
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    pub code_challenge_methods_supported: Option<Vec<String>>,
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Where to get tokens for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The resource's identifier, exactly as published.
    pub resource: String,
    /// The scopes that the resource publishes.
    pub scopes: Vec<String>,
    pub server: ServerMetadata,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(
        "its metadata is for another resource: `{published}` is neither {url} nor a parent of it"
    )]
    ResourceMismatch { published: String, url: String },
    #[error("its metadata at {0} names no authorization server")]
    NoAuthorizationServer(String),
    #[error("authorization server {issuer} publishes no metadata")]
    NoMetadata { issuer: String },
    #[error("authorization server {issuer} calls itself `{published}` in its metadata")]
    IssuerMismatch { issuer: String, published: String },
    #[error("authorization server {0} has no token endpoint")]
    NoTokenEndpoint(String),
}

impl DiscoveryError {
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_temporary())
    }
}

/// Discovers how to get tokens for the resource at `url`, which answered with `challenge`.
pub async fn discover(
    fetcher: &Fetcher,
    url: &Url,
    challenge: Option<&Challenge>,
) -> Result<Discovered, DiscoveryError> {
    let Some((source, resource)) = resource_metadata(fetcher, url, challenge).await? else {
        return discover_at_origin(fetcher, url).await;
    };
    if !is_resource_of(&resource.resource, url) {
        return Err(DiscoveryError::ResourceMismatch {
            published: resource.resource,
            url: url.to_string(),
        });
    }
    let Some(issuer) = resource.authorization_servers.first() else {
        return Err(DiscoveryError::NoAuthorizationServer(source));
    };
    let server = server_metadata(fetcher, issuer).await?;
    Ok(Discovered {
        resource: resource.resource,
        scopes: resource.scopes_supported,
        server,
    })
}

async fn resource_metadata(
    fetcher: &Fetcher,
    url: &Url,
    challenge: Option<&Challenge>,
) -> Result<Option<(String, ResourceMetadata)>, DiscoveryError> {
    let named = challenge.and_then(Challenge::resource_metadata);
    let mut candidates: Vec<String> = named.map(str::to_owned).into_iter().collect();
    let path = url.path().trim_end_matches('/');
    candidates.push(well_known(url, "oauth-protected-resource", path));
    if !path.is_empty() {
        candidates.push(well_known(url, "oauth-protected-resource", ""));
    }
    for candidate in candidates {
        if let Some(found) = get_optional(fetcher, &candidate).await? {
            return Ok(Some((candidate, found)));
        }
    }
    Ok(None)
}

/// Metadata of the authorization server with the given identifier.
pub async fn server_metadata(
    fetcher: &Fetcher,
    issuer: &str,
) -> Result<ServerMetadata, DiscoveryError> {
    let url = Url::parse(issuer).map_err(|_| FetchError::InvalidUrl(issuer.to_owned()))?;
    let path = url.path().trim_end_matches('/');
    let mut candidates = vec![
        well_known(&url, "oauth-authorization-server", path),
        well_known(&url, "openid-configuration", path),
    ];
    if !path.is_empty() {
        let origin = url.origin().ascii_serialization();
        candidates.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    for candidate in candidates {
        if let Some(found) = get_optional::<ServerMetadata>(fetcher, &candidate).await? {
            return check_metadata(issuer, found);
        }
    }
    Err(DiscoveryError::NoMetadata {
        issuer: issuer.to_owned(),
    })
}

fn check_metadata(issuer: &str, found: ServerMetadata) -> Result<ServerMetadata, DiscoveryError> {
    if found.issuer != issuer {
        return Err(DiscoveryError::IssuerMismatch {
            issuer: issuer.to_owned(),
            published: found.issuer,
        });
    }
    if found.token_endpoint.is_empty() {
        return Err(DiscoveryError::NoTokenEndpoint(issuer.to_owned()));
    }
    Ok(found)
}

/// As revision 2025-03-26 has it: the resource's origin is the authorization server, and its
/// endpoints have default paths if it publishes no metadata.
async fn discover_at_origin(fetcher: &Fetcher, url: &Url) -> Result<Discovered, DiscoveryError> {
    let origin = url.origin().ascii_serialization();
    let metadata = well_known(url, "oauth-authorization-server", "");
    let server = match get_optional::<ServerMetadata>(fetcher, &metadata).await? {
        Some(found) if found.issuer.trim_end_matches('/') == origin => {
            let issuer = found.issuer.clone();
            check_metadata(&issuer, found)?
        }
        Some(found) => {
            return Err(DiscoveryError::IssuerMismatch {
                issuer: origin,
                published: found.issuer,
            });
        }
        None => ServerMetadata {
            authorization_endpoint: Some(format!("{origin}/authorize")),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            issuer: origin,
            ..ServerMetadata::default()
        },
    };
    Ok(Discovered {
        resource: url.to_string(),
        scopes: Vec::new(),
        server,
    })
}

/// Fetches a document that need not exist.
async fn get_optional<T: for<'de> Deserialize<'de>>(
    fetcher: &Fetcher,
    url: &str,
) -> Result<Option<T>, FetchError> {
    let answer = fetcher.get(url).await?;
    if answer.status.is_success() {
        return answer.json(url).map(Some);
    }
    if answer.status.is_client_error() && answer.status != 429 {
        return Ok(None);
    }
    Err(FetchError::Status {
        url: url.to_owned(),
        status: answer.status,
    })
}

fn well_known(url: &Url, name: &str, path: &str) -> String {
    let origin = url.origin().ascii_serialization();
    format!("{origin}/.well-known/{name}{path}")
}

/// Whether an identifier is the URL itself or a parent of it with the same origin.
fn is_resource_of(resource: &str, url: &Url) -> bool {
    let Ok(parsed) = Url::parse(resource) else {
        return false;
    };
    if parsed.fragment().is_some() || parsed.origin() != url.origin() {
        return false;
    }
    let parent = parsed.path().trim_end_matches('/');
    let rest = url.path().strip_prefix(parent);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_the_url_or_a_parent() {
        let url = Url::parse("https://a.example/x/mcp").unwrap();
        for good in [
            "https://a.example",
            "https://a.example/",
            "https://a.example/x",
            "https://a.example:443/x/mcp",
            "https://a.example/x/mcp/",
        ] {
            assert!(is_resource_of(good, &url), "{good}");
        }
        for bad in [
            "https://evil.example/x/mcp",
            "http://a.example/x/mcp",
            "https://a.example/x/mc",
            "https://a.example/x/mcp/tools",
            "https://a.example/x/mcp#a",
            "a.example",
        ] {
            assert!(!is_resource_of(bad, &url), "{bad}");
        }
    }
}
