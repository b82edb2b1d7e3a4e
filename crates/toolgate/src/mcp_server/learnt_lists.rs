//! Lists that depend on the capabilities of the client, which servers are asked for when they are needed.

use std::sync::Arc;

use toolgate_core::Catalog;
use toolgate_core::catalog::Resolution;
use toolgate_core::name::{ToolId, ToolName};
use toolgate_mcp::client_handler::SessionClient;

use super::request::RequestHandler;
use crate::metrics::Bound;

impl RequestHandler {
    /// Returns the catalog as the client sees it.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.gateway().catalog();
        catalog.for_client(self.context.filters.client.as_ref())
    }

    /// Returns whether the catalog has what servers list for the client.
    pub(super) fn knows_lists(&self) -> bool {
        self.listing_client().is_none_or(|client| {
            let servers = self.gateway().servers();
            servers.knows_client_lists(&self.caller, &self.context.filters, client)
        })
    }

    /// Asks servers what they list for the client, unless that is known.
    pub(super) async fn learn_lists(&self) {
        let Some(client) = self.listing_client() else {
            return;
        };
        let servers = self.gateway().servers();
        let learnt = servers.learn_client_lists(&self.caller, &self.context.filters, client);
        if learnt.await.is_err() {
            // The client sees what all others see.
            let key = self.caller.key().map_or("", |key| &**key);
            self.gateway().report_bound(Bound::ClientLists, key);
        }
    }

    /// Returns whether a tool that the client does not see may be in a list that is not known yet.
    pub(super) fn may_learn_tool(&self, name: &str) -> bool {
        if self.knows_lists() {
            return false;
        }
        let Ok(scope) = self.gateway().scope(&self.caller, &self.context.filters) else {
            return false;
        };
        match self.endpoint.single_server() {
            Some(server) => {
                let id = ToolId {
                    server: server.clone(),
                    tool: ToolName::new(name),
                };
                scope.catalog().tool(&id).is_none()
            }
            None => matches!(scope.resolve(name), Resolution::Unknown),
        }
    }

    /// Returns the client, if servers may list something else for it than for others.
    fn listing_client(&self) -> Option<&SessionClient> {
        self.context.filters.client.as_ref()?;
        let session = self.context.session.as_ref();
        session.map(|session| &session.client)
    }
}
