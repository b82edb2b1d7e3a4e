//! One script, from its first line to its end: what it calls goes through the engine, and what it
//! has been answered is on record, so that it can be gone on with.

use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use serde_json::value::RawValue;
use toolgate_core::config::ScriptLimits;
use toolgate_core::name::ToolId;
use toolgate_script::preview;
use toolgate_script::protocol::{
    Answer, Bounds, Call, Failure, FailureKind, Language, Script, ToHost, ToWorker,
};
use toolgate_script::stubs::Bindings;

use super::journal::Step;
use super::pool::{Checkout, Death, Pool};
use super::value;
use crate::call::{CallError, Outcome};

/// What the host gives a script beyond its own time, before it ends the worker.
const GRACE: Duration = Duration::from_millis(500);
/// Bytes that tools may answer a script with; they are held here until it ends.
const RECEIVED: usize = 16 * 1024 * 1024;
/// Bytes of a last line that a worker may let through.
const SLACK: usize = 4096;

/// The way of a script's calls to the engine.
pub(crate) trait Door: Send + Sync {
    fn call<'a>(
        &'a self,
        tool: &'a ToolId,
        arguments: &'a RawValue,
        number: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, CallError>> + Send + 'a>>;
}

/// A script to be run, or to be gone on with.
pub(super) struct Run<'a> {
    pub(super) code: &'a str,
    pub(super) bindings: &'a Bindings,
    pub(super) limits: ScriptLimits,
    pub(super) door: &'a dyn Door,
    /// What was called so far, in order; answered from here instead of being called again.
    pub(super) steps: Vec<Option<Step>>,
    pub(super) calls: Vec<Made>,
    pub(super) printed: String,
    deadline: Instant,
    /// Bytes that tools have answered with.
    received: AtomicUsize,
}

/// A call that a script has made, for whoever wants to know.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// `server.tool`, as the script spells it.
    pub(super) name: String,
    pub(super) failed: bool,
}

/// How a script ended.
pub(super) enum End {
    /// With its result, if it has one.
    Done(Option<Box<RawValue>>),
    Failed(Failure),
    /// Before calls that somebody must decide about.
    Waits(Vec<(Call, CallError)>),
}

impl<'a> Run<'a> {
    pub(super) fn new(
        code: &'a str,
        bindings: &'a Bindings,
        limits: ScriptLimits,
        door: &'a dyn Door,
    ) -> Self {
        Self {
            code,
            bindings,
            limits,
            door,
            deadline: Instant::now() + limits.time,
            steps: Vec::new(),
            calls: Vec::new(),
            printed: String::new(),
            received: AtomicUsize::new(0),
        }
    }

    /// A worker for it, or why there is none.
    pub(super) async fn worker(&self, pool: &Pool) -> Result<Result<Checkout, End>, CallError> {
        if let Some(end) = self.too_long() {
            return Ok(Err(end));
        }
        let worker = tokio::time::timeout_at(self.deadline.into(), pool.checkout()).await;
        match worker {
            Ok(Ok(worker)) => Ok(Ok(worker)),
            Ok(Err(error)) => {
                tracing::error!(%error, "no script worker could be had");
                Err(CallError::NoWorker(
                    "no worker could be started; the log says why",
                ))
            }
            Err(_) => Ok(Err(limit("time", "no worker was free in time"))),
        }
    }

    pub(super) async fn go(&mut self, mut worker: Checkout) -> End {
        if self
            .say(&mut worker, ToWorker::Run(self.script()))
            .await
            .is_err()
        {
            return self.dead(worker.die().await);
        }
        // A worker that keeps its bound by itself can say where it was.
        let mut own = self.limits.own_time + GRACE;
        loop {
            let began = Instant::now();
            let end = (began + own).min(self.deadline);
            let heard = tokio::time::timeout_at(end.into(), worker.hear()).await;
            own = own.saturating_sub(began.elapsed());
            match heard {
                Err(_) => return self.late(),
                Ok(Some(ToHost::Calls { calls, printed })) if !calls.is_empty() => {
                    if let Some(end) = self.print(&printed) {
                        return end;
                    }
                    let answers = match self.answer(calls).await {
                        Ok(answers) => answers,
                        Err(end) => return end,
                    };
                    let answers = ToWorker::Answers(answers);
                    if self.say(&mut worker, answers).await.is_err() {
                        return match Instant::now() >= self.deadline {
                            true => self.late(),
                            false => self.dead(worker.die().await),
                        };
                    }
                }
                Ok(Some(ToHost::Ended { ended, printed })) => {
                    return self
                        .print(&printed)
                        .unwrap_or_else(|| self.ended(ended, worker));
                }
                Ok(_) => return self.dead(worker.die().await),
            }
        }
    }

