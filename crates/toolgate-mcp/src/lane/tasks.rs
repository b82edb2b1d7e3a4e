//! Tool calls that a server runs as tasks, followed to their end.
//!
//! The follower of a task owns it: a task that is no longer followed is cancelled on the server.

mod requests;
mod wire;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::HeaderMap;
use indexmap::IndexMap;
use requests::CancelGuard;
pub(super) use requests::TaskRequests;
use serde_json::value::RawValue;
use toolgate_core::catalog::TaskSupport;
use toolgate_core::clean::json::clean_json;
use toolgate_core::json::may_contain;
use wire::{
    LegacyCreated, WireTask, is_modern_task, is_transient, malformed, parse, requires_tasks,
    without_related_task,
};

use super::input::InputRequest;
use super::{Lane, UpstreamRequest, UpstreamToolCall};
use crate::client_handler::ClientHandler;
use crate::handshake::Era;
use crate::jsonrpc::{INTERNAL_ERROR, Object, RpcError, RpcResult};
use crate::task::{TaskObserver, TaskReport, TaskStatus, TaskUse};
use crate::transport::RequestError;

/// Interval between requests for the state of a task, unless the server suggests another one.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of consecutive requests about a task that may get no answer.
const MAX_LOST_ANSWERS: u32 = 5;
/// Maximum number of questions that a task may ask at a time.
const MAX_QUESTIONS: usize = 16;

/// A server's answer to a tool call.
#[derive(Debug)]
pub enum ToolAnswer {
    Result(Box<RawValue>),
    /// The result follows later.
    Task(Box<UpstreamTask>),
}

/// A tool call that a server runs as a task. Dropping it cancels the task.
#[derive(Debug)]
pub struct UpstreamTask {
    report: TaskReport,
    requests: TaskRequests,
    cancel: CancelGuard,
}

/// An answer to one of a task's questions.
struct QuestionAnswer {
    key: String,
    result: RpcResult,
}

type OpenQuestions = FuturesUnordered<BoxFuture<'static, QuestionAnswer>>;

impl Lane {
    /// Returns the `task` parameter of a call to a legacy server, if the call should become a task.
    pub(super) fn task_param(&self, call: &UpstreamToolCall<'_>) -> Option<Object> {
        let session = &self.0.session;
        if session.era == Era::Modern || !session.capabilities.tasks {
            return None;
        }
        let ttl = match (&call.tasks, call.tool.task_support) {
            (_, TaskSupport::Forbidden) => return None,
            (TaskUse::Observed(observer), _) => observer.requested_ttl(),
            (_, TaskSupport::Optional) => return None,
            (_, TaskSupport::Required) => None,
        };
        Some(match ttl {
            Some(ttl) => Object::new().raw("ttl", &ttl.as_millis().to_string()),
            None => Object::new(),
        })
    }

    /// Sends a call. A server that refuses to run it other than as a task gets it again as one.
    pub(super) async fn send_as_needed(
        &self,
        mut request: UpstreamRequest,
        tasks: &TaskUse,
    ) -> Result<Box<RawValue>, RequestError> {
        request.declares_tasks = tasks.observer().is_some();
        if !matches!(tasks, TaskUse::WhereRequired) || self.0.session.era == Era::Legacy {
            return self.send_resolving_input(request).await;
        }
        match self.send_resolving_input(request.clone()).await {
            Err(error) if requires_tasks(&error) => {
                request.declares_tasks = true;
                Box::pin(self.send_resolving_input(request)).await
            }
            answer => answer,
        }
    }

