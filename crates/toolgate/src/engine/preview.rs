//! Predicts the verdict on a call without running anything.

use serde_json::Value;
use toolgate_core::catalog::Resolution;
use toolgate_core::policy::{ServerItem, Verdict};
use toolgate_mcp::large::run_large;

use super::argument_check::check_arguments;
use super::builtin::READ_RESOURCE;
use super::{BuiltinTool, Engine};
use crate::call::{CallError, ToolCall};
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
                return self.preview_resource_read(caller, call, arguments.value());
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
        let Some(judgement) = scope.judgement(entry) else {
            return Verdict::Allow;
        };
        if !judgement.depends_on_arguments() {
            return judgement.decision().verdict;
        }
        run_large(arguments.raw().get().len(), || {
            // Rules must see the arguments as they would be sent.
            let check = self.0.rules.load().argument_check(&entry.tool.id);
            match check_arguments::<CallError>(&entry.tool, arguments, check) {
                Ok(checked) => judgement.decide(checked.arguments.value()).verdict,
                Err(_) => judgement.decide(arguments.value()).verdict,
            }
        })
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

    fn preview_resource_read(
        &self,
        caller: &Caller,
        call: &ToolCall,
        arguments: &Value,
    ) -> Verdict {
        let rules = self.0.rules.load();
        let uri = arguments["uri"].as_str().unwrap_or_default();
        let only = arguments["server"].as_str();
        let names = rules.servers.keys();
        let named = names.filter(|name| only.is_none_or(|only| name.as_str() == only));
        let verdicts = named.filter_map(|server| {
            let item = ServerItem::Resource { server, uri };
            let judged = rules.judge_item(caller, &call.request.filters, item);
            Some(judged.ok()?.verdict)
        });
        let strictest = verdicts.max().unwrap_or(Verdict::Allow);
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
        let allowed = match only {
            Some(server) => is_automatic(server),
            // The server is only resolved when the resource is read, so all servers must agree.
            None => rules.servers.keys().all(|name| is_automatic(name.as_str())),
        };
        if allowed {
            strictest
        } else {
            strictest.max(Verdict::Manual)
        }
    }
}
