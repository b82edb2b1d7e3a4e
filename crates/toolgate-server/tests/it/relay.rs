//! `toolgate mcp --url`: a relay between a client on standard input and output and a running gateway. The
//! SDKs use it in `mcp_sdk`; here are faults, restarts and keys.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::caller::ALICE;
use crate::gate::{TestGate, WAIT_TIMEOUT, toolgate, wait_for_url, zoo};
use crate::stdio_client::StdioClient;

/// Calls of the zoo that take longer than any test.
const LONG_SLEEP_MS: u64 = 600_000;

/// Returns a port that nothing listens on. No port of this range is given to outgoing connections.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 6000).unwrap();
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 6000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Starts a gateway on a port, so that it can be started there again.
fn serve_at(port: u16, folder: &std::path::Path) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let mut child = toolgate(folder)
        .args(["serve", "--data-dir", "data", "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    wait_for_url(&mut child, folder);
    child
}

/// A gateway on a fixed port.
struct FixedGate {
    gate: TestGate,
    port: u16,
}

impl FixedGate {
    async fn start(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let port = free_port();
        let child = serve_at(port, folder.path());
        let gate = TestGate::new(child, format!("http://127.0.0.1:{port}"), folder);
        gate.wait_for_state("zoo", "healthy").await;
        Self { gate, port }
    }

    fn client(&self) -> StdioClient {
        StdioClient::start_in(self.gate.folder.path(), &["--url", &self.gate.url], &[])
    }

    async fn kill(&mut self) {
        self.gate.signal("-KILL");
        self.gate.wait_for_exit().await;
    }

    fn start_again(&mut self) {
        self.gate.child = serve_at(self.port, self.gate.folder.path());
    }
}

fn add() -> Value {
    json!({"name": "zoo_add", "arguments": {"a": 20, "b": 22}})
}

fn sleep() -> Value {
    json!({"name": "zoo_sleep", "arguments": {"ms": LONG_SLEEP_MS}})
}

fn error_message(response: &Value) -> &str {
    response["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("not an error: {response}"))
}

#[tokio::test]
async fn legacy_client_survives_restart_of_gateway() {
    let mut gate = FixedGate::start(&zoo("zoo", &[])).await;
    let mut client = gate.client();
    client.initialize().await;
    let added = client.request("tools/call", add()).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    let level = json!({"level": "error"});
    let set = client.request("logging/setLevel", level).await;
    assert_eq!(set["result"], json!({}));

    let lost = client.send_request("tools/call", sleep()).await;
    gate.gate.wait_for_in_flight_call().await;
    gate.kill().await;
    let lost = client.response(lost).await;
    assert!(
        error_message(&lost).contains("may have taken effect"),
        "{lost}"
    );
    gate.start_again();
    // The relay opens a session by itself: the client only learns that lists may have changed.
    client
        .notification("notifications/tools/list_changed")
        .await;
    gate.gate.wait_for_state("zoo", "healthy").await;
    let added = client.request("tools/call", add()).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    let (exit, _) = client.finish().await;
    assert!(exit.success());
}

#[tokio::test]
async fn modern_client_survives_restart_of_gateway() {
    let mut gate = FixedGate::start(&zoo("zoo", &[])).await;
    let mut client = gate.client();
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listen = client.send_modern("subscriptions/listen", listen).await;
    client
        .notification("notifications/subscriptions/acknowledged")
        .await;
    let lost = client.send_modern("tools/call", sleep()).await;
    gate.gate.wait_for_in_flight_call().await;
    gate.kill().await;
    // The order of the two is not defined.
    let mut failed = Vec::new();
    while failed.len() < 2 {
        let message = client.next().await;
        assert!(error_message(&message).contains("lost"), "{message}");
        failed.push(message["id"].as_u64().unwrap());
    }
    failed.sort_unstable();
    assert_eq!(failed, [listen, lost]);
    gate.start_again();
    gate.gate.wait_for_state("zoo", "healthy").await;
    let added = client.modern("tools/call", add()).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
}

#[tokio::test]
async fn absent_gateway_is_reported_and_used_once_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("toolgate.toml"), zoo("zoo", &[])).unwrap();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut client = StdioClient::start_in(folder.path(), &["--url", &url], &[]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let refused = client.request("initialize", params).await;
    let text = error_message(&refused);
    assert!(
        text.contains(&url) && text.contains("toolgate serve"),
        "{text}"
    );

    let gate = TestGate::new(serve_at(port, folder.path()), url, folder);
    gate.wait_for_state("zoo", "healthy").await;
    client.initialize().await;
    let added = client.request("tools/call", add()).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    let (exit, stderr) = client.finish().await;
    assert!(exit.success());
    assert!(stderr.contains("no gateway is running at"), "{stderr}");
}

#[tokio::test]
async fn key_is_sent_and_its_absence_explained() {
    let key = format!("[keys.alice]\nkey = {ALICE:?}\ntools = [\"zoo.add\"]\n");
    let gate = TestGate::start(&(zoo("zoo", &[]) + &key));
    gate.wait_for_state("zoo", "healthy").await;
    let start = |args: &[&str], env: &[(&str, &str)]| {
        let args = [&["--url", gate.url.as_str()], args].concat();
        StdioClient::start_in(gate.folder.path(), &args, env)
    };
    for (args, env) in [
        (&[] as &[&str], ("TOOLGATE_KEY", ALICE)),
        (&["--key-env", "MY_KEY"], ("MY_KEY", ALICE)),
    ] {
        let mut client = start(args, &[env]);
        client.initialize().await;
        let listed = client.request("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1, "{listed}");
        assert_eq!(tools[0]["name"], "zoo_add");
    }
    for (env, expected) in [
        (
            ("TOOLGATE_KEY", ""),
            "requires a key, and TOOLGATE_KEY is not set",
        ),
        (
            ("TOOLGATE_KEY", "tg-wrong"),
            "refused the key in TOOLGATE_KEY",
        ),
    ] {
        let mut client = start(&[], &[env]);
        for response in [
            client.request("tools/list", json!({})).await,
            client.modern("tools/list", json!({})).await,
        ] {
            let text = error_message(&response);
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("toolgate keys create"), "{text}");
        }
        let (_, stderr) = client.finish().await;
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains("tg-wrong"), "{stderr}");
    }
}

