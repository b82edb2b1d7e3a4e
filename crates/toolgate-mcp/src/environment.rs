//! Access to the gateway's environment variables, injected so that only the program reads them.

use std::fmt;
use std::sync::Arc;

use toolgate_core::config::{ServerConfig, ServerConnection};
use toolgate_core::secret::{Masker, Secret};
use url::Url;

/// Looks up environment variables; the embedding program decides where they come from.
#[derive(Clone)]
pub struct Environment(Arc<Lookup>);

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Variables every child process inherits; all others must be listed in its config.
const INHERITED_VARIABLES: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

impl Environment {
    pub fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// Returns a masker for the secrets configured for a server. Unset secrets are skipped; opening
    /// the lane reports them.
    pub fn masker(&self, server: &ServerConfig) -> Masker {
        let secrets: Vec<&Secret> = match &server.connection {
            ServerConnection::Stdio(stdio) => stdio.env.values().collect(),
            ServerConnection::Http(http) => std::iter::once(&http.url)
                .chain(http.headers.values())
                .collect(),
            ServerConnection::InProcess => Vec::new(),
        };
        let values = secrets
            .into_iter()
            .filter_map(|secret| secret.resolve(&|name| self.get(name)).ok());
        Masker::new(values.flat_map(|value| secret_parts(&value)))
    }

    /// Returns the variables that every child process inherits, with their values.
    pub fn inherited(&self) -> impl Iterator<Item = (String, String)> {
        let names = INHERITED_VARIABLES.iter();
        names.filter_map(|name| Some(((*name).to_owned(), self.get(name)?)))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// Splits a secret into the parts to mask: `Bearer x` is masked by `x` too, a URL only by its
/// credentials and query values, not by its host.
fn secret_parts(value: &str) -> Vec<String> {
    // Any text with a colon may parse as a URL without a host, for example `user:token`.
    if let Ok(url) = Url::parse(value)
        && url.has_host()
    {
        let decoded = url.query_pairs().map(|(_, value)| value.into_owned());
        let raw = url.query().into_iter().flat_map(|query| query.split('&'));
        let raw = raw.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
        // A user without a password is a token; a user with one is often a common word.
        let credential = url.password().unwrap_or(url.username()).to_owned();
        return decoded.chain(raw).chain([credential]).collect();
    }
    let words = value.split_whitespace().map(str::to_owned);
    std::iter::once(value.to_owned()).chain(words).collect()
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_with_a_colon_and_url_credentials_are_masked() {
        for (secret, text, expected) in [
            ("Bearer abc-123456", "sent abc-123456", "sent ***"),
            ("user:abc-123456", "sent user:abc-123456", "sent ***"),
            (
                "https://tok-abcdef@host.example/mcp?key=a%2Fb-123456",
                "host.example: tok-abcdef, a%2Fb-123456, a/b-123456",
                "host.example: ***, ***, ***",
            ),
        ] {
            let masker = Masker::new(secret_parts(secret));
            assert_eq!(masker.mask(text), expected, "{secret}");
        }
    }
}