    /// Tells a result from the start of a task.
    pub(super) fn interpret_answer(
        &self,
        raw: Box<RawValue>,
        requests: impl FnOnce() -> TaskRequests,
    ) -> Result<ToolAnswer, RequestError> {
        if !may_contain(raw.get(), "taskId") {
            return Ok(ToolAnswer::Result(raw));
        }
        let started = match self.0.session.era {
            Era::Modern if !is_modern_task(&raw) => None,
            Era::Modern => Some(parse::<WireTask<'_>>(&raw)?.to_report(self)?),
            // A result may have a member of that name too.
            Era::Legacy => match serde_json::from_str::<LegacyCreated<'_>>(raw.get()) {
                Ok(created) if self.0.session.capabilities.tasks => {
                    Some(created.task.to_report(self)?)
                }
                _ => None,
            },
        };
        Ok(match started {
            Some(report) => ToolAnswer::Task(Box::new(UpstreamTask::new(report, requests()))),
            None => ToolAnswer::Result(raw),
        })
    }
}

impl UpstreamTask {
    fn new(report: TaskReport, requests: TaskRequests) -> Self {
        Self {
            cancel: CancelGuard {
                requests: requests.clone(),
                id: Some(report.id.clone()),
            },
            report,
            requests,
        }
    }

    /// Returns a task that was started earlier, over another connection to the same server.
    pub fn resume(
        lane: &Lane,
        id: &str,
        headers: HeaderMap,
        observer: Arc<dyn TaskObserver>,
        handler: Arc<dyn ClientHandler>,
    ) -> Self {
        let report = TaskReport {
            id: id.to_owned(),
            lane: lane.key().clone(),
            status: TaskStatus::Working,
            message: None,
            ttl: None,
            poll_interval: Some(MIN_POLL_INTERVAL),
        };
        let requests = TaskRequests {
            lane: lane.clone(),
            headers,
            handler: Some(handler),
            client: None,
            observer: Some(observer),
        };
        Self::new(report, requests)
    }

    /// Returns how long the task may take, if the server says.
    pub fn ttl(&self) -> Option<Duration> {
        self.report.ttl
    }

    /// Waits for the end of the task and returns its result.
    pub async fn follow(mut self) -> Result<Box<RawValue>, RequestError> {
        let observer = self.requests.observer.clone();
        if let Some(observer) = &observer {
            observer.on_report(&self.report);
        }
        let outcome = match self.requests.lane.session().era {
            Era::Modern => self.follow_modern().await,
            Era::Legacy => self.follow_legacy().await,
        };
        if let (Some(observer), Err(error)) = (&observer, &outcome) {
            observer.on_failure(error);
        }
        outcome
    }

