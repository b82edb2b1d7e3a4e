//! Sessions of clients of the old era: each belongs to the key that opened it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use toolgate::ear::{Client, Ear};
use toolgate::jsonrpc::Answer;
use toolgate::mcp::{Face, Watcher};
use toolgate::serve::{Hello, Questions, UnderWay, notification};
use toolgate::{Caller, ClientSession, Gateway};
use toolgate_core::scope::Filters;

/// Messages that a listening client may be behind.
const NEWS: usize = 256;
const UPDATED: &str = "notifications/resources/updated";
const MOST: u64 = 1000;
const IDLE: Duration = Duration::from_secs(30 * 60);

/// A client's session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) id: String,
    pub(super) face: Face,
    pub(super) caller: Caller,
    pub(super) hello: Hello,
    pub(super) filters: Filters,
    /// Ends the streams that are open for it.
    pub(super) ended: CancellationToken,
    /// What its client was asked.
    pub(super) questions: Arc<Questions>,
    /// To the stream that it listens on.
    pub(super) news: broadcast::Sender<String>,
    /// The resources that it watches.
    pub(super) watcher: Arc<Watcher>,
    pub(super) under_way: Arc<UnderWay>,
    /// From which level on it wants to hear log messages.
    log_level: Mutex<Option<String>>,
}

/// Hears on behalf of a session what servers say outside of any request.
#[derive(Debug)]
struct SessionEar {
    news: broadcast::Sender<String>,
    questions: Arc<Questions>,
}

impl Ear for SessionEar {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        if method == UPDATED {
            return; // whoever watches a resource is told by its watcher
        }
        // Whoever does not listen does not hear.
        let _ = self.news.send(notification(method, params));
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let news = self.news.clone();
        let tell = move |message| news.send(message).is_ok();
        self.questions.ask(method, params, Arc::new(tell))
    }
}

/// All sessions; the one that was not used for longest makes room for a new one.
#[derive(Clone, Debug)]
pub(crate) struct Sessions(Cache<String, Arc<Session>>);

pub(super) enum Known {
    Yes(Arc<Session>),
    No,
}

impl Session {
    pub(super) fn new(face: Face, caller: Caller, hello: Hello, filters: Filters) -> Self {
        let news = broadcast::Sender::new(NEWS);
        let to_client = news.clone();
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            face,
            caller,
            hello,
            filters,
            ended: CancellationToken::new(),
            questions: Arc::default(),
            watcher: Arc::new(Watcher::new(move |params| {
                let _ = to_client.send(notification(UPDATED, Some(params)));
            })),
            under_way: Arc::default(),
            news,
            log_level: Mutex::default(),
        }
    }

    /// Nobody asks it or tells it anything any more.
    fn close(&self) {
        self.ended.cancel();
        self.questions.close();
        self.watcher.close();
    }

    pub(super) fn set_log_level(&self, level: Option<String>) {
        *self.log_level() = level;
    }

    fn log_level(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        let level = self.log_level.lock();
        level.unwrap_or_else(PoisonError::into_inner)
    }

    /// As servers see it, if it needs connections of its own: it can be asked, or wants to hear
    /// what is meant for it alone.
    pub(super) fn as_client(&self) -> Option<ClientSession> {
        let log_level = self.log_level().clone();
        if !self.hello.can_be_asked() && log_level.is_none() {
            return None;
        }
        Some(ClientSession {
            id: self.id.clone(),
            client: Client {
                capabilities: self.hello.capabilities.get().into(),
                ear: Arc::new(SessionEar {
                    news: self.news.clone(),
                    questions: Arc::clone(&self.questions),
                }),
                log_level,
                ended: self.ended.clone(),
            },
        })
    }
}

impl Sessions {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self(
            Cache::builder()
                .max_capacity(MOST)
                .time_to_idle(IDLE)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(move |_, session: Arc<Session>, _| {
                    session.close();
                    gateway.end_session(&session.id);
                })
                .build(),
        )
    }

    pub(super) fn open(&self, session: Session) {
        self.0.insert(session.id.clone(), Arc::new(session));
    }

    pub(super) fn find(&self, id: &str, caller: &Caller) -> Known {
        match self.0.get(id) {
            Some(session) if session.caller.key() == caller.key() => Known::Yes(session),
            _ => Known::No,
        }
    }

    pub(super) fn end(&self, session: &Session) {
        self.0.invalidate(&session.id);
        session.close();
    }
}
