//! Sessions of clients of the old era: each belongs to the key that opened it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolgate::mcp::{Face, OldClient};
use toolgate::serve::{Hello, MOST_SESSIONS, SESSION_IDLE, Tell};
use toolgate::{Caller, Gateway};
use toolgate_core::scope::Filters;

/// Messages that a listening client may be behind.
const NEWS: usize = 256;
/// Sessions that one key may have, so that it does not take those of others.
const MOST_OF_ONE: usize = MOST_SESSIONS / 4;
/// How often those are looked for that nobody uses.
const LOOK: Duration = Duration::from_secs(60);

/// A client's session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) client: Arc<OldClient>,
    pub(super) face: Face,
    pub(super) caller: Caller,
    pub(super) filters: Filters,
    news: Arc<News>,
    last_used: Mutex<Instant>,
}

/// To the stream on which a client listens, if it does.
#[derive(Debug, Default)]
struct News(Mutex<Option<mpsc::Sender<String>>>);

impl News {
    fn tell(&self, message: String) -> bool {
        let listener = self.with(|listener| listener.clone());
        listener.is_some_and(|listener| listener.try_send(message).is_ok())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Option<mpsc::Sender<String>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Session {
    pub(super) fn new(face: Face, caller: Caller, hello: Hello, filters: Filters) -> Self {
        let news: Arc<News> = Arc::default();
        let tell: Tell = Arc::new({
            let news = Arc::clone(&news);
            move |message| news.tell(message)
        });
        let id = uuid::Uuid::new_v4().to_string();
        Self {
            client: Arc::new(OldClient::new(id, hello, tell)),
            face,
            caller,
            filters,
            news,
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// What it is told from now on, instead of whoever listened before: no message goes to more
    /// than one stream.
    pub(super) fn listen(&self) -> mpsc::Receiver<String> {
        let (sender, told) = mpsc::channel(NEWS);
        self.news.with(|listener| listener.replace(sender));
        told
    }

    fn last_used(&self) -> std::sync::MutexGuard<'_, Instant> {
        let last_used = self.last_used.lock();
        last_used.unwrap_or_else(PoisonError::into_inner)
    }
}

/// All sessions; the one that was not used for longest makes room for a new one.
#[derive(Clone, Debug)]
pub(crate) struct Sessions(Cache<String, Arc<Session>>);

impl Sessions {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self(
            Cache::builder()
                .max_capacity(MOST_SESSIONS as u64)
                .time_to_idle(SESSION_IDLE)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(move |_, session: Arc<Session>, _| session.client.end(&gateway))
                .build(),
        )
    }

    pub(super) fn open(&self, session: Session) {
        if let Some(key) = session.caller.key() {
            let own = self.0.iter().map(|(_, session)| session);
            let own: Vec<_> = own.filter(|own| own.caller.key() == Some(key)).collect();
            let oldest = own.iter().min_by_key(|session| *session.last_used());
            if let Some(oldest) = oldest.filter(|_| own.len() >= MOST_OF_ONE) {
                self.end(oldest);
            }
        }
        let id = session.client.id().to_owned();
        self.0.insert(id, Arc::new(session));
    }

    /// The session with this id, if it is one of the caller's.
    pub(super) fn find(&self, id: &str, caller: &Caller) -> Option<Arc<Session>> {
        let session = self.0.get(id)?;
        *session.last_used() = Instant::now();
        (session.caller.key() == caller.key()).then_some(session)
    }

    pub(super) fn end(&self, session: &Session) {
        self.0.invalidate(session.client.id());
    }

    /// Nobody can answer any more.
    pub(crate) fn close_questions(&self) {
        for (_, session) in &self.0 {
            session.client.close_questions();
        }
    }

    /// Ends sessions that nobody uses, and those whose key is gone, until `stop`.
    pub(crate) async fn tend(self, gateway: Gateway, stop: CancellationToken) {
        let mut looks = tokio::time::interval(LOOK);
        let mut changes = gateway.subscribe();
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                changed = changes.changed() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
            for (_, session) in &self.0 {
                if !gateway.knows(&session.caller) {
                    self.end(&session);
                }
            }
            self.0.run_pending_tasks();
        }
    }
}
