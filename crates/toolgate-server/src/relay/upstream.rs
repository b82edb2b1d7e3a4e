//! Where the gateway is, and what to do while it cannot be reached.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Client, redirect};
use tokio::time::Instant;
use url::Url;

use crate::remote::is_local;

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a message waits for a gateway that is restarting.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to reach the gateway.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The gateway that messages are passed to.
#[derive(Debug)]
pub(crate) struct Upstream {
    client: Client,
    url: Url,
    /// The URL without user name and password, for messages.
    name: String,
}

/// One message's attempts to reach the gateway.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    upstream: &'a Upstream,
    deadline: Instant,
}

impl Upstream {
    /// The gateway at a URL.
    pub(crate) fn at_url(url: Url) -> anyhow::Result<Self> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect would send the key and the client's messages elsewhere.
        let builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none());
        let builder = if is_local(&url) {
            builder.no_proxy()
        } else {
            builder
        };
        let client = builder.build().context("cannot create the HTTP client")?;
        let mut shown = url.clone();
        // Both fail only for URLs that cannot have them.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        Ok(Self {
            client,
            url,
            name: shown.to_string(),
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the URL of a path below the gateway's own.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        url
    }

    /// Names the gateway, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn attempt(&self) -> Attempt<'_> {
        Attempt {
            upstream: self,
            deadline: Instant::now() + RECONNECT_TIMEOUT,
        }
    }
}

impl Attempt<'_> {
    /// Waits until another attempt is worth it. Returns an error that says what to do if none is.
    pub(super) async fn recover(&mut self, cause: &str) -> Result<(), String> {
        if Instant::now() < self.deadline {
            tokio::time::sleep(RETRY_INTERVAL).await;
            return Ok(());
        }
        Err(format!(
            "no gateway is running at {} ({cause}); start it with `toolgate serve`, or set the URL of another one with --url",
            self.upstream.name
        ))
    }
}
