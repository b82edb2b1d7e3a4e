//! Resources that clients watch, and requests that they cancel.

use reqwest::Response;
use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{SOON, TestGate, zoo};
use crate::mcp::{META, Old, headers};

const WATCHED: &str = "test://watched-resource";

/// What is told on a stream, message by message.
pub(crate) struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        let text = String::new();
        Self { response, text }
    }

    /// The next message with this method.
    pub(crate) async fn next(&mut self, method: &str) -> Value {
        let heard = async {
            loop {
                while let Some((event, rest)) = self.text.split_once("\n\n") {
                    let data = event.strip_prefix("data: ").unwrap_or_default();
                    let message: Value = serde_json::from_str(data).unwrap_or_default();
                    self.text = rest.to_owned();
                    if message["method"] == method {
                        return message;
                    }
                }
                let chunk = self.response.chunk().await.unwrap();
                let chunk = chunk.expect("the stream goes on");
                self.text.push_str(&String::from_utf8_lossy(&chunk));
            }
        };
        tokio::time::timeout(SOON, heard).await.expect(method)
    }

    /// What comes until it ends.
    pub(crate) async fn rest(&mut self) -> String {
        while let Some(chunk) = self.response.chunk().await.unwrap() {
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
        std::mem::take(&mut self.text)
    }

    async fn updated(&mut self) -> Value {
        self.next("notifications/resources/updated").await["params"].clone()
    }
}

/// Servers of both eras, on pipes and over HTTP.
struct Servers {
    gate: TestGate,
    _zoos: [HttpZoo; 2],
}

const NAMES: [&str; 4] = ["pipe-old", "pipe-new", "http-old", "http-new"];

async fn servers() -> Servers {
    let zoos = ["legacy", "modern"].map(|era| HttpZoo::start(&["--fixtures", "--era", era]));
    let mut toml = zoo("pipe-old", &["--fixtures", "--era", "legacy"])
        + &zoo("pipe-new", &["--fixtures", "--era", "modern"]);
    for (name, zoo) in ["http-old", "http-new"].iter().zip(&zoos) {
        toml += &format!("[mcp_servers.{name}]\nurl = {:?}\n", zoo.url());
    }
    toml += "[keys.all]\nkey = \"env.ALL\"\n";
    toml += "[keys.reader]\nkey = \"env.READER\"\ntools = [\"http-old-*\"]\n";
    toml += "[keys.blind]\nkey = \"env.BLIND\"\nresources = false\n";
    let keys = [("ALL", key('a')), ("READER", key('r')), ("BLIND", key('b'))];
    let env: Vec<(&str, &str)> = keys
        .iter()
        .map(|(name, key)| (*name, key.as_str()))
        .collect();
    let gate = TestGate::start_with(&toml, &[], &env);
    for name in NAMES {
        gate.reaches(name, "healthy").await;
    }
    Servers { gate, _zoos: zoos }
}

fn key(of: char) -> String {
    format!("tg-{}", of.to_string().repeat(43))
}

impl Servers {
    async fn news(&self, session: &Old<'_>, path: &str) -> Stream {
        let get = self.gate.client.get(format!("{}{path}", self.gate.url));
        Stream::new(get.headers(session.headers()).send().await.unwrap())
    }

    async fn listen(&self, path: &str, key: &str, uris: &[String]) -> Stream {
        let params = json!({"_meta": serde_json::from_str::<Value>(META).unwrap(),
            "notifications": {"resourceSubscriptions": uris}});
        let body = json!({"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": params});
        let sent = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
            ("x-api-key", key),
        ]);
        Stream::new(self.gate.post(path, &body.to_string(), sent).await)
    }

    /// Has the resource of a server change.
    async fn change(&self, session: &Old<'_>, server: &str) {
        let name = format!("{server}_test_trigger_resource_update");
        let params = json!({"name": name, "arguments": {}});
        let result = session.result("tools/call", params).await;
        assert!(result["content"].is_array(), "{result}");
        assert_ne!(result["isError"], true, "{result}");
    }
}

