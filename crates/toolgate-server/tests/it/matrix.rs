//! Real MCP clients use each feature of servers directly and through the gateway, with the same results.
//!
//! The `matrix` scripts in `tests/env` report the result of each feature. The tables in `docs/mcp.md` are what
//! this test sees; it fails when they are stale. A feature that works directly has to work through the gateway,
//! unless [`GAPS`] names it.

mod servers;

use std::collections::BTreeSet;
use std::path::PathBuf;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client_process;
use crate::doc_section::{check_section, format_table};
use crate::malformed;
use crate::mcp_sdk::{env_file, node};
use servers::{FixtureServer, MatrixServers, Route};

/// A client of the matrix.
struct MatrixClient {
    /// Name in server names.
    name: &'static str,
    title: &'static str,
    /// The file and the package in it that have the version.
    package: (&'static str, &'static str),
    /// The interpreter, without which the client is one for Node.
    python: Option<&'static str>,
    /// The client's name in the scripts.
    kind: &'static str,
}

const CLIENTS: [MatrixClient; 6] = [
    MatrixClient {
        name: "python1",
        title: "Python SDK",
        package: ("python/requirements-1.txt", "mcp"),
        python: Some("python/.venv1/bin/python"),
        kind: "v1",
    },
    MatrixClient {
        name: "python2",
        title: "Python SDK",
        package: ("python/requirements.txt", "mcp"),
        python: Some("python/.venv/bin/python"),
        kind: "v2",
    },
    MatrixClient {
        name: "fastmcp",
        title: "FastMCP",
        package: ("python/requirements-fastmcp.txt", "fastmcp"),
        python: Some("python/.venv-fastmcp/bin/python"),
        kind: "fastmcp",
    },
    MatrixClient {
        name: "typescript1",
        title: "TypeScript SDK",
        package: ("node/package.json", "@modelcontextprotocol/sdk"),
        python: None,
        kind: "v1",
    },
    MatrixClient {
        name: "typescript2",
        title: "TypeScript SDK",
        package: ("node/package.json", "@modelcontextprotocol/client"),
        python: None,
        kind: "v2",
    },
    MatrixClient {
        name: "inspector",
        title: "Inspector CLI",
        package: ("node/package.json", "@modelcontextprotocol/inspector"),
        python: None,
        kind: "inspector",
    },
];

/// Features in the order of the tables: their names in reports and in the tables.
const FEATURES: [(&str, &str); 19] = [
    ("list", "tools: list"),
    ("call", "tools: call"),
    ("structured", "structured output"),
    ("large", "result of 3 MB"),
    ("progress", "progress"),
    ("cancel", "cancellation"),
    ("elicitation", "elicitation"),
    ("sampling", "sampling"),
    ("roots", "roots"),
    ("logging", "log messages"),
    ("resources", "resources"),
    ("templates", "resource templates"),
    ("prompts", "prompts"),
    ("completion", "completion"),
    ("subscribe", "resource subscriptions"),
    ("list_changes", "list changes"),
    ("capabilities", "tools that depend on capabilities"),
    ("tasks", "tasks"),
    ("malformed", "malformed definitions"),
];

/// A feature that works directly but not through the gateway.
struct Gap {
    feature: &'static str,
    server: FixtureServer,
    clients: &'static [&'static str],
}

const LEGACY_CLIENTS: &[&str] = &["python1", "typescript1"];
const MODERN_CLIENTS: &[&str] = &["python2", "fastmcp", "typescript2"];

/// All gaps. One that is closed fails the test and has to be removed.
const GAPS: [Gap; 6] = [
    // FastMCP accepts events of up to 1 MiB, and a server on standard input and output sends none.
    Gap::new("large", FixtureServer::LegacyStdio, &["fastmcp"]),
    // Log messages of a process do not say which request they belong to.
    Gap::new("logging", FixtureServer::LegacyStdio, MODERN_CLIENTS),
    // Calls and subscriptions of clients that can be asked use different processes.
    Gap::new("subscribe", FixtureServer::LegacyStdio, LEGACY_CLIENTS),
    Gap::new("subscribe", FixtureServer::LegacyStdio, MODERN_CLIENTS),
    Gap::new("list_changes", FixtureServer::LegacyStdio, LEGACY_CLIENTS),
    Gap::new("list_changes", FixtureServer::LegacyStdio, MODERN_CLIENTS),
];

