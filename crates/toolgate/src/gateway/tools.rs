//! Handle for tools: their visibility, definitions and stored results.

use toolgate_core::ToolId;
use toolgate_core::config::VirtualServer;
use toolgate_core::scope::Filters;

use super::Inner;
use crate::call::CallError;
use crate::caller::Caller;
use crate::definitions::{Definitions, ToolVersion};
use crate::engine::{Explanation, ResultChunk};
#[cfg(feature = "code-mode")]
use crate::result::ToolResult;
use crate::store::StoreError;

/// Handle for the tools of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Tools<'a>(&'a Inner);

impl<'a> Tools<'a> {
    pub(super) fn new(gateway: &'a Inner) -> Self {
        Self(gateway)
    }

    /// Explains why a tool is or is not visible to a request.
    pub fn explain(
        self,
        caller: &Caller,
        filters: &Filters,
        tool: &str,
    ) -> Result<Explanation, CallError> {
        self.0.engine.explain(caller, filters, tool)
    }

    /// Returns a virtual server, a named subset of the tools.
    pub fn virtual_server(self, name: &str) -> Option<VirtualServer> {
        self.0.engine.virtual_server(name)
    }

    /// Lists the files that describe what the scripts of a caller can call, as `listToolFiles` returns
    /// them to models. Unlike a call of that tool, this leaves no audit record and is not counted.
    #[cfg(feature = "code-mode")]
    pub fn list_code_files(
        self,
        caller: &Caller,
        filters: &Filters,
    ) -> Result<ToolResult, CallError> {
        let scope = self.0.engine.scope(caller, filters)?;
        self.0.engine.list_code_files(&scope)
    }

    /// Returns one of the files of [`Self::list_code_files`], as `readToolFile` returns it to models.
    /// Unlike a call of that tool, this leaves no audit record and is not counted.
    #[cfg(feature = "code-mode")]
    pub fn read_code_file(
        self,
        caller: &Caller,
        filters: &Filters,
        name: &str,
    ) -> Result<ToolResult, CallError> {
        let scope = self.0.engine.scope(caller, filters)?;
        self.0.engine.read_code_file(&scope, name)
    }

    /// Returns the handle for the definitions of tools: which ones are trusted or look suspicious.
    pub fn definitions(self) -> &'a Definitions {
        &self.0.definitions
    }

    /// Returns all definitions that a tool has had, most recently seen first.
    pub async fn versions(self, tool: &ToolId) -> Result<Vec<ToolVersion>, StoreError> {
        self.0.history.versions(tool).await
    }

    /// Returns a chunk of a large result, starting at an offset; `None` if no such result is stored
    /// for this caller.
    pub fn read_result(self, caller: &Caller, handle: &str, offset: u64) -> Option<ResultChunk> {
        self.0.engine.read_result(caller, handle, offset)
    }
}