#[tokio::test]
async fn selected_endpoint_is_used_and_unknown_one_reported() {
    let research = "[virtual_servers.research]\ntools = [\"zoo.add\"]\n";
    let gate = TestGate::start(&(zoo("zoo", &[]) + research));
    gate.wait_for_state("zoo", "healthy").await;
    let start = |args: &[&str]| {
        let args = [&["--url", gate.url.as_str()], args].concat();
        StdioClient::start_in(gate.folder.path(), &args, &[])
    };
    let raw = json!({"name": "add", "arguments": {"a": 20, "b": 22}});
    let mut client = start(&["--server", "zoo"]);
    client.initialize().await;
    let added = client.request("tools/call", raw).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    let mut client = start(&["--virtual-server", "research"]);
    let listed = client.modern("tools/list", json!({})).await;
    assert_eq!(
        listed["result"]["tools"].as_array().unwrap().len(),
        1,
        "{listed}"
    );
    let mut client = start(&["--server", "absent"]);
    let refused = client.modern("tools/list", json!({})).await;
    assert!(error_message(&refused).contains("no MCP server at this path"));
}

/// Arguments that the tool's schema mirrors in headers, of which a client on a pipe knows nothing.
#[tokio::test]
async fn mirrored_arguments_become_headers() {
    let fixtures = HttpZoo::start(&["--fixtures", "--era", "dual"]);
    let gate = TestGate::start(&format!(
        "[mcp_servers.fixtures]\nurl = {:?}\n",
        fixtures.url()
    ));
    gate.wait_for_state("fixtures", "healthy").await;
    let args = ["--url", &gate.url];
    let mut client = StdioClient::start_in(gate.folder.path(), &args, &[]);
    for region in ["eu", "größer"] {
        let arguments = json!({"region": region, "limit": 7});
        let params = json!({"name": "fixtures_test_header_parameter", "arguments": arguments});
        let called = client.modern("tools/call", params).await;
        let text = format!("region={region}, limit=7");
        assert_eq!(called["result"]["content"][0]["text"], text, "{called}");
    }
}

#[tokio::test]
async fn list_changes_and_cancellation_pass_in_both_eras() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    for is_modern in [false, true] {
        let args = ["--url", &gate.url];
        let mut client = StdioClient::start_in(gate.folder.path(), &args, &[]);
        let call = if is_modern {
            let listen = json!({"notifications": {"toolsListChanged": true}});
            client.send_modern("subscriptions/listen", listen).await;
            client
                .notification("notifications/subscriptions/acknowledged")
                .await;
            client.send_modern("tools/call", sleep()).await
        } else {
            client.initialize().await;
            client.send_request("tools/call", sleep()).await
        };
        gate.wait_for_in_flight_call().await;
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}});
        client.send(&cancelled).await;
        eventually("the call is cancelled", WAIT_TIMEOUT, async || {
            let metrics = gate.get("/metrics").await.text().await.unwrap();
            metrics
                .contains("in_flight{server=\"zoo\"} 0")
                .then_some(())
        })
        .await;
        change_until_noticed(&gate, &mut client).await;
    }
}

/// Adds and removes a server until a client has noticed it: a legacy client's stream may not be open yet.
async fn change_until_noticed(gate: &TestGate, client: &mut StdioClient) {
    let change = async {
        loop {
            gate.edit(&(zoo("zoo", &[]) + &zoo("extra", &[])));
            gate.wait_for_state("extra", "healthy").await;
            gate.edit(&zoo("zoo", &[]));
            eventually("the server is removed", WAIT_TIMEOUT, async || {
                let entry = gate.get("/api/mcp/client/extra").await;
                (entry.status() == 404).then_some(())
            })
            .await;
        }
    };
    tokio::select! {
        _ = client.notification("notifications/tools/list_changed") => {}
        () = change => {}
    }
}

#[test]
fn broken_url_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command: Command = toolgate(folder.path());
    let output = command
        .args(["mcp", "--url", "localhost"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
}
