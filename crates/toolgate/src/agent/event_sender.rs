//! Sends the events of a run to the [`crate::Hook`]s.

use std::sync::Arc;

use crate::hook::{Hooks, RunEvent, RunEventKind};

/// Sends the events of one run to the hooks; clones belong to the same run.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    hooks: Hooks,
    run: Arc<str>,
}

impl EventSender {
    pub(super) fn new(hooks: &Hooks, run: &str) -> Self {
        Self {
            hooks: hooks.clone(),
            run: run.into(),
        }
    }

    pub(super) fn send(&self, kind: RunEventKind<'_>) {
        self.hooks.on_run_event(RunEvent {
            run: &self.run,
            kind,
        });
    }
}
