//! Explains why a tool is or is not visible to a request.
//!
//! The steps come from the same gates that decide real calls, so an explanation cannot disagree
//! with the engine.

use toolgate_core::catalog::{DefinitionReview, Resolution, ToolHints};
use toolgate_core::config::ArgumentCheck;
use toolgate_core::name::{ToolId, ToolName};
use toolgate_core::pattern::strip_server_prefixes;
use toolgate_core::policy::{Subject, Verdict};
use toolgate_core::scope::{Filters, GateResult, UnmatchedFilter};
use toolgate_mcp::registry::Registry;

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// The result of every gate for one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `None` if the name matches no configured server.
    pub tool: Option<ToolId>,
    /// Name of the tool as models see it.
    pub alias: Option<String>,
    /// Whether the tool exists for the request.
    pub visible: bool,
    /// Set for visible tools only.
    pub verdict: Option<Verdict>,
    /// Result of each gate, in order.
    pub steps: Vec<GateResult>,
    /// Names in the request's filters that match nothing that exists for the caller.
    pub unmatched_filters: Vec<UnmatchedFilter>,
}

pub(super) fn explain(
    rules: &Rules,
    registry: &Registry,
    caller: &Caller,
    filters: &Filters,
    name: &str,
) -> Result<Explanation, CallError> {
    let catalog = registry.catalog();
    let entry = match catalog.resolve(name, |_| true) {
        Resolution::Found(entry) => Some(entry.clone()),
        Resolution::Unknown => None,
        Resolution::Ambiguous(entries) => {
            let aliases = entries.iter().map(|entry| entry.alias.to_string());
            return Err(CallError::Ambiguous {
                name: name.to_owned(),
                aliases: aliases.collect(),
            });
        }
    };
    let view = rules
        .access
        .view(rules.principal(caller)?, filters)
        .resolve_filters(&catalog)?;
    let unmatched_filters = view.unmatched_filters().to_vec();
    let listed = entry.as_ref().map(|entry| entry.tool.id.clone());
    let Some(id) = listed.or_else(|| id_from_name(rules, name)) else {
        return Ok(Explanation {
            tool: None,
            alias: None,
            visible: false,
            verdict: None,
            steps: vec![GateResult {
                key: "mcp_servers".to_owned(),
                passes: false,
                explanation: format!("`{name}` matches no configured server"),
            }],
            unmatched_filters,
        });
    };
    let hints = entry
        .as_ref()
        .map_or(ToolHints::default(), |e| e.tool.hints);
    // Nothing is known about a tool that is not listed.
    let review = entry
        .as_ref()
        .map_or(DefinitionReview::PASSED, |entry| entry.review);
    let subject = Subject {
        id: &id,
        alias: entry.as_ref().map_or(name, |entry| &entry.alias),
        hints,
        review,
    };
    let mut steps = vec![server_step(registry, &id, entry.is_some())];
    if rules.argument_check(&id) == ArgumentCheck::Off {
        steps.push(GateResult {
            key: "argument_check".to_owned(),
            passes: true,
            explanation: "arguments are not checked against the schema: `argument_check` is `off`"
                .to_owned(),
        });
    } else if let Some(Err(unusable)) = entry.as_ref().map(|entry| entry.tool.schema()) {
        steps.push(GateResult {
            key: "inputSchema".to_owned(),
            passes: true,
            explanation: format!("arguments are not checked: {unusable}"),
        });
    }
    steps.extend(view.explain(subject));
    let judgement = view.judge(subject).filter(|_| entry.is_some());
    Ok(Explanation {
        alias: entry.map(|entry| entry.alias.to_string()),
        visible: judgement.is_some(),
        verdict: judgement.map(|judgement| judgement.decision().verdict),
        tool: Some(id),
        steps,
        unmatched_filters,
    })
}

/// Reports whether the server offers the tool, and the server's state.
fn server_step(registry: &Registry, id: &ToolId, is_offered: bool) -> GateResult {
    let status = registry.entry(&id.server).map(|entry| entry.status());
    let state = status.as_ref().map_or("unknown", |s| s.state.as_str());
    let reason = status
        .as_ref()
        .and_then(|status| status.reason.as_deref())
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let explanation = if is_offered {
        format!("server `{}` offers it and is {state}", id.server)
    } else {
        format!(
            "server `{}` is {state}{reason}, and offers no tool `{}`",
            id.server, id.tool
        )
    };
    GateResult {
        key: format!("server {}", id.server),
        passes: is_offered,
        explanation,
    }
}

/// Derives a tool id from a name that starts with a configured server's name. The longest matching
/// server name wins.
fn id_from_name(rules: &Rules, name: &str) -> Option<ToolId> {
    let servers = rules.servers.keys();
    let candidates = servers.flat_map(|server| {
        strip_server_prefixes(name, server).map(move |tool| ToolId {
            server: server.clone(),
            tool: ToolName::new(tool),
        })
    });
    candidates.max_by_key(|id| id.server.as_str().len())
}