impl Gap {
    const fn new(
        feature: &'static str,
        server: FixtureServer,
        clients: &'static [&'static str],
    ) -> Self {
        Self {
            feature,
            server,
            clients,
        }
    }

    fn includes(&self, client: &MatrixClient, server: FixtureServer) -> bool {
        self.server == server && self.clients.contains(&client.name)
    }
}

/// What a client can do with a feature of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// The same directly and through the gateway.
    Same,
    /// Only through the gateway.
    GatewayOnly,
    /// Neither directly nor through the gateway.
    ClientCannot,
    /// Directly, but not, or not with the same result, through the gateway.
    Gap,
    /// The server does not have the feature.
    NotChecked,
}

impl Cell {
    fn text(self) -> &'static str {
        match self {
            Self::Same => "yes",
            Self::GatewayOnly => "gateway",
            Self::ClientCannot => "client: no",
            Self::Gap => "no",
            Self::NotChecked => "–",
        }
    }
}

impl MatrixClient {
    /// Returns the title with the version in the file that installs the client.
    fn title_with_version(&self) -> String {
        let (file, package) = self.package;
        let text = std::fs::read_to_string(env_file(file)).unwrap();
        let version = match self.python {
            Some(_) => {
                let mut lines = text.lines().filter_map(|line| line.split_once("=="));
                let line = lines.find(|(name, _)| *name == package);
                line.unwrap().1.to_owned()
            }
            None => {
                let file: Value = serde_json::from_str(&text).unwrap();
                file["dependencies"][package].as_str().unwrap().to_owned()
            }
        };
        format!("{} {version}", self.title)
    }

    fn command(&self) -> (PathBuf, PathBuf) {
        match self.python {
            Some(python) => (env_file(python), env_file("python/matrix.py")),
            None => (node(), env_file("node/matrix.mjs")),
        }
    }

    /// Runs the client and returns its report.
    async fn report(&self, servers: &MatrixServers) -> Value {
        let (program, script) = self.command();
        let mut client = Command::new(program);
        client
            .arg(script)
            .args([self.kind, &servers.plan(self).to_string()])
            .env_clear()
            .env("HOME", servers.folder())
            .env("PATH", env!("PATH"));
        let report = client_process::run_client(&mut client).await;
        report.unwrap_or_else(|output| panic!("{}: {output}", self.name))
    }
}

/// Returns whether a result shows that a feature works.
fn works(feature: &str, report: &Value) -> bool {
    let result = &report["result"];
    let lists = |names: &[&str]| {
        let tools = result.as_array().map(Vec::as_slice).unwrap_or_default();
        names
            .iter()
            .any(|name| tools.iter().any(|tool| tool == name))
    };
    match feature {
        "list" => lists(&["test_simple_text"]),
        // Which of them are listed depends on the capabilities of the client.
        "capabilities" => lists(&["get-roots-list", "trigger-sampling-request"]),
        // The command line of the Inspector has no roots.
        "roots" => ["Roots: [{\"uri\":\"file:///home/ada\"}]", "Roots: []"]
            .iter()
            .any(|roots| result == roots),
        _ => *result == expected_result(feature),
    }
}

fn expected_result(feature: &str) -> Value {
    match feature {
        "call" => json!("This is a simple text response for testing."),
        "structured" => json!({"city": "Paris", "temperature": 21.5}),
        "large" => json!(3_000_000),
        "progress" => json!([0, 50, 100]),
        "cancel" | "list_changes" => json!(true),
        "elicitation" => json!(
            r#"User response: action=accept, content={"username":"ada","email":"ada@example.com"}"#
        ),
        "sampling" => json!("LLM response: Paris"),
        "logging" => json!([
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed"
        ]),
        "resources" => json!([{
            "uri": "test://static-text",
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }]),
        "templates" => json!("test://template/7/data"),
        "prompts" => json!("Prompt with arguments: arg1='one', arg2='two'"),
        "completion" => json!(["paris", "park", "party"]),
        "subscribe" => json!("test://watched-resource"),
        "tasks" => json!("# Research Report: gateways"),
        "malformed" => json!(malformed::usable_definitions()),
        _ => panic!("unknown feature `{feature}`"),
    }
}

