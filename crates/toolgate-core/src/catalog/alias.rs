//! Assigns unique, valid and stable aliases.
//!
//! A tool gets its plain alias unless that is too long, could be read in any style as a tool of
//! another configured server with a longer name, or is shared with a sibling whose raw name differs.
//! In those cases the alias ends in a hash of the tool's id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Tool;
use crate::hash::sha256_hex;
use crate::name::{MAX_ALIAS_LEN, NameStyle, ServerName, ToolId, sanitize};

/// Possible numbers of digits of the hash in an alias.
const HASH_LENGTHS: [usize; 3] = [8, 16, 32];

pub(super) struct AliasAllocator {
    style: NameStyle,
    /// Prefixes of all configured servers in every style, sorted.
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
        let styles = NameStyle::ALL.into_iter();
        let mut prefixes: Vec<String> = styles
            .flat_map(|style| configured.iter().map(move |name| style.prefix(name)))
            .collect();
        prefixes.sort();
        Self {
            style,
            prefixes,
            taken: HashSet::new(),
        }
    }

    /// Reserves aliases that are in use already.
    pub(super) fn take_all<'a>(&mut self, aliases: impl Iterator<Item = &'a Arc<str>>) {
        self.taken.extend(aliases.cloned());
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
        // Eight digits almost always suffice; longer hashes only matter to hostile names.
        let candidates: [Arc<str>; 3] =
            HASH_LENGTHS.map(|length| hashed_alias(id, plain, length).into());
        let [_, _, longest] = &candidates;
        candidates
            .iter()
            .find(|name| !self.taken.contains(*name))
            .unwrap_or(longest)
            .clone()
    }
}

/// A text that has the form of an alias with a hash suffix.
///
/// It matches the tool with that id even if the tool has its plain alias, so that a text in a rule
/// does not lose its meaning when another server or tool is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedAlias {
    text: String,
    /// Number of digits of the hash.
    length: usize,
}

impl HashedAlias {
    pub fn parse(text: &str) -> Option<Self> {
        let (_, digits) = text.rsplit_once('_')?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let fits = text.len() <= MAX_ALIAS_LEN && HASH_LENGTHS.contains(&digits.len());
        (fits && digits.bytes().all(is_hex)).then(|| Self {
            text: text.to_owned(),
            length: digits.len(),
        })
    }

    /// Whether this is an alias of the tool, in any name style.
    pub fn is_of(&self, id: &ToolId) -> bool {
        NameStyle::ALL.into_iter().any(|style| {
            let plain = format!("{}{}", style.prefix(&id.server), sanitize(id.tool.as_str()));
            self.text == hashed_alias(id, &plain, self.length)
        })
    }

    /// Whether this can be an alias of a tool of `server` that was cut within the server's name.
    pub fn is_cut_within(&self, server: &ServerName) -> bool {
        let keep = MAX_ALIAS_LEN - self.length - 1;
        NameStyle::ALL.into_iter().any(|style| {
            let prefix = style.prefix(server);
            prefix.len() >= keep
                && self.text.len() == MAX_ALIAS_LEN
                && self.text.starts_with(&prefix[..keep])
        })
    }
}

/// Appends a hash of the tool's id to its plain alias, which is cut where it is too long.
fn hashed_alias(id: &ToolId, plain: &str, length: usize) -> String {
    let hex = sha256_hex(format!("{}\0{}", id.server, id.tool));
    // A plain alias is sanitized, and therefore ASCII.
    let keep = plain.len().min(MAX_ALIAS_LEN - length - 1);
    format!("{}_{}", &plain[..keep], &hex[..length])
}

fn plain_alias(prefix: &str, tool: &Tool) -> String {
    format!("{prefix}{}", sanitize(tool.id.tool.as_str()))
}
