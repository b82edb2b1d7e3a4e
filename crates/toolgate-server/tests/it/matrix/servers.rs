//! The servers of the matrix, and how clients reach them directly and through the gateway.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually, http_server, zoo_path};

use super::{CLIENTS, GAPS, MatrixClient};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::malformed;
use crate::mcp_sdk::{env_file, node};

/// The fixtures in one era over one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FixtureServer {
    LegacyHttp,
    LegacyStdio,
    Modern,
}

/// All servers, and a gateway in front of them.
pub(super) struct MatrixServers {
    gate: TestGate,
    everything: EverythingServer,
    odd: [HttpZoo; 2],
    /// Two for each client and server, of which one has the name of the server and is used directly: their
    /// lists change for all of their clients.
    fixtures: Vec<(String, HttpZoo)>,
}

/// The reference server over HTTP; dropping it kills the process.
struct EverythingServer {
    child: Child,
    port: u16,
}

/// How a client reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    Gateway,
}

impl FixtureServer {
    pub(super) const ALL: [Self; 3] = [Self::LegacyHttp, Self::LegacyStdio, Self::Modern];

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::LegacyHttp => "legacy",
            Self::LegacyStdio => "stdio",
            Self::Modern => "modern",
        }
    }

    /// Returns the heading of the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::LegacyHttp => "server: 2025-11-25, HTTP",
            Self::LegacyStdio => "server: 2025-11-25, stdio",
            Self::Modern => "server: 2026-07-28, HTTP",
        }
    }
}

impl Route {
    pub(super) const ALL: [Self; 2] = [Self::Direct, Self::Gateway];

    pub(super) fn run(self, server: FixtureServer) -> String {
        format!("{} {self:?}", server.key())
    }
}

impl MatrixServers {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let definitions = folder.path().join("definitions.json");
        malformed::write_definitions(&definitions);
        let file = definitions.to_str().unwrap();
        let odd =
            ["legacy", "modern"].map(|era| HttpZoo::start(&["--tools-from", file, "--era", era]));
        let everything = EverythingServer::start().await;

        let mut toml = http_server("everything", &everything.url());
        toml += &http_server("odd_legacy", &odd[0].url());
        toml += &http_server("odd_modern", &odd[1].url());
        let mut names = ["everything", "odd_legacy", "odd_modern"]
            .map(str::to_owned)
            .to_vec();
        let mut fixtures = Vec::new();
        for client in &CLIENTS {
            for server in FixtureServer::ALL {
                let name = server_name(client, server);
                let [direct, behind] =
                    Route::ALL.map(|route| log_file(folder.path(), client, server, route));
                let behind = fixture_flags(server, &behind);
                if server == FixtureServer::LegacyStdio {
                    toml += &zoo(&name, &behind);
                } else {
                    let direct = HttpZoo::start(&fixture_flags(server, &direct));
                    let behind = HttpZoo::start(&behind);
                    toml += &http_server(&name, &behind.url());
                    fixtures.extend([(name.clone(), direct), (String::new(), behind)]);
                }
                names.push(name);
            }
        }
        std::fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let gate = TestGate::start_in(folder);
        for name in names {
            gate.wait_for_state(&name, "healthy").await;
        }
        Self {
            gate,
            everything,
            odd,
            fixtures,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.gate.folder.path()
    }

    /// Returns the runs of a client: the addresses of the servers, and the features that do not work.
    pub(super) fn plan(&self, client: &MatrixClient) -> Value {
        let mut plan = json!({});
        for server in FixtureServer::ALL {
            for route in Route::ALL {
                let gaps = GAPS.iter().filter(|gap| gap.includes(client, server));
                let missing: Vec<&str> = match route {
                    Route::Direct => vec!["malformed"],
                    Route::Gateway => gaps.map(|gap| gap.feature).collect(),
                };
                plan[route.run(server)] = json!({
                    "servers": self.addresses(client, server, route),
                    "log": log_file(self.folder(), client, server, route),
                    "missing": missing,
                });
            }
        }
        plan
    }

    fn addresses(&self, client: &MatrixClient, server: FixtureServer, route: Route) -> Value {
        let name = server_name(client, server);
        let behind = |name: &str| format!("{}/mcp/{name}", self.gate.url);
        match (server, route) {
            (FixtureServer::LegacyHttp, Route::Direct) => json!({
                "fixtures": self.fixture_url(&name),
                "everything": self.everything.url(),
                "odd": self.odd[0].url(),
            }),
            (FixtureServer::LegacyHttp, Route::Gateway) => json!({
                "fixtures": behind(&name),
                "everything": behind("everything"),
                "odd": behind("odd_legacy"),
            }),
            (FixtureServer::LegacyStdio, Route::Direct) => {
                let log = log_file(self.folder(), client, server, route);
                let zoo = zoo_path();
                let program = [zoo.to_str().unwrap(), "stdio"];
                let flags = fixture_flags(server, &log);
                let command = [&program[..], &flags].concat();
                json!({"fixtures": command})
            }
            (FixtureServer::LegacyStdio, Route::Gateway) => json!({"fixtures": behind(&name)}),
            (FixtureServer::Modern, Route::Direct) => json!({
                "fixtures": self.fixture_url(&name),
                "odd": self.odd[1].url(),
            }),
            (FixtureServer::Modern, Route::Gateway) => json!({
                "fixtures": behind(&name),
                "odd": behind("odd_modern"),
            }),
        }
    }

    /// Returns the URL of the fixtures that a client uses directly.
    fn fixture_url(&self, wanted: &str) -> String {
        let mut fixtures = self.fixtures.iter();
        fixtures.find(|(name, _)| name == wanted).unwrap().1.url()
    }
}

/// Returns the file in which a server logs its requests.
fn log_file(folder: &Path, client: &MatrixClient, server: FixtureServer, route: Route) -> String {
    let name = format!("{}_{route:?}.log", server_name(client, server));
    let file = folder.join(name).to_str().unwrap().to_owned();
    // A client may read it before the server has written to it.
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .unwrap();
    file
}

fn fixture_flags(server: FixtureServer, log: &str) -> Vec<&str> {
    let era = if server == FixtureServer::Modern {
        "modern"
    } else {
        "legacy"
    };
    vec!["--fixtures", "--era", era, "--count", log]
}

fn server_name(client: &MatrixClient, server: FixtureServer) -> String {
    format!("{}_{}", client.name, server.key())
}

impl EverythingServer {
    /// Starts the server on a free port. It cannot choose one by itself, and another process may take the port
    /// before the server does.
    async fn start() -> Self {
        for _ in 0..10 {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            drop(listener);
            let script = "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
            let child = Command::new(node())
                .arg(env_file(script))
                .arg("streamableHttp")
                .env("PORT", port.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut server = Self { child, port };
            if server.is_started().await {
                return server;
            }
        }
        panic!("the reference server does not start")
    }

    /// Waits until the server listens or has exited.
    async fn is_started(&mut self) -> bool {
        eventually("the reference server starts", WAIT_TIMEOUT, async || {
            // It accepts connections only after it got the port, which it exits without.
            let has_exited = self.child.try_wait().unwrap().is_some();
            let accepts = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            (has_exited || accepts).then_some(!has_exited)
        })
        .await
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for EverythingServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