#[tokio::test]
async fn whoever_watches_a_resource_is_told() {
    let servers = servers().await;
    let (gate, reader, everyone) = (&servers.gate, key('r'), key('a'));
    let all = Old::open(gate, "/mcp", Some(&everyone)).await;
    let mut told = servers.news(&all, "/mcp").await;
    let other = Old::open(gate, "/mcp", Some(&everyone)).await;
    for name in NAMES {
        let wrapped = format!("toolgate://{name}/{WATCHED}");
        let path = format!("/mcp/{name}");
        let raw = Old::open(gate, &path, Some(&everyone)).await;
        let mut told_raw = servers.news(&raw, &path).await;
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
        servers.change(&other, name).await;
        assert_eq!(told.updated().await, json!({"uri": wrapped}), "{name}");
        assert_eq!(told_raw.updated().await["uri"], WATCHED, "{name}");
        let update = modern.updated().await;
        let expected =
            json!({"_meta": {"io.modelcontextprotocol/subscriptionId": "s"}, "uri": wrapped});
        assert_eq!(update, expected, "{name}");
        // One who no longer watches is told nothing, the other still is.
        all.result("resources/unsubscribe", json!({"uri": wrapped}))
            .await;
        servers.change(&other, name).await;
        assert_eq!(told_raw.updated().await["uri"], WATCHED, "{name}");
    }
    // What is not in scope cannot be watched, and does not exist.
    let blind = Old::open(gate, "/mcp", Some(&key('b'))).await;
    let uri = format!("toolgate://http-old/{WATCHED}");
    let (_, refused) = blind.ask("resources/subscribe", json!({"uri": uri})).await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    let hidden = format!("toolgate://pipe-old/{WATCHED}");
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
async fn a_resource_is_watched_again_after_its_server_was_away() {
    let servers = servers().await;
    let gate = &servers.gate;
    let session = Old::open(gate, "/mcp", Some(&key('a'))).await;
    let mut told = servers.news(&session, "/mcp").await;
    for name in NAMES {
        let uri = format!("toolgate://{name}/{WATCHED}");
        session
            .result("resources/subscribe", json!({"uri": uri}))
            .await;
        let again = format!("/api/mcp/client/{name}/reconnect");
        let again = gate.post(&again, "", headers(&[])).await;
        assert!(again.status().is_success());
        // It may have changed meanwhile.
        assert_eq!(told.updated().await, json!({"uri": uri}), "{name}");
        gate.reaches(name, "healthy").await;
        servers.change(&session, name).await;
        assert_eq!(told.updated().await, json!({"uri": uri}), "{name}");
        session
            .result("resources/unsubscribe", json!({"uri": uri}))
            .await;
    }
}

#[tokio::test]
async fn a_client_of_the_old_era_cancels_by_the_id_of_its_request() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.reaches("zoo", "healthy").await;
    let session = Old::open(&gate, "/mcp", None).await;
    let other = Old::open(&gate, "/mcp", None).await;
    let call = json!({"jsonrpc": "2.0", "id": 11, "method": "tools/call",
        "params": {"name": "zoo_sleep", "arguments": {"ms": 600_000}}});
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 11, "reason": "enough"}});
    let (call, cancelled) = (call.to_string(), cancelled.to_string());
    let (answer, ()) = tokio::join!(gate.post("/mcp", &call, session.headers()), async {
        gate.works_on_a_call().await;
        let stranger = gate.post("/mcp", &cancelled, other.headers()).await;
        assert_eq!(stranger.status(), 202);
        gate.works_on_a_call().await;
        let taken = gate.post("/mcp", &cancelled, session.headers()).await;
        assert_eq!(taken.status(), 202);
    });
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.text().await.unwrap(), "");
    eventually("the record says so", SOON, async || {
        let audit = gate.json("/api/audit").await;
        (audit["records"][0]["outcome"] == "cancelled").then_some(())
    })
    .await;
}
