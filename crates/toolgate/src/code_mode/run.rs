//! Execution of one script. Its calls go through the engine, and their results are recorded so that a
//! suspended script can be resumed.

use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use toolgate_core::config::ScriptLimits;
use toolgate_core::name::ToolId;
use toolgate_core::plural::count;
use toolgate_script::preview;
use toolgate_script::protocol::{
    FailureKind, HostMessage, Language, ScriptCall, ScriptCallResult, ScriptFailure, ScriptRequest,
    ScriptResult, WorkerLimits, WorkerMessage,
};
use toolgate_script::stubs::Bindings;

use super::journal::ScriptStep;
use super::pool::{AcquireError, WorkerLease, WorkerPool};
use super::worker_process::WorkerExit;
use super::{MAX_WAITING_SCRIPTS, value};
use crate::call::{CallError, LimitReached, Outcome};
use crate::concurrent::run_in_order;
use crate::metrics::Bound;
use toolgate_mcp::fair_queue::{NoSlot, Owner};

/// Extra time beyond a script's own limit before the host terminates the worker. A worker that enforces
/// the limit itself can report where the script was.
const WORKER_GRACE: Duration = Duration::from_millis(500);
/// Time after which a refused script is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Total size of tool results for one script; they are held in memory until it ends.
const MAX_RECEIVED_BYTES: usize = 16 * 1024 * 1024;
/// Bytes by which the last printed line may exceed the limit.
const MAX_PRINT_OVERRUN: usize = 4096;

/// Makes a script's tool calls through the engine.
pub(crate) trait ToolCaller: Send + Sync {
    fn call<'a>(
        &'a self,
        tool: &'a ToolId,
        arguments: &'a RawValue,
        number: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, CallError>> + Send + 'a>>;
}

/// State of a script that is run or resumed.
pub(super) struct ScriptRun<'a> {
    pub(super) code: &'a str,
    pub(super) bindings: &'a Bindings,
    pub(super) limits: ScriptLimits,
    pub(super) tool_caller: &'a dyn ToolCaller,
    /// Recorded calls in order; replayed from here instead of being made again.
    pub(super) steps: Vec<Option<ScriptStep>>,
    pub(super) calls: Vec<ScriptCallRecord>,
    pub(super) printed: String,
    deadline: Instant,
    /// Total size of tool results in bytes.
    received: AtomicUsize,
}

/// Summary of a call made by a script.
#[derive(Clone, Debug)]
pub(super) struct ScriptCallRecord {
    /// `server.tool`, as the script spells it.
    pub(super) name: String,
    pub(super) failed: bool,
}

/// End of a script.
pub(super) enum ScriptEnd {
    /// Completed, with its result if it has one.
    Done(Option<Box<RawValue>>),
    Failed(ScriptFailure),
    /// Suspended before calls that need a decision.
    Waiting(Vec<(ScriptCall, CallError)>),
}

/// End of a script in one worker.
enum WorkerEnd {
    /// The worker reported how it ended.
    Reported(Result<ScriptResult, ScriptFailure>),
    /// The host ended it.
    Stopped(ScriptEnd),
    /// The worker is gone.
    Died,
}

/// Outcome of acquiring a worker for a script.
pub(super) enum WorkerAcquisition {
    Acquired(WorkerLease),
    /// The script ends without a worker.
    ScriptEnded(ScriptEnd),
}

impl<'a> ScriptRun<'a> {
    pub(super) fn new(
        code: &'a str,
        bindings: &'a Bindings,
        limits: ScriptLimits,
        tool_caller: &'a dyn ToolCaller,
    ) -> Self {
        Self {
            code,
            bindings,
            limits,
            tool_caller,
            deadline: Instant::now() + limits.max_time,
            steps: Vec::new(),
            calls: Vec::new(),
            printed: String::new(),
            received: AtomicUsize::new(0),
        }
    }

