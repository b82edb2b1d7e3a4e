//! `toolgate mcp`: the same MCP server as at `/mcp`, over standard input and output, for clients
//! that start their servers themselves.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::ear::{self, Ear, Guest};
use toolgate::jsonrpc::{self, Answer, Object, RpcError};
use toolgate::mcp::{self, Asker, Door, Era, Face, Watch};
use toolgate::serve::{
    Caching, Hello, Modern, Questions, Received, Refusal, empty_object, for_modern, notification,
    rpc,
};
use toolgate::{Caller, ClientSession, Gateway, Origin, Request, ServerName};
use toolgate_core::Config;

use super::ConfigFlag;
use super::signals::Signals;
use crate::files;

/// Longest message that a client may send.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Serve the configured servers to one MCP client over standard input and output
#[derive(Debug, clap::Args)]
pub(super) struct Mcp {
    #[command(flatten)]
    config: ConfigFlag,
    /// Only this server, with its raw names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
}

/// One client on the other end of the pipes; clones share it.
#[derive(Clone)]
struct Client(Arc<Inner>);

struct Inner {
    door: Door,
    gateway: Gateway,
    tasks: TaskTracker,
    /// Requests under way, by the text of their id.
    under_way: Mutex<HashMap<String, CancellationToken>>,
    /// What a client of the old era said of itself.
    hello: OnceLock<Hello>,
    /// What it was asked.
    questions: Arc<Questions>,
    /// Ends everything that is told without being asked.
    end: CancellationToken,
}

/// Hears on behalf of the client what servers say outside of any request.
#[derive(Debug)]
struct Voice(Arc<Questions>);

impl Ear for Voice {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        tell(&notification(method, params));
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let (question, answer) = self.0.ask(method, params);
        tell(&question);
        answer
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

impl Mcp {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let documents = self.config.documents(&environment)?;
        let (config, findings) = Config::load(&documents)?;
        for finding in findings {
            tracing::warn!("{finding}");
        }
        let gateway = Gateway::builder(config)
            .environment(environment)
            .start()
            .await?;
        let face = match (&self.server, self.virtual_server) {
            (Some(server), _) => Face::Server(ServerName::parse(server)?),
            (None, Some(name)) => Face::Virtual(name),
            (None, None) => Face::All,
        };
        let door = Door::open(&gateway, face);
        let door = door.ok_or_else(|| anyhow::anyhow!("there is no such server"))?;
        // A client lists once, and seldom again: whoever is up soon should be in that list.
        let _ = tokio::time::timeout(Duration::from_secs(5), gateway.settled()).await;
        let client = Client(Arc::new(Inner {
            door,
            gateway: gateway.clone(),
            tasks: TaskTracker::new(),
            under_way: Mutex::default(),
            hello: OnceLock::new(),
            questions: Arc::default(),
            end: CancellationToken::new(),
        }));
        let mut signals = Signals::new()?;
        tokio::select! {
            () = client.serve() => {}
            () = signals.next() => {}
        }
        client.0.end.cancel();
        client.0.tasks.close();
        client.0.tasks.wait().await;
        gateway.stop(Duration::from_secs(2)).await;
        Ok(ExitCode::SUCCESS)
    }
}

impl Client {
    /// Takes messages until there are no more.
    async fn serve(&self) {
        let mut lines = BufReader::new(tokio::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            match lines.read_until(b'\n', &mut line).await {
                Ok(1..) if line.len() <= MAX_LINE => self.take(&String::from_utf8_lossy(&line)),
                Ok(1..) => tell(&refusal(&rpc(-32600, "the message is too large"))),
                Ok(0) | Err(_) => return,
            }
        }
    }

    fn take(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        match Received::read(line) {
            Ok(Received::Request { id, method, params }) => self.request(id, method, params),
            Ok(Received::Notification { method, params }) => self.hear(&method, params.as_deref()),
            Ok(Received::Response { id, answer }) => {
                self.0.questions.settle(&id, answer);
            }
            Err(error) => tell(&refusal(&error)),
        }
    }

