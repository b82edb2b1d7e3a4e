//! Requests of clients about tasks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use indexmap::IndexMap;
use serde_json::value::RawValue;
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{self, INVALID_PARAMS, RpcError, RpcResult};
use toolgate_mcp::task::RELATED_TASK;

use super::follower::TaskQuestion;
use super::wire::related_task;
use super::{FoundTask, RunningTask, TaskSubscriber, TaskView, Tasks};
use crate::mcp_server::era_adapter::add_meta;
use crate::mcp_server::page::encode_page;
use crate::mcp_server::request::RequestHandler;
use crate::mcp_server::to_raw;
use crate::tasks::{TaskOwner, TaskRecord, TaskState};

impl RequestHandler {
    pub(super) fn task_owner(&self) -> TaskOwner {
        TaskOwner {
            caller: self
                .caller
                .key()
                .map_or_else(String::new, |key| key.to_string()),
            endpoint: self.endpoint.to_string(),
        }
    }

    /// Returns the state of a task.
    pub(in crate::mcp_server) async fn get_task(&self, id: &str) -> RpcResult {
        let view = self.view_task(id).await?;
        Ok(to_raw(&view.to_object(self.era)))
    }

    /// Returns the state of a task, with its outcome if it has ended.
    pub(in crate::mcp_server) async fn view_task(&self, id: &str) -> Result<TaskView, RpcError> {
        match self.find_task(id).await? {
            FoundTask::Running(task) => Ok(task.view()),
            FoundTask::Ended(record) | FoundTask::Interrupted(record) => {
                self.server.tasks().view_ended(record).await
            }
        }
    }

    /// Subscribes to the changes of a task; `None` if it does not exist for the caller.
    pub(in crate::mcp_server) async fn subscribe_task(
        &self,
        id: &str,
        subscriber: &Arc<TaskSubscriber>,
    ) -> Option<()> {
        if let FoundTask::Running(task) = self.find_task(id).await.ok()? {
            task.subscribe(subscriber);
        }
        // It may have changed, or ended, before the client subscribed.
        subscriber(&self.view_task(id).await.ok()?);
        Some(())
    }

    /// Passes a modern client's answers on to the server.
    pub(in crate::mcp_server) async fn update_task(
        &self,
        id: &str,
        responses: &RawValue,
    ) -> RpcResult {
        let responses: HashMap<String, Box<RawValue>> = serde_json::from_str(responses.get())
            .map_err(|error| RpcError::new(INVALID_PARAMS, format!("`inputResponses`: {error}")))?;
        if let FoundTask::Running(task) = self.find_task(id).await? {
            let responses = responses.into_iter();
            task.follower
                .answer(responses.map(|(key, raw)| (key, Ok(raw))).collect());
        }
        Ok(jsonrpc::empty_object())
    }

    /// Cancels a task, at its server too. A modern client may cancel a task that has ended.
    pub(in crate::mcp_server) async fn cancel_task(&self, id: &str) -> RpcResult {
        if let FoundTask::Running(task) = self.find_task(id).await? {
            task.cancel.cancel();
            task.follower.wait_for_end().await;
        } else if self.era == Era::Legacy {
            return Err(RpcError::new(INVALID_PARAMS, "the task has already ended"));
        }
        match self.era {
            Era::Legacy => self.get_task(id).await,
            Era::Modern => Ok(jsonrpc::empty_object()),
        }
    }

    /// Returns the tasks of the caller at this endpoint.
    pub(in crate::mcp_server) async fn list_tasks(&self, cursor: Option<&str>) -> RpcResult {
        let tasks = self.server.tasks();
        let records = tasks.list(&self.task_owner()).await?;
        let mut items: Vec<(String, Box<RawValue>)> = records
            .into_iter()
            .map(|view| {
                let key = format!("{:020}-{}", view.record.created_at, view.record.id);
                (key, to_raw(&view.to_object(Era::Legacy)))
            })
            .collect();
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let items = items.iter().map(|(key, raw)| (key.clone(), &**raw));
        encode_page("tasks", items, cursor)
    }

    /// Waits for the end of a task and returns its result. The client is asked what the server asks
    /// meanwhile.
    pub(in crate::mcp_server) async fn task_result(&self, id: &str) -> RpcResult {
        if let FoundTask::Running(task) = self.find_task(id).await? {
            self.ask_until_end(&task).await;
        }
        self.view_task(id).await?.into_result()
    }

    /// Asks the client the questions of a task until the task has ended.
    async fn ask_until_end(&self, task: &RunningTask) {
        let mut progress = task.follower.subscribe();
        let mut asked = HashSet::new();
        let mut answers = FuturesUnordered::new();
        loop {
            let (questions, is_over) = {
                let progress = progress.borrow_and_update();
                (progress.questions.clone(), progress.end.is_some())
            };
            if is_over {
                return;
            }
            for (key, question) in questions {
                if asked.insert(key.clone()) {
                    let answer = self.ask_question(&task.record.id, &question);
                    answers.push(async move { (key, answer.await) });
                }
            }
            tokio::select! {
                Some((key, answer)) = answers.next() => {
                    task.follower.answer(HashMap::from([(key, answer)]));
                }
                changed = progress.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Asks the client a question on the stream of this request.
    fn ask_question(&self, id: &str, question: &TaskQuestion) -> BoxFuture<'static, RpcResult> {
        let Some(handler) = &self.context.client_handler else {
            let error = RpcError::method_not_found(&question.method);
            return Box::pin(std::future::ready(Err(error)));
        };
        let params = question
            .params
            .clone()
            .unwrap_or_else(jsonrpc::empty_object);
        let params = add_meta(params, RELATED_TASK, &related_task(id));
        handler.on_request(&question.method, Some(&params))
    }
}

impl Tasks {
    /// Returns the tasks of an owner, without their outcomes.
    async fn list(&self, owner: &TaskOwner) -> Result<Vec<TaskView>, RpcError> {
        let records = self.0.store.list(owner).await;
        let records = records.map_err(|error| super::store_error(&error))?;
        let views = records.into_iter().map(|record| {
            let running = self.0.running.lock().get(&record.id).cloned();
            match running {
                Some(task) => task.view(),
                None => TaskView {
                    record: TaskRecord {
                        state: if record.state == TaskState::Working
                            && !self.outlives_process(&record)
                        {
                            TaskState::Failed
                        } else {
                            record.state
                        },
                        ..record
                    },
                    questions: IndexMap::new(),
                    outcome: None,
                },
            }
        });
        Ok(views.collect())
    }
}
