//! `toolgate mcp`: the same MCP server as at `/mcp`, over standard input and output, for clients
//! that start their servers themselves.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::ear::{self, Ear, Guest};
use toolgate::jsonrpc::{self, Answer, Object, RpcError};
use toolgate::mcp::{self, Asker, Door, Era, Face, Subscription, Watch, Watcher};
use toolgate::serve::{Hello, Modern, Questions, Received, Refusal, UnderWay, notification, rpc};
use toolgate::{Caller, ClientSession, Gateway, Origin, Request, ServerName};
use toolgate_core::Config;

use super::ConfigFlag;
use super::signals::Signals;
use crate::files;

/// Longest message that a client may send.
const MAX_LINE: usize = 16 * 1024 * 1024;
const UPDATED: &str = "notifications/resources/updated";

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
    under_way: Arc<UnderWay>,
    /// The resources that a client of the old era watches.
    watcher: Arc<Watcher>,
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
        if method == UPDATED {
            return; // whoever watches a resource is told by its watcher
        }
        tell(&notification(method, params));
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let tell = |message: String| {
            tell(&message);
            true
        };
        self.0.ask(method, params, Arc::new(tell))
    }
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
        let door = Door::open(&gateway, face, &Caller::cli());
        let door = door.ok_or_else(|| anyhow::anyhow!("there is no such server"))?;
        // A client lists once, and seldom again: whoever is up soon should be in that list.
        let _ = tokio::time::timeout(Duration::from_secs(5), gateway.settled()).await;
        let client = Client(Arc::new(Inner {
            door,
            gateway: gateway.clone(),
            tasks: TaskTracker::new(),
            under_way: Arc::default(),
            watcher: Arc::new(Watcher::new(|params| {
                tell(&notification(UPDATED, Some(params)));
            })),
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
        client.0.questions.close();
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
        self.0.under_way.hear(method, params);
        if method == "notifications/initialized" {
            let client = self.clone();
            self.0.tasks.spawn(async move {
                tokio::select! {
                    () = client.news() => {}
                    () = client.0.end.cancelled() => {}
                }
            });
        }
    }

    fn request(&self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        let (client, place) = (self.clone(), self.0.under_way.enter(&id));
        self.0.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = client.answer(&id, &method, params.as_deref()) => answer,
                () = place.cancelled() => return,
                () = client.0.end.cancelled() => return,
            };
            tell(&jsonrpc::answer(&id, &answer));
        });
    }

    async fn answer(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Answer {
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
            watcher: (era == Era::Legacy).then(|| Arc::clone(&self.0.watcher)),
        };
        if method == "subscriptions/listen" && era == Era::Modern {
            return self.listen(&asker, id, params).await;
        }
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
                ended: self.0.end.clone(),
            },
        })
    }

    /// Tells the news that a modern client wants until it has had enough.
    async fn listen(&self, asker: &Asker, id: &RawValue, params: Option<&RawValue>) -> Answer {
        let mut subscription =
            Subscription::open(&self.0.door, asker, id.to_owned(), params).await?;
        tell(&subscription.acknowledged());
        while let Some(news) = subscription.next().await {
            news.iter().for_each(|message| tell(message));
        }
        Ok(Subscription::ended())
    }

    /// Tells a client of the old era what has changed.
    async fn news(&self) {
        let filters = self
            .0
            .door
            .filters(toolgate_core::scope::Filters::default());
        let caller = Caller::cli().through(Origin::Mcp);
        let mut watch = Watch::new(self.0.gateway.clone(), caller, filters);
        while let Some(news) = watch.next().await {
            for method in news {
                tell(&jsonrpc::notification(method, &Object::new()));
            }
        }
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
