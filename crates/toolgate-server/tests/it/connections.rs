//! Bounds and timeouts of connections: one caller cannot keep others out.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use toolgate_testkit::eventually;

use crate::caller::{ALICE, BOB, EXECUTE, tool_call};
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::headers;

pub(crate) const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

pub(crate) async fn start(toml: &str) -> TestGate {
    let gate = TestGate::start(&format!("{toml}{}{KEYS}", zoo("zoo", &[])));
    gate.wait_for_state("zoo", "healthy").await;
    gate
}

/// A connection on which a test sends what it likes.
pub(crate) struct RawConnection(TcpStream);

impl RawConnection {
    pub(crate) async fn open(gate: &TestGate) -> Self {
        let address = gate.url.strip_prefix("http://").unwrap();
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Opens a connection and sends the headers of a request, but not its body.
    pub(crate) async fn send_headers(
        gate: &TestGate,
        key: &str,
        path: &str,
        length: usize,
    ) -> Self {
        let mut connection = Self::open(gate).await;
        let head = format!("{}\r\n", request_head(key, path, length));
        connection.send(&head).await;
        connection
    }

    /// Opens a connection whose request is admitted, and waits for its body. Tries again while a
    /// connection of an earlier request, which the gateway has not yet seen closed, takes the place.
    pub(crate) async fn hold(gate: &TestGate, key: &str, path: &str) -> Self {
        let head = format!(
            "{}expect: 100-continue\r\n\r\n",
            request_head(key, path, 1000)
        );
        eventually("a request waits for its body", WAIT_TIMEOUT, async || {
            let mut connection = Self::open(gate).await;
            connection.send(&head).await;
            let response = connection.read().await;
            response.starts_with("HTTP/1.1 100").then_some(connection)
        })
        .await
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads the response, or until the connection is closed.
    async fn read(&mut self) -> String {
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        let reading = async {
            loop {
                // A connection that is closed with unread data is reset.
                let count = self.0.read(&mut buffer).await.unwrap_or(0);
                received.extend_from_slice(&buffer[..count]);
                if count == 0 || received.windows(4).any(|part| part == b"\r\n\r\n") {
                    break;
                }
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, reading).await.unwrap();
        String::from_utf8_lossy(&received).into_owned()
    }
}

/// Returns the headers of a request, without the empty line that ends them.
fn request_head(key: &str, path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    )
}

/// Calls a tool over a new connection and returns the status.
pub(crate) async fn call(gate: &TestGate, key: &str) -> u16 {
    let body = tool_call("zoo_add", &json!({"a": 1, "b": 2}));
    let request = reqwest::Client::new()
        .post(format!("{}{EXECUTE}", gate.url))
        .header("x-api-key", key)
        .header("content-type", "application/json")
        .body(body.to_string());
    request.send().await.unwrap().status().as_u16()
}

/// Returns how often a bound was reached.
pub(crate) async fn reached(gate: &TestGate, bound: &str) -> u64 {
    let text = gate.get("/metrics").await.text().await.unwrap();
    let prefix = format!("toolgate_bounds_reached_total{{bound=\"{bound}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[tokio::test]
async fn unfinished_bodies_of_one_key_do_not_keep_others_out() {
    let gate = start("[http]\nmax_connections_per_key = 4\n").await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(RawConnection::hold(&gate, ALICE, EXECUTE).await);
    }
    assert_eq!(call(&gate, ALICE).await, 429);
    let mut refused = RawConnection::send_headers(&gate, ALICE, EXECUTE, 1000).await;
    let response = refused.read().await;
    assert!(response.starts_with("HTTP/1.1 429"), "{response}");
    assert!(response.contains("retry-after"), "{response}");
    assert_eq!(call(&gate, BOB).await, 200);
    assert!(reached(&gate, "connections_per_key").await >= 2);
    assert!(gate.log().contains("connections_per_key"));
    drop(held);
    eventually("the places are free again", WAIT_TIMEOUT, async || {
        (call(&gate, ALICE).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn connections_of_a_key_are_counted_on_every_route() {
    let role = "[keys.approver]\nkey = \"approver-key-0123456789abcdef\"\nroles = [\"approver\"]\n";
    let gate = start(&format!("[http]\nmax_connections_per_key = 2\n{role}")).await;
    let approver = "approver-key-0123456789abcdef";
    for path in [
        EXECUTE,
        "/mcp",
        "/api/runs/run_x/resume",
        "/api/approvals/x",
    ] {
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(RawConnection::hold(&gate, approver, path).await);
        }
        assert_eq!(call(&gate, approver).await, 429, "{path}");
        drop(held);
        eventually("the places are free again", WAIT_TIMEOUT, async || {
            (call(&gate, approver).await == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn unfinished_headers_do_not_keep_others_out() {
    let gate = start("[http]\nmax_connections = 64\nreserved_connections = 8\n").await;
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut connection = RawConnection::open(&gate).await;
        connection.send("POST / HTTP/1.1\r\nhost: ").await;
        held.push(connection);
        // Each new connection takes the place of the one that has waited longest.
        if held.len() % 20 == 0 {
            assert_eq!(call(&gate, ALICE).await, 200);
        }
    }
    assert_eq!(held[0].read().await, "", "the oldest connection is closed");
    assert!(reached(&gate, "connections").await > 0);
}

#[tokio::test]
async fn probes_and_administrator_have_places_of_their_own() {
    let toml =
        "[http]\nmax_connections = 64\nreserved_connections = 8\nmax_connections_per_key = 1000\n";
    let gate = start(toml).await;
    let mut held = Vec::new();
    let status = async |path: &str| {
        let client = reqwest::Client::new();
        let request = client.get(format!("{}{path}", gate.url));
        request.send().await.unwrap().status().as_u16()
    };
    for _ in 0..56 {
        held.push(RawConnection::hold(&gate, ALICE, EXECUTE).await);
    }
    eventually("all other places are busy", WAIT_TIMEOUT, async || {
        (call(&gate, BOB).await == 503).then_some(())
    })
    .await;
    for path in ["/health", "/ready", "/api/mcp/clients"] {
        assert_eq!(status(path).await, 200, "{path}");
    }
    drop(held);
    eventually("the places are free again", WAIT_TIMEOUT, async || {
        (call(&gate, BOB).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn connection_without_progress_is_closed() {
    let gate = start("[http]\nheader_timeout = \"300ms\"\nbody_timeout = \"300ms\"\n").await;
    let mut silent = RawConnection::open(&gate).await;
    assert_eq!(silent.read().await, "");
    let mut headers = RawConnection::open(&gate).await;
    headers.send("GET /health HTTP/1.1\r\n").await;
    assert_eq!(headers.read().await, "");
    let mut body = RawConnection::send_headers(&gate, ALICE, EXECUTE, 1000).await;
    body.send("{").await;
    let response = body.read().await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert!(reached(&gate, "header_time").await >= 2);
    assert!(reached(&gate, "body_time").await >= 1);
    // A connection between two requests has more time.
    let mut idle = RawConnection::open(&gate).await;
    for _ in 0..2 {
        idle.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await;
        let response = idle.read().await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        // Longer than the time for headers.
        let mut other = RawConnection::open(&gate).await;
        assert_eq!(other.read().await, "");
    }
}

#[tokio::test]
async fn too_large_body_is_refused_by_its_length() {
    let gate = start("").await;
    let length = 17 * 1024 * 1024;
    let mut connection = RawConnection::send_headers(&gate, ALICE, EXECUTE, length).await;
    let response = connection.read().await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}

#[tokio::test]
async fn exhausted_key_is_refused_before_its_body_is_read() {
    let carol = "carol-key-0123456789abcdef";
    let gate = start(&format!(
        "[keys.carol]\nkey = \"{carol}\"\nrate_limit = \"1/h\"\n"
    ))
    .await;
    assert_eq!(call(&gate, carol).await, 200);
    assert_eq!(call(&gate, carol).await, 429);
    for path in [EXECUTE, "/v1/chat/completions", "/mcp"] {
        let length = 10 * 1024 * 1024;
        let mut connection = RawConnection::send_headers(&gate, carol, path, length).await;
        let response = connection.read().await;
        assert!(response.starts_with("HTTP/1.1 429"), "{path}: {response}");
        assert!(response.contains("retry-after"), "{response}");
    }
    assert_eq!(call(&gate, ALICE).await, 200);
    // What is not counted still works.
    let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let headers = headers(&[("x-api-key", carol)]);
    assert_eq!(gate.post("/mcp", body, headers).await.status(), 202);
}
