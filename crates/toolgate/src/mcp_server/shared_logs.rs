//! Log messages of servers on their shared lanes, for a gateway that serves a single client.
//!
//! Such a message does not say which call it belongs to. With several clients, it could be about the
//! data of another one; the only client gets it, as it would from the server itself.

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use toolgate_core::scope::Filters;
use toolgate_mcp::client_handler::LogLevel;
use toolgate_mcp::jsonrpc;
use toolgate_mcp::registry::ServerLog;

use super::Server;
use super::notifier::forwards_log;

impl Server {
    /// Forwards log messages to the client while there is only one, until `stop` is cancelled.
    pub async fn forward_shared_logs(&self, stop: CancellationToken) {
        let mut logs = self.gateway().servers().subscribe_logs();
        loop {
            let log = tokio::select! {
                log = logs.recv() => log,
                () = stop.cancelled() => return,
            };
            match log {
                Ok(log) => self.forward_shared_log(&log),
                Err(RecvError::Lagged(lost)) => tracing::debug!(lost, "log messages were lost"),
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn forward_shared_log(&self, log: &ServerLog) {
        let Some(session) = self.sessions().only_one() else {
            return;
        };
        let owner = &session.owner;
        let filters = Filters {
            server: Some(log.server.clone()),
            ..owner.filters.clone()
        };
        let is_of_endpoint = owner
            .filters
            .server
            .as_ref()
            .is_none_or(|server| *server == log.server);
        let servers = self.gateway().servers();
        if !is_of_endpoint || !servers.has_visible(&owner.caller, &filters) {
            return;
        }
        let level = session.client.log_level().unwrap_or(LogLevel::Debug);
        if forwards_log(level, Some(&log.params)) {
            let message = jsonrpc::raw_notification("notifications/message", Some(&log.params));
            // Dropped if the client has no open stream.
            (session.client.message_sender())(message);
        }
    }
}
