//! Resource subscriptions, and cancellation of requests by clients.

use reqwest::Response;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{LegacySession, META, headers};

const WATCHED: &str = "test://watched-resource";

/// An event stream, read message by message.
pub(crate) struct EventStream {
    response: Response,
    text: String,
    /// Id of the last event.
    pub(crate) last_id: Option<String>,
}

impl EventStream {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self {
            response,
            text: String::new(),
            last_id: None,
        }
    }

    /// Returns the next message with this method.
    pub(crate) async fn next(&mut self, method: &str) -> Value {
        self.next_where(method, |message| message["method"] == method)
            .await
    }

    /// Returns the next event that satisfies a condition; its message is null if it has none.
    pub(crate) async fn next_where(
        &mut self,
        expected: &str,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Value {
        let reading = async {
            loop {
                while let Some((event, rest)) = self.text.split_once("\n\n") {
                    let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
                    let message = serde_json::from_str(field("data: ").unwrap_or_default());
                    let message: Value = message.unwrap_or_default();
                    self.last_id = field("id: ").map(str::to_owned);
                    self.text = rest.to_owned();
                    if is_expected(&message) {
                        return message;
                    }
                }
                let chunk = self.response.chunk().await.unwrap();
                let chunk = chunk.expect("the stream ended");
                self.text.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, reading)
            .await
            .expect(expected)
    }

    /// Reads the stream to its end.
    pub(crate) async fn rest(&mut self) -> String {
        while let Some(chunk) = self.response.chunk().await.unwrap() {
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
        std::mem::take(&mut self.text)
    }

    async fn next_update(&mut self) -> Value {
        self.next("notifications/resources/updated").await["params"].clone()
    }
}

/// A gateway with servers of both eras, over stdio and HTTP.
struct SubscriptionServers {
    gate: TestGate,
    _zoos: [HttpZoo; 2],
}

const NAMES: [&str; 4] = ["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"];

async fn start_servers() -> SubscriptionServers {
    let zoos = ["legacy", "modern"].map(|era| HttpZoo::start(&["--fixtures", "--era", era]));
    let mut toml = zoo("stdio-legacy", &["--fixtures", "--era", "legacy"])
        + &zoo("stdio-modern", &["--fixtures", "--era", "modern"]);
    for (name, zoo) in ["http-legacy", "http-modern"].iter().zip(&zoos) {
        toml += &format!("[mcp_servers.{name}]\nurl = {:?}\n", zoo.url());
    }
    toml += "[keys.all]\nkey = \"env.ALL\"\n";
    toml += "[keys.reader]\nkey = \"env.READER\"\ntools = [\"http-legacy-*\"]\n";
    toml += "[keys.blind]\nkey = \"env.BLIND\"\nresources = false\n";
    let keys = [("ALL", key('a')), ("READER", key('r')), ("BLIND", key('b'))];
    let env: Vec<(&str, &str)> = keys
        .iter()
        .map(|(name, key)| (*name, key.as_str()))
        .collect();
    let gate = TestGate::start_with(&toml, &[], &env);
    for name in NAMES {
        gate.wait_for_state(name, "healthy").await;
    }
    SubscriptionServers { gate, _zoos: zoos }
}

fn key(of: char) -> String {
    format!("tg-{}", of.to_string().repeat(43))
}

impl SubscriptionServers {
    async fn open_get_stream(&self, session: &LegacySession<'_>, path: &str) -> EventStream {
        let get = self.gate.client.get(format!("{}{path}", self.gate.url));
        EventStream::new(get.headers(session.headers()).send().await.unwrap())
    }

    async fn listen(&self, path: &str, key: &str, uris: &[String]) -> EventStream {
        let params = json!({"_meta": serde_json::from_str::<Value>(META).unwrap(),
            "notifications": {"resourceSubscriptions": uris}});
        let body = json!({"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params});
        let sent = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
            ("x-api-key", key),
        ]);
        EventStream::new(self.gate.post(path, &body.to_string(), sent).await)
    }

    /// Changes the watched resource of a server.
    async fn update_resource(&self, session: &LegacySession<'_>, server: &str) {
        let name = format!("{server}_test_trigger_resource_update");
        let params = json!({"name": name, "arguments": {}});
        let result = session.result("tools/call", params).await;
        assert!(result["content"].is_array(), "{result}");
        assert_ne!(result["isError"], true, "{result}");
    }
}

#[tokio::test]
async fn subscribers_receive_resource_updates() {
    let servers = start_servers().await;
    let (gate, reader, everyone) = (&servers.gate, key('r'), key('a'));
    let all = LegacySession::open(gate, "/mcp", Some(&everyone)).await;
    let mut stream = servers.open_get_stream(&all, "/mcp").await;
    let other = LegacySession::open(gate, "/mcp", Some(&everyone)).await;
    for name in NAMES {
        let wrapped = format!("toolgate://{name}/{WATCHED}");
        let path = format!("/mcp/{name}");
        let raw = LegacySession::open(gate, &path, Some(&everyone)).await;
        let mut raw_stream = servers.open_get_stream(&raw, &path).await;
        all.result("resources/subscribe", json!({"uri": wrapped}))
            .await;
        raw.result("resources/subscribe", json!({"uri": WATCHED}))
            .await;
        let mut modern = servers
            .listen("/mcp", &everyone, std::slice::from_ref(&wrapped))
            .await;
        let granted = modern
            .next("notifications/subscriptions/acknowledged")
            .await;
        let granted = &granted["params"]["notifications"]["resourceSubscriptions"];
        assert_eq!(granted, &json!([wrapped]));
        servers.update_resource(&other, name).await;
        assert_eq!(
            stream.next_update().await,
            json!({"uri": wrapped}),
            "{name}"
        );
        assert_eq!(raw_stream.next_update().await["uri"], WATCHED, "{name}");
        let update = modern.next_update().await;
        let expected =
            json!({"_meta": {"io.modelcontextprotocol/subscriptionId": "s"}, "uri": wrapped});
        assert_eq!(update, expected, "{name}");
        // The unsubscribed session gets no update; the other one still does.
        all.result("resources/unsubscribe", json!({"uri": wrapped}))
            .await;
        servers.update_resource(&other, name).await;
        assert_eq!(raw_stream.next_update().await["uri"], WATCHED, "{name}");
    }
    // Resources out of scope cannot be subscribed to and look unknown.
    let blind = LegacySession::open(gate, "/mcp", Some(&key('b'))).await;
    let uri = format!("toolgate://http-legacy/{WATCHED}");
    let (_, refused) = blind
        .request("resources/subscribe", json!({"uri": uri}))
        .await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    let hidden = format!("toolgate://stdio-legacy/{WATCHED}");
    let mut modern = servers
        .listen("/mcp", &reader, &[hidden, uri.clone()])
        .await;
    let granted = modern
        .next("notifications/subscriptions/acknowledged")
        .await;
    let granted = &granted["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(granted, &json!([uri]));
}

#[tokio::test]
async fn subscriptions_are_renewed_after_reconnect() {
    let servers = start_servers().await;
    let gate = &servers.gate;
    let session = LegacySession::open(gate, "/mcp", Some(&key('a'))).await;
    let mut stream = servers.open_get_stream(&session, "/mcp").await;
    for name in NAMES {
        let uri = format!("toolgate://{name}/{WATCHED}");
        session
            .result("resources/subscribe", json!({"uri": uri}))
            .await;
        let path = format!("/api/mcp/client/{name}/reconnect");
        let reconnected = gate.post(&path, "", headers(&[])).await;
        assert!(reconnected.status().is_success());
        // The resource may have changed meanwhile, so an update is sent.
        assert_eq!(stream.next_update().await, json!({"uri": uri}), "{name}");
        gate.wait_for_state(name, "healthy").await;
        servers.update_resource(&session, name).await;
        assert_eq!(stream.next_update().await, json!({"uri": uri}), "{name}");
        session
            .result("resources/unsubscribe", json!({"uri": uri}))
            .await;
    }
}

#[tokio::test]
async fn legacy_client_cancels_its_own_request_by_id() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let session = LegacySession::open(&gate, "/mcp", None).await;
    let other = LegacySession::open(&gate, "/mcp", None).await;
    let call = json!({"jsonrpc": "2.0", "id": 11, "method": "tools/call",
        "params": {"name": "zoo_sleep", "arguments": {"ms": 600_000}}});
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 11, "reason": "enough"}});
    let (call, cancelled) = (call.to_string(), cancelled.to_string());
    let (answer, ()) = tokio::join!(gate.post("/mcp", &call, session.headers()), async {
        gate.wait_for_in_flight_call().await;
        let foreign = gate.post("/mcp", &cancelled, other.headers()).await;
        assert_eq!(foreign.status(), 202);
        gate.wait_for_in_flight_call().await;
        let accepted = gate.post("/mcp", &cancelled, session.headers()).await;
        assert_eq!(accepted.status(), 202);
    });
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await.unwrap(), "");
    eventually(
        "the call is recorded as cancelled",
        WAIT_TIMEOUT,
        async || {
            let audit = gate.json("/api/audit").await;
            (audit["records"][0]["outcome"] == "cancelled").then_some(())
        },
    )
    .await;
}
