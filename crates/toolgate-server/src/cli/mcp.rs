//! `toolgate mcp`: the MCP server of `/mcp` over standard input and output, for clients that launch
//! their servers as child processes.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::jsonrpc::{self, Object, RpcError, RpcResult};
use toolgate::line::{LineReader, MessageLine};
use toolgate::mcp::{
    LegacyClient, ListChanges, ListenStream, McpEndpoint, McpRequestContext, McpServer,
};
use toolgate::serve::{
    ClientMessage, INVALID_REQUEST, InFlightRequests, InitializeRequest, MessageSender,
    ModernRequest, RawMeta, RequestRejection, rpc_error,
};
use toolgate::{CallOrigin, Caller, Gateway, RequestContext, ServerName};
use toolgate_core::Config;
use toolgate_core::scope::Filters;

use super::ConfigFlags;
use super::signals::ShutdownSignals;
use crate::files;

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
    /// Expose only this server, with its original tool names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Expose only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
}

/// The MCP client at the other end of the pipes; cheap to clone.
#[derive(Clone)]
struct StdioClient(Arc<Inner>);

struct Inner {
    server: McpServer,
    gateway: Gateway,
    tasks: TaskTracker,
    in_flight: Arc<InFlightRequests>,
    /// Messages to write to standard output.
    outgoing: mpsc::Sender<String>,
    /// Set once the client has sent `initialize`, which makes it a legacy client.
    legacy: OnceLock<Arc<LegacyClient>>,
    /// Whether the task that sends list changes has started.
    sends_list_changes: AtomicBool,
    /// Cancels all tasks.
    shutdown: CancellationToken,
}

impl McpCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let documents = self.config.load_documents(&environment)?;
        let (config, findings) = Config::load(&documents)?;
        for finding in findings {
            tracing::warn!(%finding, "configuration warning");
        }
        let gateway = Gateway::builder(config)
            .script_worker()
            .environment(environment)
            .start()
            .await?;
        let endpoint = match (&self.server, self.virtual_server) {
            (Some(server), _) => McpEndpoint::Server(ServerName::parse(server)?),
            (None, Some(name)) => McpEndpoint::Virtual(name),
            (None, None) => McpEndpoint::All,
        };
        let server = McpServer::open(&gateway, endpoint, &caller());
        let server = server.ok_or_else(|| {
            anyhow::anyhow!("the configuration has no server or virtual server with this name")
        })?;
        // Most clients list tools only once, so give the servers a chance to connect first.
        let _ = tokio::time::timeout(Duration::from_secs(5), gateway.wait_until_settled()).await;
        let (outgoing, messages) = mpsc::channel(OUTGOING_QUEUE_SIZE);
        let (write_end, writers) = (CancellationToken::new(), TaskTracker::new());
        writers.spawn(write_messages(messages, write_end.clone()));
        let client = StdioClient(Arc::new(Inner {
            server,
            gateway: gateway.clone(),
            tasks: TaskTracker::new(),
            in_flight: Arc::default(),
            outgoing,
            legacy: OnceLock::new(),
            sends_list_changes: AtomicBool::new(false),
            shutdown: CancellationToken::new(),
        }));
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
}

impl StdioClient {
    /// Handles messages until standard input is closed.
    async fn serve(&self) {
        let mut lines = LineReader::new(tokio::io::stdin(), MAX_LINE_BYTES);
        while let Ok(Some(line)) = lines.next().await {
            match line {
                MessageLine::Text(text) => self.handle_line(&text),
                MessageLine::TooLong { .. } => {
                    let error = rpc_error(INVALID_REQUEST, "the message is too long");
                    self.send(error_without_id(&error)).await;
                }
            }
        }
    }

    async fn shut_down(&self) {
        let Inner {
            legacy,
            shutdown,
            tasks,
            ..
        } = &*self.0;
        shutdown.cancel();
        if let Some(legacy) = legacy.get() {
            legacy.disconnect(&self.0.gateway);
        }
        tasks.close();
        tasks.wait().await;
    }

    fn handle_line(&self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        if line.starts_with('[') {
            return self.handle_batch(line.to_owned());
        }
        match ClientMessage::parse(line) {
            Ok(ClientMessage::Request { id, method, params }) => {
                self.handle_request(id, method, params)
            }
            Ok(ClientMessage::Notification { method, params }) => {
                self.handle_notification(&method, params.as_deref())
            }
            Ok(ClientMessage::Response { id, result }) => {
                if let Some(legacy) = self.0.legacy.get() {
                    legacy.handle_response(&id, result);
                }
            }
            Err(error) => {
                let client = self.clone();
                self.spawn(async move { client.send(error_without_id(&error)).await });
            }
        }
    }

