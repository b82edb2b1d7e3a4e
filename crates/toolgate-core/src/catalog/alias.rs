//! Unique, valid and stable aliases.
//!
//! A tool gets its plain alias unless the alias would be too long, would read as a tool of another
//! configured server with a longer name, or is shared with a sibling whose raw name differs. Such
//! a tool gets a suffix from the hash of its id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Tool;
use crate::hash::sha256;
use crate::name::{MAX_ALIAS, NameStyle, ServerName, ToolId, sanitize};

pub(super) struct Aliases {
    style: NameStyle,
    /// The prefixes of all configured servers, sorted.
    prefixes: Vec<String>,
    taken: HashSet<Arc<str>>,
}

pub(super) struct Alias {
    pub(super) name: Arc<str>,
    /// The plain alias that it could not have.
    pub(super) instead_of: Option<String>,
}

impl Aliases {
    pub(super) fn new(style: NameStyle, configured: &[ServerName]) -> Self {
        let mut prefixes: Vec<String> = configured.iter().map(|name| style.prefix(name)).collect();
        prefixes.sort();
        Self {
            style,
            prefixes,
            taken: HashSet::new(),
        }
    }

    /// One alias for each tool of a server, in their order.
    pub(super) fn assign(&mut self, server: &ServerName, tools: &[Arc<Tool>]) -> Vec<Alias> {
        let prefix = self.style.prefix(server);
        let after = self.prefixes.partition_point(|other| *other <= prefix);
        let longer: Vec<String> = self.prefixes[after..]
            .iter()
            .take_while(|other| other.starts_with(&prefix))
            .cloned()
            .collect();
        let mut shared: HashMap<String, usize> = HashMap::new();
        for tool in tools {
            *shared.entry(plain(&prefix, tool)).or_default() += 1;
        }
        tools
            .iter()
            .map(|tool| {
                let plain = plain(&prefix, tool);
                let exact = sanitize(tool.id.tool.as_str()) == tool.id.tool.as_str();
                let free = plain.len() <= MAX_ALIAS
                    && (exact || shared[&plain] == 1)
                    && !longer.iter().any(|other| plain.starts_with(other.as_str()))
                    && !self.taken.contains(plain.as_str());
                self.take(&tool.id, plain, free)
            })
            .collect()
    }

    fn take(&mut self, id: &ToolId, plain: String, free: bool) -> Alias {
        let (name, instead_of): (Arc<str>, _) = if free {
            (plain.into(), None)
        } else {
            (self.suffixed(id, &plain), Some(plain))
        };
        self.taken.insert(Arc::clone(&name));
        Alias { name, instead_of }
    }

    fn suffixed(&self, id: &ToolId, plain: &str) -> Arc<str> {
        let hex = sha256(format!("{}\0{}", id.server, id.tool));
        let of_length = |length: usize| -> Arc<str> {
            let keep = plain.len().min(MAX_ALIAS - length - 1);
            format!("{}_{}", &plain[..keep], &hex[..length]).into()
        };
        let candidates = [8, 16, 32].map(of_length);
        let [_, _, longest] = &candidates;
        candidates
            .iter()
            .find(|name| !self.taken.contains(*name))
            .unwrap_or(longest)
            .clone()
    }
}

fn plain(prefix: &str, tool: &Tool) -> String {
    format!("{prefix}{}", sanitize(tool.id.tool.as_str()))
}
