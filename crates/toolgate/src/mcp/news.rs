//! What has changed for a client since it last looked.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolgate_core::Catalog;
use toolgate_core::scope::Filters;
use toolgate_mcp::jsonrpc::{self, Object};

use crate::caller::Caller;
use crate::gateway::Gateway;

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
    /// none once nothing can change any more.
    pub async fn next(&mut self) -> Option<Vec<&'static str>> {
        loop {
            self.catalogs.changed().await.ok()?;
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
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wanted {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListenParams {
    notifications: Wanted,
}

impl Wanted {
    /// Reads the parameters of `subscriptions/listen`.
    pub fn read(params: Option<&RawValue>) -> Self {
        let params = params.and_then(|params| serde_json::from_str(params.get()).ok());
        let params: ListenParams = params.unwrap_or_default();
        params.notifications
    }

    /// What the client is told first: what it will hear.
    pub fn acknowledged(self, id: &RawValue) -> String {
        let granted = serde_json::json!({
            "toolsListChanged": self.tools_list_changed,
            "promptsListChanged": self.prompts_list_changed,
            "resourcesListChanged": self.resources_list_changed,
        });
        let params = subscription(id).raw("notifications", &granted.to_string());
        jsonrpc::notification("notifications/subscriptions/acknowledged", &params)
    }

    pub fn wants(self, method: &str) -> bool {
        match method {
            "notifications/tools/list_changed" => self.tools_list_changed,
            "notifications/prompts/list_changed" => self.prompts_list_changed,
            "notifications/resources/list_changed" => self.resources_list_changed,
            _ => false,
        }
    }

    /// A notification of this subscription.
    pub fn notification(self, id: &RawValue, method: &str) -> String {
        jsonrpc::notification(method, &subscription(id))
    }
}

fn subscription(id: &RawValue) -> Object {
    let meta = Object::new().raw("io.modelcontextprotocol/subscriptionId", id.get());
    Object::new().raw("_meta", &meta.to_string())
}
