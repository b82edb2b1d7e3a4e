//! Notifies clients when the lists they can see have changed, and serves `subscriptions/listen`.

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
use toolgate_mcp::registry::ResourceSubscription;
use toolgate_mcp::serve::{Caching, adapt_for_modern, empty_object};

use super::resource_subscriptions::{RESOURCE_UPDATED, UpdateSender};
use super::{McpRequestContext, McpServer, server_info};
use crate::caller::Caller;
use crate::gateway::Gateway;

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Resource updates buffered for a slow client.
const UPDATE_BUFFER_SIZE: usize = 1024;
/// Resource subscriptions set up concurrently.
const MAX_CONCURRENT_SUBSCRIBES: usize = 16;
/// Resources per listen stream.
const MAX_SUBSCRIBED_RESOURCES: usize = 1000;

/// Hashes of the lists that one client can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ListHashes {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl ListHashes {
    fn compute(gateway: &Gateway, caller: &Caller, filters: &Filters) -> Self {
        let catalog = gateway.catalog();
        let mut tools = DefaultHasher::new();
        if let Ok(scope) = gateway.scope(caller, filters) {
            for (entry, _) in scope.tools() {
                (&entry.alias, &entry.tool.hash).hash(&mut tools);
            }
        }
        let (mut resources, mut prompts) = (DefaultHasher::new(), DefaultHasher::new());
        let servers = gateway.resources().servers(caller, filters);
        for server in servers.unwrap_or_default() {
            let Some(offer) = catalog.listing(&server) else {
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

    /// Returns the methods of the notifications for the lists that differ from `before`.
    fn notifications_since(self, before: Self) -> Vec<&'static str> {
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

/// Detects changes of the lists that one client can see.
#[derive(Debug)]
pub struct ListChanges {
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
    catalogs: watch::Receiver<Arc<Catalog>>,
    seen: ListHashes,
}

impl ListChanges {
    pub fn new(gateway: Gateway, caller: Caller, filters: Filters) -> Self {
        let mut catalogs = gateway.subscribe_catalog();
        catalogs.mark_unchanged();
        Self {
            seen: ListHashes::compute(&gateway, &caller, &filters),
            gateway,
            caller,
            filters,
            catalogs,
        }
    }

    /// Waits for a change and returns the methods of the notifications to send; `None` once the
    /// gateway has stopped or the caller's key is no longer valid.
    pub async fn next(&mut self) -> Option<Vec<&'static str>> {
        loop {
            self.catalogs.changed().await.ok()?;
            if !self.gateway.keys().is_valid(&self.caller) {
                return None;
            }
            let now = ListHashes::compute(&self.gateway, &self.caller, &self.filters);
            let notifications = now.notifications_since(self.seen);
            self.seen = now;
            if !notifications.is_empty() {
                return Some(notifications);
            }
        }
    }
}

/// Notifications requested by a modern client.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestedNotifications {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListenParams {
    notifications: RequestedNotifications,
}

/// The notifications of a `subscriptions/listen` request, until the client disconnects.
#[derive(Debug)]
pub struct ListenStream {
    id: Box<RawValue>,
    requested: RequestedNotifications,
    lists: ListChanges,
    updates: mpsc::Receiver<String>,
    /// Subscribed resources, by the URIs the client uses.
    resources: Vec<(String, ResourceSubscription)>,
}

impl ListenStream {
    pub async fn open(
        server: &McpServer,
        context: &McpRequestContext,
        id: Box<RawValue>,
        params: Option<&RawValue>,
    ) -> Result<Self, RpcError> {
        let ListenParams { notifications } = super::parse_params(params)?;
        let (sender, updates) = mpsc::channel(UPDATE_BUFFER_SIZE);
        let update_sender: UpdateSender = Arc::new({
            let id = id.clone();
            move |params: &RawValue| {
                // Dropped if the buffer is full: a client that far behind has to reread anyway.
                let _ = sender.try_send(update_notification(&id, params));
            }
        });
        let uris = notifications.resource_subscriptions.iter();
        let subscribing: Vec<BoxFuture<'_, _>> = uris
            .take(MAX_SUBSCRIBED_RESOURCES)
            .map(|uri| subscribe_uri(server, context, uri, Arc::clone(&update_sender)).boxed())
            .collect();
        // Resources that cannot be subscribed to are left out of the acknowledgement.
        let resources = stream::iter(subscribing).buffered(MAX_CONCURRENT_SUBSCRIBES);
        let resources = resources.filter_map(std::future::ready).collect().await;
        let (gateway, caller) = (server.gateway.clone(), context.caller.clone());
        Ok(Self {
            id,
            requested: notifications,
            lists: ListChanges::new(gateway, caller, context.request.filters.clone()),
            updates,
            resources,
        })
    }

    /// Returns the first message of the stream, which lists the accepted notifications.
    pub fn acknowledgement(&self) -> String {
        let mut granted = serde_json::json!({
            "toolsListChanged": self.requested.tools_list_changed,
            "promptsListChanged": self.requested.prompts_list_changed,
            "resourcesListChanged": self.requested.resources_list_changed,
        });
        if !self.resources.is_empty() {
            let uris = self.resources.iter().map(|(uri, _)| uri.as_str());
            granted["resourceSubscriptions"] = uris.collect();
        }
        let params = subscription_meta(&self.id).raw("notifications", &granted.to_string());
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    /// Waits for the next messages; `None` once the stream has ended.
    pub async fn next(&mut self) -> Option<Vec<String>> {
        tokio::select! {
            Some(update) = self.updates.recv() => Some(vec![update]),
            changed = self.lists.next() => {
                let methods = changed?
                    .into_iter()
                    .filter(|method| self.requested.includes(method));
                let encode = |method| jsonrpc::notification(method, &subscription_meta(&self.id));
                Some(methods.map(encode).collect())
            }
        }
    }

    /// Returns the result of the request itself, sent when the stream ends.
    pub fn final_result() -> Box<RawValue> {
        adapt_for_modern(empty_object(), Caching::None, server_info())
    }
}

async fn subscribe_uri(
    server: &McpServer,
    context: &McpRequestContext,
    uri: &str,
    sender: UpdateSender,
) -> Option<(String, ResourceSubscription)> {
    let subscription = server.subscribe_resource(context, uri, sender).await.ok()?;
    Some((uri.to_owned(), subscription))
}

impl RequestedNotifications {
    fn includes(&self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            _ => false,
        }
    }
}

/// Encodes a resource update notification for a subscription.
fn update_notification(id: &RawValue, params: &RawValue) -> String {
    let read = |raw: &RawValue| {
        serde_json::from_str::<IndexMap<String, Box<RawValue>>>(raw.get()).unwrap_or_default()
    };
    let mut members = read(params);
    let mut meta = members
        .get("_meta")
        .map(|meta| read(meta))
        .unwrap_or_default();
    meta.insert(SUBSCRIPTION_ID.to_owned(), id.to_owned());
    if let Ok(meta) = to_raw_value(&meta) {
        members.insert("_meta".to_owned(), meta);
    }
    let params = members.iter().fold(Object::new(), |params, (name, value)| {
        params.raw(name, value.get())
    });
    jsonrpc::notification(RESOURCE_UPDATED, &params)
}

fn subscription_meta(id: &RawValue) -> Object {
    let meta = Object::new().raw(SUBSCRIPTION_ID, id.get());
    Object::new().raw("_meta", &meta.to_string())
}
