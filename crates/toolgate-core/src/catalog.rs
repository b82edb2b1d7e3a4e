//! The catalog: an immutable snapshot of everything that all servers offer.
//!
//! It is built whole from the servers' offers and swapped whole when one changes. Order, aliases
//! and bytes depend on what the servers said and on the configured names alone, never on the
//! order in which servers came up.

mod alias;
mod offer;
mod tool;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use serde_json::value::RawValue;

pub use offer::{Item, Kind, Offer, Problem};
pub use tool::{Hints, Tool, ToolView};

use crate::name::{NameStyle, ServerName, ToolId, ToolName};
use crate::pattern::spelled;

/// What all servers offer, at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    generation: u64,
    offers: BTreeMap<ServerName, Arc<Offer>>,
    entries: Vec<Entry>,
    by_alias: HashMap<Arc<str>, usize>,
    by_id: HashMap<ToolId, usize>,
    renamed: Vec<Renamed>,
}

/// A tool and the name under which models see it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its place in [`Catalog::tools`].
    pub index: usize,
    pub alias: Arc<str>,
    pub tool: Arc<Tool>,
    /// Made when the first client lists it.
    aliased: Arc<OnceLock<Box<RawValue>>>,
}

/// A tool whose plain alias was taken or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub id: ToolId,
    pub plain: String,
    pub alias: Arc<str>,
}

