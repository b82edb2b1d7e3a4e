//! `toolgate mcp`: the same MCP server as at `/mcp`, over standard input and output, for clients
//! that start their servers themselves.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate::jsonrpc::{self, Answer, Object, RpcError};
use toolgate::line::{Line, Lines};
use toolgate::mcp::{Asker, Door, Face, OldClient, Subscription, Watch};
use toolgate::serve::{
    Hello, INVALID_REQUEST, Meta, Modern, Received, Refusal, Tell, UnderWay, rpc,
};
use toolgate::{Caller, Gateway, Origin, Request, ServerName};
use toolgate_core::Config;
use toolgate_core::scope::Filters;

use super::ConfigFlag;
use super::signals::Signals;
use crate::files;

/// Longest message that a client may send.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// Messages that a client may be behind.
const BEHIND: usize = 1024;
/// How long it may take to read the last ones.
const LAST: Duration = Duration::from_secs(2);

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
    /// What is to be written.
    out: mpsc::Sender<String>,
    /// The same client, once it has said that it is one of the old era.
    old: OnceLock<Arc<OldClient>>,
    /// Whether it hears already what changes.
    hears_news: AtomicBool,
    /// Ends everything that is told without being asked.
    end: CancellationToken,
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
            .is_script_worker()
            .environment(environment)
            .start()
            .await?;
        let face = match (&self.server, self.virtual_server) {
            (Some(server), _) => Face::Server(ServerName::parse(server)?),
            (None, Some(name)) => Face::Virtual(name),
            (None, None) => Face::All,
        };
        let door = Door::open(&gateway, face, &caller());
        let door = door.ok_or_else(|| anyhow::anyhow!("there is no such server"))?;
        // A client lists once, and seldom again: whoever is up soon should be in that list.
        let _ = tokio::time::timeout(Duration::from_secs(5), gateway.settled()).await;
        let (out, messages) = mpsc::channel(BEHIND);
        let (written, writers) = (CancellationToken::new(), TaskTracker::new());
        writers.spawn(write(messages, written.clone()));
        let client = Client(Arc::new(Inner {
            door,
            gateway: gateway.clone(),
            tasks: TaskTracker::new(),
            under_way: Arc::default(),
            out,
            old: OnceLock::new(),
            hears_news: AtomicBool::new(false),
            end: CancellationToken::new(),
        }));
        let mut signals = Signals::new()?;
        tokio::select! {
            () = client.serve() => {}
            () = signals.next() => {}
        }
        client.end().await;
        gateway.stop(Duration::from_secs(2)).await;
        written.cancel();
        writers.close();
        // A client that does not read is a client that has left.
        let _ = tokio::time::timeout(LAST, writers.wait()).await;
        Ok(ExitCode::SUCCESS)
    }
}

impl Client {
    /// Takes messages until there are no more.
    async fn serve(&self) {
        let mut lines = Lines::new(tokio::io::stdin(), MAX_LINE);
        while let Ok(Some(line)) = lines.next().await {
            match line {
                Line::Text(text) => self.take(&text),
                Line::TooLong { .. } => {
                    let error = rpc(INVALID_REQUEST, "the message is too large");
                    self.say(refusal(&error)).await;
                }
            }
        }
    }

    async fn end(&self) {
        let Inner {
            old, end, tasks, ..
        } = &*self.0;
        end.cancel();
        if let Some(old) = old.get() {
            old.end(&self.0.gateway);
        }
        tasks.close();
        tasks.wait().await;
    }

    fn take(&self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        if line.starts_with('[') {
            return self.batch(line.to_owned());
        }
        match Received::read(line) {
            Ok(Received::Request { id, method, params }) => self.request(id, method, params),
            Ok(Received::Notification { method, params }) => self.hear(&method, params.as_deref()),
            Ok(Received::Response { id, answer }) => {
                if let Some(old) = self.0.old.get() {
                    old.settle(&id, answer);
                }
            }
            Err(error) => {
                let client = self.clone();
                self.spawn(async move { client.say(refusal(&error)).await });
            }
        }
    }