    /// It took too long.
    fn late(&self) -> End {
        let ScriptLimits { own_time, time, .. } = self.limits;
        let text = match Instant::now() >= self.deadline {
            true => format!("it ran longer than {time:?} in all"),
            false => format!("it computed for longer than {own_time:?}"),
        };
        limit("time", &text)
    }

    /// Notes what was printed; a worker that lets more through than it may is not to be trusted.
    fn print(&mut self, printed: &str) -> Option<End> {
        self.printed.push_str(printed);
        let most = self.limits.printed;
        (self.printed.len() > most + SLACK).then(|| {
            self.printed
                .truncate(self.printed.floor_char_boundary(most));
            limit("printed", &format!("it printed more than {most} bytes"))
        })
    }

    fn too_long(&self) -> Option<End> {
        let (length, most) = (self.code.len(), self.limits.source);
        (length > most).then(|| {
            let text = format!("the code has {length} bytes; at most {most} are taken");
            limit("source", &text)
        })
    }

    /// The script with the servers that it names; those that it does not name cost nothing.
    fn script(&self) -> Script {
        let servers = self.bindings.servers();
        let names: Vec<&str> = servers.iter().map(|server| &*server.identifier).collect();
        let mentions = preview::mentions(self.code, &names);
        let needed = servers
            .iter()
            .filter(|server| mentions.needs(&server.identifier));
        let limits = &self.limits;
        Script {
            language: Language::Starlark,
            code: self.code.to_owned(),
            servers: needed.map(|server| server.for_script(&mentions)).collect(),
            bounds: Bounds {
                own_ms: u64::try_from(limits.own_time.as_millis()).unwrap_or(u64::MAX),
                memory: limits.memory,
                calls: limits.calls,
                result: limits.result,
                printed: limits.printed,
            },
        }
    }

