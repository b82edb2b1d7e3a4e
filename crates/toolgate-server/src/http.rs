//! The HTTP server: accepts connections, serves the routes of [`router`] and drains on shutdown.
//!
//! Handlers translate between HTTP and the gateway; permission and limits are decided in the library.

pub(crate) mod admin;
pub(crate) mod auth;
mod connections;
pub(crate) mod error;
pub(crate) mod execute;
mod extract;
pub(crate) mod guard;
pub(crate) mod health;
mod large_request;
mod load;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod request;
pub(crate) mod results;
pub(crate) mod router;
mod schema;
mod spliced_body;
pub(crate) mod sse;
mod ui;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use auth::{AdminAccess, AuthFailures, KeylessCallers, SignIns};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use connections::{BusyBody, Connection, Connections, ProgressBody, WatchedStream};
use error::ApiError;
use guard::HostGuard;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use large_request::BodySize;
use sse::SseClients;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::Gateway;
use toolgate::mcp_server::Server;
use toolgate_core::config::HttpSettings;
use tower::ServiceExt as _;

use crate::configuration::Configuration;
use crate::gateway_process::HttpAccess;
use crate::local_socket::{LocalListener, SocketToken};

/// Time to back off after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum size of a request's headers, which are received before anything is known of the caller.
const MAX_HEADER_BYTES: usize = 128 * 1024;
/// Address that stands for the peers of the socket in the data directory.
const SOCKET_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Where the server accepts connections.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListener>,
    /// In the data directory.
    pub(crate) socket: Option<LocalListener>,
}

/// A connection that was accepted.
enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Socket(UnixStream),
}

/// State shared by all handlers; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    configuration: Configuration,
    guard: HostGuard,
    admin: AdminAccess,
    keyless: KeylessCallers,
    auth_failures: AuthFailures,
    sign_ins: SignIns,
    mcp: Server,
    sse: SseClients,
    connections: Connections,
    stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(
        gateway: Gateway,
        configuration: Configuration,
        access: HttpAccess,
        http: HttpSettings,
    ) -> Self {
        let HttpAccess {
            guard,
            admin_key,
            keyless,
        } = access;
        Self(Arc::new(Inner {
            mcp: Server::new(gateway.clone()),
            sse: SseClients::default(),
            connections: Connections::new(gateway.clone(), http),
            gateway,
            configuration,
            guard,
            admin: admin_key.to_access(),
            keyless,
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

    fn sse(&self) -> &SseClients {
        &self.0.sse
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
pub(crate) async fn serve(listeners: Listeners, app: App, stop: CancellationToken) {
    let stopping = app.0.stopping.clone();
    let mcp = app.mcp().clone();
    let router = router::router(app.clone());
    let connections = app.0.connections.clone();
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    tasks.spawn({
        let (mcp, stop) = (mcp.clone(), stop.clone());
        async move { mcp.run_sweeper(stop).await }
    });
    tasks.spawn({
        let (connections, stop) = (connections.clone(), stop.clone());
        async move { connections.run_timeouts(stop).await }
    });
    tasks.spawn({
        let (gateway, connections, stop) =
            (app.gateway().clone(), connections.clone(), stop.clone());
        async move { load::run_monitor(&gateway, &connections, stop).await }
    });
    tasks.spawn({
        let (app, stop) = (app.clone(), stop.clone());
        async move {
            let audit = app.gateway().audit();
            app.0.auth_failures.run_reporter(audit, stop).await;
        }
    });
    loop {
        let accepted = tokio::select! {
            accepted = listeners.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let peer = match &accepted {
            Some(Accepted::Tcp(_, peer)) => *peer,
            Some(Accepted::Socket(_)) => SOCKET_PEER,
            None => continue,
        };
        let Some(connection) = connections.admit(peer) else {
            continue;
        };
        let token = matches!(accepted, Some(Accepted::Socket(_)))
            .then(|| listeners.socket.as_ref().map(LocalListener::token).cloned());
        let accepted_by = Endpoint {
            router: router.clone(),
            peer,
            token: token.flatten(),
            connection,
        };
        match accepted {
            Some(Accepted::Tcp(stream, _)) => {
                tasks.spawn(accepted_by.serve(stream, &graceful));
            }
            Some(Accepted::Socket(stream)) => {
                tasks.spawn(accepted_by.serve(stream, &graceful));
            }
            None => {}
        }
    }
    // Event streams and questions to clients would otherwise keep their connections open forever.
    stopping.cancel();
    mcp.stop();
    drop(listeners);
    tasks.close();
    graceful.shutdown().await;
    app.sse().finish().await;
    mcp.finish().await;
    tasks.wait().await;
}

/// The server's end of a connection.
#[derive(Clone)]
struct Endpoint {
    router: Router,
    peer: SocketAddr,
    /// What requests must carry, if the connection was made to the socket in the data directory.
    token: Option<SocketToken>,
    connection: Arc<Connection>,
}

impl Endpoint {
    /// Serves the requests of a connection.
    fn serve<S>(
        self,
        stream: S,
        graceful: &GracefulShutdown,
    ) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, connection) = (self.peer, Arc::clone(&self.connection));
        let io = TokioIo::new(WatchedStream::new(stream, Arc::clone(&connection)));
        let service = service_fn(move |request| self.clone().answer(request));
        let served = http1::Builder::new()
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(io, service);
        let served = graceful.watch(served);
        async move {
            tokio::select! {
                served = served => if let Err(error) = served {
                    tracing::debug!(%peer, %error, "connection failed");
                },
                () = connection.closed() => {}
            }
        }
    }

    /// Answers a request. The connection is busy until the response has been sent.
    async fn answer(
        self,
        mut request: hyper::Request<Incoming>,
    ) -> Result<Response<BusyBody>, Infallible> {
        let Self {
            router,
            peer,
            token,
            connection,
        } = self;
        let served = connection.begin();
        if token.is_some_and(|token| !token.take_from(request.headers_mut())) {
            let message =
                "the token of the socket is missing or wrong; it is in the data directory";
            let error = ApiError::new(StatusCode::FORBIDDEN, "forbidden", message);
            return Ok(error
                .into_response()
                .map(|body| BusyBody::new(body, served)));
        }
        let mut request =
            request.map(|body| Body::new(ProgressBody::new(body, Arc::clone(&connection))));
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(Arc::clone(&connection));
        let size = BodySize::new(request.method(), request.headers());
        let response = large_request::process(router.oneshot(request), size, connection).await?;
        Ok(response.map(|body| BusyBody::new(body, served)))
    }
}

impl Listeners {
    /// Accepts the next connection; returns `None` if accepting failed.
    async fn accept(&self) -> Option<Accepted> {
        let accepted = tokio::select! {
            accepted = accept_tcp(self.tcp.as_ref()) => accepted.map(Some),
            accepted = accept_socket(self.socket.as_ref()) => accepted,
        };
        match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept connection");
                // Probably out of file descriptors: back off until other connections close.
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                None
            }
        }
    }
}

async fn accept_tcp(listener: Option<&TcpListener>) -> io::Result<Accepted> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let (stream, peer) = listener.accept().await?;
    // Otherwise Nagle's algorithm may hold back a small response until the peer's ACK arrives.
    let _ = stream.set_nodelay(true);
    Ok(Accepted::Tcp(stream, peer))
}

async fn accept_socket(listener: Option<&LocalListener>) -> io::Result<Option<Accepted>> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    Ok(listener.accept().await?.map(Accepted::Socket))
}
