//! The agent: lets a model call tools that run unasked, until it has its answer.
//!
//! A run is a task of its own. It ends with the model's answer, with calls that somebody else must
//! decide about or run, or with a bound; nothing that ran is lost from what it answers. The
//! conversation grows in the caller's dialect, by the provider's own words where it speaks that.
//!
//! A program that embeds it asks a model as a caller over HTTP would, and has its say by a
//! [`crate::Hook`]:
//!
//! ```
//! use serde_json::{Value, json};
//! use toolgate::agent::{Happening, RunEvent};
//! use toolgate::config::{Document, Format};
//! use toolgate::local::{LocalServer, Output};
//! use toolgate::{Caller, Config, Dialect, Gateway, Hook, ModelRequest, ServerName};
//!
//! #[derive(Debug)]
//! struct Narrator;
//!
//! impl Hook for Narrator {
//!     fn hear(&self, event: RunEvent<'_>) {
//!         match event.happening {
//!             Happening::Text(text) => print!("{text}"),
//!             Happening::CallStarted { name, arguments, .. } => println!("[{name} {arguments}]"),
//!             _ => {}
//!         }
//!     }
//! }
//!
//! # use toolgate_testkit::model::{Model, Reply};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let call = ("c1", "clock_time", json!({}));
//! # let model = Model::start(vec![Reply::calls([call]), Reply::text("It is noon.")]);
//! # let base_url = format!("{}/v1", model.url());
//! let clock = LocalServer::new(ServerName::parse("clock")?).tool(
//!     "time",
//!     "What time it is",
//!     &json!({"type": "object"}),
//!     |_| async { Ok(Output::Text("12:00".to_owned())) },
//! );
//! let text = format!(
//!     "[providers.models]
//!      base_url = {base_url:?}
//!      [[permissions.rules]]
//!      tool = \"clock.time\"
//!      action = \"allow\"
//!     "
//! );
//! let (config, _) = Config::load(&[Document::parse("agent.toml", Format::Toml, &text)])?;
//! let gateway = Gateway::builder(config).local(clock).hook(Narrator).start().await?;
//! gateway.settled().await;
//!
//! let asked = json!({"model": "models/any", "messages": [{"role": "user", "content": "What time is it?"}]});
//! let request = ModelRequest::new(Dialect::Chat, &asked);
//! let answer = gateway.models().complete(&Caller::library(), request).await?;
//! let answer: Value = serde_json::from_slice(&answer.bytes().await)?;
//! assert_eq!(answer["choices"][0]["message"]["content"], "It is noon.");
//! assert_eq!(answer["toolgate"]["executed"][0]["result"], "12:00");
//! # gateway.stop(std::time::Duration::ZERO).await;
//! # Ok(()) }
//! ```

mod act;
mod event;
mod guard;
mod journal;
mod report;
mod resume;
mod sink;
mod task;
mod turn;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use act::{Executed, Pending};
pub use event::{Happening, RunEvent};
use guard::Guard;
use journal::Journal;
pub use journal::{RunRecord, RunState};
use report::Stop;
pub(crate) use resume::resume;
pub use resume::{CallDecision, ResumeError};
use serde_json::Value;
use sink::Sink;
use toolgate_core::config::RunLimits;
use toolgate_llm::history;
use toolgate_llm::prompt::Call;
use toolgate_llm::tools::OwnTools;
use toolgate_llm::turn::Turn;
use toolgate_llm::{Body, Usage};
use turn::{Made, Trouble};
use uuid::Uuid;

use crate::models::{Asked, ModelAnswer, ModelError, Models};
use crate::store::millis;

/// A run under way.
struct Run {
    id: String,
    models: Models,
    /// The request as the caller sent it.
    asked: Asked,
    /// Tools that the caller brought, which only the caller can run.
    own: OwnTools,
    limits: RunLimits,
    began: Instant,
    /// What was said since, as items of the conversation.
    history: Vec<Value>,
    /// Model answers so far.
    iterations: u32,
    /// The text of each turn.
    turns: Vec<String>,
    executed: Vec<Executed>,
    guard: Guard,
    usage: Usage,
    micro_usd: u64,
    /// The model's last answer.
    last: Option<Made>,
    journal: Journal,
    record: RunRecord,
}

/// How a run came to its end.
struct End {
    stop: Stop,
    pending: Vec<Pending>,
    /// What a failed model call was answered with.
    trouble: Option<Trouble>,
}

impl End {
    /// Whether the model's last turn is the answer, rather than one whose calls were run.
    fn is_of_last_turn(&self) -> bool {
        let ended = matches!(self.stop, Stop::Done | Stop::OwnTool);
        self.trouble.is_none() && (ended || !self.pending.is_empty())
    }
}

