//! The four code mode tools, and the route by which a script's calls re-enter the engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use toolgate_core::name::ToolId;
use toolgate_core::policy::Verdict;
use toolgate_core::scope::Scope;
use toolgate_mcp::task::TaskUse;
use toolgate_script::surface::{self, ToolDefinition};

use super::{CallContext, Engine, Inner};
use crate::audit::AuditRecord;
use crate::call::{Arguments, CallError, Outcome, RequestContext, ToolCall};
use crate::caller::{CallOrigin, Caller};
use crate::code_mode::{self, ExecuteRequest, ToolCaller};
use crate::result::{ToolResult, error_result};

/// A code mode tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeTool {
    ListFiles,
    ReadFile,
    Docs,
    Execute,
}

impl CodeTool {
    pub(crate) const ALL: [Self; 4] = [Self::ListFiles, Self::ReadFile, Self::Docs, Self::Execute];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.definition().name == name)
    }

    pub(crate) fn definition(self) -> &'static ToolDefinition {
        match self {
            Self::ListFiles => &surface::TOOLS[0],
            Self::ReadFile => &surface::TOOLS[1],
            Self::Docs => &surface::TOOLS[2],
            Self::Execute => &surface::TOOLS[3],
        }
    }
}

impl Inner {
    pub(super) async fn run_code_tool(
        self: &Arc<Self>,
        context: &CallContext,
        tool: CodeTool,
        arguments: &Arguments,
        record: &mut AuditRecord,
    ) -> Result<ToolResult, CallError> {
        let (scope, value) = (&context.scope, arguments.value());
        match tool {
            CodeTool::ListFiles => Ok(self.code_mode.list_tool_files(scope)),
            CodeTool::ReadFile => Ok(self.code_mode.read_tool_file(scope, value)),
            CodeTool::Docs => Ok(self.code_mode.tool_docs(scope, value)),
            CodeTool::Execute => {
                let Some(code) = code_mode::code_argument(value) else {
                    return Ok(error_result(
                        "`code` is missing; pass the script as a string",
                    ));
                };
                let dispatcher = ScriptDispatcher::new(Engine(Arc::clone(self)), context);
                let request = &context.call.request;
                let headers = scope.code_mode_servers();
                let headers =
                    headers.map(|name| context.rules.forwarded_headers(name, &request.headers));
                let job = ExecuteRequest {
                    scope,
                    caller: &context.caller,
                    call: context.call.id.as_deref(),
                    run: request.run.as_deref(),
                    filters: &request.filters,
                    forwarded_headers: headers.collect(),
                    code,
                    tool_caller: &dispatcher,
                };
                self.code_mode.execute(job, &mut record.script).await
            }
        }
    }
}

impl Engine {
    /// Predicts the verdict on a call of a code mode tool.
    pub(super) fn preview_code_tool(
        &self,
        tool: CodeTool,
        scope: Option<&Arc<Scope>>,
        arguments: &Arguments,
    ) -> Verdict {
        match (tool, scope, code_mode::code_argument(arguments.value())) {
            (CodeTool::Execute, Some(scope), Some(code)) => self.0.code_mode.preview(scope, code),
            _ => Verdict::Allow,
        }
    }

    /// Returns what `listToolFiles` returns in a scope, without a call.
    pub(crate) fn list_code_files(&self, scope: &Arc<Scope>) -> Result<ToolResult, CallError> {
        check_code_mode(scope, CodeTool::ListFiles)?;
        Ok(self.0.code_mode.list_tool_files(scope))
    }

    /// Returns what `readToolFile` returns in a scope, without a call.
    pub(crate) fn read_code_file(
        &self,
        scope: &Arc<Scope>,
        name: &str,
    ) -> Result<ToolResult, CallError> {
        check_code_mode(scope, CodeTool::ReadFile)?;
        let arguments = json!({"fileName": name});
        Ok(self.0.code_mode.read_tool_file(scope, &arguments))
    }

    /// Records the prompt tokens that code mode saves in a model request with this scope.
    pub(crate) fn count_saved_tokens(&self, scope: &Arc<Scope>) {
        let saved = self.0.code_mode.saved_tokens(scope);
        self.0.deps.metrics.add_saved_tokens(saved);
    }
}

/// Fails as a call of the tool would if no server in the scope uses code mode.
fn check_code_mode(scope: &Scope, tool: CodeTool) -> Result<(), CallError> {
    if scope.has_code_mode_tools() {
        return Ok(());
    }
    Err(CallError::Unknown {
        name: tool.definition().name.to_owned(),
        nearest: Vec::new(),
    })
}

/// Makes a script's calls on behalf of its caller.
struct ScriptDispatcher {
    engine: Engine,
    caller: Caller,
    /// The request that runs the script.
    request: Arc<RequestContext>,
    request_id: String,
}

impl ScriptDispatcher {
    fn new(engine: Engine, context: &CallContext) -> Self {
        let unattended = context.caller.origin.is_unattended();
        Self {
            engine,
            caller: context
                .caller
                .clone()
                .with_origin(CallOrigin::Script { unattended }),
            request: Arc::clone(&context.call.request),
            request_id: context.request_id.clone(),
        }
    }
}

impl ToolCaller for ScriptDispatcher {
    fn call<'a>(
        &'a self,
        tool: &'a ToolId,
        arguments: &'a RawValue,
        number: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, CallError>> + Send + 'a>> {
        let request = RequestContext {
            id: Some(format!("{}-call-{}", self.request_id, number + 1)),
            parent: Some(self.request_id.clone()),
            // Progress is reported for the script as a whole, not for its calls.
            client_handler: None,
            // A script needs the results of its calls.
            tasks: TaskUse::default(),
            // The headers mirror the script's arguments, not those of its calls.
            headers_mirror_arguments: false,
            // Only the script itself was counted with the other calls of its request.
            rate_admission: None,
            ..(*self.request).clone()
        };
        let call = ToolCall {
            name: tool.tool.to_string(),
            server: Some(tool.server.clone()),
            id: None,
            arguments: Arguments::parse(arguments.get()),
            request: Arc::new(request),
        };
        Box::pin(self.engine.call(&self.caller, call))
    }
}
