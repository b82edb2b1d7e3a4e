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
    pub(crate) local: Option<LocalServer>,
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

/// A lane to be opened.
struct LaneOpening<'a> {
    key: LaneKey,
    server: &'a ServerConfig,
    dependencies: &'a Dependencies,
    era_hint: Option<Era>,
}

impl Lane {
    pub(crate) async fn open(
        key: LaneKey,
        server: &ServerConfig,
        dependencies: &Dependencies,
        era_hint: Option<Era>,
    ) -> Result<(Self, TransportEvents), OpenError> {
        let opening = LaneOpening {
            key,
            server,
            dependencies,
            era_hint,
        };
        let environment = &dependencies.environment;
        match &server.connection {
            ServerConnection::Stdio(stdio) => {
                let (stdio, events) = StdioTransport::start(
                    &child_command(stdio, environment)?,
                    &dependencies.tail,
                    &dependencies.tasks,
                    dependencies.handler(),
                )?;
                opening.handshake(Transport::Stdio(stdio), events).await
            }
            ServerConnection::Http(http) => {
                let clients = &dependencies.clients;
                let endpoint = ResolvedEndpoint::resolve(http, environment, clients)?;
                opening.open_http(&endpoint, http.transport).await
            }
            ServerConnection::InProcess => {
                let local = dependencies.local.clone().ok_or_else(|| {
                    OpenError::Config(
                        "no in-process tools are registered for this server".to_owned(),
                    )
                })?;
                let events = local.events();
                opening.handshake(Transport::Local(local), events).await
            }
        }
    }
}

impl LaneOpening<'_> {
    async fn open_http(
        &self,
        endpoint: &ResolvedEndpoint,
        transport: HttpTransport,
    ) -> Result<(Lane, TransportEvents), OpenError> {
        let tasks = &self.dependencies.tasks;
        let mut refusal = None;
        if transport != HttpTransport::Sse {
            let handler = self.dependencies.handler();
            let (http, events) = StreamableHttp::new(endpoint, tasks, handler)?;
            match self
                .handshake(Transport::Http(Box::new(http)), events)
                .await
            {
                Err(error) if transport == HttpTransport::Auto && suggests_sse(&error) => {
                    refusal = Some(error)
                }
                opened => return opened,
            }
        }
        match SseTransport::start(endpoint, tasks, self.dependencies.handler()).await {
            Ok((sse, events)) => self.handshake(Transport::Sse(Box::new(sse)), events).await,
            // For a server that supports neither transport, the first refusal says more.
            Err(error) => Err(refusal.unwrap_or_else(|| HandshakeError::Request(error).into())),
        }
    }

    async fn handshake(
        &self,
        transport: Transport,
        events: TransportEvents,
    ) -> Result<(Lane, TransportEvents), OpenError> {
        let capabilities = &self.dependencies.client.capabilities;
        let protocol = self.server.protocol;
        match handshake::negotiate(&transport, protocol, self.era_hint, capabilities).await {
            Ok(session) => {
                let inner = Inner {
                    key: self.key.clone(),
                    transport,
                    session,
                    modern_meta: handshake::modern_meta(capabilities),
                    ping: self.server.tuning.ping,
                    masker: self.dependencies.environment.masker(self.server),
                };
                Ok((Lane(Arc::new(inner)), events))
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
