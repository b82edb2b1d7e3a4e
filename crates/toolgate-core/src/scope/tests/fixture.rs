//! Servers and their tools: a catalog for the gateway, plain text for the oracle.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::oracle::OracleTool;
use crate::catalog::{Catalog, DefinitionReviews, ItemKind, ServerListing};
use crate::config::{Config, ConfigFormat, Document};
use crate::name::{NameStyle, ServerName};

/// Configured servers and the tools that they list.
#[derive(Clone)]
pub(super) struct Fixture {
    /// Configuration with the servers and nothing else.
    pub(super) config: Config,
    style: NameStyle,
    pub(super) catalog: Arc<Catalog>,
    /// The catalog's tools, in order.
    pub(super) tools: Vec<OracleTool>,
}

/// Name, `readOnlyHint` and `destructiveHint` of a tool.
pub(super) type ListedTool<'a> = (&'a str, Option<bool>, Option<bool>);

impl Fixture {
    pub(super) fn new(style: NameStyle, servers: &[(&str, &[ListedTool<'_>])]) -> Self {
        let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
        Self::with_configured(style, &names, servers)
    }

    /// A fixture in which the listing servers need not be the configured ones.
    pub(super) fn with_configured(
        style: NameStyle,
        configured: &[&str],
        servers: &[(&str, &[ListedTool<'_>])],
    ) -> Self {
        let config = build_config(configured);
        let listings: BTreeMap<_, _> = servers
            .iter()
            .map(|(server, tools)| listing(server, tools))
            .collect();
        let catalog = Catalog::build(1, style, &config.server_names(), listings);
        let tools = catalog.tools().iter().map(|entry| {
            let (server, name) = (entry.tool.id.server.as_str(), entry.tool.id.tool.as_str());
            let (_, listed) = servers.iter().find(|(known, _)| *known == server).unwrap();
            let (_, read_only, destructive) =
                listed.iter().find(|(known, ..)| *known == name).unwrap();
            OracleTool {
                server: server.to_owned(),
                name: name.to_owned(),
                alias: entry.alias.to_string(),
                read_only: *read_only,
                destructive: *destructive,
            }
        });
        Self {
            tools: tools.collect(),
            style,
            catalog: Arc::new(catalog),
            config,
        }
    }

    /// The same fixture with reviews of its definitions.
    pub(super) fn with_reviews(&self, reviews: &DefinitionReviews) -> Self {
        let tools = self.catalog.listings();
        let listings = tools.map(|(server, listing)| (server.clone(), Arc::clone(listing)));
        let (style, names) = (self.style, self.config.server_names());
        let catalog = Catalog::build(1, style, &names, listings.collect());
        Self {
            catalog: Arc::new(catalog.with_reviews(&Arc::new(reviews.clone()))),
            ..self.clone()
        }
    }

    /// A fixture whose tools have no hints.
    pub(super) fn without_hints(style: NameStyle, servers: &[(&str, &[&str])]) -> Self {
        let listed: Vec<(&str, Vec<ListedTool<'_>>)> = servers
            .iter()
            .map(|(server, tools)| (*server, tools.iter().map(|t| (*t, None, None)).collect()))
            .collect();
        let borrowed: Vec<(&str, &[ListedTool<'_>])> = listed
            .iter()
            .map(|(server, tools)| (*server, &tools[..]))
            .collect();
        Self::new(style, &borrowed)
    }

    /// Three servers, one with another's name as a prefix, and tools with all kinds of hints.
    pub(super) fn standard(style: NameStyle) -> Self {
        Self::new(
            style,
            &[
                (
                    "fs",
                    &[
                        ("read_file", Some(true), None),
                        ("write_file", None, None),
                        ("odd name/x.y", None, Some(false)),
                    ],
                ),
                (
                    "git",
                    &[
                        ("log", Some(true), Some(true)),
                        ("push", None, Some(true)),
                        ("hub_search", Some(false), None),
                    ],
                ),
                (
                    "git_hub",
                    &[
                        ("search", Some(true), None),
                        ("push", Some(false), Some(false)),
                    ],
                ),
            ],
        )
    }

    pub(super) fn servers(&self) -> Vec<String> {
        let servers = self.config.servers.iter();
        servers.map(|server| server.name.to_string()).collect()
    }

    /// Alias of a tool, by its id.
    pub(super) fn alias(&self, id: &str) -> &str {
        let mut tools = self.tools.iter();
        &tools.find(|tool| tool.id() == id).unwrap().alias
    }
}

/// Prints only ids and aliases, to keep failure messages readable.
impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools = self.tools.iter().map(|tool| (tool.id(), &tool.alias));
        f.debug_map().entries(tools).finish()
    }
}

fn build_config(servers: &[&str]) -> Config {
    let table = |name: &&str| ((*name).to_owned(), json!({"command": "x"}));
    let tables: serde_json::Map<String, Value> = servers.iter().map(table).collect();
    load(&json!({ "mcp_servers": tables }))
}

pub(super) fn load(document: &Value) -> Config {
    let document = Document::parse("test", ConfigFormat::Json, &document.to_string());
    let (config, _) = Config::load(&[document]).unwrap();
    config
}

fn listing(server: &str, tools: &[ListedTool<'_>]) -> (ServerName, Arc<ServerListing>) {
    let server = ServerName::parse(server).unwrap();
    let mut listing = ServerListing::default();
    for (name, read_only, destructive) in tools {
        let hints = [
            ("readOnlyHint", *read_only),
            ("destructiveHint", *destructive),
        ];
        let hints = hints
            .iter()
            .filter_map(|(name, hint)| Some((*name, (*hint)?)));
        let annotations: BTreeMap<&str, bool> = hints.collect();
        let schema = json!({"type": "object"});
        let definition = json!({"name": name, "annotations": annotations, "inputSchema": schema});
        let raw = serde_json::value::to_raw_value(&definition).unwrap();
        listing.add(&server, ItemKind::Tool, &raw);
    }
    assert_eq!(listing.problems, [], "every tool is valid");
    (server, Arc::new(listing.into_sorted()))
}
