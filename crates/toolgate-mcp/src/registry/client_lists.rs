//! What servers list for clients with capabilities of their own.
//!
//! The shared lane declares no capabilities, so a server may hide from it what it offers to clients that
//! can be asked or that support an extension. When a client lists something, each server that could list
//! something else for it is asked once for all clients with the same capabilities: on a temporary
//! connection, or on the shared lane if every request names the capabilities. What differs is added to
//! the catalog for these clients; it is asked for again when the server's common list changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_core::catalog::{ClientProfile, ServerListing};
use toolgate_core::config::{ServerConnection, Share};
use toolgate_core::name::ServerName;

use super::{AccessTimeouts, Registry, RegistryEntry};
use crate::Deadline;
use crate::client_handler::{ClientHandler, ModernClient, SessionClient};
use crate::fair_queue::{FairQueue, QueueLimits};
use crate::handshake::Era;
use crate::jsonrpc::{Object, RpcError, RpcResult};
use crate::lane::{Dependencies, Lane, LaneId, LaneKey};
use crate::publisher::{ClientListing, Publisher};
use crate::share::{ShareFull, SharedEntry, make_room};
use crate::supervisor::{HTTP_START_TIMEOUT, STDIO_START_TIMEOUT};
use crate::transport::StderrTail;

/// Sets of capabilities for which servers are asked, in all and of each key.
const PROFILES: Share = Share {
    max: 32,
    max_per_key: 8,
};
/// Servers that are asked at a time, which may start a process of each.
const REQUESTS: QueueLimits = QueueLimits::shared(4, 4096);
/// Time without use after which a set of capabilities makes way for another one.
const REPLACE_AFTER: Duration = Duration::from_secs(60);
/// Time without use after which a set of capabilities is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60 * 60);
const FORGET_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for which a list waits for a server that was asked. A slow server must not delay the lists
/// of the others for long; what it answers later is added to the catalog then.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time after which a server that could not be asked is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The lists for clients with capabilities of their own.
#[derive(Debug)]
pub(super) struct ClientLists {
    profiles: Mutex<HashMap<ClientProfile, ProfileLists>>,
    requests: FairQueue,
}

/// What is known about the lists for the clients of one profile.
#[derive(Debug)]
struct ProfileLists {
    /// The name of the key of the client that came first.
    owner: Option<Arc<str>>,
    last_used: Instant,
    servers: HashMap<ServerName, Arc<ServerList>>,
}

/// What a server lists for the clients of one profile.
#[derive(Debug)]
struct ServerList {
    asked_at: Instant,
    /// What it listed for all others when it was asked.
    common: Arc<ServerListing>,
    /// Cancelled when the server has answered, and a catalog includes its answer.
    finished: CancellationToken,
    failed_at: Mutex<Option<Instant>>,
}

/// Asks a server what it lists for the clients of a profile.
struct ListQuery {
    entry: Arc<RegistryEntry>,
    dependencies: Dependencies,
    profile: ClientProfile,
    client: SessionClient,
    list: Arc<ServerList>,
    requests: FairQueue,
    publisher: Publisher,
}

impl Default for ClientLists {
    fn default() -> Self {
        Self {
            profiles: Mutex::default(),
            requests: FairQueue::new(REQUESTS),
        }
    }
}

impl ServerList {
    fn new(common: Arc<ServerListing>) -> Arc<Self> {
        Arc::new(Self {
            asked_at: Instant::now(),
            common,
            finished: CancellationToken::new(),
            failed_at: Mutex::default(),
        })
    }

    /// Waits for the answer of the server, unless that takes too long.
    async fn wait_finished(&self) {
        let left = MAX_WAIT.saturating_sub(self.asked_at.elapsed());
        let _ = tokio::time::timeout(left, self.finished.cancelled()).await;
    }

    /// Returns whether [`Self::wait_finished`] returns at once.
    fn is_settled(&self) -> bool {
        self.finished.is_cancelled() || self.asked_at.elapsed() > MAX_WAIT
    }

    fn is_current(&self, common: &Arc<ServerListing>) -> bool {
        let failed_at = *self.failed_at.lock();
        Arc::ptr_eq(&self.common, common)
            && failed_at.is_none_or(|failed_at| failed_at.elapsed() < RETRY_AFTER)
    }
}

