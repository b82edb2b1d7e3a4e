//! Follows one tool call that may become a task: its state, and the server's questions.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use indexmap::IndexMap;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, Object, RpcError, RpcResult};
use toolgate_mcp::task::{TaskObserver, TaskReport, TaskStatus};
use toolgate_mcp::transport::RequestError;

use crate::store::clock;
use crate::tasks::{TaskOutcome, TaskState};

/// Maximum number of questions of a task that wait for the client at a time.
const MAX_QUESTIONS: usize = 16;

/// A question of a server to the client.
#[derive(Debug)]
pub(in crate::mcp_server) struct TaskQuestion {
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

/// The state of a call that is followed.
#[derive(Clone, Debug)]
pub(super) struct TaskProgress {
    /// The last state that the server reported.
    reported: Option<TaskStatus>,
    pub(super) message: Option<String>,
    pub(super) updated_at: i64,
    pub(super) questions: IndexMap<String, Arc<TaskQuestion>>,
    /// Why the server has no result.
    failure: Option<RpcError>,
    pub(super) end: Option<TaskEnd>,
}

/// The end of a task.
#[derive(Clone, Debug)]
pub(super) struct TaskEnd {
    pub(super) state: TaskState,
    pub(super) outcome: TaskOutcome,
}

/// The handlers of a call's messages.
#[derive(Debug)]
pub(super) struct CallHandlers {
    /// While the client waits for the answer to its call.
    pub(super) call: Option<Arc<dyn ClientHandler>>,
    /// Once the call is a task; questions wait with the task then.
    pub(super) task: Option<Arc<dyn ClientHandler>>,
}

/// Follows a call. Until the client is told that the call is a task, it is like any other.
pub(super) struct TaskFollower {
    handlers: CallHandlers,
    requested_ttl: Option<Duration>,
    /// Announces that the server has started a task.
    started: Mutex<Option<oneshot::Sender<TaskReport>>>,
    progress: watch::Sender<TaskProgress>,
    answers: Mutex<HashMap<String, oneshot::Sender<RpcResult>>>,
    /// Whether the client is told that the call is a task.
    is_task: AtomicBool,
    left_running: AtomicBool,
    /// For questions, which outlive the calls that ask them.
    this: Weak<Self>,
}

/// A question that waits for its answer. It is withdrawn on drop.
struct OpenQuestion {
    key: String,
    follower: Weak<TaskFollower>,
}

impl TaskQuestion {
    pub(super) fn to_object(&self) -> Object {
        let request = Object::new().text("method", &self.method);
        match &self.params {
            Some(params) => request.raw("params", params.get()),
            None => request,
        }
    }
}

impl TaskFollower {
    /// Creates a follower. The receiver yields the start of the task, if there is one.
    pub(super) fn new(
        handlers: CallHandlers,
        requested_ttl: Option<Duration>,
    ) -> (Arc<Self>, oneshot::Receiver<TaskReport>) {
        let (sender, started) = oneshot::channel();
        let progress = TaskProgress {
            reported: None,
            message: None,
            updated_at: clock::now(),
            questions: IndexMap::new(),
            failure: None,
            end: None,
        };
        let follower = Arc::new_cyclic(|this| Self {
            handlers,
            requested_ttl,
            started: Mutex::new(Some(sender)),
            progress: watch::Sender::new(progress),
            answers: Mutex::default(),
            is_task: AtomicBool::new(false),
            left_running: AtomicBool::new(false),
            this: Weak::clone(this),
        });
        (follower, started)
    }

    /// Lets questions wait for the client, which is told that the call is a task.
    pub(super) fn become_task(&self) {
        self.is_task.store(true, Ordering::Relaxed);
    }

    /// Undoes [`Self::become_task`]. Questions that wait are refused.
    pub(super) fn remain_call(&self) {
        self.is_task.store(false, Ordering::Relaxed);
        let open = std::mem::take(&mut *self.answers.lock());
        drop(open);
    }

