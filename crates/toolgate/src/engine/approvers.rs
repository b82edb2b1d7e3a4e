//! Who may decide about a call that waits. The configuration in force says so, not the one at the time
//! of the call.

use toolgate_core::config::{Approver, Approvers};
use toolgate_core::name::ServerName;
use toolgate_core::policy::{Decision, ServerItem, Verdict};
use toolgate_core::scope::Filters;

use super::Engine;
use super::rules::Rules;
use crate::approval::{ApprovalRequest, MAX_CLIENT_ARGUMENT_BYTES, is_scanner_rule};
use crate::call::Arguments;
use crate::caller::{CallOrigin, Caller};

impl Engine {
    /// Returns who may decide about a waiting call now. While its tool is not known, or if the call no
    /// longer needs an approval, those who could decide when it was made.
    pub(crate) fn current_approvers(&self, request: &ApprovalRequest) -> Approvers {
        let rules = self.0.rules.load();
        let caller = match &request.from.caller {
            Some(key) => Caller::library().with_key(key),
            None => Caller::library(),
        };
        let Some(decision) = self.judge_waiting_call(&rules, &caller, request) else {
            return request.approvers;
        };
        let approvers = rules.approvers(&caller, &request.tool.server, &decision);
        if request.fingerprint.is_item() {
            approvers.without_client()
        } else {
            approvers
        }
    }

    /// Decides about a waiting call again; `None` if it cannot be told, or needs no approval now.
    fn judge_waiting_call(
        &self,
        rules: &Rules,
        caller: &Caller,
        request: &ApprovalRequest,
    ) -> Option<Decision> {
        let filters = Filters::default();
        let arguments = Arguments::parse(request.arguments.get()).ok()?;
        let decision = if request.fingerprint.is_item() {
            let item = waiting_item(&request.tool.server, request, &arguments)?;
            rules.judge_item(caller, &filters, item).ok()?
        } else {
            let catalog = self.0.deps.registry.catalog();
            let view = rules.access.view(rules.principal(caller).ok()?, &filters);
            let definitions = catalog.definitions_of(&request.tool);
            let judgement = view.judge(definitions.first()?.into())?;
            judgement.decide(arguments.value())
        };
        // The scanner may ask about arguments that no rule asks about.
        let is_scanned = is_scanner_rule(&request.rule);
        let asks = decision.verdict == Verdict::Ask;
        (asks || is_scanned).then(|| Decision {
            verdict: Verdict::Ask,
            decided_by: request.rule.as_str().into(),
            approval_by: decision.approval_by.filter(|_| asks),
        })
    }
}

/// Returns whether nobody can decide about a call: administrators may not, and the user of a client
/// may not either, or cannot be asked.
pub(crate) fn is_undecidable(request: &ApprovalRequest, approvers: Approvers) -> bool {
    // Scripts and the embedding program may act for a client.
    let without_client = [CallOrigin::Http, CallOrigin::Cli, CallOrigin::Agent];
    let mut without_client = without_client.iter().map(|origin| origin.as_str());
    let has_client = without_client.all(|origin| origin != request.from.origin);
    let is_shown_whole = request.arguments.get().len() <= MAX_CLIENT_ARGUMENT_BYTES;
    let by_client = approvers.contains(Approver::Client) && has_client && is_shown_whole;
    !approvers.contains(Approver::Admin) && !by_client
}

/// Returns the resource or prompt that a waiting request is about.
fn waiting_item<'a>(
    server: &'a ServerName,
    request: &ApprovalRequest,
    arguments: &'a Arguments,
) -> Option<ServerItem<'a>> {
    let value = arguments.value();
    Some(match request.tool.tool.as_str() {
        "prompts/get" => ServerItem::Prompt {
            server,
            name: value["name"].as_str()?,
        },
        _ => ServerItem::Resource {
            server,
            uri: value["uri"].as_str()?,
        },
    })
}
