//! The HTTP surface. Every route stands in [`router`]; this module runs it.

pub(crate) mod admin;
pub(crate) mod auth;
pub(crate) mod error;
pub(crate) mod execute;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod router;

use std::net::SocketAddr;
use std::sync::Arc;

use auth::AdminKey;
use axum::serve::ListenerExt as _;
use guard::Guard;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolgate::Gateway;

use crate::configuration::Configuration;

/// What every handler can reach; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    configuration: Configuration,
    guard: Guard,
    admin_key: Option<AdminKey>,
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

    /// Whether the gateway is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_cancelled()
    }
}

/// Serves until `stop`, then lets requests under way end.
pub(crate) async fn serve(
    listener: TcpListener,
    app: App,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let stopping = app.0.stopping.clone();
    let service = router::router(app).into_make_service_with_connect_info::<SocketAddr>();
    let listener = listener.tap_io(|stream| {
        // Without it a small answer may wait for the other side's acknowledgement.
        let _ = stream.set_nodelay(true);
    });
    let shutdown = async move {
        stop.cancelled().await;
        stopping.cancel();
    };
    axum::serve(listener, service)
        .with_graceful_shutdown(shutdown)
        .await
}
