//! The hooks of a gateway, applied in the order in which they were added.

use std::sync::Arc;

use uuid::Uuid;

use super::{CompletedCall, Hook, ModelResponseEvent, RunEvent};
use crate::result::ToolResult;

/// All hooks of a gateway. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks(Arc<[Arc<dyn Hook>]>);

impl FromIterator<Arc<dyn Hook>> for Hooks {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Hook>>>(hooks: I) -> Self {
        Self(hooks.into_iter().collect())
    }
}

impl Hooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Hook> {
        self.0.iter().map(|hook| &**hook)
    }

    /// Generates the id of a request that has none: by the first hook that does so, otherwise a UUID.
    pub(crate) fn request_id(&self) -> String {
        let id = self.iter().find_map(Hook::request_id);
        id.unwrap_or_else(|| Uuid::now_v7().to_string())
    }

    /// Generates the request id of a turn.
    pub(crate) fn turn_id(&self, request: &str, turn: u32) -> String {
        let id = self.iter().find_map(|hook| hook.turn_id(request, turn));
        id.unwrap_or_else(|| format!("{request}-iter-{turn}"))
    }

    /// Shows a call to all hooks. Returns the result that replaces its own, if any.
    pub(crate) async fn after_call(&self, call: CompletedCall<'_>) -> Option<ToolResult> {
        let mut replaced: Option<ToolResult> = None;
        for hook in self.iter() {
            let shown = CompletedCall {
                result: replaced.as_ref().map_or(call.result, Ok),
                ..call
            };
            let result = hook.after_call(shown).await;
            // A failure stays a failure, whatever a hook returns.
            if let Some(result) = result.filter(|_| call.result.is_ok()) {
                replaced = Some(ToolResult::new(result));
            }
        }
        replaced
    }

    pub(crate) fn after_model_response(&self, response: ModelResponseEvent<'_>) {
        self.iter()
            .for_each(|hook| hook.after_model_response(response));
    }

    pub(crate) fn on_run_event(&self, event: RunEvent<'_>) {
        self.iter().for_each(|hook| hook.on_run_event(event));
    }
}
