//! A lane: one connection to one server, with its negotiated era.
//!
//! The `shared` lane serves all callers that cannot answer server requests: the agent loop,
//! scripts, the CLI and stateless clients. It declares no capabilities. Every other lane belongs to
//! one client session.

mod input;
mod open;
mod tasks;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::catalog::{ServerListing, Tool};
use toolgate_core::name::ServerName;
use toolgate_core::secret::Masker;

use crate::client_handler::{ClientHandler, LogLevel, ModernClient};
use crate::handshake::{self, Era, UpstreamSession};
use crate::jsonrpc::{INVALID_PARAMS, Object, RpcError};
use crate::local::CallIdentity;
use crate::task::{self, TaskUse};
use crate::transport::{OutgoingRequest, RequestError, StderrTail, Transport};
use crate::{discovery, param_header};

pub use open::OpenError;
pub(crate) use open::{Dependencies, sandbox_report};
use tasks::TaskRequests;
pub use tasks::{ToolAnswer, UpstreamTask};
use tokio_util::task::TaskTracker;

/// Delay before a subscription is requested again; doubles after each failure.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);
const MAX_RESUBSCRIBE_DELAY: Duration = Duration::from_secs(30);
/// Maximum size of a result whose error is explained to the operator.
const MAX_EXPLAINED_RESULT_BYTES: usize = 16 * 1024;

/// Identifies one of the connections to a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LaneId {
    Shared,
    /// Reserved for one client session.
    Session(String),
}

/// Identifies a connection across all servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    pub server: ServerName,
    pub lane: LaneId,
}

/// An open connection; clones share it.
#[derive(Clone)]
pub struct Lane(Arc<Inner>);

struct Inner {
    key: LaneKey,
    transport: Transport,
    session: UpstreamSession,
    /// The capabilities declared to the server, unless a modern client supplies its own.
    capabilities: Arc<str>,
    /// `_meta` of every request to a modern server with those capabilities.
    modern_meta: Object,
    /// The server supports `ping`.
    ping: bool,
    /// Masks the server's secrets in its error messages.
    masker: Masker,
    /// Explains errors of a strict server to the operator.
    tail: Option<StderrTail>,
    /// Owns requests whose answers are not awaited.
    tasks: TaskTracker,
}

/// A tool call to be sent to a server.
#[derive(Clone, Debug)]
pub struct UpstreamToolCall<'a> {
    pub tool: &'a Tool,
    pub arguments: &'a RawValue,
    /// Caller headers that the server's config forwards.
    pub headers: HeaderMap,
    /// Members of the caller's `_meta` to forward.
    pub meta: Object,
    /// Receives progress notifications.
    pub handler: Option<Arc<dyn ClientHandler>>,
    /// The client, if it can answer a modern server's input requests itself.
    pub modern_client: Option<Arc<ModernClient>>,
    /// Minimum level of the log messages the client receives.
    pub log_level: Option<LogLevel>,
    /// Who makes the call, if the server runs in this process.
    pub identity: Option<Arc<CallIdentity>>,
    /// Whether the call may become a task.
    pub tasks: TaskUse,
}

/// A request to be sent to a server.
#[derive(Clone, Debug, Default)]
pub struct UpstreamRequest {
    pub method: &'static str,
    pub params: Object,
    /// The name or URI in its parameters, which modern servers expect in a header too.
    pub name: Option<String>,
    pub meta: Object,
    pub headers: HeaderMap,
    pub handler: Option<Arc<dyn ClientHandler>>,
    pub modern_client: Option<Arc<ModernClient>>,
    pub log_level: Option<LogLevel>,
    pub identity: Option<Arc<CallIdentity>>,
    /// Whether to declare to a modern server that its answer may be a task.
    pub declares_tasks: bool,
}

impl Lane {
    pub fn key(&self) -> &LaneKey {
        &self.0.key
    }

    pub fn session(&self) -> &UpstreamSession {
        &self.0.session
    }

    /// Fetches all pages of all lists. A list that fails keeps its items from `previous`.
    pub(crate) async fn fetch_listing(
        &self,
        previous: Option<&ServerListing>,
    ) -> Result<ServerListing, RequestError> {
        let listing = discovery::discover(self, previous, None).await?;
        Ok(self.finish_listing(listing))
    }

