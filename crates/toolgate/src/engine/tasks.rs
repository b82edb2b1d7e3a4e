//! Tasks that outlive the process which started them.

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::config::ServerConnection;
use toolgate_core::name::{ServerName, ToolId, ToolName};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::lane::UpstreamTask;
use toolgate_mcp::registry::LaneNeed;
use toolgate_mcp::task::TaskObserver;

use super::Engine;
use super::dispatch::{self, FollowedTask, TimeLimit, WantedLane};
use crate::call::{CallError, RequestContext};
use crate::caller::Caller;
use crate::result::ToolResult;

/// A task that an earlier process of the gateway started.
#[derive(Debug)]
pub(crate) struct InterruptedTask {
    pub(crate) server: ServerName,
    /// The server's id of the task.
    pub(crate) id: String,
    /// Time that is left for it.
    pub(crate) timeout: Duration,
    pub(crate) observer: Arc<dyn TaskObserver>,
    pub(crate) handler: Arc<dyn ClientHandler>,
}

impl Engine {
    /// Returns whether the tasks of a server survive the end of the gateway's process. Those of a child
    /// process do not.
    pub(crate) fn keeps_tasks(&self, server: &ServerName) -> bool {
        let rules = self.0.rules.load();
        let server_rules = rules.servers.get(server);
        server_rules
            .is_some_and(|rules| matches!(rules.server.connection, ServerConnection::Http(_)))
    }

    /// Follows an interrupted task to its end. Its call was recorded by the process that made it.
    pub(crate) async fn resume_task(
        &self,
        caller: &Caller,
        request: &RequestContext,
        task: InterruptedTask,
    ) -> Result<ToolResult, CallError> {
        let rules = self.0.rules.load_full();
        rules.key_entry(caller)?;
        let (registry, server) = (&self.0.deps.registry, &task.server);
        let owner = caller.share_owner().cloned();
        let limit = TimeLimit::start(rules.server_timeout(server));
        let wanted = WantedLane {
            server,
            session: None,
            need: LaneNeed::Optional,
            reconnect_wait: rules.reconnect_wait(server),
        };
        let mut access = dispatch::acquire_lane(registry, wanted, &owner, limit).await?;
        access.mark_answered();
        let headers = rules.forwarded_headers(server, &request.headers);
        let upstream =
            UpstreamTask::resume(&access.lane, &task.id, headers, task.observer, task.handler);
        match dispatch::follow_task(upstream, task.timeout, None).await {
            FollowedTask::Ended(Ok(raw)) => Ok(self.0.sanitize_result(raw, &rules)),
            FollowedTask::Ended(Err(cause)) => Err(CallError::Server {
                server: task.server,
                cause,
            }),
            FollowedTask::TimedOut | FollowedTask::SessionEnded => Err(CallError::Timeout {
                tool: ToolId {
                    server: task.server,
                    tool: ToolName::new("tasks/get"),
                },
                after: task.timeout,
            }),
        }
    }
}