    async fn follow_modern(&mut self) -> Result<Box<RawValue>, RequestError> {
        let mut questions = OpenQuestions::new();
        let mut asked = HashSet::new();
        let mut lost_answers = 0;
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.poll_interval()) => {}
                Some(answer) = questions.next() => self.update(answer).await?,
                reason = self.requests.lane.wait_closed() => return Err(RequestError::Lost(reason)),
            }
            let raw = match self.get().await {
                Err(error) if is_transient(&error) && lost_answers < MAX_LOST_ANSWERS => {
                    lost_answers += 1;
                    continue;
                }
                answer => answer?,
            };
            lost_answers = 0;
            let task: WireTask<'_> = parse(&raw)?;
            self.note(task.to_report(&self.requests.lane)?);
            match self.report.status {
                TaskStatus::Working => {}
                TaskStatus::InputRequired => {
                    let open = task
                        .input_requests
                        .ok_or_else(|| malformed("no questions"))?;
                    self.ask(open, &mut asked, &questions)?;
                }
                TaskStatus::Completed => {
                    self.cancel.id = None;
                    let result = task.result.ok_or_else(|| malformed("no result"))?;
                    return Ok(without_related_task(result.to_owned()));
                }
                TaskStatus::Failed => {
                    self.cancel.id = None;
                    let error = task.error.map(RpcError::parse_lenient);
                    let error = RequestError::Rpc(error.unwrap_or_else(|| self.no_result()));
                    return Err(error.mask_secrets(&self.requests.lane.0.masker));
                }
                TaskStatus::Cancelled => {
                    self.cancel.id = None;
                    return Err(RequestError::Rpc(self.no_result()));
                }
            }
        }
    }

    /// Waits for the result, which a legacy server holds back until the task has ended, and asks for
    /// the state meanwhile.
    async fn follow_legacy(&mut self) -> Result<Box<RawValue>, RequestError> {
        let mut lost_answers = 0;
        let mut result = self.result();
        loop {
            tokio::select! {
                biased;
                outcome = &mut result => match outcome {
                    Err(error) if is_transient(&error) && lost_answers < MAX_LOST_ANSWERS => {
                        lost_answers += 1;
                        // A proxy may have ended a request that took long.
                        tokio::time::sleep(self.poll_interval()).await;
                        result = self.result();
                    }
                    outcome => {
                        self.cancel.id = None;
                        return outcome.map(without_related_task);
                    }
                },
                () = tokio::time::sleep(self.poll_interval()) => {
                    // The result tells if there is a problem.
                    if let Ok(raw) = self.get().await
                        && let Ok(task) = parse::<WireTask<'_>>(&raw)
                    {
                        self.note(task.to_report(&self.requests.lane)?);
                    }
                }
                reason = self.requests.lane.wait_closed() => return Err(RequestError::Lost(reason)),
            }
        }
    }

    fn poll_interval(&self) -> Duration {
        let interval = self.report.poll_interval.unwrap_or(POLL_INTERVAL);
        interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
    }

    async fn get(&self) -> Result<Box<RawValue>, RequestError> {
        let request = self.requests.request("tasks/get", &self.report.id);
        self.requests.send(request).await
    }

    /// Requests the result. The server sends its questions during this request.
    fn result(&self) -> BoxFuture<'static, Result<Box<RawValue>, RequestError>> {
        let request = UpstreamRequest {
            handler: self.requests.handler.clone(),
            ..self.requests.request("tasks/result", &self.report.id)
        };
        let lane = self.requests.lane.clone();
        Box::pin(async move { lane.send(request).await })
    }

    /// Takes note of the state and passes it on.
    fn note(&mut self, report: TaskReport) {
        if let Some(observer) = &self.requests.observer {
            observer.on_report(&report);
        }
        self.report = report;
    }

    /// Asks the client the questions that it was not asked before.
    fn ask(
        &self,
        requests: &RawValue,
        asked: &mut HashSet<String>,
        questions: &OpenQuestions,
    ) -> Result<(), RequestError> {
        let requests: IndexMap<String, InputRequest<'_>> = parse(requests)?;
        for (key, request) in requests {
            if !asked.insert(key.clone()) {
                continue;
            }
            let Some(handler) = &self.requests.handler else {
                return Err(malformed("it requests input, but no client can provide it"));
            };
            if questions.len() >= MAX_QUESTIONS {
                return Err(malformed("it requests too much input at a time"));
            }
            let params = request.params.map(clean_json);
            let answer = handler.on_request(&request.method, params.as_deref());
            questions.push(Box::pin(async move {
                let result = answer.await;
                QuestionAnswer { key, result }
            }));
        }
        Ok(())
    }

    /// Passes an answer on to the server.
    async fn update(&self, answer: QuestionAnswer) -> Result<(), RequestError> {
        let response = answer.result?;
        let responses = Object::new().raw(&answer.key, response.get());
        let request = self.requests.request("tasks/update", &self.report.id);
        let request = UpstreamRequest {
            params: request.params.raw("inputResponses", &responses.to_string()),
            ..request
        };
        self.requests.send(request).await.map(drop)
    }

    fn no_result(&self) -> RpcError {
        let status = self.report.status.as_str();
        let message = match &self.report.message {
            Some(message) => format!("the server reports the task as {status}: {message}"),
            None => format!("the server reports the task as {status}"),
        };
        RpcError::new(INTERNAL_ERROR, message)
    }
}
