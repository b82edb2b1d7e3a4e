//! Sends the events of a run to the [`crate::Hook`].

use std::sync::Arc;

use crate::hook::{Hook, RunEvent, RunEventKind};

/// Sends the events of one run to the hook; clones belong to the same run.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    hook: Arc<dyn Hook>,
    run: Arc<str>,
}

impl EventSender {
    pub(super) fn new(hook: &Arc<dyn Hook>, run: &str) -> Self {
        Self {
            hook: Arc::clone(hook),
            run: run.into(),
        }
    }

    pub(super) fn send(&self, kind: RunEventKind<'_>) {
        self.hook.on_run_event(RunEvent {
            run: &self.run,
            kind,
        });
    }
}
