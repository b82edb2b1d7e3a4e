//! The catalog: an immutable snapshot of everything that all servers list.
//!
//! It is rebuilt as a whole from the servers' listings and swapped when one of them changes. Order,
//! aliases and bytes depend only on the listings and the configured names, never on the order in
//! which servers connect.

mod alias;
mod client_view;
mod listing;
pub mod repair;
mod review;
mod tool;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;
use serde_json::value::RawValue;

pub use alias::HashedAlias;
use client_view::ClientView;
pub use client_view::{ClientListings, ClientProfile};
pub use listing::{ItemKind, ItemOutcome, ListedItem, ListingProblem, ServerListing};
pub use review::{DefinitionReview, DefinitionReviews};
pub use tool::{TaskSupport, Tool, ToolHints, ToolView};

use crate::name::{NameStyle, ServerName, ToolId, ToolName};
use crate::pattern::strip_server_prefixes;

/// Snapshot of the tools, resources, templates and prompts of all servers.
#[derive(Debug, Default)]
pub struct Catalog {
    generation: u64,
    listings: BTreeMap<ServerName, Arc<ServerListing>>,
    tools: ToolTable,
    renamed: Vec<RenamedTool>,
    settings: BuildSettings,
    /// What servers list for the clients of other profiles.
    views: BTreeMap<ClientProfile, ClientView>,
    /// The profile whose clients the catalog is for, if it is one of the views of another.
    profile: Option<ClientProfile>,
}

/// Tools, and where to find them.
#[derive(Debug, Default)]
struct ToolTable {
    entries: Vec<CatalogEntry>,
    by_alias: HashMap<Arc<str>, usize>,
    by_id: HashMap<ToolId, usize>,
}

/// What a catalog depends on besides the listings.
#[derive(Clone, Debug, Default)]
struct BuildSettings {
    style: NameStyle,
    configured: Arc<[ServerName]>,
    reviews: Arc<DefinitionReviews>,
}

/// A tool and the alias under which models see it.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// Index in [`Catalog::tools`].
    pub index: usize,
    pub alias: Arc<str>,
    pub tool: Arc<Tool>,
    pub review: DefinitionReview,
    /// Definition with the alias as its name, built when first listed.
    aliased: Arc<OnceLock<Box<RawValue>>>,
}

/// A tool whose plain alias was already taken or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenamedTool {
    pub id: ToolId,
    pub plain: String,
    pub alias: Arc<str>,
}

/// Result of looking up a tool by name.
#[derive(Debug)]
pub enum Resolution<'a> {
    Found(&'a CatalogEntry),
    /// The name matches several tools, none of them by alias.
    Ambiguous(Vec<&'a CatalogEntry>),
    Unknown,
}

impl ToolTable {
    fn new(mut entries: Vec<CatalogEntry>) -> Self {
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.index = index;
        }
        let index = entries.iter().enumerate();
        Self {
            by_alias: index
                .clone()
                .map(|(i, e)| (Arc::clone(&e.alias), i))
                .collect(),
            by_id: index.map(|(i, e)| (e.tool.id.clone(), i)).collect(),
            entries,
        }
    }
}

impl CatalogEntry {
    /// Creates an entry without a review, whose index is set by its table.
    fn new(alias: Arc<str>, tool: &Arc<Tool>) -> Self {
        Self {
            index: 0,
            alias,
            tool: Arc::clone(tool),
            review: DefinitionReview::default(),
            aliased: Arc::default(),
        }
    }

    /// Definition with the alias as its name; everything else is as the server sent it.
    pub fn aliased_definition(&self) -> &RawValue {
        self.aliased
            .get_or_init(|| replace_text_member(&self.tool.definition, "name", &self.alias))
    }
}

