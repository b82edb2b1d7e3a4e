//! Where the gateway is, and what to do while it cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex as SyncMutex;
use reqwest::{Client, ClientBuilder, redirect};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::local_socket::{self, SocketOwner};
use crate::remote::is_local;
use crate::standalone::{Standalone, StandaloneError, StandaloneGateway};

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a message waits for a gateway that is restarting.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a message waits while another process starts or ends a gateway with the data directory.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between attempts to reach the gateway.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The gateway that messages are passed to.
#[derive(Debug)]
pub(crate) enum Upstream {
    Remote(RemoteUpstream),
    Local(LocalUpstream),
}

/// The gateway at a URL.
#[derive(Debug)]
pub(crate) struct RemoteUpstream {
    client: Client,
    url: Url,
    /// The URL without user name and password, for messages.
    name: String,
}

/// The gateway that uses a data directory: another process, or this one if there is none.
#[derive(Debug)]
pub(crate) struct LocalUpstream {
    standalone: Arc<Standalone>,
    url: Url,
    name: String,
    current: SyncMutex<Option<LocalSocket>>,
    /// The gateway in this process. Held while one is being started, so that only one is.
    own: Arc<Mutex<Option<StandaloneGateway>>>,
    /// Starts gateways. The message that needed one may be cancelled meanwhile.
    starts: TaskTracker,
}

/// The socket that was last used.
#[derive(Clone, Debug)]
struct LocalSocket {
    owner: SocketOwner,
    client: Client,
}

/// One message's attempts to reach the gateway.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    upstream: &'a Upstream,
    start: Instant,
}

impl Upstream {
    /// The gateway at a URL.
    pub(crate) fn at_url(url: Url) -> anyhow::Result<Self> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = client_builder();
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
        Ok(Self::Remote(RemoteUpstream {
            client,
            url,
            name: shown.to_string(),
        }))
    }

    /// The gateway that uses a data directory. Starts one in this process if there is none.
    pub(crate) async fn local(standalone: Standalone) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let local = LocalUpstream {
            url: Url::parse("http://localhost")?,
            name: format!("`{}`", standalone.data_dir().display()),
            standalone: Arc::new(standalone),
            current: SyncMutex::default(),
            own: Arc::default(),
            starts: TaskTracker::new(),
        };
        let start = Instant::now();
        while local.client().is_none() {
            let found = local.find_or_start(start).await;
            found.map_err(anyhow::Error::msg)?;
        }
        Ok(Self::Local(local))
    }

    /// Returns the client to use now.
    pub(super) fn client(&self) -> Option<Client> {
        match self {
            Self::Remote(remote) => Some(remote.client.clone()),
            Self::Local(local) => local.client(),
        }
    }

    /// Returns the URL of a path below the gateway's own.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = match self {
            Self::Remote(remote) => remote.url.clone(),
            Self::Local(local) => local.url.clone(),
        };
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        url
    }

    /// Names the gateway, for messages.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Remote(remote) => &remote.name,
            Self::Local(local) => &local.name,
        }
    }

    pub(super) fn attempt(&self) -> Attempt<'_> {
        Attempt {
            upstream: self,
            start: Instant::now(),
        }
    }

    /// Stops the gateway in this process, if there is one.
    pub(super) async fn shut_down(&self) {
        if let Self::Local(local) = self
            && let Some(own) = local.own.lock().await.take()
        {
            own.stop().await;
        }
    }
}

impl Attempt<'_> {
    /// Waits until another attempt is worth it. Returns an error that says what to do if none is.
    pub(super) async fn recover(&mut self, cause: &str) -> Result<(), String> {
        match self.upstream {
            Upstream::Local(local) => local.find_or_start(self.start).await,
            Upstream::Remote(_) if self.start.elapsed() < RECONNECT_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
                Ok(())
            }
            Upstream::Remote(remote) => Err(format!(
                "no gateway is running at {} ({cause}); start it with `toolgate serve`, or set the URL of another one with --url",
                remote.name
            )),
        }
    }
}

impl LocalUpstream {
    fn client(&self) -> Option<Client> {
        let current = self.current.lock();
        current.as_ref().map(|socket| socket.client.clone())
    }

    /// Finds the process that uses the data directory, or starts a gateway in this one. Returns early while
    /// another process is starting or ending; `start` is when the message began to wait.
    async fn find_or_start(&self, start: Instant) -> Result<(), String> {
        let data_dir = self.standalone.data_dir();
        let own = Arc::clone(&self.own).lock_owned().await;
        if let Some(owner) = local_socket::find_owner(data_dir) {
            self.standalone.check_configuration()?;
            return self.use_socket(owner);
        }
        let last = self.current.lock().as_ref().map(|socket| socket.owner);
        if last == Some(SocketOwner::Serve) {
            // It is probably restarting, and could not if this process took its place.
            if start.elapsed() < RECONNECT_TIMEOUT {
                tokio::time::sleep(RETRY_INTERVAL).await;
                return Ok(());
            }
            return Err(format!(
                "the gateway with the data directory {} has stopped; start it with `toolgate serve`, or restart this server in the client to do without it",
                self.name
            ));
        }
        let standalone = Arc::clone(&self.standalone);
        // On a thread of its own, because the compiler cannot prove that the future may move between threads.
        let started = self.starts.spawn_blocking(move || {
            let mut own = own;
            *own = Some(Handle::current().block_on(standalone.start())?);
            Ok(())
        });
        let started = started.await;
        match started.map_err(|error| format!("the gateway could not be started: {error}"))? {
            Ok(()) => self.use_socket(SocketOwner::Standalone),
            Err(StandaloneError::InUse) if start.elapsed() < TAKEOVER_TIMEOUT => {
                tokio::time::sleep(RETRY_INTERVAL).await;
                Ok(())
            }
            Err(StandaloneError::InUse) => Err(format!(
                "another process uses the data directory {}, but does not listen on its socket; stop it, set the URL of its gateway with --url, or select another directory with --data-dir",
                self.name
            )),
            Err(StandaloneError::Failed(error)) => Err(format!("{error:#}")),
        }
    }

    fn use_socket(&self, owner: SocketOwner) -> Result<(), String> {
        let mut current = self.current.lock();
        if current
            .as_ref()
            .is_some_and(|current| current.owner == owner)
        {
            return Ok(());
        }
        let data_dir = self.standalone.data_dir();
        let headers = local_socket::request_headers(data_dir).map_err(|error| {
            format!(
                "cannot read the token of the gateway's socket in {}: {error}",
                self.name
            )
        })?;
        let builder = client_builder().default_headers(headers);
        let client = builder.unix_socket(owner.path(data_dir)).no_proxy().build();
        let client = client.map_err(|error| format!("cannot create the HTTP client: {error}"))?;
        *current = Some(LocalSocket { owner, client });
        Ok(())
    }
}

fn client_builder() -> ClientBuilder {
    // A redirect would send the key and the client's messages elsewhere.
    Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(redirect::Policy::none())
}
