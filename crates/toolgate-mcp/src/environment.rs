//! The gateway's environment variables, as far as anything here may look at them.

use std::fmt;
use std::sync::Arc;

use toolgate_core::config::{Link, Server};
use toolgate_core::secret::{Masker, Secret};
use url::Url;

/// A look-up of variables; reading the real environment is left to the program.
#[derive(Clone)]
pub struct Environment(Arc<LookUp>);

type LookUp = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What every child gets; everything else must be named in its config.
pub const MINIMAL: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

impl Environment {
    pub fn new(look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// Knows the secrets that a server is given, to keep them out of what is shown of it.
    pub fn masker(&self, server: &Server) -> Masker {
        let secrets: Vec<&Secret> = match &server.link {
            Link::Stdio(stdio) => stdio.env.values().collect(),
            Link::Http(http) => std::iter::once(&http.url)
                .chain(http.headers.values())
                .collect(),
            Link::InProcess => Vec::new(),
        };
        let values = secrets
            .into_iter()
            .filter_map(|secret| secret.resolve(&|name| self.get(name)).ok());
        Masker::new(values.flat_map(|value| secret_parts(&value)))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// A secret as a whole and its telling parts: `Bearer x` is known by `x`, a URL by its password and
/// query, not by its host.
fn secret_parts(value: &str) -> Vec<String> {
    if let Ok(url) = Url::parse(value) {
        let query = url.query_pairs().map(|(_, value)| value.into_owned());
        let password = url.password().map(str::to_owned);
        return query.chain(password).collect();
    }
    let words = value.split_whitespace().map(str::to_owned);
    std::iter::once(value.to_owned()).chain(words).collect()
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
