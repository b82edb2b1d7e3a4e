//! What happens in a run, for an embedding program that listens by its [`crate::Hook`].

use std::sync::Arc;

use toolgate_llm::Usage;

use crate::hook::Hook;

/// Something that happens in a run.
#[derive(Clone, Copy, Debug)]
pub struct RunEvent<'a> {
    /// The run's id.
    pub run: &'a str,
    pub happening: Happening<'a>,
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Happening<'a> {
    /// The model is asked, under an id of its own. Turns count from one.
    TurnStarted { turn: u32, request_id: &'a str },
    /// The model says more; all at once where its answer is not streamed.
    Text(&'a str),
    /// The model has answered.
    TurnEnded { turn: u32, usage: Usage },
    /// A tool is about to run.
    CallStarted {
        id: &'a str,
        name: &'a str,
        arguments: &'a str,
    },
    /// A tool has answered (`ok`, `tool_error`), or its call was refused, with the word for why.
    CallEnded {
        id: &'a str,
        name: &'a str,
        outcome: &'a str,
    },
    /// The run is over, or waits.
    Ended { stop_reason: &'a str },
}

/// Tells the hook what happens in one run; clones tell of the same.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    hook: Arc<dyn Hook>,
    run: Arc<str>,
}

impl Teller {
    pub(super) fn new(hook: &Arc<dyn Hook>, run: &str) -> Self {
        Self {
            hook: Arc::clone(hook),
            run: run.into(),
        }
    }

    pub(super) fn tell(&self, happening: Happening<'_>) {
        self.hook.hear(RunEvent {
            run: &self.run,
            happening,
        });
    }
}
