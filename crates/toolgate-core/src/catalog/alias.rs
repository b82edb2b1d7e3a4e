//! Assigns unique, valid and stable aliases.
//!
//! A tool gets its plain alias unless that is too long, could be read as a tool of another
//! configured server with a longer name, or is shared with a sibling whose raw name differs. In
//! those cases the alias ends in a hash of the tool's id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Tool;
use crate::hash::sha256_hex;
use crate::name::{MAX_ALIAS_LEN, NameStyle, ServerName, ToolId, sanitize};

pub(super) struct AliasAllocator {
    style: NameStyle,
    /// Prefixes of all configured servers, sorted.
    prefixes: Vec<String>,
    taken: HashSet<Arc<str>>,
}

pub(super) struct AssignedAlias {
    pub(super) name: Arc<str>,
    /// Plain alias, if the tool could not get it.
    pub(super) plain: Option<String>,
}

impl AliasAllocator {
    pub(super) fn new(style: NameStyle, configured: &[ServerName]) -> Self {
        let mut prefixes: Vec<String> = configured.iter().map(|name| style.prefix(name)).collect();
        prefixes.sort();
        Self {
            style,
            prefixes,
            taken: HashSet::new(),
        }
    }

    /// Assigns one alias to each tool of a server, in order.
    pub(super) fn assign(
        &mut self,
        server: &ServerName,
        tools: &[Arc<Tool>],
    ) -> Vec<AssignedAlias> {
        let prefix = self.style.prefix(server);
        let after = self.prefixes.partition_point(|other| *other <= prefix);
        let longer: Vec<String> = self.prefixes[after..]
            .iter()
            .take_while(|other| other.starts_with(&prefix))
            .cloned()
            .collect();
        let mut shared: HashMap<String, usize> = HashMap::new();
        for tool in tools {
            *shared.entry(plain_alias(&prefix, tool)).or_default() += 1;
        }
        tools
            .iter()
            .map(|tool| {
                let plain = plain_alias(&prefix, tool);
                // Among tools that share a plain alias, the one that is named so keeps it.
                let exact = sanitize(tool.id.tool.as_str()) == tool.id.tool.as_str();
                let free = plain.len() <= MAX_ALIAS_LEN
                    && (exact || shared[&plain] == 1)
                    && !longer.iter().any(|other| plain.starts_with(other.as_str()))
                    && !self.taken.contains(plain.as_str());
                self.reserve(&tool.id, plain, free)
            })
            .collect()
    }

    fn reserve(&mut self, id: &ToolId, plain: String, free: bool) -> AssignedAlias {
        let (name, plain): (Arc<str>, _) = if free {
            (plain.into(), None)
        } else {
            (self.with_hash_suffix(id, &plain), Some(plain))
        };
        self.taken.insert(Arc::clone(&name));
        AssignedAlias { name, plain }
    }

    fn with_hash_suffix(&self, id: &ToolId, plain: &str) -> Arc<str> {
        let hex = sha256_hex(format!("{}\0{}", id.server, id.tool));
        let with_hex_len = |length: usize| -> Arc<str> {
            // A plain alias is sanitized, and therefore ASCII.
            let keep = plain.len().min(MAX_ALIAS_LEN - length - 1);
            format!("{}_{}", &plain[..keep], &hex[..length]).into()
        };
        // Eight digits almost always suffice; longer hashes only matter to hostile names.
        let candidates = [8, 16, 32].map(with_hex_len);
        let [_, _, longest] = &candidates;
        candidates
            .iter()
            .find(|name| !self.taken.contains(*name))
            .unwrap_or(longest)
            .clone()
    }
}

fn plain_alias(prefix: &str, tool: &Tool) -> String {
    format!("{prefix}{}", sanitize(tool.id.tool.as_str()))
}
