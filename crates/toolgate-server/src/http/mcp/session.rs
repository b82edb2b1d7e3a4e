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
use toolgate::mcp::Face;
use toolgate::serve::{Hello, Questions, no_method, notification};
use toolgate::{Caller, ClientSession};
use toolgate_core::scope::Filters;

/// Messages that a listening client may be behind.
const NEWS: usize = 256;
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
    wishes: Mutex<Wishes>,
}

/// What a client has asked for beyond answers.
#[derive(Debug, Default)]
struct Wishes {
    log_level: Option<String>,
    watches: bool,
}

/// Hears on behalf of a session what servers say outside of any request.
#[derive(Debug)]
struct SessionEar {
    news: broadcast::Sender<String>,
    questions: Arc<Questions>,
}

impl Ear for SessionEar {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        // Whoever does not listen does not hear.
        let _ = self.news.send(notification(method, params));
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let (question, answer) = self.questions.ask(method, params);
        match self.news.send(question) {
            Ok(_) => answer,
            Err(_) => Box::pin(std::future::ready(Err(no_method(method)))),
        }
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
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            face,
            caller,
            hello,
            filters,
            ended: CancellationToken::new(),
            questions: Arc::default(),
            news: broadcast::Sender::new(NEWS),
            wishes: Mutex::default(),
        }
    }

    /// Nobody asks it or tells it anything any more.
    fn close(&self) {
        self.ended.cancel();
        self.questions.close();
    }

    pub(super) fn set_log_level(&self, level: Option<String>) {
        self.wishes().log_level = level;
    }

    pub(super) fn watches(&self) {
        self.wishes().watches = true;
    }

    fn wishes(&self) -> std::sync::MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As servers see it, if it needs connections of its own: it can be asked, or wants to hear
    /// what is meant for it alone.
    pub(super) fn as_client(&self) -> Option<ClientSession> {
        let wishes = self.wishes();
        if !self.hello.can_be_asked() && wishes.log_level.is_none() && !wishes.watches {
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
                log_level: wishes.log_level.clone(),
            },
        })
    }
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self(
            Cache::builder()
                .max_capacity(MOST)
                .time_to_idle(IDLE)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(|_, session: Arc<Session>, _| session.close())
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
