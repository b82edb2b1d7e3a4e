//! The task that executes a run. It lives until the run ends or the receiver of its response is
//! dropped, which cancels the run.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::replay::Replay;
use super::report::RunStopReason;
use super::resume::{ResumeError, ResumePlan};
use super::sink::RunSink;
use super::turn::TurnError;
use super::{AgentRun, RunEnd, RunState};
use crate::active_set::ActiveGuard;
use crate::call::CallError;
use crate::hook::RunEventKind;
use crate::models::{ModelError, ModelResponse, ResponseBody};

/// Response of a run, or the reason why it failed or could not be resumed.
type RunResult = Result<ModelResponse, ResumeError>;

/// Handle to a running task. Dropping it cancels the run.
pub(super) struct StartedRun {
    work: JoinHandle<RunResult>,
    guard: DropGuard,
    stream: Option<RunStream>,
}

/// Receiving end of a streamed run.
pub(super) struct RunStream {
    /// Resolves when the stream starts; until then the run may still end with a plain response.
    pub(super) started: oneshot::Receiver<()>,
    pub(super) chunks: mpsc::Receiver<Bytes>,
}

/// Spawns the task of a run and registers it as active.
pub(super) fn start(run: AgentRun, plan: Option<ResumePlan>) -> StartedRun {
    let active = run.runs.active().register(&run.id);
    let guard = active.token().clone().drop_guard();
    let (sink, stream) = RunSink::for_run(&run);
    let (runs, id) = (run.runs.clone(), run.id.clone());
    let resumes_itself = run.limits.resume_on_approval == Some(true);
    let tasks = runs.tasks().clone();
    let work = tasks.spawn(Box::pin(async move {
        let result = execute(run, sink, plan, active).await;
        // Its calls may have been decided before it started to wait.
        if resumes_itself && !runs.stop_token().is_cancelled() {
            runs.resume_if_decided(&id);
        }
        result
    }));
    StartedRun {
        work,
        guard,
        stream,
    }
}

impl StartedRun {
    /// Waits for the response or the start of its stream. A failure before the stream starts is
    /// returned as a plain response.
    pub(super) async fn response(self, id: &str) -> RunResult {
        let Self {
            work,
            guard,
            stream,
        } = self;
        if let Some(RunStream { started, chunks }) = stream
            && started.await.is_ok()
        {
            return Ok(stream_response(id, chunks, guard));
        }
        let result = work.await;
        drop(guard);
        result.unwrap_or(Err(ResumeError::Model(ModelError::Cancelled)))
    }
}

/// Wraps the chunks in a response that cancels the run when it is dropped.
fn stream_response(id: &str, chunks: mpsc::Receiver<Bytes>, guard: DropGuard) -> ModelResponse {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    super::report::set_run_id(&mut headers, id);
    let chunks = stream::unfold((chunks, guard), |(mut chunks, guard)| async move {
        let chunk = chunks.recv().await?;
        Some((chunk, (chunks, guard)))
    });
    ModelResponse {
        status: StatusCode::OK,
        headers,
        body: ResponseBody::Stream(chunks.boxed()),
    }
}

async fn execute(
    mut run: AgentRun,
    mut sink: RunSink,
    plan: Option<ResumePlan>,
    active: ActiveGuard,
) -> RunResult {
    let work = async {
        if let Some(plan) = &plan {
            run.answer_pending_calls(plan, &mut sink).await?;
        }
        Ok::<RunEnd, ResumeError>(run.run_turns(&mut sink).await)
    };
    let end = match active.token().run_until_cancelled(work).await {
        Some(Ok(end)) => end,
        Some(Err(error)) => {
            run.restore_record(plan).await;
            sink.finish_with_refusal(&run, &error).await;
            return Err(error);
        }
        None => run.interrupt(active.are_all_cancelled()).await,
    };
    run.record_end(&end).await;
    let stop_reason = end.stop.as_str();
    sink.send_event(RunEventKind::Ended { stop_reason });
    if !sink.has_started() {
        return Ok(run.build_response(end).await?);
    }
    tokio::select! {
        biased;
        () = sink.finish(&run, &end) => {}
        // A caller that stopped reading must not block the task.
        () = active.token().cancelled() => {}
    }
    Err(ResumeError::Model(ModelError::Cancelled))
}

impl AgentRun {
    /// Restores the record a refused resume had marked as running.
    async fn restore_record(&self, plan: Option<ResumePlan>) {
        let Some(plan) = plan else { return };
        let updated = self.runs.store().update(&plan.record).await;
        if let Err(error) = updated {
            tracing::error!(%error, run = %self.id, "failed to restore run record");
        }
    }

    /// Ends a run that was cancelled in the middle of a step, restoring what its journal recorded.
    async fn interrupt(&mut self, gateway_stopping: bool) -> RunEnd {
        let steps = self.runs.store().steps(&self.id).await;
        match steps.and_then(|steps| Replay::from_steps(self.record.started_at, &steps)) {
            Ok(replay) => self.restore_from(&replay),
            Err(error) => {
                tracing::error!(%error, run = %self.id, "failed to read run journal");
            }
        }
        let (state, error) = if gateway_stopping {
            (
                RunState::Interrupted,
                ModelError::Refused(CallError::Stopping),
            )
        } else {
            (RunState::Cancelled, ModelError::Cancelled)
        };
        RunEnd {
            stop: RunStopReason::Interrupted(state),
            pending: Vec::new(),
            error: Some(TurnError::Error(error)),
        }
    }

    fn restore_from(&mut self, replay: &Replay) {
        self.turn_count = replay.turn_count;
        self.tool_turn_count = replay.tool_turn_count;
        self.turns.clone_from(&replay.turns);
        self.usage = replay.usage;
        self.micro_usd = replay.micro_usd;
        self.executed.clone_from(&replay.executed);
        let unanswered = replay.unanswered_calls();
        let in_flight = unanswered
            .iter()
            .filter(|call| replay.opened.contains(&call.id));
        let unknown: Vec<_> = in_flight
            .map(|call| self.call_with_unknown_outcome(call))
            .collect();
        self.executed.extend(unknown);
    }
}