/// Copy of a JSON object with the text of one existing member replaced.
pub fn replace_text_member(object: &RawValue, member: &str, text: &str) -> Box<RawValue> {
    // Definitions have been parsed when they were listed, so the object is returned unchanged only
    // if it was never a valid one.
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
    /// Builds a catalog from the listings. `configured` holds all server names, including servers
    /// that are not connected, so that aliases do not change when another server connects.
    pub fn build(
        generation: u64,
        style: NameStyle,
        configured: &[ServerName],
        listings: BTreeMap<ServerName, Arc<ServerListing>>,
    ) -> Self {
        let mut entries = Vec::new();
        let mut renamed = Vec::new();
        let mut aliases = alias::AliasAllocator::new(style, configured);
        for (server, listing) in &listings {
            for (tool, alias) in listing
                .tools
                .iter()
                .zip(aliases.assign(server, &listing.tools))
            {
                if let Some(plain) = alias.plain {
                    renamed.push(RenamedTool {
                        id: tool.id.clone(),
                        plain,
                        alias: Arc::clone(&alias.name),
                    });
                }
                entries.push(CatalogEntry::new(alias.name, tool));
            }
        }
        Self {
            generation,
            listings,
            tools: ToolTable::new(entries),
            renamed,
            settings: BuildSettings {
                style,
                configured: configured.into(),
                reviews: Arc::default(),
            },
            ..Self::default()
        }
    }

    /// Adds the reviews of definitions.
    #[must_use]
    pub fn with_reviews(mut self, reviews: &Arc<DefinitionReviews>) -> Self {
        if !reviews.is_empty() {
            for entry in &mut self.tools.entries {
                entry.review = reviews.get(&entry.tool);
            }
        }
        self.settings.reviews = Arc::clone(reviews);
        self
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All tools, ordered by server and tool name.
    pub fn tools(&self) -> &[CatalogEntry] {
        &self.tools.entries
    }

    /// Tools that could not get their plain alias.
    pub fn renamed_tools(&self) -> &[RenamedTool] {
        &self.renamed
    }

    /// Listings of all servers, ordered by server name.
    pub fn listings(&self) -> impl Iterator<Item = (&ServerName, &Arc<ServerListing>)> {
        self.listings.iter()
    }

    pub fn listing(&self, server: &ServerName) -> Option<&Arc<ServerListing>> {
        self.listings.get(server)
    }

    pub fn tool(&self, id: &ToolId) -> Option<&CatalogEntry> {
        let index = self.tools.by_id.get(id)?;
        self.tools.entries.get(*index)
    }

    /// Looks up a tool by alias or by any other spelling of server and tool name. Entries for which
    /// `visible` returns `false` are treated as absent.
    pub fn resolve(&self, name: &str, visible: impl Fn(&CatalogEntry) -> bool) -> Resolution<'_> {
        let by_alias = self.tools.by_alias.get(name);
        let by_alias = by_alias.and_then(|index| self.tools.entries.get(*index));
        if let Some(entry) = by_alias.filter(|entry| visible(entry)) {
            return Resolution::Found(entry);
        }
        let mut found: Vec<&CatalogEntry> = self
            .listings
            .keys()
            .flat_map(|server| {
                strip_server_prefixes(name, server)
                    .map(|tool| (server.clone(), ToolName::new(tool)))
            })
            .filter_map(|(server, tool)| self.tool(&ToolId { server, tool }))
            .filter(|entry| visible(entry))
            .collect();
        // Several name styles may lead to the same tool; those matches are adjacent.
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

    fn listing(server: &str, tools: &[&str]) -> (ServerName, Arc<ServerListing>) {
        let server = ServerName::parse(server).unwrap();
        let mut listing = ServerListing::default();
        for tool in tools {
            let json = serde_json::json!({"name": tool, "inputSchema": {"type": "object"}});
            listing.add(
                &server,
                ItemKind::Tool,
                &serde_json::value::to_raw_value(&json).unwrap(),
            );
        }
        (server, Arc::new(listing.into_sorted()))
    }

    fn catalog(style: NameStyle, listings: &[(&str, &[&str])]) -> Catalog {
        let listings: BTreeMap<_, _> = listings.iter().map(|(s, t)| listing(s, t)).collect();
        let configured: Vec<_> = listings.keys().cloned().collect();
        Catalog::build(1, style, &configured, listings)
    }

    fn aliases(catalog: &Catalog) -> Vec<&str> {
        catalog.tools().iter().map(|entry| &*entry.alias).collect()
    }

    fn resolve_id(catalog: &Catalog, name: &str) -> Option<String> {
        match catalog.resolve(name, |_| true) {
            Resolution::Found(entry) => Some(entry.tool.id.to_string()),
            _ => None,
        }
    }

    #[test]
    fn alias_follows_style_and_resolves_in_every_spelling() {
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
                    resolve_id(&catalog, name).as_deref(),
                    Some("fs.read_file"),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn server_name_prefixing_another_gives_stable_distinct_aliases() {
        let both = catalog(NameStyle::Underscore, &[("a", &["b_c"]), ("a_b", &["c"])]);
        let [suffixed, plain] = aliases(&both)[..] else {
            panic!("two tools")
        };
        assert_eq!(plain, "a_b_c");
        assert!(suffixed.starts_with("a_b_c_"));
        assert_eq!(resolve_id(&both, "a_b_c").as_deref(), Some("a_b.c"));
        assert_eq!(resolve_id(&both, suffixed).as_deref(), Some("a.b_c"));
        assert_eq!(both.renamed_tools().len(), 1);

        let names: Vec<_> = ["a", "a_b"].map(|n| ServerName::parse(n).unwrap()).into();
        let alone = Catalog::build(
            2,
            NameStyle::Underscore,
            &names,
            [listing("a", &["b_c"])].into(),
        );
        assert_eq!(
            aliases(&alone),
            [suffixed],
            "the alias must not change while the other server is disconnected"
        );
    }

    #[test]
    fn spelling_that_matches_two_tools_is_ambiguous() {
        let catalog = catalog(NameStyle::Hyphen, &[("a", &["b_c"]), ("a_b", &["c"])]);
        assert!(
            matches!(catalog.resolve("a_b_c", |_| true), Resolution::Ambiguous(two) if two.len() == 2)
        );
        let visible = |entry: &CatalogEntry| entry.tool.id.server.as_str() == "a";
        assert!(matches!(
            catalog.resolve("a_b_c", visible),
            Resolution::Found(_)
        ));
    }

    #[test]
    fn tool_cannot_take_the_spelling_of_a_tool_of_another_server() {
        for style in NameStyle::ALL {
            let both = catalog(style, &[("fs", &["x-read", "x_read"]), ("fs_x", &["read"])]);
            for name in ["fs_x-read", "fs_x_read"] {
                match both.resolve(name, |_| true) {
                    Resolution::Found(entry) => assert_eq!(entry.tool.id.server.as_str(), "fs_x"),
                    Resolution::Ambiguous(two) => assert_eq!(two.len(), 2),
                    Resolution::Unknown => panic!("{style:?} {name}"),
                }
            }
            for id in ["fs.x-read", "fs_x.read"] {
                assert_eq!(resolve_id(&both, id).as_deref(), Some(id));
            }
            let one = catalog(style, &[("fs", &["x-read"]), ("fs_x", &["write"])]);
            let found = resolve_id(&one, "fs_x-read");
            assert_eq!(found.as_deref(), Some("fs.x-read"), "the only reading");
        }
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
            assert!(alias.len() <= crate::name::MAX_ALIAS_LEN, "{alias}");
            assert!(
                alias
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
                "{alias}"
            );
            assert!(seen.insert(Arc::clone(alias)), "duplicate alias {alias}");
            assert_eq!(resolve_id(&catalog, alias), Some(entry.tool.id.to_string()));
        }
        assert_eq!(
            resolve_id(&catalog, "s_a_b").as_deref(),
            Some("s.a_b"),
            "the tool with the exact name keeps the plain alias"
        );
    }

    #[test]
    fn hidden_tools_resolve_to_unknown() {
        let catalog = catalog(NameStyle::Underscore, &[("s", &["t"])]);
        assert!(matches!(
            catalog.resolve("s_t", |_| false),
            Resolution::Unknown
        ));
    }
}
