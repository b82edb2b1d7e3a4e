//! The MCP server behind both transports: which methods exist, and what they answer.
//!
//! A transport hands a request that it has read to [`Server::start`], which works on it in a
//! task of its own; the answer leaves through the outbox, an error as well as a result.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::calls::{Calls, OpenCall};
use super::catalog::Catalog;
use super::era::{self, Era};
use super::fixture::{self, Fixtures};
use super::flags::{Common, Eras};
use super::ledger::Ledger;
use super::outbox::Outbox;
use super::peers::Peers;
use super::rpc::{self, INVALID_PARAMS, METHOD_NOT_FOUND, notification};
use super::rpc::{Message, Params, Reply, Request, RpcError};
use super::tool;

const RESOURCE_NOT_FOUND: i64 = -32002;
const CAPABILITIES: &str =
    r#"{"tools":{"listChanged":true},"resources":{},"prompts":{},"logging":{}}"#;
const FIXTURE_CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}"#;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) catalog: Catalog,
    pub(crate) ledger: Ledger,
    pub(crate) tasks: TaskTracker,
    pub(crate) peers: Peers,
    pub(crate) fixtures: Option<Fixtures>,
    flags: Common,
    calls: Calls,
    closing: CancellationToken,
}

/// Where a request came from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// The connection or session within which ids are unique.
    pub(crate) scope: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) hang_up: HangUp,
}

/// What it means that nobody waits for the answer any more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangUp {
    #[default]
    Ignored,
    Cancels,
}

/// One request being worked on.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Server,
    pub(crate) request: &'a Request,
    pub(crate) era: Era,
    pub(crate) origin: &'a Origin,
    pub(crate) outbox: &'a Outbox,
    pub(crate) open: &'a OpenCall,
}

/// How a request ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A raw result, not yet stamped for the modern era.
    Result(String),
    /// The raw result of a modern request that needs answers before it can be completed.
    InputRequired(String),
    Error(RpcError),
    /// It was cancelled, and nobody waits for an answer.
    Nothing,
}

impl Server {
    pub(crate) fn new(flags: &Common) -> Self {
        Self {
            catalog: Catalog::new(&flags.offer),
            ledger: Ledger::open(flags.traces.count.as_deref()),
            tasks: TaskTracker::new(),
            peers: Peers::default(),
            fixtures: flags.offer.fixtures.then(Fixtures::new),
            flags: flags.clone(),
            calls: Calls::default(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn eras(&self) -> Eras {
        self.flags.offer.era
    }

    /// Whether a request may run; if not, the error to answer it with.
    pub(crate) fn admit(&self, request: &Request) -> Result<(), RpcError> {
        let eras = self.eras();
        let era = eras.of(request);
        let unknown = format!("unknown method `{}`", request.method);
        let unknown = RpcError::new(METHOD_NOT_FOUND, unknown);
        if era == Era::Modern {
            if request.method == "initialize" {
                // A client of the old era has no other way to learn what is spoken here.
                let supported = eras.supported();
                return Err(unknown.with_data(format!(r#"{{"supported":{supported}}}"#)));
            }
            era::check_meta(request, eras)?;
        }
        if !self.knows(&request.method, era) {
            return Err(unknown);
        }
        match (&self.fixtures, era) {
            (Some(fixtures), Era::Modern) => fixtures.check_capabilities(request),
            _ => Ok(()),
        }
    }

    /// Acts on the mere arrival of a message, before anything else is done about it.
    pub(crate) fn arrived(&self, message: &Message) {
        let (method, request) = match message {
            Message::Request(request) => (&request.method, Some(request)),
            Message::Notification { method, .. } => (method, None),
            Message::Response(_) => return,
        };
        if self.flags.faults.exit_on.contains(method) {
            if let Some(request) = request {
                self.ledger.request(request);
            }
            exit(3);
        }
    }

    /// Works on the request in a task, whose answer goes to the outbox.
    pub(crate) fn start(self: &Arc<Self>, request: Request, origin: Origin, outbox: Outbox) {
        self.ledger.request(&request);
        let server = Arc::clone(self);
        // Opened here and not in the task, so that a cancellation that follows finds it.
        let open = self.calls.open(&origin.scope, &request.id);
        self.tasks.spawn(async move {
            let call = Call {
                server: &server,
                request: &request,
                era: server.eras().of(&request),
                origin: &origin,
                outbox: &outbox,
                open: &open,
            };
            tokio::select! {
                // What can be answered at once is, even when the server is closing.
                biased;
                () = call.run() => {}
                () = server.closing.cancelled() => {}
            }
        });
    }

    /// Acts on a notification; what follows from it goes to the outbox, if there is one.
    pub(crate) fn notified(
        &self,
        method: &str,
        params: &Params,
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
                    self.storm("{}", outbox);
                }
            }
            "notifications/roots/list_changed" => self.ledger.notified(method),
            _ => {}
        }
    }

    /// Takes the reply to something that the server asked.
    pub(crate) fn answered(&self, scope: &str, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.peers.questions.answered(scope, reply);
        }
    }

    /// Announces changed tools as often as the flags say.
    pub(crate) fn storm(&self, params: &str, outbox: &Outbox) {
        for _ in 0..self.flags.offer.list_changed_storm {
            outbox.notify(notification("notifications/tools/list_changed", params));
        }
    }

    /// Ends what still runs, and returns when the rest has answered.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.peers.forget_all();
    }

    pub(crate) fn is_silent_on(&self, method: &str) -> bool {
        let faults = &self.flags.faults;
        faults.silent || faults.silent_on.iter().any(|silent| silent == method)
    }

    fn initialized(&self, requested: Option<&str>) -> String {
        let version = era::negotiate(requested);
        let (info, instructions) = (era::SERVER_INFO, self.instructions());
        let capabilities = self.capabilities();
        format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{info}{instructions}}}"#
        )
    }

    fn discovered(&self) -> String {
        let (supported, instructions) = (self.eras().supported(), self.instructions());
        let capabilities = self.capabilities();
        format!(
            r#"{{"supportedVersions":{supported},"capabilities":{capabilities}{instructions}}}"#
        )
    }

    fn capabilities(&self) -> &'static str {
        match self.fixtures {
            Some(_) => FIXTURE_CAPABILITIES,
            None => CAPABILITIES,
        }
    }

    fn knows(&self, method: &str, era: Era) -> bool {
        match method {
            "completion/complete" => self.fixtures.is_some(),
            "resources/subscribe" | "resources/unsubscribe" => {
                self.fixtures.is_some() && era == Era::Legacy
            }
            _ => exists(method, era),
        }
    }

    fn instructions(&self) -> String {
        match &self.flags.offer.instructions {
            Some(text) => format!(r#","instructions":{}"#, rpc::quoted(text)),
            None => String::new(),
        }
    }
}

