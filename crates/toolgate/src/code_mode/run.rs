//! One script, from its first line to its end: what it calls goes through the engine, and what it
//! has been answered is on record, so that it can be gone on with.

use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::Pin;
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

/// What the host gives a script beyond its own time, before it ends the worker: one that keeps its
/// bounds by itself can say where it was.
const GRACE: Duration = Duration::from_millis(500);

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

impl Run<'_> {
    pub(super) async fn go(&mut self, pool: &Pool) -> Result<End, CallError> {
        if let Some(end) = self.too_long() {
            return Ok(end);
        }
        let deadline = Instant::now() + self.limits.time;
        let worker = tokio::time::timeout_at(deadline.into(), pool.checkout()).await;
        let mut worker = match worker {
            Ok(Ok(worker)) => worker,
            Ok(Err(error)) => {
                tracing::error!(%error, "no script worker could be had");
                return Err(CallError::NoWorker(
                    "no worker could be started; the log says why",
                ));
            }
            Err(_) => return Ok(limit("time", "no worker was free in time")),
        };
        let script = self.script();
        if worker.say(&ToWorker::Run(script)).await.is_err() {
            return Ok(self.dead(worker.die().await));
        }
        let mut own = Duration::ZERO;
        loop {
            let began = Instant::now();
            let own_end = began + self.limits.own_time.saturating_sub(own) + GRACE;
            let heard = tokio::time::timeout_at(own_end.min(deadline).into(), worker.hear()).await;
            own += began.elapsed();
            match heard {
                Err(_) => {
                    let text = match Instant::now() >= deadline {
                        true => format!("it ran longer than {:?} in all", self.limits.time),
                        false => format!("it computed for longer than {:?}", self.limits.own_time),
                    };
                    return Ok(limit("time", &text));
                }
                Ok(Some(ToHost::Calls { calls, printed })) => {
                    self.printed.push_str(&printed);
                    let answers = match self.answer(calls, deadline).await {
                        Ok(answers) => answers,
                        Err(end) => return Ok(end),
                    };
                    let said = self.say(&mut worker, answers, deadline).await;
                    if said.is_err() {
                        return Ok(self.dead(worker.die().await));
                    }
                }
                Ok(Some(ToHost::Ended { ended, printed })) => {
                    self.printed.push_str(&printed);
                    return Ok(self.ended(ended, worker));
                }
                Ok(_) => return Ok(self.dead(worker.die().await)),
            }
        }
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

    async fn say(
        &self,
        worker: &mut Checkout,
        answers: Vec<Answer>,
        deadline: Instant,
    ) -> io::Result<()> {
        let message = ToWorker::Answers(answers);
        let said = tokio::time::timeout_at(deadline.into(), worker.say(&message)).await;
        said.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Answers calls side by side. What somebody must decide about ends the script before it runs;
    /// what ran beside it is kept.
    async fn answer(&mut self, calls: Vec<Call>, deadline: Instant) -> Result<Vec<Answer>, End> {
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
            let one = |(at, call)| run.one(first + at, call, deadline);
            let running = calls.iter().enumerate().map(one).collect::<Vec<_>>();
            stream::iter(running)
                .buffered(run.limits.at_once)
                .map(|came| came.unwrap_or_else(late))
                .collect()
                .await
        };
        self.took(first, calls, came, deadline)
    }

    /// Notes what came of calls.
    fn took(
        &mut self,
        first: usize,
        calls: Vec<Call>,
        came: Vec<Result<Answer, CallError>>,
        deadline: Instant,
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
        if Instant::now() >= deadline {
            let text = format!("it ran longer than {:?} in all", self.limits.time);
            return Err(limit("time", &text));
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
    async fn one(
        &self,
        number: usize,
        call: &Call,
        deadline: Instant,
    ) -> Option<Result<Answer, CallError>> {
        if let Some(step) = self.steps.get(number).and_then(Option::as_ref) {
            return Some(Ok(step.answer()));
        }
        let Some(tool) = self.bindings.called(&call.server, &call.tool) else {
            // The worker was told of all that there is.
            let text = format!("there is no tool `{}.{}`", call.server, call.tool);
            return Some(Ok(Answer::Error(text)));
        };
        let made = self.door.call(&tool.source.id, &call.arguments, number);
        let answer = tokio::time::timeout_at(deadline.into(), made).await.ok()?;
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
            Ok(made) => {
                worker.give_back();
                End::Done(made.value)
            }
            Err(failure) => {
                // One that has reached a bound may have left anything behind.
                if !matches!(failure.kind, FailureKind::Limit(_)) {
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
        if last_words.contains("overflowed its stack") || died(SIGSEGV) {
            return limit("depth", "it is nested too deeply");
        }
        if last_words.contains("memory") || died(SIGKILL) {
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