impl ClientLists {
    /// Makes room for a profile; returns the one that it replaces.
    fn admit(
        profiles: &mut HashMap<ClientProfile, ProfileLists>,
        profile: &ClientProfile,
        client: &SessionClient,
    ) -> Result<Option<ClientProfile>, ShareFull> {
        if let Some(known) = profiles.get_mut(profile) {
            known.last_used = Instant::now();
            return Ok(None);
        }
        let entries: Vec<_> = profiles
            .iter()
            .map(|(profile, lists)| SharedEntry {
                key: profile,
                owner: lists.owner.as_ref(),
                last_used: lists.last_used,
                is_idle: lists.last_used.elapsed() > REPLACE_AFTER,
            })
            .collect();
        let replaced = make_room(&entries, client.owner.as_ref(), PROFILES)?;
        if let Some(replaced) = &replaced {
            profiles.remove(replaced);
        }
        let lists = ProfileLists {
            owner: client.owner.clone(),
            last_used: Instant::now(),
            servers: HashMap::new(),
        };
        profiles.insert(profile.clone(), lists);
        Ok(replaced)
    }

    /// Periodically forgets sets of capabilities that no client has used for long.
    pub(super) async fn forget_unused(&self, publisher: &Publisher) {
        let mut interval = tokio::time::interval(FORGET_INTERVAL);
        loop {
            interval.tick().await;
            let unused: Vec<ClientProfile> = self
                .profiles
                .lock()
                .extract_if(|_, lists| lists.last_used.elapsed() > FORGET_AFTER)
                .map(|(profile, _)| profile)
                .collect();
            if !unused.is_empty() {
                publisher.forget_clients(unused);
            }
        }
    }
}

impl Registry {
    /// Makes sure that the catalog has what these servers list for the clients of a profile, except for
    /// servers that do not answer in time.
    pub async fn learn_client_lists(
        &self,
        profile: &ClientProfile,
        client: &SessionClient,
        servers: &[ServerName],
    ) -> Result<(), ShareFull> {
        let lists = self.query_client_lists(profile, client, servers)?;
        join_all(lists.iter().map(|list| list.wait_finished())).await;
        Ok(())
    }

    /// Returns whether [`Self::learn_client_lists`] has nothing to wait for.
    pub fn knows_client_lists(
        &self,
        profile: &ClientProfile,
        client: &SessionClient,
        servers: &[ServerName],
    ) -> bool {
        let catalog = self.catalog();
        let mut profiles = self.client_lists.profiles.lock();
        let Some(lists) = profiles.get_mut(profile) else {
            return false;
        };
        lists.last_used = Instant::now();
        servers.iter().all(|name| {
            let common = catalog.listing(name);
            let known = lists.servers.get(name);
            let is_known = common
                .zip(known)
                .is_some_and(|(common, list)| list.is_current(common) && list.is_settled());
            is_known
                || common.is_none()
                || self
                    .entry(name)
                    .is_none_or(|entry| !may_list_for_client(&entry, client))
        })
    }

