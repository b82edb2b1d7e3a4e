//! Catalogs for clients to which servers list something else than to the gateway itself.
//!
//! A server may list other items for a client that can be asked, or that supports an extension. Such
//! listings are kept in the catalog by the profile of the client. The catalog of a profile is built when
//! it is first needed, and kept as long as the one that it was built from.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use super::alias::AliasAllocator;
use super::{Catalog, CatalogEntry, RenamedTool, ServerListing, Tool, ToolTable};
use crate::name::{ServerName, ToolId};

/// Identifies clients that declare the same capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientProfile(Arc<str>);

/// Listings of servers for the clients of each profile.
pub type ClientListings = BTreeMap<ClientProfile, BTreeMap<ServerName, Arc<ServerListing>>>;

/// What servers list for the clients of one profile.
#[derive(Debug)]
pub(super) struct ClientView {
    listings: BTreeMap<ServerName, Arc<ServerListing>>,
    catalog: OnceLock<Arc<Catalog>>,
}

impl ClientProfile {
    /// Creates the profile with this digest of the client's capabilities.
    pub fn new(digest: &str) -> Self {
        Self(digest.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Catalog {
    /// Adds what servers list for the clients of other profiles.
    #[must_use]
    pub fn with_client_listings(mut self, listings: ClientListings) -> Self {
        let views = listings.into_iter().map(|(profile, listings)| {
            let view = ClientView {
                listings,
                catalog: OnceLock::new(),
            };
            (profile, view)
        });
        self.views = views.collect();
        self
    }

    /// Returns whether any server lists something else for the clients of a profile.
    pub fn has_view(&self, profile: &ClientProfile) -> bool {
        self.views.contains_key(profile)
    }

    /// Returns the catalog for the clients of a profile: this one, unless a server lists something else
    /// for them.
    pub fn for_client(self: &Arc<Self>, profile: Option<&ClientProfile>) -> Arc<Self> {
        let view = profile.and_then(|profile| Some((profile, self.views.get(profile)?)));
        let Some((profile, view)) = view else {
            return Arc::clone(self);
        };
        let build = || Arc::new(self.build_view(profile, &view.listings));
        Arc::clone(view.catalog.get_or_init(build))
    }

    /// Returns the profile whose clients the catalog is for; `None` if it is the one for all others.
    pub fn profile(&self) -> Option<&ClientProfile> {
        self.profile.as_ref()
    }

    /// Returns the tools that exist for the clients of some profiles only, or with another definition.
    pub fn conditional_tools(self: &Arc<Self>) -> Vec<CatalogEntry> {
        let mut seen = HashSet::new();
        let views = self.views.keys();
        let catalogs = views.map(|profile| self.for_client(Some(profile)));
        let mut conditional = Vec::new();
        for catalog in catalogs {
            for entry in catalog.tools() {
                let is_common = self.tool(&entry.tool.id).is_some_and(|common| {
                    common.tool.contract_hash() == entry.tool.contract_hash()
                });
                let key = || (entry.tool.id.clone(), entry.tool.contract_hash().to_owned());
                if !is_common && seen.insert(key()) {
                    conditional.push(entry.clone());
                }
            }
        }
        conditional
    }

    /// Returns all definitions that a tool has now: the one that most clients see first.
    pub fn definitions_of(self: &Arc<Self>, id: &ToolId) -> Vec<CatalogEntry> {
        let common = self.tool(id).cloned();
        let conditional = self.conditional_tools().into_iter();
        let conditional = conditional.filter(|entry| entry.tool.id == *id);
        common.into_iter().chain(conditional).collect()
    }

    /// Builds the catalog of a profile. Tools that all clients have keep their aliases.
    fn build_view(
        &self,
        profile: &ClientProfile,
        changed: &BTreeMap<ServerName, Arc<ServerListing>>,
    ) -> Self {
        let mut listings = self.listings.clone();
        // A server that has no listing for others is gone.
        listings.extend(
            changed
                .iter()
                .filter(|(server, _)| self.listings.contains_key(*server))
                .map(|(server, listing)| (server.clone(), Arc::clone(listing))),
        );
        let mut aliases = AliasAllocator::new(self.settings.style, &self.settings.configured);
        aliases.take_all(self.tools.by_alias.keys());
        let mut entries = Vec::new();
        let mut renamed = self.renamed.clone();
        for (server, listing) in &listings {
            let is_added = |tool: &&Arc<Tool>| self.tool(&tool.id).is_none();
            let added: Vec<Arc<Tool>> = listing.tools.iter().filter(is_added).cloned().collect();
            let mut assigned = aliases.assign(server, &added).into_iter();
            for tool in &listing.tools {
                let known = self.tool(&tool.id);
                if let Some(known) = known.filter(|known| known.tool.hash == tool.hash) {
                    entries.push(known.clone());
                    continue;
                }
                let alias = match known {
                    Some(known) => Arc::clone(&known.alias),
                    None => {
                        let Some(alias) = assigned.next() else {
                            continue;
                        };
                        renamed.extend(alias.plain.map(|plain| RenamedTool {
                            id: tool.id.clone(),
                            plain,
                            alias: Arc::clone(&alias.name),
                        }));
                        alias.name
                    }
                };
                entries.push(CatalogEntry {
                    review: self.settings.reviews.get(tool),
                    ..CatalogEntry::new(alias, tool)
                });
            }
        }
        Self {
            generation: self.generation,
            listings,
            tools: ToolTable::new(entries),
            renamed,
            settings: self.settings.clone(),
            views: BTreeMap::new(),
            profile: Some(profile.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ItemKind;
    use super::*;
    use crate::name::{NameStyle, ToolName};

    fn listing(server: &ServerName, tools: &[(&str, &str)]) -> Arc<ServerListing> {
        let mut listing = ServerListing::default();
        for (name, description) in tools {
            let json = serde_json::json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
            let definition = serde_json::value::to_raw_value(&json).unwrap();
            listing.add(server, ItemKind::Tool, &definition);
        }
        Arc::new(listing.into_sorted())
    }

    #[test]
    fn profile_has_its_own_tools_and_leaves_those_of_others_alone() {
        let server = ServerName::parse("s").unwrap();
        let other = ServerName::parse("t").unwrap();
        let listings = BTreeMap::from([
            (
                server.clone(),
                listing(&server, &[("a.b", ""), ("c", ""), ("d", "")]),
            ),
            (other.clone(), listing(&other, &[("x", "")])),
        ]);
        let configured = [server.clone(), other];
        let profile = ClientProfile::new("p");
        let changed = listing(
            &server,
            &[("a_b", ""), ("a.b", ""), ("d", "with UI"), ("e", "")],
        );
        let client_listings =
            BTreeMap::from([(profile.clone(), BTreeMap::from([(server.clone(), changed)]))]);
        let catalog = Catalog::build(7, NameStyle::Underscore, &configured, listings);
        let catalog = Arc::new(catalog.with_client_listings(client_listings));
        let aliases = |catalog: &Catalog| -> Vec<String> {
            let entries = catalog.tools().iter();
            entries.map(|entry| entry.alias.to_string()).collect()
        };
        assert_eq!(aliases(&catalog), ["s_a_b", "s_c", "s_d", "t_x"]);
        let view = catalog.for_client(Some(&profile));
        let [plain, suffixed, d, e, x] = &aliases(&view)[..] else {
            panic!("{:?}", aliases(&view))
        };
        assert_eq!([plain, d, e, x], ["s_a_b", "s_d", "s_e", "t_x"]);
        assert!(suffixed.starts_with("s_a_b_"), "{suffixed}");
        let id = |tool: &str| ToolId {
            server: server.clone(),
            tool: ToolName::new(tool),
        };
        let first = view.tool(&id("a.b")).unwrap();
        assert_eq!(&*first.alias, "s_a_b", "as for all others");
        assert!(
            view.tools()
                .iter()
                .enumerate()
                .all(|(at, entry)| entry.index == at)
        );
        assert!(Arc::ptr_eq(&view, &catalog.for_client(Some(&profile))));
        let unknown = ClientProfile::new("q");
        assert!(Arc::ptr_eq(&catalog, &catalog.for_client(Some(&unknown))));
        let conditional = catalog.conditional_tools();
        let conditional: Vec<&str> = conditional
            .iter()
            .map(|entry| entry.tool.id.tool.as_str())
            .collect();
        assert_eq!(conditional, ["a_b", "d", "e"]);
    }
}
