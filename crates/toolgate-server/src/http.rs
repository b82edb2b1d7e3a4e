//! The HTTP surface. Every route stands in [`router`]; this module runs it.

pub(crate) mod admin;
pub(crate) mod auth;
pub(crate) mod error;
pub(crate) mod execute;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod mcp;
pub(crate) mod models;
mod parts;
pub(crate) mod request;
pub(crate) mod results;
pub(crate) mod router;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::AdminKey;
use axum::extract::{ConnectInfo, Request};
use guard::Guard;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::Gateway;
use tower::ServiceExt as _;

use crate::configuration::Configuration;

/// Connections that may be open at once.
const MAX_CONNECTIONS: usize = 8192;
/// How long a client may take to send a request's headers, and a connection may be idle.
const HEADERS: Duration = Duration::from_secs(30);

/// What every handler can reach; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    configuration: Configuration,
    guard: Guard,
    admin_key: Option<AdminKey>,
    sessions: mcp::Sessions,
    stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(
        gateway: Gateway,
        configuration: Configuration,
        guard: Guard,
        admin_key: Option<AdminKey>,
    ) -> Self {
        Self(Arc::new(Inner {
            sessions: mcp::Sessions::new(gateway.clone()),
            gateway,
            configuration,
            guard,
            admin_key,
            stopping: CancellationToken::new(),
        }))
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.0.gateway
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.0.configuration
    }

    /// Sessions of MCP clients.
    pub(crate) fn sessions(&self) -> &mcp::Sessions {
        &self.0.sessions
    }

    /// Is cancelled when the gateway is about to end.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.0.stopping.clone()
    }

    /// Whether the gateway is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }
}

/// Serves until `stop`, then lets requests under way end.
pub(crate) async fn serve(listener: TcpListener, app: App, stop: CancellationToken) {
    let stopping = app.0.stopping.clone();
    let sessions = app.sessions().clone();
    let gateway = app.gateway().clone();
    let router = router::router(app);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    tasks.spawn(sessions.clone().tend(gateway, stop.clone()));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer, place)) = accepted else {
            continue;
        };
        let router = router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "a connection broke");
            }
        });
    }
    stopping.cancel();
    sessions.close_questions();
    drop(listener);
    tasks.close();
    graceful.shutdown().await;
    tasks.wait().await;
}

/// The next connection, once there is a place for it; none if it failed.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Without it a small answer may wait for the other side's acknowledgement.
            let _ = stream.set_nodelay(true);
            Some((stream, peer, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Too many open files, perhaps: others end meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}