    /// Lets the server go on with the task when it is no longer followed.
    pub(super) fn leave_running(&self) {
        self.left_running.store(true, Ordering::Relaxed);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<TaskProgress> {
        self.progress.subscribe()
    }

    pub(super) fn progress(&self) -> TaskProgress {
        self.progress.borrow().clone()
    }

    /// Answers questions by their keys. Answers to others are ignored.
    pub(super) fn answer(&self, responses: HashMap<String, RpcResult>) {
        for (key, response) in responses {
            let answer = self.answers.lock().remove(&key);
            // Removed at once, so that the client is not asked again.
            self.remove_question(&key);
            if let Some(answer) = answer {
                // Fails if the server has withdrawn its question.
                let _ = answer.send(response);
            }
        }
    }

    /// Derives the end of the task from the answer to its call.
    pub(super) fn end_of(&self, answer: RpcResult, max_bytes: usize) -> Result<TaskEnd, usize> {
        let progress = self.progress();
        let failed = |error| TaskEnd {
            state: TaskState::Failed,
            outcome: TaskOutcome::Failed(error),
        };
        Ok(match (progress.failure, answer) {
            (Some(_), _) if progress.reported == Some(TaskStatus::Cancelled) => {
                TaskEnd::cancelled()
            }
            (Some(error), _) | (None, Err(error)) => failed(error),
            (None, Ok(result)) if result.get().len() > max_bytes => return Err(result.get().len()),
            (None, Ok(result)) => {
                let result = crate::result::ToolResult::new(result);
                let state = if result.is_error() {
                    TaskState::ToolError
                } else {
                    TaskState::Completed
                };
                let outcome = TaskOutcome::Result(result.into_raw().into());
                TaskEnd { state, outcome }
            }
        })
    }

    pub(super) fn end(&self, end: TaskEnd) {
        self.progress.send_modify(|progress| {
            progress.updated_at = clock::now();
            progress.questions.clear();
            progress.end = Some(end);
        });
    }

    /// Waits for the end of the task.
    pub(super) async fn wait_for_end(&self) {
        let mut progress = self.subscribe();
        // Cannot fail: the sender is here.
        let _ = progress.wait_for(|progress| progress.end.is_some()).await;
    }

    fn remove_question(&self, key: &str) {
        self.progress.send_if_modified(|progress| {
            let is_removed = progress.questions.shift_remove(key).is_some();
            if is_removed {
                progress.updated_at = clock::now();
            }
            is_removed
        });
    }

    /// Keeps a question until the client answers it.
    fn ask(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        let refuse = |reason: &str| RpcError::new(INTERNAL_ERROR, reason);
        let key = format!("question-{}", uuid::Uuid::new_v4().simple());
        let (sender, answered) = oneshot::channel();
        {
            let mut answers = self.answers.lock();
            if answers.len() >= MAX_QUESTIONS {
                let error = refuse("too many questions wait for an answer");
                return Box::pin(std::future::ready(Err(error)));
            }
            answers.insert(key.clone(), sender);
        }
        let question = Arc::new(TaskQuestion {
            method: method.to_owned(),
            params: params.map(ToOwned::to_owned),
        });
        self.progress.send_modify(|progress| {
            progress.questions.insert(key.clone(), question);
            progress.updated_at = clock::now();
        });
        let open = OpenQuestion {
            key,
            follower: Weak::clone(&self.this),
        };
        let no_answer = refuse("the client did not answer");
        Box::pin(async move {
            let _open = open;
            answered.await.unwrap_or(Err(no_answer))
        })
    }

    fn handler(&self) -> Option<&Arc<dyn ClientHandler>> {
        if self.is_task.load(Ordering::Relaxed) {
            self.handlers.task.as_ref()
        } else {
            self.handlers.call.as_ref()
        }
    }
}

impl TaskEnd {
    pub(super) fn cancelled() -> Self {
        Self {
            state: TaskState::Cancelled,
            outcome: TaskOutcome::Cancelled,
        }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self {
            state: TaskState::Failed,
            outcome: TaskOutcome::Failed(RpcError::new(INTERNAL_ERROR, message)),
        }
    }

    /// Returns why there is no result.
    pub(super) fn reason(&self) -> Option<&str> {
        match &self.outcome {
            TaskOutcome::Failed(error) => Some(&error.message),
            TaskOutcome::Result(_) | TaskOutcome::Cancelled => None,
        }
    }
}

impl TaskObserver for TaskFollower {
    fn on_report(&self, report: &TaskReport) {
        if let Some(started) = self.started.lock().take()
            && started.send(report.clone()).is_ok()
        {
            // At once, because the server's first question may come before the client is told.
            self.become_task();
        }
        self.progress.send_if_modified(|progress| {
            let is_new =
                progress.reported != Some(report.status) || progress.message != report.message;
            if is_new {
                progress.reported = Some(report.status);
                progress.message.clone_from(&report.message);
                progress.updated_at = clock::now();
            }
            is_new
        });
    }

    fn on_failure(&self, error: &RequestError) {
        let failure = match error {
            RequestError::Rpc(error)
            | RequestError::Status {
                rpc: Some(error), ..
            } => error.clone(),
            error => RpcError::new(INTERNAL_ERROR, error.to_string()),
        };
        // The end follows.
        self.progress.send_if_modified(|progress| {
            progress.failure = Some(failure);
            false
        });
    }

    fn requested_ttl(&self) -> Option<Duration> {
        self.requested_ttl
    }

    fn is_left_running(&self) -> bool {
        self.left_running.load(Ordering::Relaxed)
    }
}

impl ClientHandler for TaskFollower {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        if let Some(handler) = self.handler() {
            handler.on_notification(method, params);
        }
    }

    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        if self.is_task.load(Ordering::Relaxed) {
            return self.ask(method, params);
        }
        match self.handler() {
            Some(handler) => handler.on_request(method, params),
            None => Box::pin(std::future::ready(Err(RpcError::method_not_found(method)))),
        }
    }

    fn can_answer_requests(&self) -> bool {
        let call = self.handlers.call.as_ref();
        call.is_none_or(|handler| handler.can_answer_requests())
    }

    fn is_asking(&self) -> bool {
        !self.answers.lock().is_empty() || self.handler().is_some_and(|handler| handler.is_asking())
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.upgrade() {
            follower.answers.lock().remove(&self.key);
            follower.remove_question(&self.key);
        }
    }
}

impl fmt::Debug for TaskFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskFollower")
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
