//! Predicts the verdict on a call without running anything.

use serde_json::Value;
use toolgate_core::catalog::Resolution;
use toolgate_core::policy::Verdict;

use super::builtin::READ_RESOURCE;
use super::{BuiltinTool, Engine};
use crate::call::ToolCall;
use crate::caller::Caller;

impl Engine {
    /// Predicts whether a call runs automatically, is left to the caller, or needs an approval. A
    /// call that would be refused counts as `allow`, because its error is returned to the model.
    pub(crate) fn preview(&self, caller: &Caller, call: &ToolCall) -> Verdict {
        let Ok(arguments) = &call.arguments else {
            return Verdict::Allow;
        };
        let scope = self.scope(caller, &call.request.filters);
        match BuiltinTool::from_name(&call.name).filter(|_| call.server.is_none()) {
            Some(BuiltinTool::ReadResource) => {
                return self.preview_resource_read(arguments.value());
            }
            Some(BuiltinTool::Code(tool)) => {
                return self.preview_code_tool(tool, scope.as_ref().ok(), arguments);
            }
            Some(_) => return Verdict::Allow,
            None => {}
        }
        let Ok(scope) = scope else {
            return Verdict::Allow;
        };
        let Resolution::Found(entry) = scope.resolve(&call.name) else {
            return Verdict::Allow;
        };
        let judgement = scope.judgement(entry);
        let verdict = judgement.map(|judgement| judgement.decide(arguments.value()).verdict);
        verdict.unwrap_or(Verdict::Allow)
    }

    /// Returns whether a request has tools that run automatically.
    pub(crate) fn has_auto_execute_tools(
        &self,
        caller: &Caller,
        filters: &toolgate_core::scope::Filters,
    ) -> bool {
        let scope = self.scope(caller, filters);
        // The read-only tools of code mode always run automatically.
        scope.is_ok_and(|scope| scope.has_auto_executable() || scope.has_code_mode_tools())
    }

    fn preview_resource_read(&self, arguments: &Value) -> Verdict {
        let rules = self.0.rules.load();
        let is_automatic = |name: &str| {
            let mut servers = rules.servers.iter();
            let server_rules = servers.find(|(known, _)| known.as_str() == name);
            server_rules.is_some_and(|(_, server_rules)| {
                server_rules
                    .server
                    .lists
                    .auto_execute
                    .contains(READ_RESOURCE)
            })
        };
        let allowed = match arguments["server"].as_str() {
            Some(server) => is_automatic(server),
            // The server is only resolved when the resource is read, so all servers must agree.
            None => rules.servers.keys().all(|name| is_automatic(name.as_str())),
        };
        if allowed {
            Verdict::Allow
        } else {
            Verdict::Manual
        }
    }
}
