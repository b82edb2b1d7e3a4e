//! A gateway inside `toolgate mcp`, for when no other process uses the data directory. It is a full gateway,
//! with a store and the HTTP API, but it listens only on the socket in the data directory and ends with its
//! client.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::store::StoreError;
use toolgate::{Environment, Gateway};
use toolgate_core::Config;
use toolgate_core::config::Document;

use crate::files::{self, ConfigSelection};
use crate::gateway_process::{GatewayFiles, GatewayProcess, HttpAccess, resolve_admin_key};
use crate::http::auth::KeylessCallers;
use crate::http::guard::HostGuard;
use crate::http::{self, Listeners};
use crate::local_socket::{self, LocalListener, SocketOwner};
use crate::store_key::StoreKeyFlags;

/// Maximum time to wait for servers. Most clients list tools only once, so servers get a chance to connect.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for the requests of other clients to finish at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What a stand-alone gateway is started from.
#[derive(Debug)]
pub(crate) struct Standalone {
    selection: ConfigSelection,
    store_key: StoreKeyFlags,
    data_dir: PathBuf,
    environment: Environment,
}

/// A gateway that runs in this process.
#[derive(Debug)]
pub(crate) struct StandaloneGateway {
    gateway: Gateway,
    stop: CancellationToken,
    tasks: TaskTracker,
    server: TaskTracker,
}

/// Why a gateway cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StandaloneError {
    #[error("another process uses the data directory")]
    InUse,
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

impl Standalone {
    /// Finds the data directory: the given one, or else that of the configuration.
    pub(crate) fn new(
        selection: ConfigSelection,
        data_dir: Option<PathBuf>,
        store_key: StoreKeyFlags,
        environment: Environment,
    ) -> anyhow::Result<Self> {
        let data_dir = match data_dir {
            Some(data_dir) => Some(data_dir),
            None => load(&selection, &environment)?.1.listen.data_dir,
        };
        Ok(Self {
            data_dir: files::data_dir(data_dir, &environment)?,
            selection,
            store_key,
            environment,
        })
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Fails if another process that uses the data directory has a configuration other than the selected file.
    pub(crate) fn check_configuration(&self) -> Result<(), String> {
        match &self.selection.path {
            Some(file) if !local_socket::is_configured_by(&self.data_dir, file) => Err(format!(
                "the process that uses the data directory `{}` has a configuration other than `{}`; stop it, leave out --config, or select another directory with --data-dir",
                self.data_dir.display(),
                file.display(),
            )),
            _ => Ok(()),
        }
    }

    /// Starts the gateway and waits for its servers.
    pub(crate) async fn start(&self) -> Result<StandaloneGateway, StandaloneError> {
        let (documents, config) = load(&self.selection, &self.environment)?;
        let files = GatewayFiles {
            selection: self.selection.clone(),
            data_dir: self.data_dir.clone(),
            key_files: self.store_key.store_key_file.iter().cloned().collect(),
            environment: self.environment.clone(),
        };
        let store = files.open_store(&config, &self.store_key).await;
        let store = store.map_err(|error| match error.downcast_ref::<StoreError>() {
            Some(StoreError::InUse(_)) => StandaloneError::InUse,
            _ => error.into(),
        })?;
        let socket = LocalListener::bind(&self.data_dir, SocketOwner::Standalone, &documents);
        let socket = socket.with_context(|| {
            let path = SocketOwner::Standalone.path(&self.data_dir);
            format!(
                "cannot listen on `{}`; if its path is too long, select another data directory with --data-dir",
                path.display()
            )
        })?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let access = HttpAccess {
            guard: HostGuard::new(&config.listen, address),
            admin_key: resolve_admin_key(None, &config.listen, &self.environment, &self.data_dir)?,
            keyless: KeylessCallers::Always,
        };
        let process = files.start(documents, store, access, None).await?;
        let GatewayProcess {
            gateway,
            app,
            stop,
            tasks,
        } = process;
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, gateway.wait_until_settled()).await;
        let server = TaskTracker::new();
        let listeners = Listeners {
            tcp: None,
            socket: Some(socket),
        };
        tasks.spawn({
            let (mcp, stop) = (app.mcp().clone(), stop.clone());
            async move { mcp.forward_shared_logs(stop).await }
        });
        server.spawn(http::serve(listeners, app, stop.clone()));
        Ok(StandaloneGateway {
            gateway,
            stop,
            tasks,
            server,
        })
    }
}

impl StandaloneGateway {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.server.close();
        self.tasks.close();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.server.wait()).await;
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.tasks.wait()).await;
        self.gateway.stop(DRAIN_TIMEOUT).await;
    }
}

fn load(
    selection: &ConfigSelection,
    environment: &Environment,
) -> anyhow::Result<(Vec<Document>, Config)> {
    let documents = files::load(selection, environment)?.into_trusted()?;
    let (config, findings) = Config::load(&documents)?;
    for finding in findings {
        tracing::warn!(%finding, "configuration warning");
    }
    Ok((documents, config))
}
