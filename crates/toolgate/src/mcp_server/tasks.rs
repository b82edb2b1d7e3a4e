//! Tasks: tool calls whose results clients fetch later.
//!
//! A task here is a call that is still in progress, with its one record in the audit trail, while the
//! client has been answered that it is a task. It is stored before the client learns of it, and its
//! outcome before the client can fetch it. What its server does, as a task of its own or not, is followed
//! by the lane. Tasks belong to the key and the endpoint that started them.

mod follower;
mod requests;
mod resume;
mod start;
mod wire;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use follower::{TaskEnd, TaskFollower};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
pub(super) use start::TaskWish;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, RpcError, RpcResult};
pub(super) use wire::{TaskView, missing_extension};

use crate::gateway::Gateway;
use crate::metrics::Bound;
use crate::store::{StoreError, clock};
use crate::tasks::{TaskOwner, TaskRecord, TaskRoom, TaskState, TaskStore};

/// Interval between deletions of tasks whose time is over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Receives the state of a task whenever it changes.
pub(super) type TaskSubscriber = dyn Fn(&TaskView) + Send + Sync;

/// The tasks of all clients. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Tasks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gateway: Gateway,
    store: TaskStore,
    running: Mutex<HashMap<String, Arc<RunningTask>>>,
    tracker: TaskTracker,
    /// Ends all of them.
    stop: CancellationToken,
}

/// A task that is in progress, or whose end could not be stored.
pub(super) struct RunningTask {
    record: TaskRecord,
    follower: Arc<TaskFollower>,
    /// The session that started the task, if it can be notified.
    session: Option<Arc<TaskSubscriber>>,
    subscribers: Mutex<Vec<Weak<TaskSubscriber>>>,
    cancel: CancellationToken,
}

/// A task of the caller.
#[derive(Debug)]
enum FoundTask {
    Running(Arc<RunningTask>),
    Ended(TaskRecord),
    /// The gateway's process ended meanwhile.
    Interrupted(TaskRecord),
}