    /// Like [`Self::fetch_listing`], but fetches what a modern server lists for a client.
    pub(crate) async fn fetch_client_listing(
        &self,
        client: &Arc<ModernClient>,
    ) -> Result<ServerListing, RequestError> {
        let listing = discovery::discover(self, None, Some(client)).await?;
        Ok(self.finish_listing(listing))
    }

    fn finish_listing(&self, mut listing: ServerListing) -> ServerListing {
        if self.should_send_param_headers() {
            discovery::drop_tools_with_invalid_headers(&mut listing);
        }
        listing.into_sorted()
    }

    /// Checks that the server responds; an error response counts as well.
    pub(crate) async fn ping(&self) -> Result<(), RequestError> {
        let method = match (self.0.session.era, self.0.ping) {
            (Era::Modern, _) => "server/discover",
            (Era::Legacy, true) => "ping",
            (Era::Legacy, false) => "tools/list",
        };
        match self.request(method, Object::new(), HeaderMap::new()).await {
            Ok(_) | Err(RequestError::Rpc(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Keeps a channel open for the server's notifications and requests. Returns only if this
    /// transport and era need no such channel.
    pub(crate) async fn listen(&self) {
        let notifies = self.0.session.capabilities.notifies;
        let is_private = self.0.key.lane != LaneId::Shared;
        match (&self.0.transport, self.0.session.era) {
            (Transport::Http(http), Era::Legacy) if notifies || is_private => http.listen().await,
            (Transport::Http(_) | Transport::Stdio(_), Era::Modern) if notifies => {
                self.subscribe_to_list_changes().await;
            }
            // A legacy server on stdio or SSE sends notifications without a subscription.
            _ => {}
        }
    }

    async fn subscribe_to_list_changes(&self) {
        let filter =
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}"#;
        let mut delay = RESUBSCRIBE_DELAY;
        loop {
            let params = Object::new().raw("notifications", filter);
            match self
                .request("subscriptions/listen", params, HeaderMap::new())
                .await
            {
                Err(RequestError::Rpc(_) | RequestError::Status { .. }) => return,
                Ok(_) => delay = RESUBSCRIBE_DELAY,
                Err(_) => delay = (delay * 2).min(MAX_RESUBSCRIBE_DELAY),
            }
            tokio::time::sleep(delay).await;
        }
    }

    /// Returns whether the connection is not known to be closed.
    pub fn is_open(&self) -> bool {
        use futures_util::FutureExt as _;
        self.wait_closed().now_or_never().is_none()
    }

    /// Returns whether both handles refer to the same connection.
    pub fn is_same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Calls a tool and returns the server's result byte for byte, or the task that leads to it.
    pub async fn call_tool(&self, call: UpstreamToolCall<'_>) -> Result<ToolAnswer, RequestError> {
        let mut headers = call.headers.clone();
        if self.should_send_param_headers() {
            if param_header::may_have_annotations(call.tool) {
                param_header::insert_headers(&call.tool.view(), call.arguments, &mut headers)
                    .map_err(invalid_params)?;
            } else {
                param_header::insert_name_header(call.tool.id.tool.as_str(), &mut headers);
            }
        }
        let params = Object::new()
            .text("name", call.tool.id.tool.as_str())
            .raw("arguments", call.arguments.get());
        let params = match self.task_param(&call) {
            Some(task) => params.raw("task", &task.to_string()),
            None => params,
        };
        let request = UpstreamRequest {
            method: "tools/call",
            params,
            name: None, // its header is already set
            meta: call.meta.clone(),
            headers,
            handler: call.handler.clone(),
            modern_client: call.modern_client.clone(),
            log_level: call.log_level,
            identity: call.identity.clone(),
            declares_tasks: false,
        };
        let result = self.send_as_needed(request, &call.tasks).await;
        if let Some(tail) = &self.0.tail {
            explain_failure(&result, tail);
        }
        self.interpret_answer(result?, || TaskRequests::new(self, &call))
    }

    /// Sends a request without metadata in the lane's era.
    pub(crate) async fn request(
        &self,
        method: &'static str,
        params: Object,
        headers: HeaderMap,
    ) -> Result<Box<RawValue>, RequestError> {
        let request = UpstreamRequest {
            method,
            params,
            headers,
            ..UpstreamRequest::default()
        };
        self.send(request).await
    }

    /// Sends a request in the lane's era, with secrets masked in errors.
    pub async fn send(&self, request: UpstreamRequest) -> Result<Box<RawValue>, RequestError> {
        let UpstreamRequest {
            method,
            params,
            name,
            meta,
            mut headers,
            handler,
            modern_client,
            log_level,
            identity,
            declares_tasks,
        } = request;
        let (params, meta) = match self.0.session.era {
            Era::Legacy
                if modern_client
                    .as_ref()
                    .is_some_and(|client| client.has_state) =>
            {
                // A legacy server has asked for nothing, so the state is not that of a question.
                return Err(invalid_params("unknown `requestState`".to_owned()));
            }
            Era::Legacy => (params, meta),
            Era::Modern => {
                handshake::add_modern_headers(method, &mut headers);
                if let Some(name) = name {
                    param_header::insert_name_header(&name, &mut headers);
                }
                let params = match &modern_client {
                    Some(client) => params.merge(&client.input),
                    None => params,
                };
                let meta = match log_level {
                    Some(level) => meta.text("io.modelcontextprotocol/logLevel", level.as_str()),
                    None => meta,
                };
                let client = modern_client.as_ref();
                let capabilities =
                    client.map_or(&self.0.capabilities, |client| &client.capabilities);
                let meta = match &modern_client {
                    _ if declares_tasks => {
                        meta.merge(&handshake::modern_meta(&task::declare(capabilities)))
                    }
                    Some(_) => meta.merge(&handshake::modern_meta(capabilities)),
                    None => meta.merge(&self.0.modern_meta),
                };
                (params, meta)
            }
        };
        let outgoing = OutgoingRequest {
            method,
            params,
            meta,
            headers,
            handler,
            identity,
        };
        let result = self.0.transport.request(outgoing).await;
        result.map_err(|error| error.mask_secrets(&self.0.masker))
    }

    /// Sends a notification that exists only in the legacy era, with secrets masked in errors.
    pub(crate) async fn notify(&self, method: &'static str) -> Result<(), RequestError> {
        match self.0.session.era {
            Era::Legacy => {
                let sent = self.0.transport.notify(method).await;
                sent.map_err(|error| error.mask_secrets(&self.0.masker))
            }
            Era::Modern => Ok(()),
        }
    }

    /// Waits until the connection has closed and returns the reason.
    pub(crate) async fn wait_closed(&self) -> String {
        self.0.transport.wait_closed().await
    }

    /// Releases a lost connection. Calls may still be in flight on an HTTP session, so that one is
    /// left for the server to expire.
    pub(crate) async fn abandon(&self) {
        if !matches!(self.0.transport, Transport::Http(_)) {
            self.close().await;
        }
    }

    pub(crate) async fn close(&self) {
        self.0.transport.close().await;
    }

    fn should_send_param_headers(&self) -> bool {
        self.0.session.era == Era::Modern && matches!(self.0.transport, Transport::Http(_))
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.0.key).finish()
    }
}

/// Explains a failed call, because many servers report errors only to the caller.
fn explain_failure(result: &Result<Box<RawValue>, RequestError>, tail: &StderrTail) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct FailedResult {
        is_error: bool,
        content: Vec<TextContent>,
    }
    #[derive(Deserialize)]
    struct TextContent {
        text: Option<String>,
    }
    match result {
        Err(RequestError::Rpc(error)) => tail.explain(&error.message),
        Ok(result) if result.get().len() <= MAX_EXPLAINED_RESULT_BYTES => {
            let failed: Result<FailedResult, _> = serde_json::from_str(result.get());
            // Anything else is a result of another kind.
            if let Ok(failed) = failed
                && failed.is_error
            {
                let texts = failed.content.iter();
                texts.for_each(|content| tail.explain(content.text.as_deref().unwrap_or_default()));
            }
        }
        Ok(_) | Err(_) => {}
    }
}

fn invalid_params(message: String) -> RequestError {
    RequestError::Rpc(RpcError {
        code: INVALID_PARAMS,
        message,
        data: None,
    })
}
