//! What has changed for a client since it last looked.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use toolgate::{Caller, Gateway};
use toolgate_core::scope::Filters;

/// Prints of the lists as one client sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    pub(super) tools: u64,
    pub(super) resources: u64,
    pub(super) prompts: u64,
}

impl Lists {
    pub(super) fn of(gateway: &Gateway, caller: &Caller, filters: &Filters) -> Self {
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
    pub(super) fn news(self, before: Self) -> Vec<&'static str> {
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
