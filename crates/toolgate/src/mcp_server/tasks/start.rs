//! Calls that become tasks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::handshake::{Era, LATEST_LEGACY_VERSION};
use toolgate_mcp::jsonrpc::{self, INVALID_PARAMS, RpcError, RpcResult};
use toolgate_mcp::lane::LaneId;
use toolgate_mcp::task::{TaskReport, TaskUse};

use super::follower::{CallHandlers, TaskFollower};
use super::{RunningTask, TaskSubscriber, TaskView, Tasks, lifetime};
use crate::call::RequestContext;
use crate::mcp_server::method::Method;
use crate::mcp_server::notifier::RequestNotifier;
use crate::mcp_server::request::RequestHandler;
use crate::tasks::{TaskOrigin, TaskOwner, TaskRecord, TaskRoom, TaskState};

/// Time after which a call that a legacy client wants as a task becomes one, whether or not its server
/// runs it as a task.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between requests that is suggested to clients, if the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Lifetime of a task for which neither the client nor the server has a wish.
const DEFAULT_TTL: Duration = Duration::from_secs(3600);
/// Name of the notification of a task's state for legacy clients.
const LEGACY_STATUS: &str = "notifications/tasks/status";

/// What a client asks for with a call that may become a task.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::mcp_server) struct TaskWish {
    pub(in crate::mcp_server) ttl: Option<Duration>,
}

/// What a call has led to so far.
enum CallStart {
    Answered(RpcResult),
    /// With what the server reports, if it runs the call as a task.
    Task(Option<TaskReport>),
}

impl RequestHandler {
    /// Answers the request. A call that its server runs as a task, for a client that knows tasks, is
    /// answered with a task.
    pub(in crate::mcp_server) async fn answer_or_follow(self, method: Method) -> RpcResult {
        match self.task_wish(&method) {
            Some(wish) => Box::pin(self.follow(method, wish)).await,
            None => self.answer_or_ask(method).await,
        }
    }

    /// Returns what the client asks for if the request may become a task.
    fn task_wish(&self, method: &Method) -> Option<TaskWish> {
        let Method::CallTool(params) = method else {
            return None;
        };
        match self.era {
            Era::Legacy => params.task,
            // A modern client has no say in it.
            Era::Modern => self.declares_tasks.then(TaskWish::default),
        }
    }

    async fn follow(mut self, method: Method, wish: TaskWish) -> RpcResult {
        let (tasks, owner, era) = (self.server.tasks().clone(), self.task_owner(), self.era);
        if era == Era::Legacy {
            tasks.check_room(&owner).await?;
        }
        let handlers = CallHandlers {
            call: self.context.client_handler.clone(),
            task: self.task_notifier(),
        };
        let session = self.status_subscriber();
        let (follower, started) = TaskFollower::new(handlers, wish.ttl);
        self.context = Arc::new(RequestContext {
            tasks: TaskUse::Observed(Arc::clone(&follower) as _),
            client_handler: Some(Arc::clone(&follower) as _),
            ..(*self.context).clone()
        });
        let mut answer: BoxFuture<'static, RpcResult> = Box::pin(self.answer_or_ask(method));
        let start = tokio::select! {
            biased;
            result = &mut answer => CallStart::Answered(result),
            Ok(report) = started => CallStart::Task(Some(report)),
            () = tokio::time::sleep(START_TIMEOUT), if era == Era::Legacy => CallStart::Task(None),
        };
        let report = match start {
            CallStart::Answered(result) if era == Era::Modern || result.is_err() => return result,
            CallStart::Answered(result) => {
                answer = Box::pin(std::future::ready(result));
                None
            }
            CallStart::Task(report) => report,
        };
        let record = tasks.new_record(owner, wish, report);
        match tasks.add(&record).await? {
            TaskRoom::Added => {}
            // The client need not get a task.
            TaskRoom::Full | TaskRoom::FullForCaller if era == Era::Modern => {
                follower.remain_call();
                return answer.await;
            }
            full => tasks.refuse_if_full(full, &record.owner)?,
        }
        follower.become_task();
        let task = RunningTask {
            record,
            follower,
            session,
            subscribers: Default::default(),
            cancel: CancellationToken::new(),
        };
        let created = task.view().to_created(era);
        tasks.run(task, answer);
        Ok(created)
    }

    /// Returns the handler of a task's progress: that of the session, which outlives the request.
    fn task_notifier(&self) -> Option<Arc<dyn ClientHandler>> {
        let session = self.session.as_ref()?;
        let progress_token = self.progress_token.clone()?;
        Some(Arc::new(RequestNotifier {
            sender: session.client.message_sender(),
            progress_token: Some(progress_token),
            client_requests: None,
            min_log_level: None,
        }))
    }

    /// Returns what notifies the session of the task's state, if its client knows tasks.
    pub(super) fn status_subscriber(&self) -> Option<Arc<TaskSubscriber>> {
        let session = self.session.as_ref()?;
        if session.client.version() != LATEST_LEGACY_VERSION {
            return None;
        }
        let sender = session.client.message_sender();
        Some(Arc::new(move |view: &TaskView| {
            let state = view.to_object(Era::Legacy);
            // Dropped if the client has no open stream; it asks for the state anyway.
            sender(jsonrpc::notification(LEGACY_STATUS, &state));
        }))
    }
}

impl Tasks {
    fn new_record(
        &self,
        owner: TaskOwner,
        wish: TaskWish,
        report: Option<TaskReport>,
    ) -> TaskRecord {
        let max_ttl = self.0.gateway.capacity().tasks.max_ttl;
        let of_server = report.as_ref().map(|report| report.ttl.unwrap_or(max_ttl));
        let ttl = of_server.or(wish.ttl).unwrap_or(DEFAULT_TTL).min(max_ttl);
        let (created_at, expires_at) = lifetime(ttl);
        let poll_interval = report.as_ref().and_then(|report| report.poll_interval);
        let poll_interval = poll_interval.unwrap_or(POLL_INTERVAL);
        TaskRecord {
            id: uuid::Uuid::new_v4().to_string(),
            owner,
            state: TaskState::Working,
            message: report.as_ref().and_then(|report| report.message.clone()),
            origin: report.map(|report| TaskOrigin {
                server: report.lane.server,
                id: (report.lane.lane == LaneId::Shared).then_some(report.id),
            }),
            created_at,
            updated_at: created_at,
            expires_at,
            poll_ms: i64::try_from(poll_interval.as_millis().max(1)).unwrap_or(i64::MAX),
        }
    }
}

impl TaskWish {
    /// Parses the `task` parameter of a legacy call.
    pub(in crate::mcp_server) fn parse(raw: &RawValue) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default)]
            ttl: Option<f64>,
        }
        let params: Params = serde_json::from_str(raw.get())
            .map_err(|error| RpcError::new(INVALID_PARAMS, format!("`task`: {error}")))?;
        let ttl = params
            .ttl
            .map(|ttl| Duration::try_from_secs_f64(ttl / 1000.0));
        let ttl = ttl.transpose();
        let ttl = ttl.map_err(|_| RpcError::new(INVALID_PARAMS, "`task.ttl` is out of range"))?;
        Ok(Self { ttl })
    }
}
