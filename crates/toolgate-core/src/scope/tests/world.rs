//! Servers and their tools, for the gateway as a catalog and for the oracle as plain texts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::oracle::Tool;
use crate::catalog::{Catalog, Kind, Offer};
use crate::config::{Config, Document, Format};
use crate::name::{NameStyle, ServerName};

/// What is configured and offered.
#[derive(Clone)]
pub(super) struct World {
    /// The configured servers and nothing else.
    pub(super) config: Config,
    pub(super) catalog: Arc<Catalog>,
    /// The catalog's tools, in its order.
    pub(super) tools: Vec<Tool>,
}

/// A tool's name and its `readOnlyHint` and `destructiveHint`.
pub(super) type Offered<'a> = (&'a str, Option<bool>, Option<bool>);

impl World {
    pub(super) fn new(style: NameStyle, servers: &[(&str, &[Offered<'_>])]) -> Self {
        let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
        Self::with_configured(style, &names, servers)
    }

    /// A world in which the offering servers need not be the configured ones.
    pub(super) fn with_configured(
        style: NameStyle,
        configured: &[&str],
        servers: &[(&str, &[Offered<'_>])],
    ) -> Self {
        let config = configuration(configured);
        let offers: BTreeMap<_, _> = servers
            .iter()
            .map(|(server, tools)| offer(server, tools))
            .collect();
        let catalog = Catalog::build(1, style, &config.server_names(), offers);
        let tools = catalog.tools().iter().map(|entry| {
            let (server, name) = (entry.tool.id.server.as_str(), entry.tool.id.tool.as_str());
            let (_, offered) = servers.iter().find(|(known, _)| *known == server).unwrap();
            let (_, read_only, destructive) =
                offered.iter().find(|(known, ..)| *known == name).unwrap();
            Tool {
                server: server.to_owned(),
                name: name.to_owned(),
                alias: entry.alias.to_string(),
                read_only: *read_only,
                destructive: *destructive,
            }
        });
        Self {
            tools: tools.collect(),
            catalog: Arc::new(catalog),
            config,
        }
    }

    /// The same tools without hints.
    pub(super) fn unmarked(style: NameStyle, servers: &[(&str, &[&str])]) -> Self {
        let offered: Vec<(&str, Vec<Offered<'_>>)> = servers
            .iter()
            .map(|(server, tools)| (*server, tools.iter().map(|t| (*t, None, None)).collect()))
            .collect();
        let borrowed: Vec<(&str, &[Offered<'_>])> = offered
            .iter()
            .map(|(server, tools)| (*server, &tools[..]))
            .collect();
        Self::new(style, &borrowed)
    }

    /// Three servers, two of whose names begin alike, and tools of every kind of hint.
    pub(super) fn usual(style: NameStyle) -> Self {
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

    /// The alias of a tool, by its id.
    pub(super) fn alias(&self, id: &str) -> &str {
        let mut tools = self.tools.iter();
        &tools.find(|tool| tool.id() == id).unwrap().alias
    }
}

/// What somebody needs to see who reads about a failure.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools = self.tools.iter().map(|tool| (tool.id(), &tool.alias));
        f.debug_map().entries(tools).finish()
    }
}

fn configuration(servers: &[&str]) -> Config {
    let table = |name: &&str| ((*name).to_owned(), json!({"command": "x"}));
    let tables: serde_json::Map<String, Value> = servers.iter().map(table).collect();
    load(&json!({ "mcp_servers": tables }))
}

pub(super) fn load(document: &Value) -> Config {
    let document = Document::parse("test", Format::Json, &document.to_string());
    let (config, _) = Config::load(&[document]).unwrap();
    config
}

fn offer(server: &str, tools: &[Offered<'_>]) -> (ServerName, Arc<Offer>) {
    let server = ServerName::parse(server).unwrap();
    let mut offer = Offer::default();
    for (name, read_only, destructive) in tools {
        let definition = json!({
            "name": name,
            "annotations": {"readOnlyHint": read_only, "destructiveHint": destructive},
        });
        let raw = serde_json::value::to_raw_value(&definition).unwrap();
        offer.add(&server, Kind::Tool, &raw);
    }
    assert_eq!(offer.problems, [], "every tool is offered");
    (server, Arc::new(offer.sorted()))
}
