//! Resources that clients watch. However many watch one, there is one subscription with its server,
//! on the shared lane, and it is made anew whenever the connection is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::HeaderMap;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolgate_core::name::ServerName;

use super::{Entries, NoAccess, Registry};
use crate::ear::Ear;
use crate::handshake::Era;
use crate::jsonrpc::{Answer, Object};
use crate::lane::Lane;
use crate::serve::no_method;
use crate::transport::RequestError;

const UPDATED: &str = "notifications/resources/updated";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// More of them cost more than they are worth.
const MOST: usize = 10_000;
/// Before a modern server that ended a subscription is asked again.
const AGAIN: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(30);
/// How long a server of the old era may take to note that something is watched, or no longer.
const NOTED: Duration = Duration::from_secs(10);

/// A resource: whose, and its URI there.
type Key = (ServerName, String);

#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<Key, Watched>>);

#[derive(Debug)]
struct Watched {
    ears: Vec<Arc<dyn Ear>>,
    /// What a modern server said to it.
    said: watch::Sender<Said>,
    /// Ends the subscription.
    _stop: DropGuard,
}

/// What a modern server said to a subscription.
#[derive(Clone, Debug, Default)]
enum Said {
    #[default]
    Nothing,
    Yes,
    No(Arc<RequestError>),
}

/// Watches a resource for as long as it lives.
#[derive(Debug)]
pub struct Watching {
    key: Key,
    ear: Arc<dyn Ear>,
    watches: Arc<Watches>,
}

/// Why a resource cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    NoAccess(#[from] NoAccess),
    #[error(transparent)]
    Server(Arc<RequestError>),
    #[error("too many resources are watched")]
    TooMany,
    #[error("the server does not tell of this resource")]
    Refused,
}

/// Hears on the shared lane of one server which resources changed.
#[derive(Debug)]
pub(super) struct Updates {
    pub(super) server: ServerName,
    pub(super) watches: Arc<Watches>,
}

#[derive(Deserialize)]
struct Updated {
    uri: String,
}

#[derive(Deserialize, Default)]
struct Acknowledged {
    notifications: Granted,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Granted {
    resource_subscriptions: Vec<String>,
}

impl Ear for Updates {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        let Some(params) = params else { return };
        match method {
            UPDATED => {
                if let Ok(Updated { uri }) = serde_json::from_str(params.get()) {
                    self.watches
                        .tell(&self.server, &uri, &without_subscription(params));
                }
            }
            ACKNOWLEDGED => {
                let granted: Acknowledged = serde_json::from_str(params.get()).unwrap_or_default();
                for uri in granted.notifications.resource_subscriptions {
                    let key = (self.server.clone(), uri);
                    self.watches.said(&key, Said::Yes);
                }
            }
            _ => {}
        }
    }

    fn asked(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(Err(no_method(method))))
    }

    fn can_be_asked(&self) -> bool {
        false
    }
}

impl Watches {
    /// One more who watches; and what ends the subscription, if this is the first.
    fn add(
        self: &Arc<Self>,
        key: Key,
        ear: Arc<dyn Ear>,
    ) -> Option<(Watching, Option<CancellationToken>)> {
        let watching = Watching {
            key: key.clone(),
            ear: Arc::clone(&ear),
            watches: Arc::clone(self),
        };
        let first = self.with(|watches| {
            if let Some(watched) = watches.get_mut(&key) {
                watched.ears.push(ear);
                return Some(None);
            }
            if watches.len() >= MOST {
                return None;
            }
            let stop = CancellationToken::new();
            let watched = Watched {
                ears: vec![ear],
                said: watch::Sender::default(),
                _stop: stop.clone().drop_guard(),
            };
            watches.insert(key, watched);
            Some(Some(stop))
        });
        first.map(|stop| (watching, stop))
    }

    /// Tells those who watch a resource, or one that it is a part of.
    fn tell(&self, server: &ServerName, uri: &str, params: &RawValue) {
        let ears: Vec<Arc<dyn Ear>> = self.with(|watches| {
            let of_server = watches.range((server.clone(), String::new())..);
            let of_server = of_server.take_while(|((name, _), _)| name == server);
            let fitting = of_server.filter(|((_, watched), _)| is_part(uri, watched));
            fitting
                .flat_map(|(_, watched)| watched.ears.clone())
                .collect()
        });
        for ear in ears {
            ear.hear(UPDATED, Some(params));
        }
    }

    fn said(&self, key: &Key, said: Said) {
        self.with(|watches| {
            if let Some(watched) = watches.get(key) {
                watched.said.send_replace(said);
            }
        });
    }

    /// Waits for what a modern server says to a subscription.
    async fn agreed(&self, key: &Key, within: Duration) -> Result<(), WatchError> {
        let said = self.with(|watches| Some(watches.get(key)?.said.subscribe()));
        let mut said = said.ok_or(WatchError::Refused)?;
        let said = said.wait_for(|said| !matches!(said, Said::Nothing));
        match tokio::time::timeout(within, said).await {
            Ok(Ok(said)) => match &*said {
                Said::No(error) => Err(WatchError::Server(Arc::clone(error))),
                _ => Ok(()),
            },
            _ => Err(WatchError::Refused),
        }
    }

