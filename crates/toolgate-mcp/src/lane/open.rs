//! Opening a lane: selects the transport, then performs the handshake.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use toolgate_core::config::{HttpTransport, ServerConfig, ServerConnection};
use toolgate_core::secret::UnsetVariable;

use super::{Inner, Lane, LaneKey};
use crate::client_handler::{ClientHandler, SessionClient};
use crate::environment::{Environment, INHERITED_VARIABLES};
use crate::handshake::{self, Era, HandshakeError};
use crate::local::LocalServer;
use crate::transport::http::{ClientError, HttpClients, ResolvedEndpoint, StreamableHttp};
use crate::transport::sse::SseTransport;
use crate::transport::stdio::{ChildCommand, SpawnError, StdioTransport};
use crate::transport::{RequestError, StderrTail, Transport, TransportEvents};

/// Everything besides its configuration that a lane needs to open.
#[derive(Clone, Debug)]
pub(crate) struct Dependencies {
    pub(crate) local: Option<Arc<LocalServer>>,
    pub(crate) environment: Environment,
    /// HTTP clients shared between servers.
    pub(crate) clients: HttpClients,
    /// Collects the child's standard error.
    pub(crate) tail: StderrTail,
    pub(crate) tasks: TaskTracker,
    /// The client for which the lane is opened.
    pub(crate) client: SessionClient,
}

impl Dependencies {
    fn handler(&self) -> Arc<dyn ClientHandler> {
        Arc::clone(&self.client.handler)
    }
}

/// Reasons why a lane could not be opened, by who can fix them.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Permanent until the configuration changes.
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

impl Lane {
    pub(crate) async fn open(
        key: LaneKey,
        server: &ServerConfig,
        dependencies: &Dependencies,
        era_hint: Option<Era>,
    ) -> Result<(Self, TransportEvents), OpenError> {
        let Dependencies {
            local,
            environment,
            clients,
            tail,
            tasks,
            client: _,
        } = dependencies;
        match &server.connection {
            ServerConnection::Stdio(stdio) => {
                let (stdio, events) = StdioTransport::start(
                    &child_command(stdio, environment)?,
                    tail,
                    tasks,
                    dependencies.handler(),
                )?;
                Self::handshake_on(
                    key,
                    server,
                    dependencies,
                    (Transport::Stdio(stdio), events),
                    era_hint,
                )
                .await
            }
            ServerConnection::Http(http) => {
                let endpoint = ResolvedEndpoint::resolve(http, environment, clients)?;
                Self::open_http(
                    key,
                    server,
                    (&endpoint, http.transport),
                    dependencies,
                    era_hint,
                )
                .await
            }
            ServerConnection::InProcess => {
                let local = local.clone();
                let local = local.ok_or_else(|| {
                    OpenError::Config(
                        "no in-process tools are registered for this server".to_owned(),
                    )
                })?;
                Self::handshake_on(
                    key,
                    server,
                    dependencies,
                    (Transport::Local(local), LocalServer::events()),
                    era_hint,
                )
                .await
            }
        }
    }

    async fn open_http(
        key: LaneKey,
        server: &ServerConfig,
        (endpoint, http_transport): (&ResolvedEndpoint, HttpTransport),
        dependencies: &Dependencies,
        era_hint: Option<Era>,
    ) -> Result<(Self, TransportEvents), OpenError> {
        let tasks = &dependencies.tasks;
        let mut refusal = None;
        if http_transport != HttpTransport::Sse {
            let (http, events) = StreamableHttp::new(endpoint, tasks, dependencies.handler())?;
            let streamable = (Transport::Http(Box::new(http)), events);
            match Self::handshake_on(key.clone(), server, dependencies, streamable, era_hint).await
            {
                Err(error) if http_transport == HttpTransport::Auto && suggests_sse(&error) => {
                    refusal = Some(error)
                }
                opened => return opened,
            }
        }
        match SseTransport::start(endpoint, tasks, dependencies.handler()).await {
            Ok((sse, events)) => {
                Self::handshake_on(
                    key,
                    server,
                    dependencies,
                    (Transport::Sse(Box::new(sse)), events),
                    era_hint,
                )
                .await
            }
            // For a server that supports neither transport, the first refusal says more.
            Err(error) => Err(refusal.unwrap_or_else(|| HandshakeError::Request(error).into())),
        }
    }

    async fn handshake_on(
        key: LaneKey,
        server: &ServerConfig,
        dependencies: &Dependencies,
        (transport, events): (Transport, TransportEvents),
        era_hint: Option<Era>,
    ) -> Result<(Self, TransportEvents), OpenError> {
        let capabilities = Arc::clone(&dependencies.client.capabilities);
        match handshake::negotiate(&transport, server.protocol, era_hint, &capabilities).await {
            Ok(session) => {
                let inner = Inner {
                    key,
                    transport,
                    session,
                    modern_meta: handshake::modern_meta(&capabilities),
                    ping: server.tuning.ping,
                    masker: dependencies.environment.masker(server),
                };
                Ok((Self(Arc::new(inner)), events))
            }
            Err(error) => {
                let error = with_exit_reason(error, &transport).await;
                transport.close().await;
                Err(error.into())
            }
        }
    }
}

impl From<UnsetVariable> for OpenError {
    fn from(error: UnsetVariable) -> Self {
        Self::Config(error.to_string())
    }
}

impl From<ClientError> for OpenError {
    fn from(error: ClientError) -> Self {
        Self::Config(error.to_string())
    }
}

/// Returns whether the refusal is typical of a 2024-11-05 server receiving a streamable request.
fn suggests_sse(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Handshake(HandshakeError::Request(RequestError::Status {
            status: 400 | 404 | 405,
            ..
        }))
    )
}

/// Replaces a closed-pipe error by the exit reason, which includes the child's last stderr line.
async fn with_exit_reason(error: HandshakeError, transport: &Transport) -> HandshakeError {
    match (&error, transport) {
        (
            HandshakeError::Request(RequestError::NotSent(_) | RequestError::Lost(_)),
            Transport::Stdio(_),
        ) => HandshakeError::Request(RequestError::Lost(transport.wait_closed().await)),
        _ => error,
    }
}

fn child_command(
    stdio: &toolgate_core::config::StdioConnection,
    environment: &Environment,
) -> Result<ChildCommand, UnsetVariable> {
    let inherited = INHERITED_VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), environment.get(name)?)));
    let mut env: Vec<(String, String)> = inherited.collect();
    for (name, value) in &stdio.env {
        env.push((name.clone(), value.resolve(&|name| environment.get(name))?));
    }
    Ok(ChildCommand {
        program: stdio.command.clone(),
        args: stdio.args.clone(),
        env,
        cwd: stdio.cwd.clone(),
    })
}
