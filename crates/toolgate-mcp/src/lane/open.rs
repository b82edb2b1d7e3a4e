//! Opening a lane: selects the transport, then performs the handshake.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use toolgate_core::config::{
    EnvGroup, HttpTransport, Sandbox, ServerConfig, ServerConnection, StdioConnection,
};
use toolgate_core::secret::UnsetVariable;

use super::{Inner, Lane, LaneKey};
use crate::client_handler::{ClientHandler, SessionClient};
use crate::environment::Environment;
use crate::fair_queue::Slot;
use crate::handshake::{self, Era, HandshakeError};
use crate::local::LocalServer;
use crate::processes::ServerProcesses;
use crate::sandbox::{SandboxReport, ServerLauncher};
use crate::transport::http::{ClientError, HttpClients, ResolvedEndpoint, StreamableHttp};
use crate::transport::sse::SseTransport;
use crate::transport::stdio::{ChildCommand, ChildContext, SpawnError, StdioTransport};
use crate::transport::{RequestError, StderrTail, Transport, TransportEvents};

/// Why an embedded gateway does not isolate servers.
const NO_LAUNCHER: &str =
    "the program that embeds the gateway does not provide the launcher of servers";

/// Programs that download a server before they run it.
const PACKAGE_RUNNERS: [&str; 9] = [
    "npx", "npm", "pnpm", "yarn", "bunx", "uvx", "uv", "pipx", "deno",
];

/// Everything besides its configuration that a lane needs to open.
#[derive(Clone, Debug)]
pub(crate) struct Dependencies {
    pub(crate) local: Option<LocalServer>,
    pub(crate) environment: Environment,
    /// Applies the sandbox of stdio servers.
    pub(crate) launcher: Option<ServerLauncher>,
    /// HTTP clients shared between servers.
    pub(crate) clients: HttpClients,
    /// Accounts for the processes of a stdio server.
    pub(crate) processes: Arc<ServerProcesses>,
    /// The place of the process among those that are started for single clients, if they are bounded.
    pub(crate) place: Option<Arc<Slot>>,
    /// Collects the child's standard error.
    pub(crate) tail: StderrTail,
    pub(crate) tasks: TaskTracker,
    /// Size of the messages that may wait for a stdio server.
    pub(crate) max_queued_bytes: usize,
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
                let command = sandboxed_command(stdio, dependencies).await?;
                opening.explain_denials();
                let context = ChildContext {
                    lane: &opening.key.lane,
                    max_queued_bytes: dependencies.max_queued_bytes,
                    processes: &dependencies.processes,
                    place: dependencies.place.clone(),
                    tail: &dependencies.tail,
                    tasks: &dependencies.tasks,
                    handler: dependencies.handler(),
                };
                let (stdio, events) = StdioTransport::start(&command, context)?;
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
    /// Explains accesses that the sandbox of a strict server denies, in what is kept of its standard error.
    fn explain_denials(&self) {
        let launcher = self.dependencies.launcher.as_ref();
        if let Some(hints) = launcher.and_then(|launcher| launcher.denial_hints(self.server)) {
            let tail = &self.dependencies.tail;
            tail.explain_with(move |line| hints.find(line));
        }
    }

    fn is_strict(&self) -> bool {
        matches!(
            &self.server.connection,
            ServerConnection::Stdio(StdioConnection {
                sandbox: Sandbox::Strict(_),
                ..
            })
        )
    }

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
                    capabilities: Arc::clone(capabilities),
                    modern_meta: handshake::modern_meta(capabilities),
                    ping: self.server.tuning.ping,
                    masker: self.dependencies.environment.masker(self.server),
                    tail: self.is_strict().then(|| self.dependencies.tail.clone()),
                    tasks: self.dependencies.tasks.clone(),
                };
                Ok((Lane(Arc::new(inner)), events))
            }
            Err(error) => {
                let mut error = with_exit_reason(error, &transport).await;
                if let ServerConnection::Stdio(stdio) = &self.server.connection {
                    error = with_proxy_hint(error, stdio, &self.dependencies.environment);
                }
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

/// Adds a hint if a package runner failed that may need the gateway's proxy settings.
fn with_proxy_hint(
    error: HandshakeError,
    stdio: &StdioConnection,
    environment: &Environment,
) -> HandshakeError {
    let program = stdio.command.rsplit('/').next().unwrap_or_default();
    let is_set = |name: &&str| {
        let value = environment.get(name);
        value.is_some_and(|value| !value.is_empty()) && !stdio.env.contains_key(*name)
    };
    let missing = EnvGroup::Network.variables().iter().copied().find(is_set);
    match (error, missing) {
        (HandshakeError::Request(RequestError::Lost(reason)), Some(name))
            if PACKAGE_RUNNERS.contains(&program)
                && !stdio.env_groups.contains(&EnvGroup::Network) =>
        {
            HandshakeError::Request(RequestError::Lost(format!(
                "{reason} (`{name}` is set for the gateway, but not for this server; if it is needed to download packages, set `env_groups = [\"network\"]`)"
            )))
        }
        (error, _) => error,
    }
}

/// Returns the command with the launcher in front, as far as there is one.
async fn sandboxed_command(
    stdio: &StdioConnection,
    dependencies: &Dependencies,
) -> Result<ChildCommand, OpenError> {
    let mut command = child_command(stdio, &dependencies.environment)?;
    match (&dependencies.launcher, &stdio.sandbox) {
        (Some(launcher), sandbox) => {
            let prepared = launcher.prepare(&command, sandbox).await;
            let prepared = prepared.map_err(|error| OpenError::Config(error.to_string()))?;
            (command.launcher, command.memory) = (prepared.launcher, prepared.memory);
        }
        (None, Sandbox::Strict(_)) => return Err(OpenError::Config(NO_LAUNCHER.to_owned())),
        (None, Sandbox::Default | Sandbox::Off) => {}
    }
    Ok(command)
}

/// Returns which measures of a server's sandbox are in force.
pub(crate) async fn sandbox_report(
    stdio: &StdioConnection,
    environment: &Environment,
    launcher: Option<&ServerLauncher>,
) -> Arc<SandboxReport> {
    let missing = |reason: &str| Arc::new(SandboxReport::not_in_force(&stdio.sandbox, reason));
    match (launcher, child_command(stdio, environment)) {
        (None, _) => missing(NO_LAUNCHER),
        (Some(_), Err(error)) => missing(&error.to_string()),
        (Some(launcher), Ok(command)) => launcher.report(&command, &stdio.sandbox).await,
    }
}

fn child_command(
    stdio: &StdioConnection,
    environment: &Environment,
) -> Result<ChildCommand, UnsetVariable> {
    let groups = stdio.env_groups.iter();
    let grouped = groups.flat_map(|group| group.variables());
    let grouped = grouped.filter_map(|name| Some(((*name).to_owned(), environment.get(name)?)));
    let mut env: Vec<(String, String)> = environment.inherited().chain(grouped).collect();
    for (name, value) in &stdio.env {
        env.push((name.clone(), value.resolve(&|name| environment.get(name))?));
    }
    Ok(ChildCommand {
        program: stdio.command.clone(),
        args: stdio.args.clone(),
        env,
        cwd: stdio.cwd.clone(),
        launcher: None,
        memory: None,
    })
}
