//! How a lane is opened: the right transport, then the handshake.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use toolgate_core::config::{Flavour, Link, Server};
use toolgate_core::secret::Unset;

use super::{Inner, Lane, LaneKey};
use crate::ear::{Client, Ear};
use crate::environment::{Environment, MINIMAL};
use crate::handshake::{self, Era, HandshakeError};
use crate::local::LocalServer;
use crate::transport::http::{ClientError, Clients, Endpoint, Http};
use crate::transport::sse::Sse;
use crate::transport::stdio::{Command, SpawnError, Stdio};
use crate::transport::{Events, RequestError, Tail, Transport};

/// What a lane needs of its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) local: Option<Arc<LocalServer>>,
    pub(crate) environment: Environment,
    /// The HTTP clients that servers share.
    pub(crate) clients: Clients,
    /// Takes what a child says on its standard error.
    pub(crate) tail: Tail,
    pub(crate) tasks: TaskTracker,
    /// On whose behalf it is opened.
    pub(crate) client: Client,
}

impl Surroundings {
    fn ear(&self) -> Arc<dyn Ear> {
        Arc::clone(&self.client.ear)
    }
}

/// Why a lane could not be opened, by who can mend it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing changes until the configuration does.
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
        server: &Server,
        surroundings: &Surroundings,
        first: Option<Era>,
    ) -> Result<(Self, Events), OpenError> {
        let Surroundings {
            local,
            environment,
            clients,
            tail,
            tasks,
            client: _,
        } = surroundings;
        match &server.link {
            Link::Stdio(stdio) => {
                let (stdio, events) = Stdio::start(
                    &command(stdio, environment)?,
                    tail,
                    tasks,
                    surroundings.ear(),
                )?;
                Self::greet(
                    key,
                    server,
                    surroundings,
                    (Transport::Stdio(stdio), events),
                    first,
                )
                .await
            }
            Link::Http(http) => {
                let endpoint = Endpoint::resolve(http, environment, clients)?;
                Self::open_http(key, server, (&endpoint, http.flavour), surroundings, first).await
            }
            Link::InProcess => {
                let local = local.clone();
                let local = local.ok_or_else(|| {
                    OpenError::Config("no tools are registered for it".to_owned())
                })?;
                Self::greet(
                    key,
                    server,
                    surroundings,
                    (Transport::Local(local), LocalServer::events()),
                    first,
                )
                .await
            }
        }
    }

    async fn open_http(
        key: LaneKey,
        server: &Server,
        (endpoint, flavour): (&Endpoint, Flavour),
        surroundings: &Surroundings,
        first: Option<Era>,
    ) -> Result<(Self, Events), OpenError> {
        let tasks = &surroundings.tasks;
        let mut refusal = None;
        if flavour != Flavour::Sse {
            let (http, events) = Http::new(endpoint, tasks, surroundings.ear())?;
            let streamable = (Transport::Http(Box::new(http)), events);
            match Self::greet(key.clone(), server, surroundings, streamable, first).await {
                Err(error) if flavour == Flavour::Auto && asks_for_sse(&error) => {
                    refusal = Some(error)
                }
                opened => return opened,
            }
        }
        match Sse::start(endpoint, tasks, surroundings.ear()).await {
            Ok((sse, events)) => {
                Self::greet(
                    key,
                    server,
                    surroundings,
                    (Transport::Sse(Box::new(sse)), events),
                    first,
                )
                .await
            }
            // What the newer way was answered with says more about a server that knows neither.
            Err(error) => Err(refusal.unwrap_or_else(|| HandshakeError::Request(error).into())),
        }
    }

    async fn greet(
        key: LaneKey,
        server: &Server,
        surroundings: &Surroundings,
        (transport, events): (Transport, Events),
        first: Option<Era>,
    ) -> Result<(Self, Events), OpenError> {
        let capabilities = Arc::clone(&surroundings.client.capabilities);
        match handshake::shake(&transport, server.protocol, first, &capabilities).await {
            Ok(session) => {
                let inner = Inner {
                    key,
                    transport,
                    session,
                    modern_meta: handshake::modern_meta(&capabilities),
                    ping: server.care.ping,
                    masker: surroundings.environment.masker(server),
                };
                Ok((Self(Arc::new(inner)), events))
            }
            Err(error) => {
                let error = told_by_child(error, &transport).await;
                transport.close().await;
                Err(error.into())
            }
        }
    }
}

impl From<Unset> for OpenError {
    fn from(error: Unset) -> Self {
        Self::Config(error.to_string())
    }
}

impl From<ClientError> for OpenError {
    fn from(error: ClientError) -> Self {
        Self::Config(error.to_string())
    }
}

/// Whether a refusal is what a server of the first revision says to a request it does not expect.
fn asks_for_sse(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Handshake(HandshakeError::Request(RequestError::Status {
            status: 400 | 404 | 405,
            ..
        }))
    )
}

/// A child that exits during the handshake says more by its last words than by a closed pipe.
async fn told_by_child(error: HandshakeError, transport: &Transport) -> HandshakeError {
    match (&error, transport) {
        (
            HandshakeError::Request(RequestError::NotSent(_) | RequestError::Lost(_)),
            Transport::Stdio(_),
        ) => HandshakeError::Request(RequestError::Lost(transport.closed().await)),
        _ => error,
    }
}

fn command(
    stdio: &toolgate_core::config::Stdio,
    environment: &Environment,
) -> Result<Command, Unset> {
    let inherited = MINIMAL
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), environment.get(name)?)));
    let mut env: Vec<(String, String)> = inherited.collect();
    for (name, value) in &stdio.env {
        env.push((name.clone(), value.resolve(&|name| environment.get(name))?));
    }
    Ok(Command {
        program: stdio.command.clone(),
        args: stdio.args.clone(),
        env,
        cwd: stdio.cwd.clone(),
    })
}