    fn hear(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/cancelled" => {
                let cancelled = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
                if let Some(Cancelled { request_id }) = cancelled {
                    let under_way = self.under_way();
                    if let Some(request) = under_way.get(request_id.get()) {
                        request.cancel();
                    }
                }
            }
            "notifications/initialized" => {
                let client = self.clone();
                self.0.tasks.spawn(async move {
                    let notify = |method| jsonrpc::notification(method, &Object::new());
                    client.news(&client.0.end, notify, |_| true).await;
                });
            }
            _ => {}
        }
    }

    fn request(&self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        let cancel = self.0.end.child_token();
        self.under_way().insert(id.get().to_owned(), cancel.clone());
        let client = self.clone();
        self.0.tasks.spawn(async move {
            let answered = tokio::select! {
                answer = client.answer(&id, &method, params.as_deref(), &cancel) => Some(answer),
                () = cancel.cancelled() => None,
            };
            client.under_way().remove(id.get());
            if let Some(answer) = answered {
                tell(&jsonrpc::answer(&id, &answer));
            }
        });
    }

    async fn answer(
        &self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        cancel: &CancellationToken,
    ) -> Answer {
        if method == "initialize" {
            let hello = Hello::read(params)?;
            let answer = self.0.door.hello(hello.version);
            // Whoever says it twice is the same client.
            let _ = self.0.hello.set(hello);
            return Ok(answer);
        }
        let (era, meta, token, guest) = match Modern::is_spoken(method, params) {
            true => {
                let said = Modern::read(method, params, None);
                let said = said.map_err(|Refusal { error, .. }| error)?;
                let guest = Guest {
                    capabilities: said.capabilities.get().into(),
                    input: mcp::input(params),
                };
                let guest = Some(Arc::new(guest));
                (Era::Modern, said.rest, said.progress_token, guest)
            }
            false => {
                let token = mcp::progress_token(params);
                (Era::Legacy, Object::new(), token, None)
            }
        };
        if method == "subscriptions/listen" && era == Era::Modern {
            return self.listen(id, params, cancel).await;
        }
        let session = self.session().filter(|_| era == Era::Legacy);
        let questions = session.is_some().then(|| Arc::clone(&self.0.questions));
        let (ear, mut heard) = mcp::ear(token, questions);
        let asker = Asker {
            caller: Caller::cli().through(Origin::Mcp),
            era,
            request: Arc::new(Request {
                filters: self
                    .0
                    .door
                    .filters(toolgate_core::scope::Filters::default()),
                meta,
                ear: Some(ear),
                guest,
                session,
                ..Request::default()
            }),
        };
        let answer = self.0.door.answer(&asker, method, params);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                Some(message) = heard.recv() => tell(&message),
                answer = &mut answer => {
                    while let Ok(message) = heard.try_recv() {
                        tell(&message);
                    }
                    return answer;
                }
            }
        }
    }

    /// The client's session with servers, if it can be asked.
    fn session(&self) -> Option<ClientSession> {
        let hello = self.0.hello.get()?;
        hello.can_be_asked().then(|| ClientSession {
            id: "pipes".to_owned(),
            client: ear::Client {
                capabilities: hello.capabilities.get().into(),
                ear: Arc::new(Voice(Arc::clone(&self.0.questions))),
                log_level: None,
            },
        })
    }

    /// Tells the news that a modern client wants until it has had enough.
    async fn listen(
        &self,
        id: &RawValue,
        params: Option<&RawValue>,
        cancel: &CancellationToken,
    ) -> Answer {
        let wanted = mcp::Wanted::read(params);
        tell(&wanted.acknowledged(id));
        let notify = |method| wanted.notification(id, method);
        self.news(cancel, notify, |method| wanted.wants(method))
            .await;
        Ok(for_modern(empty_object(), Caching::None))
    }

    async fn news(
        &self,
        end: &CancellationToken,
        notify: impl Fn(&'static str) -> String,
        wants: impl Fn(&str) -> bool,
    ) {
        let filters = self
            .0
            .door
            .filters(toolgate_core::scope::Filters::default());
        let caller = Caller::cli().through(Origin::Mcp);
        let mut watch = Watch::new(self.0.gateway.clone(), caller, filters);
        loop {
            let news = tokio::select! {
                news = watch.next() => news,
                () = end.cancelled() => return,
            };
            let Some(news) = news else { return };
            for method in news.into_iter().filter(|method| wants(method)) {
                tell(&notify(method));
            }
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        let under_way = self.0.under_way.lock();
        under_way.unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(error: &RpcError) -> String {
    jsonrpc::answer(RawValue::NULL, &Err(error.clone()))
}

/// Writes one message as one line. A client that does not read is a client that has left.
fn tell(message: &str) {
    let line = message.replace(['\n', '\r'], " ");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
