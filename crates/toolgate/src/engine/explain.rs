//! Why a tool exists for a request, or does not.

use toolgate_core::catalog::{Hints, Resolution};
use toolgate_core::name::{ToolId, ToolName};
use toolgate_core::pattern::spelled;
use toolgate_core::policy::{Subject, Verdict};
use toolgate_core::scope::{Filters, Step};
use toolgate_mcp::registry::Registry;

use super::rules::Rules;
use crate::call::CallError;
use crate::caller::Caller;

/// What every step says of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// None if no server can be meant.
    pub tool: Option<ToolId>,
    pub alias: Option<String>,
    pub visible: bool,
    /// Of a visible tool.
    pub verdict: Option<Verdict>,
    pub steps: Vec<Step>,
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
    let meant = entry.as_ref().map(|entry| entry.tool.id.clone());
    let Some(id) = meant.or_else(|| meant_by(rules, name)) else {
        return Ok(Explanation {
            tool: None,
            alias: None,
            visible: false,
            verdict: None,
            steps: vec![Step {
                key: "mcp_servers".to_owned(),
                passes: false,
                says: format!("`{name}` names no configured server"),
            }],
        });
    };
    let hints = entry.as_ref().map_or(Hints::default(), |e| e.tool.hints);
    let subject = Subject {
        id: &id,
        alias: entry.as_ref().map_or(name, |entry| &entry.alias),
        hints,
    };
    let lens = rules.access.lens(rules.principal(caller)?, filters);
    let mut steps = vec![offered(registry, &id, entry.is_some())];
    if let Some(Err(unusable)) = entry.as_ref().map(|entry| entry.tool.schema()) {
        steps.push(Step {
            key: "inputSchema".to_owned(),
            passes: true,
            says: format!("arguments are not checked: {unusable}"),
        });
    }
    steps.extend(lens.explain(subject));
    let judgement = lens.judge(subject).filter(|_| entry.is_some());
    Ok(Explanation {
        alias: entry.map(|entry| entry.alias.to_string()),
        visible: judgement.is_some(),
        verdict: judgement.map(|judgement| judgement.decision().verdict),
        tool: Some(id),
        steps,
    })
}

/// Whether the server offers the tool, and how the server is.
fn offered(registry: &Registry, id: &ToolId, is_offered: bool) -> Step {
    let status = registry.entry(&id.server).map(|entry| entry.status());
    let state = status.as_ref().map_or("unknown", |s| s.state.as_str());
    let reason = status
        .as_ref()
        .and_then(|status| status.reason.as_deref())
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let says = match is_offered {
        true => format!("server `{}` offers it and is {state}", id.server),
        false => format!(
            "server `{}` is {state}{reason}, and offers no tool `{}`",
            id.server, id.tool
        ),
    };
    Step {
        key: format!("server {}", id.server),
        passes: is_offered,
        says,
    }
}

/// The tool that a name would mean; the longest server name counts.
fn meant_by(rules: &Rules, name: &str) -> Option<ToolId> {
    let servers = rules.servers.keys();
    let meant = servers.flat_map(|server| {
        spelled(name, server).map(move |tool| ToolId {
            server: server.clone(),
            tool: ToolName::new(tool),
        })
    });
    meant.max_by_key(|id| id.server.as_str().len())
}
