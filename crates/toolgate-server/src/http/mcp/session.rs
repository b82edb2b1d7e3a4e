//! Sessions of clients of the old era: each belongs to the key that opened it.

use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio_util::sync::CancellationToken;
use toolgate::Caller;
use toolgate::mcp::Face;
use toolgate::serve::Hello;
use toolgate_core::scope::Filters;

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
        }
    }
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Self(
            Cache::builder()
                .max_capacity(MOST)
                .time_to_idle(IDLE)
                .eviction_policy(EvictionPolicy::lru())
                .eviction_listener(|_, session: Arc<Session>, _| session.ended.cancel())
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
        session.ended.cancel();
    }
}