impl Tasks {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self(Arc::new(Inner {
            store: TaskStore::new(gateway.store().clone()),
            gateway,
            running: Mutex::default(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Deletes tasks whose time is over, until `stop` is cancelled.
    pub(super) async fn run_sweeper(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            self.0.running.lock().retain(|_, task| !task.is_over());
            if let Err(error) = self.0.store.delete_expired().await {
                tracing::error!(%error, "failed to delete expired tasks");
            }
        }
    }

    /// Ends all tasks, and waits for them. Servers that outlive this process go on with theirs.
    pub(super) async fn finish(&self) {
        self.0.stop.cancel();
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    /// Stores a new task if there is room for it.
    async fn add(&self, record: &TaskRecord) -> Result<TaskRoom, RpcError> {
        let share = self.0.gateway.capacity().tasks.share;
        let room = self
            .0
            .store
            .add(record, share)
            .await
            .map_err(|error| store_error(&error))?;
        self.report_room(room, &record.owner);
        Ok(room)
    }

    /// Fails if there is no room for a task.
    async fn check_room(&self, owner: &TaskOwner) -> Result<(), RpcError> {
        let share = self.0.gateway.capacity().tasks.share;
        let room = self
            .0
            .store
            .room(owner, share)
            .await
            .map_err(|error| store_error(&error))?;
        self.report_room(room, owner);
        self.refuse_if_full(room, owner)
    }

    fn refuse_if_full(&self, room: TaskRoom, owner: &TaskOwner) -> Result<(), RpcError> {
        let share = self.0.gateway.capacity().tasks.share;
        let refusal = match room {
            TaskRoom::Added => return Ok(()),
            TaskRoom::FullForCaller if owner.caller.is_empty() => {
                Bound::TasksPerKey.describe("callers without a key", share.max_per_key)
            }
            TaskRoom::FullForCaller => {
                let key = format!("key `{}`", owner.caller);
                Bound::TasksPerKey.describe(&key, share.max_per_key)
            }
            TaskRoom::Full => Bound::Tasks.describe("all callers", share.max),
        };
        Err(RpcError::new(toolgate_mcp::jsonrpc::RATE_LIMITED, refusal))
    }

    fn report_room(&self, room: TaskRoom, owner: &TaskOwner) {
        let bound = match room {
            TaskRoom::Added => return,
            TaskRoom::FullForCaller => Bound::TasksPerKey,
            TaskRoom::Full => Bound::Tasks,
        };
        self.0.gateway.report_bound(bound, &owner.caller);
    }

    /// Drives the call of a stored task to its end. A task that is already running stays as it is.
    fn run(&self, task: RunningTask, answer: BoxFuture<'static, RpcResult>) -> Arc<RunningTask> {
        let task = Arc::new(task);
        {
            let mut running = self.0.running.lock();
            if let Some(running) = running.get(&task.record.id) {
                return Arc::clone(running);
            }
            running.insert(task.record.id.clone(), Arc::clone(&task));
        }
        let (tasks, driven) = (self.clone(), Arc::clone(&task));
        self.0
            .tracker
            .spawn(async move { tasks.drive(driven, answer).await });
        task
    }

    async fn drive(&self, task: Arc<RunningTask>, mut answer: BoxFuture<'static, RpcResult>) {
        let mut changes = task.follower.subscribe();
        let expiry = tokio::time::sleep(task.record.time_left());
        tokio::pin!(expiry);
        let end = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break self.end_of(&task, answer),
                () = task.cancel.cancelled() => break TaskEnd::cancelled(),
                () = &mut expiry => break TaskEnd::failed("the time of the task is over"),
                () = self.0.stop.cancelled() => {
                    if self.outlives_process(&task.record) {
                        task.follower.leave_running();
                    }
                    self.0.running.lock().remove(&task.record.id);
                    return;
                }
                Ok(()) = changes.changed() => task.notify(),
            }
        };
        // Dropping the answer cancels the call, at its server too.
        drop(answer);
        self.end(&task, end).await;
    }

    fn end_of(&self, task: &RunningTask, answer: RpcResult) -> TaskEnd {
        let max = self.0.gateway.capacity().tasks.max_result_bytes;
        task.follower.end_of(answer, max).unwrap_or_else(|bytes| {
            let owner = &task.record.owner;
            self.0.gateway.report_bound(Bound::TaskResult, &owner.caller);
            TaskEnd::failed(format!(
                "the result has {bytes} bytes; the maximum for tasks is {max} (`capacity.max_task_result_mb`)"
            ))
        })
    }

    /// Stores the end of a task before anyone can see it.
    async fn end(&self, task: &RunningTask, end: TaskEnd) {
        let id = &task.record.id;
        let message = task.follower.progress().message;
        let message = end.reason().or(message.as_deref());
        let stored = self
            .0
            .store
            .finish(id, end.state, message, &end.outcome)
            .await;
        task.follower.end(end);
        task.notify();
        match stored {
            Ok(()) => drop(self.0.running.lock().remove(id)),
            // It stays in memory until its time is over.
            Err(error) => tracing::error!(%error, task = id, "failed to store the end of a task"),
        }
    }

    /// Finds a task of an owner.
    async fn find(&self, owner: &TaskOwner, id: &str) -> Result<FoundTask, RpcError> {
        let running = self.0.running.lock().get(id).cloned();
        if let Some(task) = running.filter(|task| !task.record.is_expired()) {
            return if task.record.owner == *owner {
                Ok(FoundTask::Running(task))
            } else {
                Err(unknown_task())
            };
        }
        let record = self.0.store.get(owner, id).await;
        let record = record.map_err(|error| store_error(&error))?;
        let record = record.ok_or_else(unknown_task)?;
        Ok(match record.state {
            TaskState::Working => FoundTask::Interrupted(record),
            _ => FoundTask::Ended(record),
        })
    }

    /// Returns a stored task that has ended, with its outcome.
    async fn view_ended(&self, record: TaskRecord) -> Result<TaskView, RpcError> {
        let outcome = self.0.store.outcome(&record).await;
        Ok(TaskView {
            outcome: Some(outcome.map_err(|error| store_error(&error))?),
            questions: Default::default(),
            record,
        })
    }

    /// Ends a task whose server ended with the gateway's earlier process.
    async fn fail_interrupted(&self, record: &TaskRecord) -> Result<(), RpcError> {
        let end = TaskEnd::failed("the gateway was restarted while the task was running");
        let failed = self
            .0
            .store
            .finish(&record.id, end.state, end.reason(), &end.outcome)
            .await;
        failed.map_err(|error| store_error(&error))
    }

    /// Returns whether the server goes on with a task when the gateway's process ends.
    fn outlives_process(&self, record: &TaskRecord) -> bool {
        let origin = record.origin.as_ref();
        origin
            .is_some_and(|origin| origin.id.is_some() && self.0.gateway.keeps_tasks(&origin.server))
    }
}

impl RunningTask {
    /// Returns the current state.
    pub(super) fn view(&self) -> TaskView {
        let progress = self.follower.progress();
        let end = progress.end;
        let reason = end.as_ref().and_then(TaskEnd::reason);
        TaskView {
            record: TaskRecord {
                state: end.as_ref().map_or(TaskState::Working, |end| end.state),
                message: reason.map(ToOwned::to_owned).or(progress.message),
                updated_at: progress.updated_at,
                ..self.record.clone()
            },
            questions: progress.questions,
            outcome: end.map(|end| end.outcome),
        }
    }

    /// Notifies a subscriber of changes for as long as it exists.
    pub(super) fn subscribe(&self, subscriber: &Arc<TaskSubscriber>) {
        self.subscribers.lock().push(Arc::downgrade(subscriber));
    }

    fn notify(&self) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        let live: Vec<_> = subscribers.iter().filter_map(Weak::upgrade).collect();
        drop(subscribers);
        let live = live.iter().chain(&self.session);
        let mut live = live.peekable();
        if live.peek().is_some() {
            let view = self.view();
            live.for_each(|subscriber| subscriber(&view));
        }
    }

    /// Returns whether the task need not be kept in memory any longer.
    fn is_over(&self) -> bool {
        self.record.is_expired() && self.follower.progress().end.is_some()
    }
}

impl fmt::Debug for RunningTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningTask")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// The same for tasks that do not exist, are over, or belong to others.
fn unknown_task() -> RpcError {
    RpcError::new(INVALID_PARAMS, "unknown task; it may have expired")
}

fn store_error(error: &StoreError) -> RpcError {
    tracing::error!(%error, "tasks cannot be read or stored");
    RpcError::new(
        INTERNAL_ERROR,
        "the gateway cannot use its store; try again later",
    )
}

/// Returns the current time and the end of a time from now, in milliseconds since the Unix epoch.
fn lifetime(ttl: Duration) -> (i64, i64) {
    let now = clock::now();
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    (now, now.saturating_add(ttl))
}