    /// Acquires a worker, unless the script is too large or no worker is free in time.
    pub(super) async fn acquire_worker(
        &self,
        pool: &WorkerPool,
        owner: &Owner,
    ) -> Result<WorkerAcquisition, CallError> {
        if let Some(end) = self.check_source_size() {
            return Ok(WorkerAcquisition::ScriptEnded(end));
        }
        let worker = tokio::time::timeout_at(self.deadline.into(), pool.acquire(owner)).await;
        match worker {
            Ok(Ok(worker)) => Ok(WorkerAcquisition::Acquired(worker)),
            Ok(Err(AcquireError::Slot(NoSlot::Closed))) => Err(CallError::Stopping),
            Ok(Err(AcquireError::Slot(NoSlot::QueueFull | NoSlot::OwnerQueueFull))) => {
                Err(CallError::Limited {
                    limit: LimitReached::share(
                        owner.as_deref(),
                        Bound::ScriptsPerKey,
                        MAX_WAITING_SCRIPTS,
                    ),
                    retry_after: Some(RETRY_AFTER),
                })
            }
            Ok(Err(AcquireError::Start(error))) => {
                tracing::error!(%error, "failed to acquire script worker");
                Err(CallError::NoWorker(
                    "no worker could be started; see the gateway log",
                ))
            }
            Err(_) => Ok(WorkerAcquisition::ScriptEnded(limit_end(
                "time",
                "no worker was free in time",
            ))),
        }
    }

    /// Runs the script until it ends or is suspended. If the worker dies before the script's first call for
    /// no reason of the script, it runs again in another worker.
    pub(super) async fn execute(&mut self, mut worker: WorkerLease) -> ScriptEnd {
        let mut may_retry = true;
        loop {
            match self.execute_in(&mut worker).await {
                WorkerEnd::Reported(ended) => return self.finish(ended, worker),
                WorkerEnd::Stopped(end) => return end,
                WorkerEnd::Died => {}
            }
            let exit = worker.terminate().await;
            if let Some(end) = self.explain_death(&exit) {
                return end;
            }
            let WorkerExit { status, stderr } = exit;
            tracing::warn!(?status, %stderr, "script worker died");
            may_retry &= self.calls.is_empty();
            if !may_retry || worker.replace().await.is_err() {
                let text = "its worker was terminated from outside, perhaps because the machine ran out of memory";
                return limit_end("sandbox", text);
            }
            may_retry = false;
        }
    }

    /// Runs the script in a worker.
    async fn execute_in(&mut self, worker: &mut WorkerLease) -> WorkerEnd {
        let script = HostMessage::Run(self.build_script());
        if self.send(worker, script).await.is_err() {
            return WorkerEnd::Died;
        }
        let mut remaining_compute_time = self.limits.max_own_time + WORKER_GRACE;
        loop {
            let started_at = Instant::now();
            let end = (started_at + remaining_compute_time).min(self.deadline);
            let message = tokio::time::timeout_at(end.into(), worker.receive()).await;
            remaining_compute_time = remaining_compute_time.saturating_sub(started_at.elapsed());
            match message {
                Err(_) => return WorkerEnd::Stopped(self.time_limit_end()),
                Ok(Some(WorkerMessage::Calls { calls, printed })) if !calls.is_empty() => {
                    if let Some(end) = self.append_printed(&printed) {
                        return WorkerEnd::Stopped(end);
                    }
                    let answers = match self.answer_calls(calls).await {
                        Ok(answers) => answers,
                        Err(end) => return WorkerEnd::Stopped(end),
                    };
                    let answers = HostMessage::Answers(answers);
                    if self.send(worker, answers).await.is_err() {
                        return if Instant::now() >= self.deadline {
                            WorkerEnd::Stopped(self.time_limit_end())
                        } else {
                            WorkerEnd::Died
                        };
                    }
                }
                Ok(Some(WorkerMessage::Ended { ended, printed })) => {
                    return match self.append_printed(&printed) {
                        Some(end) => WorkerEnd::Stopped(end),
                        None => WorkerEnd::Reported(ended),
                    };
                }
                Ok(_) => return WorkerEnd::Died,
            }
        }
    }

    /// Ends a script that exceeded a time limit.
    fn time_limit_end(&self) -> ScriptEnd {
        let ScriptLimits {
            max_own_time,
            max_time,
            ..
        } = self.limits;
        let text = if Instant::now() >= self.deadline {
            format!("it ran longer than {max_time:?} in total")
        } else {
            format!("it computed for longer than {max_own_time:?}")
        };
        limit_end("time", &text)
    }

