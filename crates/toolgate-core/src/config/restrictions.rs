//! Restrictions that a renamed server would escape.
//!
//! Rules and lists refer to servers by name, so a server with a new name is free of everything that
//! was written for the old one.

use crate::config::Config;
use crate::name::ServerName;
use crate::pattern::{Selector, SelectorMode};
use crate::policy::Verdict;

/// A restriction that applies to a removed server, but not to one added by the same change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "server `{removed}` is gone and `{added}` is new, but `{restriction}` still names `{removed}`; if the server was renamed, it would escape this restriction: change it too, or remove one server before adding the other"
)]
pub struct LostRestriction {
    /// Config key of the restriction.
    pub restriction: String,
    pub removed: ServerName,
    pub added: ServerName,
}

/// What is remembered of a server, to notice that it may have been renamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    pub name: ServerName,
    /// Whether the server is granted to all keys, so that a grant that names it is a restriction.
    pub allow_on_all_keys: bool,
}

impl Config {
    /// Returns the servers, for a comparison with a later configuration.
    pub fn known_servers(&self) -> Vec<KnownServer> {
        let servers = self.servers.iter();
        let servers = servers.map(|server| KnownServer {
            name: server.name.clone(),
            allow_on_all_keys: server.allow_on_all_keys,
        });
        servers.collect()
    }

    /// Finds the restrictions that a server would escape if this change of the configuration renames
    /// it, which cannot be told from the removal of one server and the addition of another.
    pub fn find_lost_restrictions(&self, before: &[KnownServer]) -> Vec<LostRestriction> {
        let names_now = self.server_names();
        let removed = before
            .iter()
            .filter(|known| !names_now.contains(&known.name));
        let added: Vec<&ServerName> = names_now
            .iter()
            .filter(|name| before.iter().all(|known| known.name != **name))
            .collect();
        let mut names: Vec<ServerName> = before.iter().map(|known| known.name.clone()).collect();
        names.extend(added.iter().map(|name| (*name).clone()));
        let mut lost = Vec::new();
        for removed in removed {
            for restriction in self.restrictions(removed, &names) {
                let escapes = |added: &&&ServerName| !restriction.selector.may_match_server(added);
                let covers = restriction.selector.may_match_server(&removed.name);
                if let Some(added) = added.iter().find(escapes).filter(|_| covers) {
                    lost.push(LostRestriction {
                        restriction: restriction.config_key,
                        removed: removed.name.clone(),
                        added: (*added).clone(),
                    });
                }
            }
        }
        lost
    }

    /// Everything that may restrict the use of a server.
    fn restrictions(&self, server: &KnownServer, names: &[ServerName]) -> Vec<Restriction> {
        let wide = |config_key: &str, text: &String| Restriction {
            config_key: config_key.to_owned(),
            selector: Selector::parse_or_none(text, names, SelectorMode::Wide),
        };
        let mut restrictions: Vec<Restriction> = Vec::new();
        let blocked = self.blocked_tools.iter();
        restrictions.extend(blocked.map(|text| wide("mcp.blocked_tools", text)));
        for rule in &self.permissions.rules {
            if rule.verdict != Verdict::Allow {
                restrictions.push(Restriction {
                    config_key: rule.config_key.clone(),
                    selector: match rule.item_server() {
                        Some(server) => Selector::from_globs(server, "*"),
                        None => rule.selector(names),
                    },
                });
            }
        }
        for name in &self.security.deny {
            restrictions.push(Restriction {
                config_key: "security.mcp_server_denylist".to_owned(),
                selector: Selector::from_globs(name, "*"),
            });
        }
        // A grant that names such a server limits the key to the tools that it names.
        if server.allow_on_all_keys {
            let keys = self.keys.iter().map(|key| ("keys", &key.name, &key.tools));
            let roles = self.roles.iter();
            let roles = roles.map(|role| ("roles", &role.name, &role.tools));
            for (table, name, tools) in keys.chain(roles) {
                let config_key = format!("{table}.{name}.tools");
                let tools = tools.iter().flatten();
                restrictions.extend(tools.map(|text| wide(&config_key, text)));
            }
        }
        restrictions
    }
}

struct Restriction {
    config_key: String,
    selector: Selector,
}