    fn hear(&self, method: &str, params: Option<&RawValue>) {
        self.0.under_way.hear(method, params);
        if let Some(old) = self.0.old.get() {
            old.hear(&self.0.gateway, method, params);
        }
        if method == "notifications/initialized" && !self.0.hears_news.swap(true, Ordering::Relaxed)
        {
            let client = self.clone();
            self.spawn(async move { client.news().await });
        }
    }

    fn request(&self, id: Box<RawValue>, method: String, params: Option<Box<RawValue>>) {
        let (client, place) = (self.clone(), self.0.under_way.enter(&id));
        self.spawn(async move {
            let answer = tokio::select! {
                answer = client.answer(&id, &method, params.as_deref()) => answer,
                () = place.cancelled() => return,
            };
            client.say(jsonrpc::answer(&id, &answer)).await;
        });
    }

    /// Several messages at once, which one old revision knows.
    fn batch(&self, text: String) {
        let client = self.clone();
        self.spawn(async move {
            let answers = match client.old() {
                Ok(old) => {
                    let asked = (caller(), client.ask());
                    client.0.door.batch(asked, old, &text).await
                }
                Err(error) => Err(error),
            };
            match answers {
                Ok(Some(answers)) => client.say(answers).await,
                Ok(None) => {}
                Err(error) => client.say(refusal(&error)).await,
            }
        });
    }

    /// Works on something until it is done, or the client has left.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let end = self.0.end.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = end.cancelled() => {}
            }
        });
    }

    async fn answer(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Answer {
        if method == "initialize" {
            let hello = Hello::read(params)?;
            let answer = self.0.door.hello(hello.version);
            // Whoever says it twice is the same client.
            self.0
                .old
                .get_or_init(|| Arc::new(OldClient::new("pipes".to_owned(), hello, self.tell())));
            return Ok(answer);
        }
        let meta = Meta::of(params);
        let asker = match Modern::is_spoken(method, &meta) {
            true => {
                let said = Modern::read(method, (params, &meta), None);
                let said = said.map_err(|Refusal { error, .. }| error)?;
                let asker = Asker::modern(caller(), self.ask(), said, params, self.tell());
                if method == "subscriptions/listen" {
                    return self.listen(&asker, id, params).await;
                }
                asker
            }
            false => Asker::old(caller(), self.ask(), self.old()?, meta.said(), self.tell()),
        };
        self.0.door.answer(&asker, method, params).await
    }

    /// The client, if it is one of the old era.
    fn old(&self) -> Result<&Arc<OldClient>, RpcError> {
        let first = || {
            rpc(
                INVALID_REQUEST,
                "send `initialize` first, or speak 2026-07-28",
            )
        };
        self.0.old.get().ok_or_else(first)
    }

    fn ask(&self) -> Request {
        Request {
            filters: self.0.door.filters(Filters::default()),
            ..Request::default()
        }
    }

    /// Writes what nobody waits for; a client that is too far behind misses it.
    fn tell(&self) -> Tell {
        let out = self.0.out.clone();
        Arc::new(move |message| out.try_send(message).is_ok())
    }

    /// Writes what must not be missed.
    async fn say(&self, message: String) {
        // Who cannot be written to has left.
        let _ = self.0.out.send(message).await;
    }

    /// Tells the news that a modern client wants until it has had enough.
    async fn listen(&self, asker: &Asker, id: &RawValue, params: Option<&RawValue>) -> Answer {
        let mut subscription =
            Subscription::open(&self.0.door, asker, id.to_owned(), params).await?;
        self.say(subscription.acknowledged()).await;
        while let Some(news) = subscription.next().await {
            for message in news {
                self.say(message).await;
            }
        }
        Ok(Subscription::ended())
    }

    /// Tells a client of the old era what has changed.
    async fn news(&self) {
        let filters = self.0.door.filters(Filters::default());
        let mut watch = Watch::new(self.0.gateway.clone(), caller(), filters);
        while let Some(news) = watch.next().await {
            for method in news {
                self.say(jsonrpc::notification(method, &Object::new()))
                    .await;
            }
        }
    }
}

fn caller() -> Caller {
    Caller::cli().through(Origin::Mcp)
}

fn refusal(error: &RpcError) -> String {
    jsonrpc::answer(RawValue::NULL, &Err(error.clone()))
}

/// Writes messages, one a line, until `end` and what was to be written by then.
async fn write(mut messages: mpsc::Receiver<String>, end: CancellationToken) {
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