/// What a name stands for.
#[derive(Debug)]
pub enum Resolution<'a> {
    Found(&'a Entry),
    /// The spelling fits several tools; their aliases do not.
    Ambiguous(Vec<&'a Entry>),
    Unknown,
}

impl Entry {
    /// The definition under its alias; all else is as its server wrote it.
    pub fn aliased(&self) -> &RawValue {
        self.aliased
            .get_or_init(|| with_text(&self.tool.definition, "name", &self.alias))
    }
}

/// A JSON object with another text in one of its members.
pub fn with_text(object: &RawValue, member: &str, text: &str) -> Box<RawValue> {
    let Ok(mut members) = serde_json::from_str::<IndexMap<String, Cow<'_, RawValue>>>(object.get())
    else {
        return object.to_owned();
    };
    let quoted = serde_json::value::to_raw_value(text);
    if let (Some(slot), Ok(quoted)) = (members.get_mut(member), quoted) {
        *slot = Cow::Owned(quoted);
    }
    serde_json::value::to_raw_value(&members).unwrap_or_else(|_| object.to_owned())
}

impl Catalog {
    /// Joins the offers. `configured` are all server names, also of servers that are not up, so
    /// that an alias does not change when another server joins.
    pub fn build(
        generation: u64,
        style: NameStyle,
        configured: &[ServerName],
        offers: BTreeMap<ServerName, Arc<Offer>>,
    ) -> Self {
        let mut entries = Vec::new();
        let mut renamed = Vec::new();
        let mut aliases = alias::Aliases::new(style, configured);
        for (server, offer) in &offers {
            for (tool, alias) in offer.tools.iter().zip(aliases.assign(server, &offer.tools)) {
                if let Some(plain) = alias.instead_of {
                    renamed.push(Renamed {
                        id: tool.id.clone(),
                        plain,
                        alias: Arc::clone(&alias.name),
                    });
                }
                entries.push(Entry {
                    index: entries.len(),
                    alias: alias.name,
                    tool: Arc::clone(tool),
                    aliased: Arc::default(),
                });
            }
        }
        let index = entries.iter().enumerate();
        Self {
            generation,
            by_alias: index
                .clone()
                .map(|(i, e)| (Arc::clone(&e.alias), i))
                .collect(),
            by_id: index.map(|(i, e)| (e.tool.id.clone(), i)).collect(),
            offers,
            entries,
            renamed,
        }
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All tools, ordered by server and tool name.
    pub fn tools(&self) -> &[Entry] {
        &self.entries
    }

    /// Tools that could not have their plain alias.
    pub fn renamed(&self) -> &[Renamed] {
        &self.renamed
    }

    /// What each server offers, ordered by name.
    pub fn offers(&self) -> impl Iterator<Item = (&ServerName, &Arc<Offer>)> {
        self.offers.iter()
    }

    pub fn offer(&self, server: &ServerName) -> Option<&Arc<Offer>> {
        self.offers.get(server)
    }

    pub fn tool(&self, id: &ToolId) -> Option<&Entry> {
        self.by_id.get(id).map(|&i| &self.entries[i])
    }

    /// Finds the tool that `name` stands for: its alias, or any other spelling of server and tool.
    /// What `visible` refuses does not exist here.
    pub fn resolve(&self, name: &str, visible: impl Fn(&Entry) -> bool) -> Resolution<'_> {
        let by_alias = self.by_alias.get(name).map(|&i| &self.entries[i]);
        if let Some(entry) = by_alias.filter(|entry| visible(entry)) {
            return Resolution::Found(entry);
        }
        let mut found: Vec<&Entry> = self
            .offers
            .keys()
            .flat_map(|server| {
                spelled(name, server).map(|tool| (server.clone(), ToolName::new(tool)))
            })
            .filter_map(|(server, tool)| self.tool(&ToolId { server, tool }))
            .filter(|entry| visible(entry))
            .collect();
        found.dedup_by(|a, b| a.tool.id == b.tool.id);
        match found.len() {
            0 => Resolution::Unknown,
            1 => Resolution::Found(found[0]),
            _ => Resolution::Ambiguous(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(server: &str, tools: &[&str]) -> (ServerName, Arc<Offer>) {
        let server = ServerName::parse(server).unwrap();
        let mut offer = Offer::default();
        for tool in tools {
            let json = serde_json::json!({"name": tool, "inputSchema": {"type": "object"}});
            offer.add(
                &server,
                Kind::Tool,
                &serde_json::value::to_raw_value(&json).unwrap(),
            );
        }
        (server, Arc::new(offer.sorted()))
    }

    fn catalog(style: NameStyle, offers: &[(&str, &[&str])]) -> Catalog {
        let offers: BTreeMap<_, _> = offers.iter().map(|(s, t)| offer(s, t)).collect();
        let configured: Vec<_> = offers.keys().cloned().collect();
        Catalog::build(1, style, &configured, offers)
    }

    fn aliases(catalog: &Catalog) -> Vec<&str> {
        catalog.tools().iter().map(|entry| &*entry.alias).collect()
    }

    fn found(catalog: &Catalog, name: &str) -> Option<String> {
        match catalog.resolve(name, |_| true) {
            Resolution::Found(entry) => Some(entry.tool.id.to_string()),
            _ => None,
        }
    }

    #[test]
    fn aliases_by_style_and_resolution_in_every_spelling() {
        for (style, alias) in [
            (NameStyle::Underscore, "fs_read_file"),
            (NameStyle::Hyphen, "fs-read_file"),
            (NameStyle::Mcp, "mcp__fs__read_file"),
        ] {
            let catalog = catalog(style, &[("fs", &["read_file"])]);
            assert_eq!(aliases(&catalog), [alias]);
            for name in [
                "fs_read_file",
                "fs-read_file",
                "mcp__fs__read_file",
                "fs.read_file",
            ] {
                assert_eq!(
                    found(&catalog, name).as_deref(),
                    Some("fs.read_file"),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_server_name_inside_another_gives_stable_distinct_aliases() {
        let both = catalog(NameStyle::Underscore, &[("a", &["b_c"]), ("a_b", &["c"])]);
        let [suffixed, plain] = aliases(&both)[..] else {
            panic!("two tools")
        };
        assert_eq!(plain, "a_b_c");
        assert!(suffixed.starts_with("a_b_c_"));
        assert_eq!(found(&both, "a_b_c").as_deref(), Some("a_b.c"));
        assert_eq!(found(&both, suffixed).as_deref(), Some("a.b_c"));
        assert_eq!(both.renamed().len(), 1);

        let names: Vec<_> = ["a", "a_b"].map(|n| ServerName::parse(n).unwrap()).into();
        let alone = Catalog::build(
            2,
            NameStyle::Underscore,
            &names,
            [offer("a", &["b_c"])].into(),
        );
        assert_eq!(
            aliases(&alone),
            [suffixed],
            "the alias is the same while the other is away"
        );
    }

    #[test]
    fn a_spelling_that_fits_two_tools_is_ambiguous() {
        let catalog = catalog(NameStyle::Hyphen, &[("a", &["b_c"]), ("a_b", &["c"])]);
        assert!(
            matches!(catalog.resolve("a_b_c", |_| true), Resolution::Ambiguous(two) if two.len() == 2)
        );
        let visible = |entry: &Entry| entry.tool.id.server.as_str() == "a";
        assert!(matches!(
            catalog.resolve("a_b_c", visible),
            Resolution::Found(_)
        ));
    }

    #[test]
    fn hostile_names_get_valid_unique_aliases() {
        let long = "x".repeat(100);
        let names = [
            "a.b",
            "a/b",
            "a_b",
            "ü",
            "é",
            long.as_str(),
            "../../etc",
            "a b",
        ];
        let catalog = catalog(NameStyle::Underscore, &[("s", &names)]);
        let mut seen = std::collections::HashSet::new();
        for entry in catalog.tools() {
            let alias = &entry.alias;
            assert!(alias.len() <= crate::name::MAX_ALIAS, "{alias}");
            assert!(
                alias
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
                "{alias}"
            );
            assert!(seen.insert(Arc::clone(alias)), "{alias} twice");
            assert_eq!(found(&catalog, alias), Some(entry.tool.id.to_string()));
        }
        assert_eq!(
            found(&catalog, "s_a_b").as_deref(),
            Some("s.a_b"),
            "the exact name keeps it"
        );
    }

    #[test]
    fn hidden_tools_do_not_exist() {
        let catalog = catalog(NameStyle::Underscore, &[("s", &["t"])]);
        assert!(matches!(
            catalog.resolve("s_t", |_| false),
            Resolution::Unknown
        ));
    }
}