    /// Asks each server that has not been asked yet, and returns what to wait for.
    fn query_client_lists(
        &self,
        profile: &ClientProfile,
        client: &SessionClient,
        servers: &[ServerName],
    ) -> Result<Vec<Arc<ServerList>>, ShareFull> {
        let Some(publisher) = self.publisher.lock().clone() else {
            return Ok(Vec::new());
        };
        let catalog = self.catalog();
        let mut profiles = self.client_lists.profiles.lock();
        let replaced = ClientLists::admit(&mut profiles, profile, client)?;
        if let Some(replaced) = replaced {
            publisher.forget_clients(vec![replaced]);
        }
        let Some(lists) = profiles.get_mut(profile) else {
            return Ok(Vec::new());
        };
        let mut awaited = Vec::new();
        for name in servers {
            let (Some(common), Some(entry)) = (catalog.listing(name), self.entry(name)) else {
                continue;
            };
            if !may_list_for_client(&entry, client) {
                continue;
            }
            let known = lists.servers.get(name);
            if let Some(known) = known.filter(|known| known.is_current(common)) {
                awaited.push(Arc::clone(known));
                continue;
            }
            let list = ServerList::new(Arc::clone(common));
            lists.servers.insert(name.clone(), Arc::clone(&list));
            awaited.push(Arc::clone(&list));
            let query = ListQuery {
                dependencies: self.lane_dependencies(&entry.server, StderrTail::default()),
                entry,
                profile: profile.clone(),
                client: client.clone(),
                list,
                requests: self.client_lists.requests.clone(),
                publisher: publisher.clone(),
            };
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = query.run() => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        Ok(awaited)
    }
}

impl ListQuery {
    async fn run(self) {
        let _finished = self.list.finished.clone().drop_guard();
        // Fails only if very many wait, or the gateway stops.
        let Ok(_slot) = self.requests.acquire(&self.client.owner).await else {
            *self.list.failed_at.lock() = Some(Instant::now());
            return;
        };
        let server = &self.entry.server;
        let timeout = match server.connection {
            ServerConnection::Stdio(_) => STDIO_START_TIMEOUT,
            ServerConnection::Http(_) | ServerConnection::InProcess => HTTP_START_TIMEOUT,
        };
        let fetched = tokio::time::timeout(timeout, self.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("server did not respond in time".to_owned()));
        let listing = match fetched {
            Ok(listing) => listing,
            Err(error) => {
                let error = self.dependencies.environment.masker(server).mask(&error);
                tracing::warn!(server = %server.name, error, "failed to list what a server offers to a client");
                *self.list.failed_at.lock() = Some(Instant::now());
                return;
            }
        };
        if listing != *self.list.common {
            let listing = ClientListing {
                server: server.name.clone(),
                profile: self.profile.clone(),
                listing: Arc::new(listing),
                common: Arc::clone(&self.list.common),
            };
            self.publisher.publish_client_listing(listing).await;
        }
    }

    async fn fetch(&self) -> Result<ServerListing, String> {
        if is_stateless(&self.entry, &self.client) {
            let timeouts = AccessTimeouts {
                deadline: Deadline::now() + RETRY_AFTER,
                reconnect: Duration::ZERO,
            };
            let access = self.entry.access(&self.client.owner, timeouts).await;
            let access = access.map_err(|error| error.to_string())?;
            let client = Arc::new(ModernClient {
                capabilities: Arc::clone(&self.client.capabilities),
                input: Object::new(),
                has_state: false,
            });
            let listing = access.lane.fetch_client_listing(&client).await;
            return listing.map_err(|error| error.to_string());
        }
        let key = LaneKey {
            server: self.entry.server.name.clone(),
            lane: LaneId::Session(format!("lists:{}", self.profile.as_str())),
        };
        let mut dependencies = self.dependencies.clone();
        dependencies.client.handler = Arc::new(ListingClient);
        dependencies.client.capabilities = Arc::clone(&self.client.capabilities);
        let hint = Some(Era::Legacy);
        let opened = Lane::open(key, &self.entry.server, &dependencies, hint).await;
        let (lane, _events) = opened.map_err(|error| error.to_string())?;
        let listing = lane.fetch_listing(None).await;
        lane.close().await;
        listing.map_err(|error| error.to_string())
    }
}

/// Handles what a server sends while it is asked for its lists: nobody is there to answer.
#[derive(Debug)]
struct ListingClient;

impl ClientHandler for ListingClient {
    fn on_notification(&self, _: &str, _: Option<&RawValue>) {}

    fn on_request(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        Box::pin(std::future::ready(Err(RpcError::method_not_found(method))))
    }

    fn can_answer_requests(&self) -> bool {
        false
    }
}

/// Returns whether each request of the client names its capabilities on the shared lane.
fn is_stateless(entry: &RegistryEntry, client: &SessionClient) -> bool {
    let status = entry.status();
    let era = status.session.as_ref().map(|session| session.era);
    client.is_modern && era == Some(Era::Modern)
}

/// Returns whether requests of the client can reach the server with the client's capabilities.
fn may_list_for_client(entry: &RegistryEntry, client: &SessionClient) -> bool {
    entry.has_session_lanes() || is_stateless(entry, client)
}