/// Compares the reports of a client for a feature of a server.
fn compare(report: &Value, server: FixtureServer, feature: &str) -> Cell {
    let [direct, gateway] = Route::ALL.map(|route| &report[route.run(server)][feature]);
    if gateway.is_null() {
        return Cell::NotChecked;
    }
    // A client that does not speak the revision of the server is compared with itself at the legacy server.
    let error = direct["error"].as_str().unwrap_or_default();
    let reference = if error.starts_with("no connection") {
        &report[Route::Direct.run(FixtureServer::LegacyHttp)][feature]
    } else {
        direct
    };
    match (works(feature, reference), works(feature, gateway)) {
        (true, true) if reference["result"] != gateway["result"] => Cell::Gap,
        (_, true) if works(feature, direct) => Cell::Same,
        (_, true) => Cell::GatewayOnly,
        (true, false) => Cell::Gap,
        (false, false) => Cell::ClientCannot,
    }
}

#[tokio::test]
async fn clients_use_features_through_the_gateway_as_directly() {
    let servers = MatrixServers::start().await;
    let reports = join_all(CLIENTS.iter().map(|client| client.report(&servers))).await;
    let mut differences = BTreeSet::new();
    let mut expected = BTreeSet::new();
    let mut tables = Vec::new();
    for server in FixtureServer::ALL {
        for (client, report) in CLIENTS.iter().zip(&reports) {
            differences.extend(describe_gaps(client, report, server));
            let gaps = GAPS.iter().filter(|gap| gap.includes(client, server));
            expected.extend(gaps.map(|gap| (client.name, server.key(), gap.feature)));
        }
        tables.push(table(server, &reports));
    }
    let unexpected: Vec<_> = differences
        .iter()
        .filter(|(gap, _)| !expected.contains(gap))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let seen: BTreeSet<_> = differences.iter().map(|(gap, _)| *gap).collect();
    let closed: Vec<_> = expected.difference(&seen).collect();
    assert!(closed.is_empty(), "remove these from `GAPS`: {closed:#?}");
    check_section("client matrix", &tables.join("\n"));
}

/// Returns the gaps of a client at a server, with the reports.
fn describe_gaps<'a>(
    client: &'a MatrixClient,
    report: &'a Value,
    server: FixtureServer,
) -> impl Iterator<Item = ((&'static str, &'static str, &'static str), String)> + use<'a> {
    let gaps = FEATURES
        .iter()
        .filter(move |(feature, _)| compare(report, server, feature) == Cell::Gap);
    gaps.map(move |(feature, _)| {
        let [direct, gateway] = Route::ALL.map(|route| &report[route.run(server)][feature]);
        let reports = format!("directly {direct}, through the gateway {gateway}");
        ((client.name, server.key(), *feature), reports)
    })
}

/// Returns the table of a server.
fn table(server: FixtureServer, reports: &[Value]) -> String {
    let mut rows = Vec::new();
    for (feature, title) in FEATURES {
        let cells = reports
            .iter()
            .map(|report| compare(report, server, feature));
        let cells: Vec<Cell> = cells.collect();
        if cells.iter().any(|cell| *cell != Cell::NotChecked) {
            let cells = cells.iter().map(|cell| cell.text().to_owned());
            rows.push([title.to_owned()].into_iter().chain(cells).collect());
        }
    }
    let titles = CLIENTS.iter().map(MatrixClient::title_with_version);
    let head = [server.title().to_owned()].into_iter().chain(titles);
    format_table(&head.collect::<Vec<_>>(), &rows)
}