    /// Appends printed text. A worker that exceeds the limit it should enforce is no longer trusted.
    fn append_printed(&mut self, printed: &str) -> Option<ScriptEnd> {
        self.printed.push_str(printed);
        let limit = self.limits.max_print_bytes;
        (self.printed.len() > limit + MAX_PRINT_OVERRUN).then(|| {
            self.printed
                .truncate(self.printed.floor_char_boundary(limit));
            limit_end("printed", &format!("it printed more than {limit} bytes"))
        })
    }

    fn check_source_size(&self) -> Option<ScriptEnd> {
        let (length, limit) = (self.code.len(), self.limits.max_source_bytes);
        (length > limit).then(|| {
            let text = format!("the code has {length} bytes; at most {limit} are allowed");
            limit_end("source", &text)
        })
    }

    /// Builds the worker's request with only the servers the script mentions.
    fn build_script(&self) -> ScriptRequest {
        let servers = self.bindings.servers();
        let names: Vec<&str> = servers.iter().map(|server| &*server.identifier).collect();
        let mentions = preview::find_mentions(self.code, &names);
        let needed = servers
            .iter()
            .filter(|server| mentions.has_server(&server.identifier));
        let limits = &self.limits;
        ScriptRequest {
            language: Language::Starlark,
            code: self.code.to_owned(),
            servers: needed
                .map(|server| server.to_script_server(&mentions))
                .collect(),
            bounds: WorkerLimits {
                compute_ms: u64::try_from(limits.max_own_time.as_millis()).unwrap_or(u64::MAX),
                memory: limits.max_memory_bytes,
                calls: limits.max_calls,
                result: limits.max_result_bytes,
                printed: limits.max_print_bytes,
            },
        }
    }

