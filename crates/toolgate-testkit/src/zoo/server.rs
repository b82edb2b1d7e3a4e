//! The MCP server behind both transports: methods and their results.
//!
//! A transport passes each request to [`ZooServer::start`], which handles it in its own task and
//! sends the response, error or result, through the outbox.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::calls::{OpenCall, OpenCalls};
use super::catalog::ZooCatalog;
use super::era::{self, RequestEra};
use super::execution_log::ExecutionLog;
use super::fixture::{self, Fixtures};
use super::flags::{CommonFlags, SupportedEras};
use super::outbox::Outbox;
use super::peers::Peers;
use super::request_log::RequestLog;
use super::rpc::{self, INVALID_PARAMS, METHOD_NOT_FOUND, notification};
use super::rpc::{Request, RpcMessage, RpcParams, RpcReply, ZooError};
use super::task_tools::{self, TaskTools};
use super::tool;

const RESOURCE_NOT_FOUND: i64 = -32002;
const CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"resources":{},"prompts":{},"logging":{}}"#;
const FIXTURE_CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}"#;

#[derive(Debug)]
pub(crate) struct ZooServer {
    pub(crate) catalog: ZooCatalog,
    pub(crate) request_log: RequestLog,
    pub(crate) executions: ExecutionLog,
    pub(crate) tasks: TaskTracker,
    pub(crate) peers: Peers,
    pub(crate) fixtures: Option<Fixtures>,
    pub(crate) task_tools: Option<TaskTools>,
    flags: CommonFlags,
    calls: OpenCalls,
    closing: CancellationToken,
}

/// Origin of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestOrigin {
    /// The connection or session within which ids are unique.
    pub(crate) scope: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) on_disconnect: OnDisconnect,
}

/// Effect of the client disconnecting before the response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    #[default]
    Ignore,
    Cancel,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct ZooCall<'a> {
    pub(crate) server: &'a ZooServer,
    pub(crate) request: &'a Request,
    pub(crate) era: RequestEra,
    pub(crate) origin: &'a RequestOrigin,
    pub(crate) outbox: &'a Outbox,
    pub(crate) open: &'a OpenCall,
}

/// Outcome of a request.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    /// A raw result, without the additional fields of the modern era.
    Result(String),
    /// The raw result of a modern request that needs input before it can complete.
    InputRequired(String),
    /// The raw result of a modern call that has become a task.
    Task(String),
    Error(ZooError),
    /// Cancelled: no response is sent.
    Nothing,
}

