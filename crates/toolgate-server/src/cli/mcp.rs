//! `toolgate mcp`: the MCP server of `/mcp` over standard input and output, for clients that launch
//! their servers as child processes.

use std::process::ExitCode;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::line::{LineReader, MessageLine};
use toolgate::mcp_server::{Connection, Delivery, McpEndpoint, Reply, Server};
use toolgate::{Caller, Gateway, ServerName};
use toolgate_core::Config;
use url::Url;

use super::ConfigFlags;
use super::signals::ShutdownSignals;
use crate::files;
use crate::relay::{self, RelaySettings, Upstream};

/// Maximum size of a message from the client.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Messages queued for a slow client.
const OUTGOING_QUEUE_SIZE: usize = 1024;
/// Maximum time for the client to read the queued messages at shutdown.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serve the configured servers to one MCP client over standard input and output
#[derive(Debug, clap::Args)]
pub(super) struct McpCommand {
    #[command(flatten)]
    config: ConfigFlags,
    /// URL of the running gateway to relay to
    #[arg(long, env = "TOOLGATE_URL")]
    url: Option<Url>,
    /// Name of the environment variable that holds the caller key, if the gateway requires one
    #[arg(long, value_name = "VARIABLE", default_value = "TOOLGATE_KEY")]
    key_env: String,
    /// Expose only this server, with its original tool names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Expose only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
}

/// The MCP client at the other end of the pipes.
struct StdioClient {
    connection: Connection,
    /// Messages to write to standard output.
    outgoing: mpsc::Sender<String>,
    tasks: TaskTracker,
    /// Cancels all tasks.
    shutdown: CancellationToken,
}

impl McpCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        if let Some(url) = &self.url {
            let mut signals = ShutdownSignals::new()?;
            let settings = RelaySettings {
                upstream: Upstream::at_url(url.clone())?,
                path: self.path(),
                key: environment.get(&self.key_env).filter(|key| !key.is_empty()),
                key_variable: self.key_env,
            };
            relay::run(settings, signals.recv()).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let documents = self.config.load_documents(&environment)?;
        let (config, findings) = Config::load(&documents)?;
        for finding in findings {
            tracing::warn!(%finding, "configuration warning");
        }
        let hidden = files::hidden_from_servers(None, &config, &environment);
        let gateway = Gateway::builder(config)
            .script_worker()
            .server_launcher(hidden)
            .environment(environment)
            .start()
            .await?;
        let endpoint = match (&self.server, self.virtual_server) {
            (Some(server), _) => McpEndpoint::Server(ServerName::parse(server)?),
            (None, Some(name)) => McpEndpoint::Virtual(name),
            (None, None) => McpEndpoint::All,
        };
        let connection = Server::new(gateway.clone()).connect(endpoint, Caller::cli());
        let connection = connection.ok_or_else(|| {
            anyhow::anyhow!("the configuration has no server or virtual server with this name")
        })?;
        // Most clients list tools only once, so give the servers a chance to connect first.
        let _ = tokio::time::timeout(Duration::from_secs(5), gateway.wait_until_settled()).await;
        let (outgoing, messages) = mpsc::channel(OUTGOING_QUEUE_SIZE);
        let (write_end, writers) = (CancellationToken::new(), TaskTracker::new());
        writers.spawn(write_messages(messages, write_end.clone()));
        let (connection, notifications) = connection.into_dedicated();
        let client = StdioClient {
            connection,
            outgoing,
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        };
        client.spawn(send_all(client.outgoing.clone(), notifications));
        let mut signals = ShutdownSignals::new()?;
        tokio::select! {
            () = client.serve() => {}
            () = signals.recv() => {}
        }
        client.shut_down().await;
        gateway.stop(Duration::from_secs(2)).await;
        write_end.cancel();
        writers.close();
        // A client that no longer reads must not block the exit.
        let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, writers.wait()).await;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the path of the endpoint.
    fn path(&self) -> String {
        match (&self.server, &self.virtual_server) {
            (Some(name), _) => format!("mcp/{name}"),
            (None, Some(name)) => format!("mcp/v/{name}"),
            (None, None) => "mcp".to_owned(),
        }
    }
}

impl StdioClient {
    /// Handles messages until standard input is closed.
    async fn serve(&self) {
        let mut lines = LineReader::new(tokio::io::stdin(), MAX_LINE_BYTES);
        while let Ok(Some(line)) = lines.next().await {
            match line {
                MessageLine::Text(text) => self.handle_line(text.trim()),
                MessageLine::TooLong { .. } => {
                    send_reply(self.outgoing.clone(), Reply::too_long()).await;
                }
            }
        }
    }

    fn handle_line(&self, line: &str) {
        if line.is_empty() {
            return;
        }
        let reply = self
            .connection
            .handle(line.as_bytes(), Delivery::without_headers());
        let outgoing = self.outgoing.clone();
        self.spawn(async move { send_reply(outgoing, reply.await).await });
    }

    /// Spawns a task that is cancelled at shutdown.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    async fn shut_down(&self) {
        self.shutdown.cancel();
        self.connection.disconnect();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Queues the messages of a reply, waiting for space if necessary.
async fn send_reply(outgoing: mpsc::Sender<String>, reply: Reply) {
    match reply {
        Reply::Accepted => {}
        Reply::Single(reply) => {
            // Fails only if the client has disconnected.
            let _ = outgoing.send(reply.body.into_string()).await;
        }
        Reply::Stream(events) => {
            send_all(outgoing, events.map(|event| event.message)).await;
        }
    }
}

async fn send_all(outgoing: mpsc::Sender<String>, messages: impl Stream<Item = String> + Send) {
    let mut messages = std::pin::pin!(messages);
    while let Some(message) = messages.next().await {
        if outgoing.send(message).await.is_err() {
            return;
        }
    }
}

/// Writes messages, one per line, until `end` is cancelled and the queue is empty.
async fn write_messages(mut messages: mpsc::Receiver<String>, end: CancellationToken) {
    let mut out = tokio::io::stdout();
    loop {
        let message = tokio::select! {
            biased;
            message = messages.recv() => message,
            () = end.cancelled(), if !messages.is_closed() => {
                messages.close();
                continue;
            }
        };
        let Some(message) = message else { return };
        let line = message.replace(['\n', '\r'], " ") + "\n";
        if out.write_all(line.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}