/// Runs a request as an agent.
pub(crate) async fn run(
    models: &Models,
    asked: Asked,
    limits: RunLimits,
) -> Result<ModelAnswer, ModelError> {
    let id = format!("run_{}", Uuid::now_v7().simple());
    let record = RunRecord {
        id: id.clone(),
        caller: asked.caller.key().map(ToString::to_string),
        request_id: asked.context.id.clone().unwrap_or_default(),
        dialect: asked.request.dialect.as_str().to_owned(),
        model: asked.name().to_owned(),
        stream: asked.stream,
        state: RunState::Running,
        stop_reason: None,
        iterations: 0,
        input_tokens: 0,
        output_tokens: 0,
        cost_micro_usd: 0,
        started_at: millis(SystemTime::now()),
        ended_at: None,
    };
    let store = models.store();
    store
        .put_run(&record, &resume::request_value(&asked))
        .await?;
    let run = Run {
        journal: Journal::new(store, &id, 0),
        id: id.clone(),
        models: models.clone(),
        own: OwnTools::of(&asked.body),
        limits,
        began: Instant::now(),
        history: Vec::new(),
        iterations: 0,
        turns: Vec::new(),
        executed: Vec::new(),
        guard: Guard::default(),
        usage: Usage::default(),
        micro_usd: 0,
        last: None,
        record,
        asked,
    };
    let (started, id) = (task::begin(run, None), id);
    // Only one that is gone on with can be refused.
    let answer = started.answer(&id).await;
    answer.unwrap_or(Err(ModelError::Cancelled))
}

impl Run {
    /// Writes how the run ended.
    async fn close(&mut self, end: &End) {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let record = &mut self.record;
        record.state = match end.stop {
            Stop::Done => RunState::Done,
            Stop::Error => RunState::Failed,
            Stop::CutOff(state) => state,
            _ => RunState::Waiting,
        };
        record.stop_reason = Some(end.stop.as_str().to_owned());
        record.iterations = i64::from(self.iterations);
        record.input_tokens = count(self.usage.input);
        record.output_tokens = count(self.usage.output);
        record.cost_micro_usd = count(self.micro_usd);
        record.ended_at = Some(millis(SystemTime::now()));
        self.journal.ended(&self.record).await;
    }

    /// Takes turns until there is an end.
    async fn go(&mut self, sink: &mut Sink) -> End {
        loop {
            match self.spent() {
                Some(what) if self.iterations == 0 => {
                    return self.failed(Trouble::Error(ModelError::NothingLeft(what)));
                }
                Some(what) => return self.stopped(Stop::Budget(what)),
                None => {}
            }
            self.iterations += 1;
            let asked = match self.next() {
                Ok(asked) => asked,
                Err(error) => return self.failed(Trouble::Error(error)),
            };
            let made = match in_time(self.deadline(), self.told_turn(&asked, sink)).await {
                Some(Ok(made)) => made,
                Some(Err(trouble)) => return self.failed(trouble),
                None => return self.stopped(Stop::Budget("time")),
            };
            let calls: Vec<_> = made.turn.calls().cloned().collect();
            let (waits, paused) = (made.turn.awaits_caller(), made.is_paused());
            let (text, items) = (made.turn.text(), made.items.clone());
            let used = (made.turn.usage.unwrap_or_default(), made.micro_usd);
            if let Err(error) = self.journal.turn(&items, &calls, &text, used).await {
                return self.failed(Trouble::Error(error.into()));
            }
            self.turns.push(text);
            self.last = Some(made);
            if calls.is_empty() && !paused {
                return self.stopped(match waits {
                    true => Stop::OwnTool,
                    false => Stop::Done,
                });
            }
            if let Some(stop) = self.bound(&calls) {
                return self.pending(stop, calls);
            }
            if calls.is_empty() {
                if let Err(error) = self.journal.answered(&[]).await {
                    return self.failed(Trouble::Error(error.into()));
                }
                self.history.extend(items);
                continue;
            }
            // What is beyond the bound is left, as it came.
            let mut calls = calls;
            let beyond = calls.split_off(self.calls_left().min(calls.len()));
            let mut acted = match self.act(calls, &asked, sink).await {
                Ok(acted) => acted,
                Err(error) => return self.failed(Trouble::Error(error.into())),
            };
            if !beyond.is_empty() {
                let mut end = self.pending(Stop::Budget("tool_calls"), beyond);
                end.pending.splice(..0, acted.pending.drain(..));
                return end;
            }
            if !acted.pending.is_empty() || waits {
                let own = waits || acted.pending.iter().any(|pending| pending.is_own);
                let stop = match own {
                    true => Stop::OwnTool,
                    false => Stop::NeedsApproval,
                };
                return End {
                    stop,
                    pending: acted.pending,
                    trouble: None,
                };
            }
            if let Err(error) = self.journal.answered(&acted.items).await {
                return self.failed(Trouble::Error(error.into()));
            }
            self.history.extend(items);
            self.history.extend(acted.items);
        }
    }