impl ZooServer {
    pub(crate) fn new(flags: &CommonFlags) -> Self {
        Self {
            catalog: ZooCatalog::new(&flags.features),
            request_log: RequestLog::open(flags.diagnostics.count.as_deref()),
            executions: ExecutionLog::open(flags.features.append_to.as_deref()),
            tasks: TaskTracker::new(),
            peers: Peers::default(),
            fixtures: flags.features.fixtures.then(Fixtures::new),
            task_tools: flags.features.tasks.then(TaskTools::default),
            flags: flags.clone(),
            calls: OpenCalls::default(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn eras(&self) -> SupportedEras {
        self.flags.features.era
    }

    /// Checks that a request may run.
    pub(crate) fn admit(&self, request: &Request) -> Result<(), ZooError> {
        let eras = self.eras();
        let era = eras.era_of(request);
        let message = format!("unknown method `{}`", request.method);
        let unknown = ZooError::new(METHOD_NOT_FOUND, message);
        if era == RequestEra::Modern {
            if request.method == "initialize" {
                // A legacy client has no other way to learn the supported versions.
                let supported = eras.supported_versions();
                return Err(unknown.with_data(format!(r#"{{"supported":{supported}}}"#)));
            }
            era::check_meta(request, eras)?;
        }
        if !self.supports_method(&request.method, era) {
            return Err(unknown);
        }
        if self.task_tools.is_some() && era == RequestEra::Modern {
            task_tools::check_extension(request)?;
        }
        match (&self.fixtures, era) {
            (Some(fixtures), RequestEra::Modern) => fixtures.check_capabilities(request),
            _ => Ok(()),
        }
    }

    /// Applies `--exit-on` when a message arrives, before it is handled.
    pub(crate) fn on_message(&self, message: &RpcMessage) {
        let (method, request) = match message {
            RpcMessage::Request(request) => (&request.method, Some(request)),
            RpcMessage::Notification { method, .. } => (method, None),
            RpcMessage::Response(_) => return,
        };
        if self.flags.faults.exit_on.contains(method) {
            if let Some(request) = request {
                self.request_log.log_request(request);
            }
            exit(3);
        }
    }

    /// Handles the request in a task and sends the response to the outbox.
    pub(crate) fn start(self: &Arc<Self>, request: Request, origin: RequestOrigin, outbox: Outbox) {
        self.request_log.log_request(&request);
        let server = Arc::clone(self);
        // Registered here and not in the task, so that a cancellation right after it finds it.
        let open = self.calls.open(&origin.scope, &request.id);
        self.tasks.spawn(async move {
            let call = ZooCall {
                server: &server,
                request: &request,
                era: server.eras().era_of(&request),
                origin: &origin,
                outbox: &outbox,
                open: &open,
            };
            tokio::select! {
                // Requests that complete at once are answered even while the server closes.
                biased;
                () = call.run() => {}
                () = server.closing.cancelled() => {}
            }
        });
    }

    /// Handles a notification; resulting messages go to the outbox, if there is one.
    pub(crate) fn on_notification(
        &self,
        method: &str,
        params: &RpcParams,
        scope: &str,
        outbox: Option<&Outbox>,
    ) {
        match method {
            "notifications/cancelled" => {
                if let Some(id) = &params.request_id {
                    self.calls.cancel(scope, id.get());
                }
            }
            "notifications/initialized" => {
                if let Some(outbox) = outbox {
                    self.peers.add_stream(scope, outbox.clone());
                    self.send_list_changed_storm("{}", outbox);
                }
            }
            "notifications/roots/list_changed" => self.request_log.log_notification(method),
            _ => {}
        }
    }

    /// Handles the reply to a request from the server.
    pub(crate) fn on_response(&self, scope: &str, reply: Option<RpcReply>) {
        if let Some(reply) = reply {
            self.peers.pending_requests.resolve(scope, reply);
        }
    }

    /// Sends the number of `list_changed` notifications that `--list-changed-storm` sets.
    pub(crate) fn send_list_changed_storm(&self, params: &str, outbox: &Outbox) {
        for _ in 0..self.flags.features.list_changed_storm {
            outbox.notify(notification("notifications/tools/list_changed", params));
        }
    }

    /// Cancels running requests and waits for all tasks to end.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.peers.remove_all();
    }

    pub(crate) fn is_silent_on(&self, method: &str) -> bool {
        let faults = &self.flags.faults;
        faults.silent || faults.silent_on.iter().any(|silent| silent == method)
    }

    fn initialize_result(&self, requested: Option<&str>) -> String {
        let version = era::negotiate(requested);
        let (info, instructions) = (era::SERVER_INFO, self.instructions());
        let tasks = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
        let capabilities = self.capabilities(tasks);
        format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#
        )
    }

    fn discover_result(&self) -> String {
        let (supported, instructions) = (self.eras().supported_versions(), self.instructions());
        let tasks = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        let capabilities = self.capabilities(tasks);
        format!(
            r#"{{"supportedVersions":{supported},"capabilities":{capabilities}{instructions}}}"#
        )
    }

    /// Returns the capabilities; `tasks` is the member that declares tasks.
    fn capabilities(&self, tasks: &str) -> String {
        let capabilities = match self.fixtures {
            Some(_) => FIXTURE_CAPABILITIES,
            None => CAPABILITIES,
        };
        match (&self.task_tools, capabilities.strip_suffix('}')) {
            (Some(_), Some(open)) => format!("{open},{tasks}}}"),
            _ => capabilities.to_owned(),
        }
    }

    fn supports_method(&self, method: &str, era: RequestEra) -> bool {
        match method {
            "completion/complete" => self.fixtures.is_some(),
            _ if task_tools::is_task_method(method, era) => self.task_tools.is_some(),
            "resources/subscribe" | "resources/unsubscribe" => {
                self.fixtures.is_some() && era == RequestEra::Legacy
            }
            _ => is_standard_method(method, era),
        }
    }

    fn instructions(&self) -> String {
        match &self.flags.features.instructions {
            Some(text) => format!(r#","instructions":{}"#, rpc::json_string(text)),
            None => String::new(),
        }
    }
}

impl ZooCall<'_> {
    async fn run(&self) {
        let method = &self.request.method;
        if self.server.is_silent_on(method) {
            return self.outbox.wait_closed().await;
        }
        let response = match self.execute().await {
            CallOutcome::Nothing => return,
            CallOutcome::Error(error) => error.response(&self.request.id),
            CallOutcome::InputRequired(result) | CallOutcome::Task(result) => {
                self.request.response(&era::with_server_info(&result))
            }
            CallOutcome::Result(result) => match self.era {
                RequestEra::Legacy => self.request.response(&result),
                RequestEra::Modern => self
                    .request
                    .response(&era::complete_result(&result, method)),
            },
        };
        if self.server.flags.faults.notify_first {
            let token = self.request.progress_token().unwrap_or("\"unsolicited\"");
            self.outbox.notify(notification(
                "notifications/message",
                r#"{"level":"info","logger":"zoo","data":"about to answer"}"#,
            ));
            self.outbox.notify(notification(
                "notifications/progress",
                &format!(r#"{{"progressToken":{token},"progress":0.5}}"#),
            ));
        }
        self.outbox.answer(response);
    }

    async fn execute(&self) -> CallOutcome {
        if let Err(error) = self.server.admit(self.request) {
            return CallOutcome::Error(error);
        }
        if let Some(outcome) = task_tools::answer(self).await {
            return outcome;
        }
        if let Some(outcome) = fixture::play(self).await {
            return outcome;
        }
        let Request { method, params, .. } = self.request;
        let catalog = &self.server.catalog;
        match method.as_str() {
            "initialize" => {
                let RequestOrigin { scope, .. } = self.origin;
                self.server
                    .peers
                    .register(scope, params.capabilities.as_ref());
                CallOutcome::Result(
                    self.server
                        .initialize_result(params.protocol_version.as_deref()),
                )
            }
            "server/discover" => CallOutcome::Result(self.server.discover_result()),
            "ping" => CallOutcome::Result("{}".to_owned()),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                self.update_client_settings().into()
            }
            "completion/complete" => {
                let fixtures = self.server.fixtures.as_ref();
                let fixtures = fixtures.expect("admitted an unsupported method");
                fixtures.complete(params).into()
            }
            "tools/call" => tool::call(self).await,
            "prompts/get" => {
                let name = params.name.as_deref().unwrap_or_default();
                catalog.prompt(name, self.request.arguments()).into()
            }
            "resources/read" => {
                let uri = params.uri.as_deref().unwrap_or_default();
                let content = catalog.read_resource(uri);
                content.ok_or_else(|| self.resource_not_found(uri)).into()
            }
            "subscriptions/listen" => self.listen().await,
            _ => catalog
                .list(method, params.cursor.as_deref())
                .expect("admitted an unsupported method")
                .into(),
        }
    }

    /// Builds the error for a resource that does not exist.
    pub(crate) fn resource_not_found(&self, uri: &str) -> ZooError {
        let code = match self.era {
            RequestEra::Legacy => RESOURCE_NOT_FOUND,
            RequestEra::Modern => INVALID_PARAMS,
        };
        let data = format!(r#"{{"uri":{}}}"#, rpc::json_string(uri));
        ZooError::new(code, "Resource not found").with_data(data)
    }

    /// Returns the capabilities of the client that sent the request.
    pub(crate) fn client_capabilities(&self) -> serde_json::Value {
        match self.era {
            RequestEra::Legacy => self.server.peers.capabilities(&self.origin.scope),
            RequestEra::Modern => self.request.declared_capabilities(),
        }
    }

    /// Waits until the call is cancelled.
    pub(crate) async fn wait_for_cancellation(&self) {
        match self.origin.on_disconnect {
            OnDisconnect::Ignore => self.open.cancelled.cancelled().await,
            OnDisconnect::Cancel => tokio::select! {
                () = self.open.cancelled.cancelled() => {}
                () = self.outbox.wait_closed() => {}
            },
        }
    }
}

impl From<Result<String, ZooError>> for CallOutcome {
    fn from(result: Result<String, ZooError>) -> Self {
        match result {
            Ok(result) => Self::Result(result),
            Err(error) => Self::Error(error),
        }
    }
}

/// Exits immediately, like a crash.
#[expect(
    clippy::exit,
    reason = "the flag makes the process die without a response"
)]
pub(crate) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

fn is_standard_method(method: &str, era: RequestEra) -> bool {
    match method {
        "tools/list"
        | "tools/call"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "prompts/list"
        | "prompts/get" => true,
        "initialize" | "ping" | "logging/setLevel" => era == RequestEra::Legacy,
        "server/discover" | "subscriptions/listen" => era == RequestEra::Modern,
        _ => false,
    }
}