    fn is_watched(&self, key: &Key) -> bool {
        self.with(|watches| watches.contains_key(key))
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<Key, Watched>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Parameters without the id that our own subscription has with the server.
fn without_subscription(params: &RawValue) -> Box<RawValue> {
    type Members<'a> = IndexMap<String, &'a RawValue>;
    let mut members: Members<'_> = serde_json::from_str(params.get()).unwrap_or_default();
    let meta = members.get("_meta").copied();
    let Some(mut meta) = meta.and_then(|meta| serde_json::from_str::<Members<'_>>(meta.get()).ok())
    else {
        return params.to_owned();
    };
    meta.shift_remove("io.modelcontextprotocol/subscriptionId");
    let rest = to_raw_value(&meta).unwrap_or_else(|_| params.to_owned());
    match meta.is_empty() {
        true => drop(members.shift_remove("_meta")),
        false => drop(members.insert("_meta".to_owned(), &rest)),
    }
    to_raw_value(&members).unwrap_or_else(|_| params.to_owned())
}

/// Whether a resource is the watched one or below it.
fn is_part(uri: &str, watched: &str) -> bool {
    let rest = uri.strip_prefix(watched);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || watched.ends_with('/'))
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watches.with(|watches| {
            let Some(watched) = watches.get_mut(&self.key) else {
                return;
            };
            let own = |ear: &Arc<dyn Ear>| Arc::ptr_eq(ear, &self.ear);
            if let Some(at) = watched.ears.iter().position(own) {
                watched.ears.swap_remove(at);
            }
            if watched.ears.is_empty() {
                watches.remove(&self.key);
            }
        });
    }
}

/// One subscription, and what it needs to be made anew.
struct Keeper {
    key: Key,
    watches: Arc<Watches>,
    entries: Entries,
    changes: watch::Receiver<()>,
    stop: CancellationToken,
}

impl Registry {
    /// Has `ear` told whenever a resource changes, for as long as the answer lives.
    pub async fn watch(
        &self,
        server: &ServerName,
        uri: &str,
        ear: Arc<dyn Ear>,
        within: Duration,
    ) -> Result<Watching, WatchError> {
        let lane = self.access(server, within).await?.lane;
        let key = (server.clone(), uri.to_owned());
        let added = self.watches.add(key.clone(), ear);
        let (watching, first) = added.ok_or(WatchError::TooMany)?;
        if let Some(stop) = first {
            let keeper = Keeper {
                key,
                watches: Arc::clone(&self.watches),
                entries: Arc::clone(&self.entries),
                changes: self.changes.subscribe(),
                stop: stop.clone(),
            };
            let (lane, all) = (lane.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = keeper.keep(lane) => {}
                    () = all.cancelled() => {}
                }
            });
        }
        match lane.session().era {
            Era::Legacy => {
                let noted = subscribe(&lane, "resources/subscribe", uri, within).await;
                noted.map_err(|error| WatchError::Server(Arc::new(error)))?;
            }
            Era::Modern => self.watches.agreed(&watching.key, within).await?,
        }
        Ok(watching)
    }
}

impl Keeper {
    async fn keep(mut self, mut lane: Lane) {
        let uri = self.key.1.clone();
        loop {
            let next = tokio::select! {
                next = next_lane(&self.key.0, &self.entries, &mut self.changes, &lane) => next,
                () = listen(&lane, &self.key, &self.watches) => return,
                () = self.stop.cancelled() => break,
            };
            lane = next;
            if lane.session().era == Era::Legacy
                && let Err(error) = subscribe(&lane, "resources/subscribe", &uri, NOTED).await
            {
                tracing::debug!(server = %self.key.0, %error, "a resource is no longer watched");
            }
            // What happened meanwhile nobody has told.
            let params = Object::new().text("uri", &uri).to_string();
            if let Ok(params) = RawValue::from_string(params) {
                self.watches.tell(&self.key.0, &uri, &params);
            }
        }
        if lane.session().era == Era::Legacy {
            // The server may be gone; and somebody may have come meanwhile.
            let _ = subscribe(&lane, "resources/unsubscribe", &uri, NOTED).await;
            if self.watches.is_watched(&self.key) {
                let _ = subscribe(&lane, "resources/subscribe", &uri, NOTED).await;
            }
        }
    }
}

/// The lane that comes after `old`, whenever that is.
async fn next_lane(
    server: &ServerName,
    entries: &Entries,
    changes: &mut watch::Receiver<()>,
    old: &Lane,
) -> Lane {
    loop {
        let entry = entries.load().get(server).cloned();
        let newer = async {
            match &entry {
                Some(entry) => entry.newer_lane(old).await,
                None => None,
            }
        };
        let changed = async {
            if changes.changed().await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! {
            Some(lane) = newer => return lane,
            () = changed => {}
        }
    }
}

/// Says to a server of the old era what is watched and what no longer is.
async fn subscribe(
    lane: &Lane,
    method: &'static str,
    uri: &str,
    within: Duration,
) -> Result<(), RequestError> {
    let request = lane.request(method, Object::new().text("uri", uri), HeaderMap::new());
    let answer = tokio::time::timeout(within, request).await;
    answer
        .map_err(|_| RequestError::Lost("it did not answer in time".to_owned()))?
        .map(drop)
}

/// Stays with a modern server while it tells of a resource; with one of the old era, or one that
/// does not want to, for ever.
async fn listen(lane: &Lane, key: &Key, watches: &Watches) {
    let mut wait = AGAIN;
    while lane.session().era == Era::Modern {
        let watched = serde_json::json!({"resourceSubscriptions": [key.1]}).to_string();
        let params = Object::new().raw("notifications", &watched);
        let ended = lane.request("subscriptions/listen", params, HeaderMap::new());
        match ended.await {
            Ok(_) => wait = AGAIN,
            Err(error @ (RequestError::Rpc(_) | RequestError::Status { .. })) => {
                watches.said(key, Said::No(Arc::new(error)));
                break;
            }
            Err(_) => wait = (wait * 2).min(LATEST),
        }
        tokio::time::sleep(wait).await;
    }
    std::future::pending().await
}
