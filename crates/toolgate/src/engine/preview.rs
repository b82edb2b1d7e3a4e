//! What would become of a call, before anything runs.

use serde_json::Value;
use toolgate_core::catalog::Resolution;
use toolgate_core::policy::Verdict;

use super::own::READ_RESOURCE;
use super::{CodeTool, Engine, OwnTool};
use crate::call::ToolCall;
use crate::caller::Caller;
use crate::code_mode;

impl Engine {
    /// Whether a call would run unasked, is its caller's to run, or an approver's to decide. What
    /// would be refused counts as running: its answer is for the model.
    pub(crate) fn preview(&self, caller: &Caller, call: &ToolCall) -> Verdict {
        let Ok(arguments) = &call.arguments else {
            return Verdict::Allow;
        };
        let scope = self.scope(caller, &call.request.filters);
        match OwnTool::named(&call.name).filter(|_| call.server.is_none()) {
            Some(OwnTool::ReadResource) => return self.reads_unasked(arguments.value()),
            Some(OwnTool::Code(CodeTool::Execute)) => {
                return match (&scope, code_mode::code(arguments.value())) {
                    (Ok(scope), Some(code)) => self.0.code.preview(scope, code),
                    _ => Verdict::Allow,
                };
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
        let verdict = judgement.map(|judgement| judgement.on(arguments.value()).verdict);
        verdict.unwrap_or(Verdict::Allow)
    }

    /// Whether a request has tools that run unasked.
    pub(crate) fn has_unasked_tools(
        &self,
        caller: &Caller,
        filters: &toolgate_core::scope::Filters,
    ) -> bool {
        let scope = self.scope(caller, filters);
        // What can be read of scripted tools runs unasked.
        scope.is_ok_and(|scope| scope.has_unasked() || scope.has_code())
    }

    fn reads_unasked(&self, arguments: &Value) -> Verdict {
        let rules = self.0.rules.load();
        let unasked = |name: &str| {
            let mut servers = rules.servers.iter();
            let served = servers.find(|(known, _)| known.as_str() == name);
            served
                .is_some_and(|(_, served)| served.server.lists.auto_execute.contains(READ_RESOURCE))
        };
        let allowed = match arguments["server"].as_str() {
            Some(server) => unasked(server),
            // Which one it is, is found when it is read; all must agree.
            None => rules.servers.keys().all(|name| unasked(name.as_str())),
        };
        match allowed {
            true => Verdict::Allow,
            false => Verdict::Manual,
        }
    }
}
