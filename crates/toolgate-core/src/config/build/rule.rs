//! Builds and checks permission rules.

use super::{ConfigBuilder, FileContext, approvers, non_zero_duration, set_if_some};
use crate::config::document::escape_step;
use crate::config::file::{OneOrMany, PermissionsTable, RuleTable};
use crate::config::{ConfigFinding, ConfigLocation, PermissionSettings, Severity};
use crate::name::ServerName;
use crate::pattern::SelectorError;
use crate::policy::{Conditions, RuleError, RuleSpec, Verdict, split_prompt, split_resource};

/// A rule that is checked once all servers are known.
pub(super) struct PendingRule {
    pub(super) spec: RuleSpec,
    location: ConfigLocation,
    /// Whether the rule has agent-code's `pattern`, which has no meaning for MCP tools.
    has_pattern: bool,
}

impl PendingRule {
    pub(super) fn check(&self, servers: &[ServerName]) -> Option<ConfigFinding> {
        let (severity, message) = match self.spec.check(servers) {
            Err(error) if self.spec.is_for_agent_code() => (Severity::Warning, error.to_string()),
            Err(RuleError::Selector(error)) => (selector_severity(&error), error.to_string()),
            Err(error @ RuleError::NoSuchServer { .. }) => {
                (Severity::UnknownName, error.to_string())
            }
            Ok(()) if self.has_pattern => {
                let message = "`pattern` does not apply to MCP tools; name the argument, as in `arguments = { path = \"/tmp/*\" }`";
                (Severity::Error, message.to_owned())
            }
            Ok(()) => return None,
        };
        Some(ConfigFinding {
            severity,
            location: self.location.clone(),
            message,
        })
    }
}

pub(super) fn selector_severity(error: &SelectorError) -> Severity {
    match error {
        SelectorError::NoServer { .. } => Severity::UnknownName,
        SelectorError::Ambiguous { .. } => Severity::Error,
    }
}

impl ConfigBuilder {
    pub(super) fn add_permissions(
        &mut self,
        permissions: PermissionsTable,
        context: &mut FileContext<'_>,
    ) {
        let PermissionsTable {
            default,
            rules,
            approval_by,
            approval_expiry,
            approval_wait,
        } = permissions;
        let settings: &mut PermissionSettings = &mut self.config.permissions;
        settings.default = settings.default.max(default);
        set_if_some(&mut settings.approvals.by, approvers(approval_by));
        set_if_some(
            &mut settings.approvals.expiry,
            non_zero_duration(approval_expiry),
        );
        set_if_some(
            &mut settings.approvals.wait,
            approval_wait.map(|span| span.0),
        );
        let pointers = context.pointers("/permissions/rules");
        for (rule, pointer) in rules.into_iter().zip(pointers) {
            self.add_rule(rule, &pointer, context);
        }
    }

    fn add_rule(&mut self, rule: RuleTable, pointer: &str, context: &mut FileContext<'_>) {
        let problem = find_problem(&rule);
        if let Some(problem) = problem {
            context.error(pointer, problem);
            return;
        }
        let RuleTable {
            tool,
            server,
            resource,
            prompt,
            arguments,
            roles,
            environment,
            hint,
            pattern,
            approval_by,
            action,
        } = rule;
        if approval_by.is_some() && action != Verdict::Ask {
            context.error(
                &format!("{pointer}/approval_by"),
                "only a rule with `action = \"ask\"` can say who approves; remove `approval_by` or change `action`",
            );
        }
        for (key, list) in arguments
            .iter()
            .map(|(name, list)| (format!("arguments/{}", escape_step(name)), Some(list)))
            .chain([
                ("roles".to_owned(), roles.as_ref()),
                ("environment".to_owned(), environment.as_ref()),
            ])
        {
            if list.is_some_and(OneOrMany::is_empty) {
                context.error(
                    &format!("{pointer}/{key}"),
                    "an empty list matches nothing, so this rule would never match; remove the key or add an entry",
                );
            }
        }
        let spec = RuleSpec {
            config_key: context.document.location(pointer).key,
            tool,
            server,
            resource,
            prompt,
            when: Conditions {
                arguments: arguments
                    .into_iter()
                    .map(|(name, patterns)| (name, patterns.into_vec()))
                    .collect(),
                roles: roles.map(OneOrMany::into_vec).unwrap_or_default(),
                environments: environment.map(OneOrMany::into_vec).unwrap_or_default(),
                hint,
            },
            approval_by: approvers(approval_by),
            verdict: action,
        };
        let location = context.document.location(pointer);
        for role in &spec.when.roles {
            self.roles_used.push((role.clone(), location.clone()));
        }
        let rule = PendingRule {
            spec,
            location,
            has_pattern: pattern.is_some(),
        };
        self.rules.push(rule);
    }
}

/// Returns what is wrong with the subject of a rule: the tools, resources or prompts it is about.
fn find_problem(rule: &RuleTable) -> Option<&'static str> {
    let RuleTable {
        tool,
        server,
        resource,
        prompt,
        arguments,
        hint,
        ..
    } = rule;
    let is_about_tools = tool.is_some() || server.is_some();
    let subjects = [is_about_tools, resource.is_some(), prompt.is_some()];
    match subjects.into_iter().filter(|given| *given).count() {
        0 => Some(
            "a rule needs `tool`, `server`, `resource` or `prompt`; write `tool = \"*\"` for all tools",
        ),
        1 if is_about_tools => None,
        1 if resource
            .as_deref()
            .is_some_and(|text| split_resource(text).is_none()) =>
        {
            Some("write `resource` as `SERVER:URI`, for example `hr:file:///salaries/*`")
        }
        1 if prompt
            .as_deref()
            .is_some_and(|text| split_prompt(text).is_none()) =>
        {
            Some("write `prompt` as `SERVER.NAME`, for example `hr.summarize`")
        }
        1 if !arguments.is_empty() || hint.is_some() => {
            Some("`arguments` and `hint` apply to tools only; remove them from this rule")
        }
        1 => None,
        _ => Some(
            "a rule is about tools (`tool`, `server`), resources (`resource`) or prompts (`prompt`); write a rule for each",
        ),
    }
}