    fn handle_notification(&self, method: &str, params: Option<&RawValue>) {
        self.0.in_flight.on_notification(method, params);
        if let Some(legacy) = self.0.legacy.get() {
            legacy.handle_notification(&self.0.gateway, method, params);
        }
        if method == "notifications/initialized"
            && !self.0.sends_list_changes.swap(true, Ordering::Relaxed)
        {
            let client = self.clone();
            self.spawn(async move { client.send_list_changes().await });
        }
    }

    fn handle_request(&self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        let (client, request) = (self.clone(), self.0.in_flight.register(&id));
        self.spawn(async move {
            let result = tokio::select! {
                result = client.respond(&id, &method, params.as_deref()) => result,
                () = request.wait_cancelled() => return,
            };
            client.send(jsonrpc::response(&id, &result)).await;
        });
    }

    /// Handles a JSON-RPC batch, which only legacy revisions allow.
    fn handle_batch(&self, text: String) {
        let client = self.clone();
        self.spawn(async move {
            let responses = match client.legacy_client() {
                Ok(legacy) => {
                    let origin = (caller(), client.new_request());
                    client.0.server.handle_batch(origin, legacy, &text).await
                }
                Err(error) => Err(error),
            };
            match responses {
                Ok(Some(responses)) => client.send(responses).await,
                Ok(None) => {}
                Err(error) => client.send(error_without_id(&error)).await,
            }
        });
    }

    /// Spawns a task that is cancelled at shutdown.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.0.shutdown.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    async fn respond(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> RpcResult {
        if method == "initialize" {
            let initialize = InitializeRequest::parse(params)?;
            let result = self.0.server.initialize_result(initialize.version);
            // A repeated `initialize` keeps the existing client.
            self.0.legacy.get_or_init(|| {
                Arc::new(LegacyClient::new(
                    "pipes".to_owned(),
                    initialize,
                    self.message_sender(),
                ))
            });
            return Ok(result);
        }
        let meta = RawMeta::from_params(params);
        let context = if ModernRequest::is_modern(method, &meta) {
            let modern = ModernRequest::parse(method, (params, &meta), None)
                .map_err(|RequestRejection { error, .. }| error)?;
            let context = McpRequestContext::modern(
                caller(),
                self.new_request(),
                modern,
                params,
                self.message_sender(),
            );
            if method == "subscriptions/listen" {
                return self.listen(&context, id, params).await;
            }
            context
        } else {
            McpRequestContext::legacy(
                caller(),
                self.new_request(),
                self.legacy_client()?,
                meta.to_request_meta(),
                self.message_sender(),
            )
        };
        self.0.server.handle_request(&context, method, params).await
    }

    /// Returns the legacy client, or an error if `initialize` was not sent.
    fn legacy_client(&self) -> Result<&Arc<LegacyClient>, RpcError> {
        let not_initialized = || {
            rpc_error(
                INVALID_REQUEST,
                "send `initialize` first, or use protocol version 2026-07-28",
            )
        };
        self.0.legacy.get().ok_or_else(not_initialized)
    }

    fn new_request(&self) -> RequestContext {
        RequestContext {
            filters: self.0.server.filters(Filters::default()),
            ..RequestContext::default()
        }
    }

    /// Returns a sender that never blocks: messages to a slow client are dropped when the queue is full.
    fn message_sender(&self) -> MessageSender {
        let outgoing = self.0.outgoing.clone();
        Arc::new(move |message| outgoing.try_send(message).is_ok())
    }

    /// Queues a message, waiting for space if necessary.
    async fn send(&self, message: String) {
        // Fails only if the client has disconnected.
        let _ = self.0.outgoing.send(message).await;
    }

    /// Sends the notifications requested by `subscriptions/listen` until the request is cancelled.
    async fn listen(
        &self,
        context: &McpRequestContext,
        id: &RawValue,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let mut stream = ListenStream::open(&self.0.server, context, id.to_owned(), params).await?;
        self.send(stream.acknowledgement()).await;
        while let Some(messages) = stream.next().await {
            for message in messages {
                self.send(message).await;
            }
        }
        Ok(ListenStream::final_result())
    }

    /// Notifies a legacy client of list changes.
    async fn send_list_changes(&self) {
        let filters = self.0.server.filters(Filters::default());
        let mut changes = ListChanges::new(self.0.gateway.clone(), caller(), filters);
        while let Some(methods) = changes.next().await {
            for method in methods {
                self.send(jsonrpc::notification(method, &Object::new()))
                    .await;
            }
        }
    }
}

fn caller() -> Caller {
    Caller::cli().with_origin(CallOrigin::Mcp)
}

fn error_without_id(error: &RpcError) -> String {
    jsonrpc::response(RawValue::NULL, &Err(error.clone()))
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
