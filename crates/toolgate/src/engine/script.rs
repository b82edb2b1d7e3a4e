//! The four tools of code mode, and the way of a script's calls back to the engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::value::RawValue;
use toolgate_core::name::ToolId;
use toolgate_core::scope::Scope;
use toolgate_script::surface::{self, Definition};

use super::{Engine, Inner, Journey};
use crate::audit::Record;
use crate::call::{Arguments, CallError, Outcome, Request, ToolCall};
use crate::caller::{Caller, Origin};
use crate::code_mode::answer::advice;
use crate::code_mode::{self, Door, Job};
use crate::result::ToolResult;

/// One of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeTool {
    ListFiles,
    ReadFile,
    Docs,
    Execute,
}

impl CodeTool {
    pub(crate) const ALL: [Self; 4] = [Self::ListFiles, Self::ReadFile, Self::Docs, Self::Execute];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.definition().name == name)
    }

    pub(crate) fn definition(self) -> &'static Definition {
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
        journey: &Journey,
        tool: CodeTool,
        arguments: &Arguments,
        record: &mut Record,
    ) -> Result<ToolResult, CallError> {
        let (scope, value) = (&journey.scope, arguments.value());
        match tool {
            CodeTool::ListFiles => Ok(self.code.list(scope)),
            CodeTool::ReadFile => Ok(self.code.read(scope, value)),
            CodeTool::Docs => Ok(self.code.docs(scope, value)),
            CodeTool::Execute => {
                let Some(code) = code_mode::code(value) else {
                    return Ok(advice("`code` is missing: a script as a string"));
                };
                let door = ScriptDoor::new(Engine(Arc::clone(self)), journey);
                let request = &journey.call.request;
                let told = scope.scripted_servers();
                let told = told.map(|name| journey.rules.forwarded(name, &request.headers));
                let job = Job {
                    scope,
                    caller: &journey.caller,
                    call: journey.call.id.as_deref(),
                    run: request.run.as_deref(),
                    filters: &request.filters,
                    told: told.collect(),
                    code,
                    door: &door,
                };
                self.code.execute(job, &mut record.script).await
            }
        }
    }
}

impl Engine {
    /// Counts what a model request with a scope needs less because tools in it are scripted.
    pub(crate) fn count_saved_tokens(&self, scope: &Arc<Scope>) {
        let saved = self.0.code.saved_tokens(scope);
        self.0.parts.metrics.saved_tokens(saved);
    }
}

/// Makes a script's calls on behalf of its caller.
struct ScriptDoor {
    engine: Engine,
    caller: Caller,
    /// The script's own.
    request: Arc<Request>,
    request_id: String,
}

impl ScriptDoor {
    fn new(engine: Engine, journey: &Journey) -> Self {
        let unattended = journey.caller.origin.is_unattended();
        Self {
            engine,
            caller: journey
                .caller
                .clone()
                .through(Origin::Script { unattended }),
            request: Arc::clone(&journey.call.request),
            request_id: journey.request_id.clone(),
        }
    }
}

impl Door for ScriptDoor {
    fn call<'a>(
        &'a self,
        tool: &'a ToolId,
        arguments: &'a RawValue,
        number: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, CallError>> + Send + 'a>> {
        let request = Request {
            id: Some(format!("{}-call-{}", self.request_id, number + 1)),
            parent: Some(self.request_id.clone()),
            // Whoever waits for the script hears of its end.
            ear: None,
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