impl Call<'_> {
    async fn run(&self) {
        let method = &self.request.method;
        if self.server.is_silent_on(method) {
            return self.outbox.closed().await;
        }
        let answer = match self.outcome().await {
            Outcome::Nothing => return,
            Outcome::Error(error) => error.answer(&self.request.id),
            Outcome::InputRequired(result) => self.request.answer(&era::signed(&result)),
            Outcome::Result(result) => match self.era {
                Era::Legacy => self.request.answer(&result),
                Era::Modern => self.request.answer(&era::stamped(&result, method)),
            },
        };
        if self.server.flags.faults.notify_first {
            let token = self.request.progress_token().unwrap_or("\"nobody asked\"");
            self.outbox.notify(notification(
                "notifications/message",
                r#"{"level":"info","logger":"zoo","data":"about to answer"}"#,
            ));
            self.outbox.notify(notification(
                "notifications/progress",
                &format!(r#"{{"progressToken":{token},"progress":0.5}}"#),
            ));
        }
        self.outbox.answer(answer);
    }

    async fn outcome(&self) -> Outcome {
        if let Err(error) = self.server.admit(self.request) {
            return Outcome::Error(error);
        }
        if let Some(outcome) = fixture::play(self).await {
            return outcome;
        }
        let Request { method, params, .. } = self.request;
        let catalog = &self.server.catalog;
        match method.as_str() {
            "initialize" => {
                let Origin { scope, .. } = self.origin;
                self.server.peers.begin(scope, params.capabilities.as_ref());
                Outcome::Result(self.server.initialized(params.protocol_version.as_deref()))
            }
            "server/discover" => Outcome::Result(self.server.discovered()),
            "ping" => Outcome::Result("{}".to_owned()),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                self.remember().into()
            }
            "completion/complete" => {
                let fixtures = self.server.fixtures.as_ref();
                let fixtures = fixtures.expect("only methods that exist are admitted");
                fixtures.complete(params).into()
            }
            "tools/call" => tool::call(self).await,
            "prompts/get" => {
                let name = params.name.as_deref().unwrap_or_default();
                catalog.prompt(name, self.request.arguments()).into()
            }
            "resources/read" => {
                let uri = params.uri.as_deref().unwrap_or_default();
                let content = catalog.read(uri);
                content.ok_or_else(|| self.not_found(uri)).into()
            }
            "subscriptions/listen" => self.listen().await,
            _ => catalog
                .list(method, params.cursor.as_deref())
                .expect("only methods that exist are admitted")
                .into(),
        }
    }

    /// The error for a resource that does not exist.
    pub(crate) fn not_found(&self, uri: &str) -> RpcError {
        let code = match self.era {
            Era::Legacy => RESOURCE_NOT_FOUND,
            Era::Modern => INVALID_PARAMS,
        };
        let data = format!(r#"{{"uri":{}}}"#, rpc::quoted(uri));
        RpcError::new(code, "Resource not found").with_data(data)
    }

    /// What the client that sent this is able to do.
    pub(crate) fn client_capabilities(&self) -> serde_json::Value {
        match self.era {
            Era::Legacy => self.server.peers.capabilities(&self.origin.scope),
            Era::Modern => self.request.declared_capabilities(),
        }
    }

    /// Returns once the caller does not want the answer any more.
    pub(crate) async fn cancelled(&self) {
        match self.origin.hang_up {
            HangUp::Ignored => self.open.cancelled.cancelled().await,
            HangUp::Cancels => tokio::select! {
                () = self.open.cancelled.cancelled() => {}
                () = self.outbox.closed() => {}
            },
        }
    }
}

impl From<Result<String, RpcError>> for Outcome {
    fn from(result: Result<String, RpcError>) -> Self {
        match result {
            Ok(result) => Self::Result(result),
            Err(error) => Self::Error(error),
        }
    }
}

/// Ends the process at once, as a crash would.
#[expect(
    clippy::exit,
    reason = "dying without an answer is what the flag asks for"
)]
pub(crate) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

fn exists(method: &str, era: Era) -> bool {
    match method {
        "tools/list"
        | "tools/call"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "prompts/list"
        | "prompts/get" => true,
        "initialize" | "ping" | "logging/setLevel" => era == Era::Legacy,
        "server/discover" | "subscriptions/listen" => era == Era::Modern,
        _ => false,
    }
}
