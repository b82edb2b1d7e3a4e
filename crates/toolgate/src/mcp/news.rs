//! What has changed for a client since it last looked.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, watch};
use toolgate_core::Catalog;
use toolgate_core::scope::Filters;
use toolgate_mcp::jsonrpc::{self, Object, RpcError};
use toolgate_mcp::registry::Watching;
use toolgate_mcp::serve::{Caching, empty_object, for_modern};

use super::watcher::{Tell, UPDATED};
use super::{Asker, Door, server_info};
use crate::caller::Caller;
use crate::gateway::Gateway;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Updates that a client may be behind.
const BEHIND: usize = 1024;
/// Resources that are asked for at a time.
const AT_ONCE: usize = 16;
/// Resources that one subscription may watch.
const MOST_WATCHED: usize = 1000;

/// Prints of the lists as one client sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lists {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl Lists {
    fn of(gateway: &Gateway, caller: &Caller, filters: &Filters) -> Self {
        let catalog = gateway.catalog();
        let mut tools = DefaultHasher::new();
        if let Ok(scope) = gateway.scope(caller, filters) {
            for (entry, _) in scope.tools() {
                (&entry.alias, &entry.tool.hash).hash(&mut tools);
            }
        }
        let (mut resources, mut prompts) = (DefaultHasher::new(), DefaultHasher::new());
        let servers = gateway.servers_with_resources(caller, filters);
        for server in servers.unwrap_or_default() {
            let Some(offer) = catalog.offer(&server) else {
                continue;
            };
            for item in offer.resources.iter().chain(&offer.templates) {
                (&server, item.definition.get()).hash(&mut resources);
            }
            for item in &offer.prompts {
                (&server, item.definition.get()).hash(&mut prompts);
            }
        }
        Self {
            tools: tools.finish(),
            resources: resources.finish(),
            prompts: prompts.finish(),
        }
    }

    /// The methods of the notifications that tell how these differ from `before`.
    fn news(self, before: Self) -> Vec<&'static str> {
        let pairs = [
            (
                self.tools != before.tools,
                "notifications/tools/list_changed",
            ),
            (
                self.resources != before.resources,
                "notifications/resources/list_changed",
            ),
            (
                self.prompts != before.prompts,
                "notifications/prompts/list_changed",
            ),
        ];
        let changed = pairs.into_iter().filter(|(changed, _)| *changed);
        changed.map(|(_, method)| method).collect()
    }
}

/// Watches the lists as one client sees them.
#[derive(Debug)]
pub struct Watch {
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
    catalogs: watch::Receiver<Arc<Catalog>>,
    seen: Lists,
}

impl Watch {
    pub fn new(gateway: Gateway, caller: Caller, filters: Filters) -> Self {
        let mut catalogs = gateway.subscribe();
        catalogs.mark_unchanged();
        Self {
            seen: Lists::of(&gateway, &caller, &filters),
            gateway,
            caller,
            filters,
            catalogs,
        }
    }

    /// Waits until something has changed, and gives the methods of the notifications that say so;
    /// none once nothing can change any more, or the caller's key is gone.
    pub async fn next(&mut self) -> Option<Vec<&'static str>> {
        loop {
            self.catalogs.changed().await.ok()?;
            if !self.gateway.knows(&self.caller) {
                return None;
            }
            let now = Lists::of(&self.gateway, &self.caller, &self.filters);
            let news = now.news(self.seen);
            self.seen = now;
            if !news.is_empty() {
                return Some(news);
            }
        }
    }
}

/// The news that a modern client wants to hear.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListenParams {
    notifications: Wanted,
}

/// `subscriptions/listen`: what a modern client hears until it leaves.
#[derive(Debug)]
pub struct Subscription {
    id: Box<RawValue>,
    wanted: Wanted,
    lists: Watch,
    updates: mpsc::Receiver<String>,
    /// The resources that it hears of.
    watching: Vec<(String, Watching)>,
}

impl Subscription {
    pub async fn open(
        door: &Door,
        asker: &Asker,
        id: Box<RawValue>,
        params: Option<&RawValue>,
    ) -> Result<Self, RpcError> {
        let ListenParams { notifications } = super::read(params)?;
        let (sender, updates) = mpsc::channel(BEHIND);
        let tell: Tell = Arc::new({
            let id = id.clone();
            move |params: &RawValue| {
                // A client that is so far behind will read everything anew.
                let _ = sender.try_send(updated(&id, params));
            }
        });
        let wanted = notifications.resource_subscriptions.iter();
        let asked: Vec<BoxFuture<'_, _>> = wanted
            .take(MOST_WATCHED)
            .map(|uri| watched(door, asker, uri, Arc::clone(&tell)).boxed())
            .collect();
        // What cannot be watched is not acknowledged.
        let watching = stream::iter(asked).buffered(AT_ONCE);
        let watching = watching.filter_map(std::future::ready).collect().await;
        let (gateway, caller) = (door.gateway.clone(), asker.caller.clone());
        Ok(Self {
            id,
            wanted: notifications,
            lists: Watch::new(gateway, caller, asker.request.filters.clone()),
            updates,
            watching,
        })
    }

    /// What the client is told first: what it will hear.
    pub fn acknowledged(&self) -> String {
        let mut granted = serde_json::json!({
            "toolsListChanged": self.wanted.tools_list_changed,
            "promptsListChanged": self.wanted.prompts_list_changed,
            "resourcesListChanged": self.wanted.resources_list_changed,
        });
        if !self.watching.is_empty() {
            let uris = self.watching.iter().map(|(uri, _)| uri.as_str());
            granted["resourceSubscriptions"] = uris.collect();
        }
        let params = subscription(&self.id).raw("notifications", &granted.to_string());
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    /// Waits for the next messages; none once there can be no more.
    pub async fn next(&mut self) -> Option<Vec<String>> {
        tokio::select! {
            Some(update) = self.updates.recv() => Some(vec![update]),
            changed = self.lists.next() => {
                let wanted = changed?.into_iter().filter(|method| self.wanted.wants(method));
                let tell = |method| jsonrpc::notification(method, &subscription(&self.id));
                Some(wanted.map(tell).collect())
            }
        }
    }

    /// What the request itself is answered with, at the end.
    pub fn ended() -> Box<RawValue> {
        for_modern(empty_object(), Caching::None, server_info())
    }
}

async fn watched(door: &Door, asker: &Asker, uri: &str, tell: Tell) -> Option<(String, Watching)> {
    let watching = door.watch(asker, uri, tell).await.ok()?;
    Some((uri.to_owned(), watching))
}

impl Wanted {
    fn wants(&self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            _ => false,
        }
    }
}

/// A notification of a subscription that a resource changed.
fn updated(id: &RawValue, params: &RawValue) -> String {
    let read = |raw: &RawValue| {
        serde_json::from_str::<IndexMap<String, Box<RawValue>>>(raw.get()).unwrap_or_default()
    };
    let mut members = read(params);
    let mut meta = members
        .get("_meta")
        .map(|meta| read(meta))
        .unwrap_or_default();
    meta.insert(SUBSCRIPTION.to_owned(), id.to_owned());
    if let Ok(meta) = to_raw_value(&meta) {
        members.insert("_meta".to_owned(), meta);
    }
    let told = members.iter().fold(Object::new(), |told, (name, value)| {
        told.raw(name, value.get())
    });
    jsonrpc::notification(UPDATED, &told)
}

fn subscription(id: &RawValue) -> Object {
    let meta = Object::new().raw(SUBSCRIPTION, id.get());
    Object::new().raw("_meta", &meta.to_string())
}
