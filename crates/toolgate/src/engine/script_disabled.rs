//! Stands in for the code mode tools in builds without the feature `code-mode`: there are none.

use std::sync::Arc;

use toolgate_core::policy::Verdict;
use toolgate_core::scope::Scope;

use super::{CallContext, Engine, Inner};
use crate::audit::AuditRecord;
use crate::call::{Arguments, CallError};
use crate::result::ToolResult;

/// A code mode tool; there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeTool {}

/// Definition of a code mode tool.
pub(crate) struct CodeToolDefinition {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) parameters: &'static str,
}

impl CodeTool {
    pub(crate) const ALL: [Self; 0] = [];

    pub(super) fn from_name(_: &str) -> Option<Self> {
        None
    }

    pub(crate) fn definition(self) -> &'static CodeToolDefinition {
        match self {}
    }
}

impl Inner {
    pub(super) fn run_code_tool(
        self: &Arc<Self>,
        _: &CallContext,
        tool: CodeTool,
        _: &Arguments,
        _: &mut AuditRecord,
    ) -> std::future::Ready<Result<ToolResult, CallError>> {
        match tool {}
    }
}

impl Engine {
    pub(super) fn preview_code_tool(
        &self,
        tool: CodeTool,
        _: Option<&Arc<Scope>>,
        _: &Arguments,
    ) -> Verdict {
        match tool {}
    }

    /// Records the prompt tokens that code mode saves: none.
    pub(crate) fn count_saved_tokens(&self, _: &Arc<Scope>) {
        self.0.deps.metrics.add_saved_tokens(0);
    }
}