    async fn send(&self, worker: &mut WorkerLease, message: HostMessage) -> io::Result<()> {
        let sent = tokio::time::timeout_at(self.deadline.into(), worker.send(&message)).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Makes calls concurrently and returns their results. A call that needs a decision suspends the
    /// script; the results of the other calls are kept.
    async fn answer_calls(
        &mut self,
        calls: Vec<ScriptCall>,
    ) -> Result<Vec<ScriptCallResult>, ScriptEnd> {
        let first = self.calls.len();
        if first + calls.len() > self.limits.max_calls as usize {
            let max_calls = count(self.limits.max_calls.into(), "call", "calls");
            let text = format!("it may make at most {max_calls}");
            return Err(limit_end("calls", &text));
        }
        for (at, call) in calls.iter().enumerate() {
            let name = format!("{}.{}", call.server, call.tool);
            let known = self.steps.get(first + at).and_then(Option::as_ref);
            if known.is_some_and(|step| !step.is_same_call(call)) {
                let text = "it made different calls than before, so it cannot be resumed";
                return Err(ScriptEnd::Failed(ScriptFailure::new(
                    FailureKind::Runtime,
                    text,
                )));
            }
            self.calls.push(ScriptCallRecord {
                name,
                failed: false,
            });
        }
        self.steps
            .resize(self.steps.len().max(self.calls.len()), None);
        let results: Vec<Result<ScriptCallResult, CallError>> = {
            let run = &*self;
            let make_call = |(at, call)| run.make_call(first + at, call);
            let running = calls.iter().enumerate().map(make_call).collect();
            run_in_order(running, run.limits.max_parallel_calls).await
        };
        if self.received.load(Ordering::Relaxed) > MAX_RECEIVED_BYTES {
            let mib = MAX_RECEIVED_BYTES / (1024 * 1024);
            let text = format!("tools returned more than {mib} MiB; request less at a time");
            return Err(limit_end("received", &text));
        }
        self.record_answers(first, calls, results)
    }

    /// Records the results of calls.
    fn record_answers(
        &mut self,
        first: usize,
        calls: Vec<ScriptCall>,
        results: Vec<Result<ScriptCallResult, CallError>>,
    ) -> Result<Vec<ScriptCallResult>, ScriptEnd> {
        let mut answers = Vec::new();
        let mut waiting = Vec::new();
        for ((at, call), result) in calls.into_iter().enumerate().zip(results) {
            let record = &mut self.calls[first + at];
            match result {
                Ok(answer) => {
                    record.failed = matches!(answer, ScriptCallResult::Error(_));
                    self.steps[first + at] = Some(ScriptStep::new(&call, &answer));
                    answers.push(answer);
                }
                Err(error) => {
                    record.failed = true;
                    waiting.push((call, error));
                }
            }
        }
        if waiting.is_empty() {
            return Ok(answers);
        }
        if Instant::now() >= self.deadline {
            return Err(self.time_limit_end());
        }
        // Calls that await a decision were not made.
        let mut at = 0;
        self.calls.retain(|record| {
            at += 1;
            at <= first || !record.failed || self.steps[at - 1].is_some()
        });
        Err(ScriptEnd::Waiting(waiting))
    }

    /// Makes or replays one call. Returns an error if the call needs a decision, and
    /// [`CallError::Cancelled`] if the deadline or the size limit was reached.
    async fn make_call(
        &self,
        number: usize,
        call: &ScriptCall,
    ) -> Result<ScriptCallResult, CallError> {
        if let Some(step) = self.steps.get(number).and_then(Option::as_ref) {
            return Ok(step.answer());
        }
        let Some(tool) = self.bindings.tool(&call.server, &call.tool) else {
            // The worker knows all tools, so this call is forged or broken.
            let text = format!("there is no tool `{}.{}`", call.server, call.tool);
            return Ok(ScriptCallResult::Error(text));
        };
        if self.received.load(Ordering::Relaxed) > MAX_RECEIVED_BYTES {
            return Err(CallError::Cancelled);
        }
        let pending = self
            .tool_caller
            .call(&tool.source.id, &call.arguments, number);
        let answer = tokio::time::timeout_at(self.deadline.into(), pending)
            .await
            .map_err(|_| CallError::Cancelled)?;
        if let Ok(outcome) = &answer {
            let bytes = outcome.result.raw().get().len();
            self.received.fetch_add(bytes, Ordering::Relaxed);
        }
        match answer {
            Err(error) if error.is_undecided() => Err(error),
            Err(error @ (CallError::SchemaViolation(_) | CallError::BadArguments(_))) => {
                let signature = tool.signature();
                Ok(ScriptCallResult::Error(format!(
                    "{error}\nsignature: {signature}"
                )))
            }
            answer => Ok(value::to_script_answer(&answer)),
        }
    }

    fn finish(&self, ended: Result<ScriptResult, ScriptFailure>, worker: WorkerLease) -> ScriptEnd {
        match ended {
            Ok(result)
                if result
                    .value
                    .as_ref()
                    .is_some_and(|value| value.get().len() > self.limits.max_result_bytes) =>
            {
                limit_end("result", "its result exceeds the size limit")
            }
            Ok(result) => {
                worker.release();
                ScriptEnd::Done(result.value)
            }
            Err(failure) => {
                // A worker that hit a limit or broke may be in an inconsistent state.
                if !matches!(failure.kind, FailureKind::Limit(_) | FailureKind::Broken) {
                    worker.release();
                }
                ScriptEnd::Failed(failure)
            }
        }
    }

    /// Infers from a worker's exit how the script ended it. Returns `None` if the script did not.
    fn explain_death(&self, exit: &WorkerExit) -> Option<ScriptEnd> {
        let WorkerExit { status, stderr } = exit;
        let signal = status.and_then(|status| status.signal());
        if stderr.contains("overflowed its stack") {
            return Some(limit_end("depth", "it is nested too deeply"));
        }
        // A failed allocation ends the worker with a message or this signal.
        if stderr.contains("memory") || signal == Some(SIGSEGV) {
            let mib = self.limits.max_memory_bytes / (1024 * 1024);
            let text = format!("it used more than {mib} MiB of memory");
            return Some(limit_end("memory", &text));
        }
        if signal == Some(SIGXCPU) {
            let text = format!("it computed for longer than {:?}", self.limits.max_own_time);
            return Some(limit_end("time", &text));
        }
        None
    }
}

const SIGSEGV: i32 = 11;
const SIGXCPU: i32 = 24;

fn limit_end(which: &str, text: &str) -> ScriptEnd {
    ScriptEnd::Failed(ScriptFailure::new(
        FailureKind::Limit(which.to_owned()),
        text,
    ))
}
