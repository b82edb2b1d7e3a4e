//! The agent: lets a model call tools that run unasked, until it has its answer.
//!
//! A run is a task of its own. It ends with the model's answer, with calls that somebody else must
//! decide about or run, or with a bound; nothing that ran is lost from what it answers. The
//! conversation grows in the caller's dialect, by the provider's own words where it speaks that.

mod act;
mod guard;
mod report;
mod sink;
mod turn;

use std::sync::Arc;
use std::time::Instant;

use act::{Executed, Pending};
use guard::Guard;
use report::Stop;
use serde_json::Value;
use sink::Sink;
use tokio_util::sync::CancellationToken;
use toolgate_core::config::RunLimits;
use toolgate_llm::history;
use toolgate_llm::tools::OwnTools;
use toolgate_llm::turn::Turn;
use toolgate_llm::{Body, Usage};
use turn::{Made, Trouble};
use uuid::Uuid;

use crate::models::{Asked, ModelAnswer, ModelError, Models};

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
}

/// How a run came to its end.
struct End {
    stop: Stop,
    pending: Vec<Pending>,
    /// What a failed model call was answered with.
    trouble: Option<Trouble>,
}

/// Runs a request as an agent.
pub(crate) async fn run(
    models: &Models,
    asked: Asked,
    limits: RunLimits,
) -> Result<ModelAnswer, ModelError> {
    let run = Run {
        id: format!("run_{}", Uuid::now_v7().simple()),
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
        asked,
    };
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    match run.asked.stream {
        true => sink::streamed(run, cancel, guard).await,
        false => {
            let tasks = models.tasks().clone();
            let work = tasks.spawn(async move {
                tokio::select! {
                    answer = run.whole() => Some(answer),
                    () = cancel.cancelled() => None,
                }
            });
            let answer = work.await.ok().flatten();
            drop(guard);
            answer.unwrap_or(Err(ModelError::Cancelled))
        }
    }
}

impl Run {
    async fn whole(mut self) -> Result<ModelAnswer, ModelError> {
        let end = self.go(&mut Sink::None).await;
        self.answer(end)
    }

    /// Takes turns until there is an end.
    async fn go(&mut self, sink: &mut Sink) -> End {
        loop {
            if let Some(what) = self.spent() {
                return self.stopped(Stop::Budget(what));
            }
            self.iterations += 1;
            let asked = match self.next() {
                Ok(asked) => asked,
                Err(error) => return self.failed(Trouble::Error(error)),
            };
            let made = match self.turn(&asked, sink).await {
                Ok(made) => made,
                Err(trouble) => return self.failed(trouble),
            };
            let calls: Vec<_> = made.turn.calls().cloned().collect();
            self.turns.push(made.turn.text());
            let items = made.items.clone();
            self.last = Some(made);
            if calls.is_empty() {
                return self.stopped(Stop::Done);
            }
            if self.iterations > self.limits.depth.unwrap_or(u32::MAX) {
                return self.pending(Stop::MaxDepth, calls);
            }
            if let Some(what) = self.spent() {
                return self.pending(Stop::Budget(what), calls);
            }
            if self.guard.is_exhausted(&calls) {
                return self.pending(Stop::LoopGuard, calls);
            }
            let acted = self.act(calls, &asked, sink).await;
            if !acted.pending.is_empty() {
                let own = acted.pending.iter().any(|pending| pending.is_own);
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
            self.history.extend(items);
            self.history.extend(acted.items);
        }
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

    fn pending(&self, stop: Stop, calls: Vec<toolgate_llm::prompt::Call>) -> End {
        let is_own = |name: &str| self.own.contains(name);
        let pending = calls.into_iter().map(|call| Pending {
            is_own: is_own(&call.name),
            call,
            approval: None,
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