    async fn say(&self, worker: &mut Checkout, message: ToWorker) -> io::Result<()> {
        let said = tokio::time::timeout_at(self.deadline.into(), worker.say(&message)).await;
        said.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Answers calls side by side. What somebody must decide about ends the script before it runs;
    /// what ran beside it is kept.
    async fn answer(&mut self, calls: Vec<Call>) -> Result<Vec<Answer>, End> {
        let first = self.calls.len();
        if first + calls.len() > self.limits.calls as usize {
            let text = format!("it may make at most {} calls", self.limits.calls);
            return Err(limit("calls", &text));
        }
        for (at, call) in calls.iter().enumerate() {
            let name = format!("{}.{}", call.server, call.tool);
            let known = self.steps.get(first + at).and_then(Option::as_ref);
            if known.is_some_and(|step| !step.is_of(call)) {
                let text = "it does not do the same as before, so it cannot go on";
                return Err(End::Failed(Failure::new(FailureKind::Runtime, text)));
            }
            self.calls.push(Made {
                name,
                failed: false,
            });
        }
        self.steps
            .resize(self.steps.len().max(self.calls.len()), None);
        let late = || Err(CallError::Cancelled);
        let came: Vec<Result<Answer, CallError>> = {
            let run = &*self;
            let one = |(at, call)| run.one(first + at, call);
            let running = calls.iter().enumerate().map(one).collect::<Vec<_>>();
            stream::iter(running)
                .buffered(run.limits.at_once)
                .map(|came| came.unwrap_or_else(late))
                .collect()
                .await
        };
        if self.received.load(Ordering::Relaxed) > RECEIVED {
            let mib = RECEIVED / (1024 * 1024);
            let text =
                format!("tools answered with more than {mib} MiB; ask them for less at a time");
            return Err(limit("received", &text));
        }
        self.took(first, calls, came)
    }

    /// Notes what came of calls.
    fn took(
        &mut self,
        first: usize,
        calls: Vec<Call>,
        came: Vec<Result<Answer, CallError>>,
    ) -> Result<Vec<Answer>, End> {
        let mut answers = Vec::new();
        let mut waiting = Vec::new();
        for ((at, call), came) in calls.into_iter().enumerate().zip(came) {
            let made = &mut self.calls[first + at];
            match came {
                Ok(answer) => {
                    made.failed = matches!(answer, Answer::Error(_));
                    self.steps[first + at] = Some(Step::new(&call, &answer));
                    answers.push(answer);
                }
                Err(error) => {
                    made.failed = true;
                    waiting.push((call, error));
                }
            }
        }
        if waiting.is_empty() {
            return Ok(answers);
        }
        if Instant::now() >= self.deadline {
            return Err(self.late());
        }
        // They have not been made.
        let mut at = 0;
        self.calls.retain(|made| {
            at += 1;
            at <= first || !made.failed || self.steps[at - 1].is_some()
        });
        Err(End::Waits(waiting))
    }

    /// One call; an error is for somebody else to decide about. None if it was too late.
    async fn one(&self, number: usize, call: &Call) -> Option<Result<Answer, CallError>> {
        if let Some(step) = self.steps.get(number).and_then(Option::as_ref) {
            return Some(Ok(step.answer()));
        }
        let Some(tool) = self.bindings.called(&call.server, &call.tool) else {
            // The worker was told of all that there is.
            let text = format!("there is no tool `{}.{}`", call.server, call.tool);
            return Some(Ok(Answer::Error(text)));
        };
        if self.received.load(Ordering::Relaxed) > RECEIVED {
            return None;
        }
        let made = self.door.call(&tool.source.id, &call.arguments, number);
        let answer = tokio::time::timeout_at(self.deadline.into(), made)
            .await
            .ok()?;
        if let Ok(outcome) = &answer {
            let bytes = outcome.result.raw().get().len();
            self.received.fetch_add(bytes, Ordering::Relaxed);
        }
        Some(match answer {
            Err(error) if error.is_undecided() => Err(error),
            Err(error @ (CallError::Misfit(_) | CallError::BadArguments(_))) => {
                let signature = tool.signature();
                Ok(Answer::Error(format!("{error}\nit is: {signature}")))
            }
            answer => Ok(value::answer(&answer)),
        })
    }

    fn ended(
        &self,
        ended: Result<toolgate_script::protocol::Value, Failure>,
        worker: Checkout,
    ) -> End {
        match ended {
            Ok(made)
                if made
                    .value
                    .as_ref()
                    .is_some_and(|value| value.get().len() > self.limits.result) =>
            {
                limit("result", "its result is larger than it may be")
            }
            Ok(made) => {
                worker.give_back();
                End::Done(made.value)
            }
            Err(failure) => {
                // One that has reached a bound, or broke, may have left anything behind.
                if !matches!(failure.kind, FailureKind::Limit(_) | FailureKind::Broken) {
                    worker.give_back();
                }
                End::Failed(failure)
            }
        }
    }

    /// Why a worker is gone, as far as can be told.
    fn dead(&self, death: Death) -> End {
        let Death { status, last_words } = death;
        let signal = status.and_then(|status| status.signal());
        let died = |number: i32| signal == Some(number);
        if last_words.contains("overflowed its stack") {
            return limit("depth", "it is nested too deeply");
        }
        // An allocation that fails ends it in one of several ways.
        if last_words.contains("memory") || died(SIGKILL) || died(SIGSEGV) {
            let mib = self.limits.memory / (1024 * 1024);
            return limit("memory", &format!("it used more than {mib} MiB of memory"));
        }
        if died(SIGXCPU) {
            let text = format!("it computed for longer than {:?}", self.limits.own_time);
            return limit("time", &text);
        }
        tracing::warn!(?status, %last_words, "a script worker died");
        let text = "it broke the sandbox, which was ended";
        End::Failed(Failure::new(FailureKind::Limit("sandbox".to_owned()), text))
    }
}

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGXCPU: i32 = 24;

fn limit(which: &str, text: &str) -> End {
    End::Failed(Failure::new(FailureKind::Limit(which.to_owned()), text))
}