    /// How many calls may still be run.
    fn calls_left(&self) -> usize {
        let most = self.limits.tool_calls.unwrap_or(u64::MAX);
        let left = most.saturating_sub(self.executed.len() as u64);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// What keeps the calls of a turn from being run, if anything does.
    fn bound(&self, calls: &[Call]) -> Option<Stop> {
        if self.iterations > self.limits.depth.unwrap_or(u32::MAX) {
            return Some(Stop::MaxDepth);
        }
        if let Some(what) = self.spent() {
            return Some(Stop::Budget(what));
        }
        let exhausted = !calls.is_empty() && self.guard.is_exhausted(calls);
        exhausted.then_some(Stop::LoopGuard)
    }

    /// A turn of which whoever listens is told.
    async fn told_turn(&mut self, asked: &Asked, sink: &mut Sink) -> Result<Made, Trouble> {
        let turn = self.iterations;
        let request_id = asked.context.id.as_deref().unwrap_or_default();
        sink.tell(Happening::TurnStarted { turn, request_id });
        let made = self.turn(asked, sink).await?;
        let usage = made.turn.usage.unwrap_or_default();
        sink.tell(Happening::TurnEnded { turn, usage });
        Ok(made)
    }

    /// The request of the next turn.
    fn next(&self) -> Result<Asked, ModelError> {
        let id = self.asked.context.id.as_deref().unwrap_or(&self.id);
        let mut asked = self.asked.clone();
        let mut context = (*asked.context).clone();
        context.id = Some(self.models.turn_id(id, self.iterations));
        context.parent = Some(id.to_owned());
        context.run = Some(self.id.clone());
        asked.context = Arc::new(context);
        asked.counts_usage = true;
        asked.counts_money = self.limits.micro_usd.is_some();
        if self.history.is_empty() {
            return Ok(asked);
        }
        let (dialect, body) = (asked.request.dialect, &self.asked.body);
        let conversation = history::extended(dialect, body, &self.history);
        let mut edit = body.edit().set(history::member(dialect), &conversation);
        if let Some(choice) = history::free_choice(dialect, body) {
            edit = edit.set("tool_choice", &choice);
        }
        asked.body = Body::read(edit.finish())?;
        Ok(asked)
    }

    /// When the run must be over.
    fn deadline(&self) -> Option<Instant> {
        let time = self.limits.time?;
        self.began.checked_add(time)
    }

    /// The bound that is reached, if one is.
    fn spent(&self) -> Option<&'static str> {
        let RunLimits {
            depth: _,
            model_calls,
            tool_calls,
            tokens,
            micro_usd,
            time,
        } = self.limits;
        let used = self.usage.input + self.usage.output;
        let reached = |most: Option<u64>, used: u64| most.is_some_and(|most| used >= most);
        let bounds = [
            (
                "model_calls",
                reached(model_calls, u64::from(self.iterations)),
            ),
            (
                "tool_calls",
                reached(tool_calls, self.executed.len() as u64),
            ),
            ("tokens", reached(tokens, used)),
            ("usd", reached(micro_usd, self.micro_usd)),
            (
                "time",
                time.is_some_and(|most| self.began.elapsed() >= most),
            ),
        ];
        let reached = bounds.into_iter().find(|(_, reached)| *reached);
        reached.map(|(name, _)| name)
    }

    fn stopped(&self, stop: Stop) -> End {
        End {
            stop,
            pending: Vec::new(),
            trouble: None,
        }
    }

    fn pending(&self, stop: Stop, calls: Vec<Call>) -> End {
        let is_own = |name: &str| self.own.contains(name);
        let pending = calls.into_iter().map(|call| {
            let own = is_own(&call.name);
            Pending::new(call, own)
        });
        End {
            stop,
            pending: pending.collect(),
            trouble: None,
        }
    }

    fn failed(&self, trouble: Trouble) -> End {
        End {
            stop: Stop::Error,
            pending: Vec::new(),
            trouble: Some(trouble),
        }
    }

    fn last_turn(&self) -> Turn {
        let last = self.last.as_ref();
        last.map(|made| made.turn.clone()).unwrap_or_default()
    }
}

/// What comes of something in time; none if that is too late.
async fn in_time<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work).await.ok(),
    }
}
