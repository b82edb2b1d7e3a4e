//! Tasks that an earlier process of the gateway started.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use toolgate_core::name::{ToolId, ToolName};
use toolgate_mcp::jsonrpc::RpcError;

use super::follower::{CallHandlers, TaskFollower};
use super::{FoundTask, RunningTask, unknown_task};
use crate::call::Outcome;
use crate::engine::InterruptedTask;
use crate::mcp_server::era_adapter::{Caching, adapt_result};
use crate::mcp_server::request::{RequestHandler, to_rpc_error};
use crate::tasks::{TaskOrigin, TaskRecord};

impl RequestHandler {
    /// Finds a task of the caller. One that was interrupted is resumed if its server still knows it.
    pub(super) async fn find_task(&self, id: &str) -> Result<FoundTask, RpcError> {
        let tasks = self.server.tasks();
        let owner = self.task_owner();
        let record = match tasks.find(&owner, id).await? {
            FoundTask::Interrupted(record) => record,
            found => return Ok(found),
        };
        if tasks.outlives_process(&record)
            && let Some(task) = self.resume(&record)
        {
            return Ok(FoundTask::Running(task));
        }
        tasks.fail_interrupted(&record).await?;
        match tasks.find(&owner, id).await? {
            FoundTask::Interrupted(_) => Err(unknown_task()),
            found => Ok(found),
        }
    }

    /// Follows a task that an earlier process of the gateway started.
    fn resume(&self, record: &TaskRecord) -> Option<Arc<RunningTask>> {
        let TaskOrigin { server, id } = record.origin.clone()?;
        let handlers = CallHandlers {
            call: None,
            task: None,
        };
        let (follower, _) = TaskFollower::new(handlers, None);
        follower.become_task();
        let interrupted = InterruptedTask {
            server: server.clone(),
            id: id?,
            timeout: record.time_left(),
            observer: Arc::clone(&follower) as _,
            handler: Arc::clone(&follower) as _,
        };
        let (handler, context) = (self.for_task(), Arc::clone(&self.context));
        let answer = Box::pin(async move {
            let gateway = handler.gateway();
            let result = gateway
                .resume_task(&handler.caller, &context, interrupted)
                .await;
            let result = result.map_err(|error| to_rpc_error(&error))?;
            let tool = ToolId {
                server,
                tool: ToolName::new(""),
            };
            let outcome = Outcome::new(tool, result, Instant::now());
            let result = handler.client_result(outcome);
            Ok(adapt_result(result, handler.era, Caching::None))
        });
        let task = RunningTask {
            record: record.clone(),
            follower,
            session: self.status_subscriber(),
            subscribers: Default::default(),
            cancel: CancellationToken::new(),
        };
        Some(self.server.tasks().run(task, answer))
    }
}
