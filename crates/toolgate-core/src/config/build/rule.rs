//! Permission rules, checked.

use super::{Merge, Reader, duration, set};
use crate::config::document::escape;
use crate::config::file::{OneOrMany, PermissionsTable, RuleTable};
use crate::config::{Finding, Permissions, Place, Severity};
use crate::name::ServerName;
use crate::pattern::SelectorError;
use crate::policy::{Conditions, RuleError, RuleSpec};

/// A rule and what is to be said of it once all servers are known.
pub(super) struct WrittenRule {
    pub(super) spec: RuleSpec,
    place: Place,
    /// It has a condition of another program's kind.
    foreign: bool,
}

impl WrittenRule {
    pub(super) fn finding(&self, servers: &[ServerName]) -> Option<Finding> {
        let (severity, message) = match self.spec.check(servers) {
            Err(RuleError::Selector(error)) => (severity(&error), error.to_string()),
            Err(error @ RuleError::NoSuchServer { .. }) => (Severity::Warning, error.to_string()),
            Ok(()) if self.foreign => {
                let message = "`pattern` says nothing of tools of servers; name the argument, as in `arguments = { path = \"/tmp/*\" }`";
                (Severity::Error, message.to_owned())
            }
            Ok(()) => return None,
        };
        Some(Finding {
            severity,
            place: self.place.clone(),
            message,
        })
    }
}

pub(super) fn severity(error: &SelectorError) -> Severity {
    match error {
        SelectorError::NoServer { .. } => Severity::Warning,
        SelectorError::Ambiguous { .. } => Severity::Error,
    }
}

impl Merge {
    pub(super) fn add_permissions(
        &mut self,
        permissions: PermissionsTable,
        reader: &mut Reader<'_>,
    ) {
        let PermissionsTable {
            default,
            rules,
            approval_by,
            approval_expiry,
            approval_wait,
        } = permissions;
        let settings: &mut Permissions = &mut self.config.permissions;
        settings.default = settings.default.max(default);
        set(&mut settings.approvals.by, approval_by);
        set(&mut settings.approvals.expiry, duration(approval_expiry));
        set(
            &mut settings.approvals.wait,
            approval_wait.map(|span| span.0),
        );
        let pointers = reader.pointers("/permissions/rules");
        for (rule, pointer) in rules.into_iter().zip(pointers) {
            let RuleTable {
                tool,
                server,
                arguments,
                roles,
                environment,
                hint,
                pattern,
                action,
            } = rule;
            if tool.is_none() && server.is_none() {
                reader.error(
                    &pointer,
                    "a rule needs `tool` or `server`; write `tool = \"*\"` for all tools",
                );
                continue;
            }
            for (key, list) in arguments
                .iter()
                .map(|(name, list)| (format!("arguments/{}", escape(name)), Some(list)))
                .chain([
                    ("roles".to_owned(), roles.as_ref()),
                    ("environment".to_owned(), environment.as_ref()),
                ])
            {
                if list.is_some_and(OneOrMany::is_empty) {
                    reader.error(
                        &format!("{pointer}/{key}"),
                        "an empty list fits nothing, so this rule would never match; leave the key away, or name something",
                    );
                }
            }
            let spec = RuleSpec {
                place: reader.document.place(&pointer).key,
                tool,
                server,
                when: Conditions {
                    arguments: arguments
                        .into_iter()
                        .map(|(name, patterns)| (name, patterns.into_vec()))
                        .collect(),
                    roles: roles.map(OneOrMany::into_vec).unwrap_or_default(),
                    environments: environment.map(OneOrMany::into_vec).unwrap_or_default(),
                    hint,
                },
                verdict: action,
            };
            let place = reader.document.place(&pointer);
            for role in &spec.when.roles {
                let used = (role.clone(), Severity::Warning, place.clone());
                self.roles_used.push(used);
            }
            let rule = WrittenRule {
                spec,
                place,
                foreign: pattern.is_some(),
            };
            self.rules.push(rule);
        }
    }
}
