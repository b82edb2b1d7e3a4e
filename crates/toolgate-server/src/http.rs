//! The HTTP server: accepts connections, serves the routes of [`router`] and drains on shutdown.
//!
//! Handlers translate between HTTP and the gateway; permission and limits are decided in the library.

pub(crate) mod admin;
pub(crate) mod auth;
pub(crate) mod error;
pub(crate) mod execute;
mod extract;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod request;
pub(crate) mod results;
pub(crate) mod router;
mod schema;
mod spliced_body;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::{AdminAccess, AuthFailures, SignIns};
use axum::extract::{ConnectInfo, Request};
use guard::HostGuard;
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
use toolgate::mcp_server::Server;
use tower::ServiceExt as _;

use crate::configuration::Configuration;

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 8192;
/// Maximum time to receive a request's headers; also closes idle keep-alive connections.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// State shared by all handlers; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    configuration: Configuration,
    guard: HostGuard,
    admin: AdminAccess,
    auth_failures: AuthFailures,
    sign_ins: SignIns,
    mcp: Server,
    stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(
        gateway: Gateway,
        configuration: Configuration,
        guard: HostGuard,
        admin: AdminAccess,
    ) -> Self {
        Self(Arc::new(Inner {
            mcp: Server::new(gateway.clone()),
            gateway,
            configuration,
            guard,
            admin,
            auth_failures: AuthFailures::new(),
            sign_ins: SignIns::new(),
            stopping: CancellationToken::new(),
        }))
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.0.gateway
    }

    pub(crate) fn configuration(&self) -> &Configuration {
        &self.0.configuration
    }

    /// Returns the server for MCP clients.
    pub(crate) fn mcp(&self) -> &Server {
        &self.0.mcp
    }

    /// Returns a token that is cancelled when the gateway starts to shut down.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.0.stopping.clone()
    }

    /// Returns whether the gateway is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }
}

/// Serves until `stop` is cancelled, then waits for in-flight requests to finish.
pub(crate) async fn serve(listener: TcpListener, app: App, stop: CancellationToken) {
    let stopping = app.0.stopping.clone();
    let mcp = app.mcp().clone();
    let router = router::router(app.clone());
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    tasks.spawn({
        let (mcp, stop) = (mcp.clone(), stop.clone());
        async move { mcp.run_sweeper(stop).await }
    });
    let stop_reporter = stop.clone();
    tasks.spawn(async move {
        let audit = app.gateway().audit();
        app.0.auth_failures.run_reporter(audit, stop_reporter).await;
    });
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            () = stop.cancelled() => break,
        };
        let Some((stream, peer, slot)) = accepted else {
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
            .header_read_timeout(HEADER_READ_TIMEOUT);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            let _slot = slot;
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection failed");
            }
        });
    }
    // Event streams and questions to clients would otherwise keep their connections open forever.
    stopping.cancel();
    mcp.stop();
    drop(listener);
    tasks.close();
    graceful.shutdown().await;
    tasks.wait().await;
}

/// Accepts the next connection once a slot is free; returns `None` if accepting failed.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Otherwise Nagle's algorithm may hold back a small response until the peer's ACK arrives.
            let _ = stream.set_nodelay(true);
            Some((stream, peer, slot))
        }
        Err(error) => {
            tracing::warn!(%error, "failed to accept connection");
            // Probably out of file descriptors: back off until other connections close.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}
