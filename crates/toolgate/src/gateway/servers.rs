//! Handle for servers and their lanes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use toolgate_core::config::ServerConfig;
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
use toolgate_mcp::client_handler::SessionClient;
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::registry::{ProbeResult, RegistryEntry, ServerLog};
use toolgate_mcp::sandbox::SandboxReport;
use toolgate_mcp::share::ShareFull;
use toolgate_mcp::{LocalServer, ProcessUsage};

use super::{Inner, LocalServerOptions, StartError};
use crate::caller::Caller;

/// Handle for the servers of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a>(&'a Inner);

impl<'a> Servers<'a> {
    pub(super) fn new(gateway: &'a Inner) -> Self {
        Self(gateway)
    }

    /// Returns the registry entries of all servers.
    pub fn list(self) -> Vec<Arc<RegistryEntry>> {
        self.0.registry.entries()
    }

    /// Adds an in-process server to the running gateway and waits until its tools are listed. Clients
    /// receive `notifications/tools/list_changed`.
    pub async fn register(
        self,
        server: LocalServer,
        options: LocalServerOptions,
    ) -> Result<(), StartError> {
        let name = server.name().clone();
        let inner = self.0;
        inner.change_settings(|settings| settings.add_server(server, options))?;
        if let Some(entry) = inner.registry.entry(&name) {
            entry.wait_settled().await;
        }
        Ok(())
    }

    /// Removes an in-process server; returns `false` if there is none with this name. Calls in
    /// flight finish.
    pub fn remove(self, name: &ServerName) -> Result<bool, StartError> {
        let mut was_present = false;
        self.0
            .change_settings(|settings| was_present = settings.remove_server(name))?;
        Ok(was_present)
    }

    /// Connects to a server temporarily to find out what it offers.
    pub async fn probe(
        self,
        server: &ServerConfig,
        within: Duration,
    ) -> Result<ProbeResult, String> {
        self.0.registry.probe(server, within).await
    }

    /// Returns which measures of a stdio server's sandbox are in force on this machine; `None` for other
    /// servers.
    pub async fn sandbox_report(self, server: &ServerConfig) -> Option<Arc<SandboxReport>> {
        self.0.registry.sandbox_report(server).await
    }

    /// Returns what the processes of a stdio server use; `None` for other servers. The figures are at most
    /// a few seconds old; [`Self::refresh_process_usage`] makes them current.
    pub fn process_usage(self, server: &ServerConfig) -> Option<ProcessUsage> {
        self.0.registry.process_usage(server)
    }

    /// Measures what the processes of all stdio servers use, unless that was done within the last second.
    pub async fn refresh_process_usage(self) {
        self.0.registry.refresh_process_usage().await;
    }

    /// Returns whether a request can see any part of any server, whether or not that server is up.
    pub(crate) fn has_visible(self, caller: &Caller, filters: &Filters) -> bool {
        self.0.engine.can_see_any_server(caller, filters)
    }

    /// Makes sure that the catalog has what servers list for a client, as far as they answer in time.
    /// Returns an error if too many clients with other capabilities are served.
    pub(crate) async fn learn_client_lists(
        self,
        caller: &Caller,
        filters: &Filters,
        client: &SessionClient,
    ) -> Result<(), ShareFull> {
        let Some(profile) = &filters.client else {
            return Ok(());
        };
        let servers = self.0.engine.visible_servers(caller, filters);
        let registry = &self.0.registry;
        registry.learn_client_lists(profile, client, &servers).await
    }

    /// Returns whether the catalog has what servers list for a client.
    pub(crate) fn knows_client_lists(
        self,
        caller: &Caller,
        filters: &Filters,
        client: &SessionClient,
    ) -> bool {
        filters.client.as_ref().is_none_or(|profile| {
            let servers = self.0.engine.visible_servers(caller, filters);
            self.0
                .registry
                .knows_client_lists(profile, client, &servers)
        })
    }

    /// Subscribes to the log messages of servers on their shared lanes.
    pub(crate) fn subscribe_logs(self) -> broadcast::Receiver<ServerLog> {
        self.0.registry.subscribe_logs()
    }

    /// Closes the lanes of a client session.
    pub(crate) fn end_session(self, session: &str) {
        self.0.registry.end_session(session);
    }

    /// Sends a request over all lanes of a client session.
    pub(crate) fn request_on_session_lanes(self, session: &str, request: &UpstreamRequest) {
        self.0.registry.send_to_session_lanes(session, request);
    }

    /// Sends a notification over all lanes of a client session.
    pub(crate) fn notify_session_lanes(self, session: &str, method: &'static str) {
        self.0.registry.notify_session_lanes(session, method);
    }
}
