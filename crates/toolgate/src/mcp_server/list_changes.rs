//! Detects changes of the lists that a client can see.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt as _};
use tokio::sync::watch;
use toolgate_core::Catalog;
use toolgate_core::policy::ServerItem;
use toolgate_core::scope::Filters;
use toolgate_mcp::jsonrpc::{self, Object};

use crate::caller::Caller;
use crate::gateway::Gateway;

pub(super) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
pub(super) const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
pub(super) const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";

/// Hashes of the lists that one client can see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ListHashes {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl ListHashes {
    fn compute(gateway: &Gateway, caller: &Caller, filters: &Filters) -> Self {
        let catalog = gateway.catalog().for_client(filters.client.as_ref());
        let mut tools = DefaultHasher::new();
        if let Ok(scope) = gateway.scope(caller, filters) {
            for (entry, _) in scope.tools() {
                (&entry.alias, &entry.tool.hash).hash(&mut tools);
            }
        }
        let (mut resources, mut prompts) = (DefaultHasher::new(), DefaultHasher::new());
        let handle = gateway.resources();
        // A caller whose key was removed sees nothing.
        let servers = handle.servers(caller, filters).unwrap_or_default();
        let hashed = handle.with_access(caller, filters, |view| {
            for server in &servers {
                let Some(offer) = catalog.listing(server) else {
                    continue;
                };
                for item in offer.resources.iter().chain(&offer.templates) {
                    let uri = item.key.as_str();
                    if view
                        .judge_item(ServerItem::Resource { server, uri })
                        .is_some()
                    {
                        (server, item.definition.get()).hash(&mut resources);
                    }
                }
                for item in &offer.prompts {
                    let name = item.key.as_str();
                    if view
                        .judge_item(ServerItem::Prompt { server, name })
                        .is_some()
                    {
                        (server, item.definition.get()).hash(&mut prompts);
                    }
                }
            }
        });
        if let Err(error) = hashed {
            tracing::debug!(%error, "a client's key is no longer valid");
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
            (self.tools != before.tools, TOOLS_CHANGED),
            (self.resources != before.resources, RESOURCES_CHANGED),
            (self.prompts != before.prompts, PROMPTS_CHANGED),
        ];
        let changed = pairs.into_iter().filter(|(changed, _)| *changed);
        changed.map(|(_, method)| method).collect()
    }
}

/// Detects changes of the lists that one client can see.
#[derive(Debug)]
pub(super) struct ListChanges {
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
    catalogs: watch::Receiver<Arc<Catalog>>,
    seen: ListHashes,
}

impl ListChanges {
    pub(super) fn new(gateway: Gateway, caller: Caller, filters: Filters) -> Self {
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
    pub(super) async fn next(&mut self) -> Option<Vec<&'static str>> {
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

    /// Like [`Self::next`], but returns the notifications.
    pub(super) async fn next_messages(&mut self) -> Option<Vec<String>> {
        let methods = self.next().await?.into_iter();
        let messages = methods.map(|method| jsonrpc::notification(method, &Object::new()));
        Some(messages.collect())
    }

    /// Streams a notification for each list that changes.
    pub(super) fn into_messages(self) -> impl Stream<Item = String> + Send {
        let batches = stream::unfold(self, |mut changes| async move {
            let messages = changes.next_messages().await?;
            Some((stream::iter(messages), changes))
        });
        batches.flatten()
    }
}
