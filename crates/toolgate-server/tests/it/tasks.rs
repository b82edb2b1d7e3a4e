//! Tasks: calls whose results MCP clients fetch later, with servers of both eras.

use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually, http_server};

use crate::caller::text;
use crate::connections::reached;
use crate::gate::{TestGate, WAIT_TIMEOUT, zoo};
use crate::mcp::{LegacySession, META, headers, read_json};
use crate::resource_subscriptions::EventStream;

const ALICE: &str = "alice-has-a-long-key";
const BOB: &str = "bob-has-a-long-key-too";
const KEYS: &str =
    "[keys.alice]\nkey = \"alice-has-a-long-key\"\n[keys.bob]\nkey = \"bob-has-a-long-key-too\"\n";
const TASKS: &str = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const UNKNOWN: i64 = -32602;

async fn start_gate(toml: &str) -> TestGate {
    let gate = TestGate::start(&format!("{toml}{KEYS}"));
    for server in ["legacy", "modern"] {
        if toml.contains(&format!("[mcp_servers.{server}]")) {
            gate.wait_for_state(server, "healthy").await;
        }
    }
    gate
}

/// A modern client that declares tasks.
struct ModernClient<'g> {
    gate: &'g TestGate,
    path: String,
    key: &'static str,
    capabilities: &'static str,
}

impl<'g> ModernClient<'g> {
    fn new(gate: &'g TestGate, server: &str, key: &'static str) -> Self {
        Self {
            gate,
            path: format!("/mcp/{server}"),
            key,
            capabilities: TASKS,
        }
    }

    async fn request(&self, method: &str, mut params: Value) -> Value {
        let capabilities = format!("Capabilities\":{}", self.capabilities);
        let meta = META.replace("Capabilities\":{}", &capabilities);
        params["_meta"] = serde_json::from_str(&meta).unwrap();
        let name = params["name"].as_str().or(params["taskId"].as_str());
        let name = name.unwrap_or_default().to_owned();
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let sent = headers(&[
            ("x-api-key", self.key),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", &name),
        ]);
        let response = self.gate.post(&self.path, &body.to_string(), sent).await;
        read_json(response).await.1
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await["result"]
            .clone()
    }

    /// Calls a tool that becomes a task and returns the task's id.
    async fn start(&self, tool: &str, arguments: Value) -> String {
        let created = self.call(tool, arguments).await;
        assert_eq!(created["resultType"], "task", "{created}");
        assert_eq!(created["status"], "working", "{created}");
        created["taskId"].as_str().unwrap().to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        self.request("tasks/get", json!({"taskId": id})).await
    }

    async fn wait_for(&self, id: &str, status: &str) -> Value {
        eventually(&format!("the task is {status}"), WAIT_TIMEOUT, async || {
            let task = self.get(id).await["result"].clone();
            (task["status"] == status).then_some(task)
        })
        .await
    }
}

/// Waits for records of calls of a tool, which must not be more than expected.
async fn expect_records(gate: &TestGate, tool: &str, expected: usize) {
    let count = eventually("the records", WAIT_TIMEOUT, async || {
        let records = gate.json(&format!("/api/audit?tool={tool}")).await;
        let count = records["records"].as_array().unwrap().len();
        (count >= expected).then_some(count)
    })
    .await;
    assert_eq!(count, expected, "one call, one record");
}

#[tokio::test]
async fn task_belongs_to_its_key_and_outlives_a_restart() {
    let zoo = HttpZoo::start(&["--tasks", "--era", "modern"]);
    let mut gate = start_gate(&http_server("modern", &zoo.url())).await;
    let alice = ModernClient::new(&gate, "modern", ALICE);
    let done = alice.start("slow_compute", json!({"seconds": 0.3})).await;
    let bob = ModernClient::new(&gate, "modern", BOB);
    assert_eq!(bob.get(&done).await["error"]["code"], UNKNOWN);
    let elsewhere = ModernClient {
        path: "/mcp".to_owned(),
        ..ModernClient::new(&gate, "modern", ALICE)
    };
    assert_eq!(elsewhere.get(&done).await["error"]["code"], UNKNOWN);
    let task = alice.wait_for(&done, "completed").await;
    assert_eq!(task["result"]["content"][0]["text"], "slow_compute done");
    assert_eq!(task["ttlMs"], 60_000, "{task}");
    expect_records(&gate, "slow_compute", 1).await;

    // The server goes on with this one while the gateway restarts.
    let running = alice.start("slow_compute", json!({"seconds": 2})).await;
    let asking = alice.start("confirm_delete", json!({})).await;
    alice.wait_for(&asking, "input_required").await;
    gate.restart().await;
    gate.wait_for_state("modern", "healthy").await;
    let alice = ModernClient::new(&gate, "modern", ALICE);
    let task = alice.wait_for(&done, "completed").await;
    assert_eq!(task["result"]["content"][0]["text"], "slow_compute done");
    let task = alice.wait_for(&running, "completed").await;
    assert_eq!(task["result"]["content"][0]["text"], "slow_compute done");
    let task = alice.wait_for(&asking, "input_required").await;
    let key = task["inputRequests"].as_object().unwrap().keys().next();
    let responses = json!({key.unwrap(): {"action": "accept", "content": {"confirm": true}}});
    let update = json!({"taskId": asking, "inputResponses": responses});
    assert!(alice.request("tasks/update", update).await["result"].is_object());
    alice.wait_for(&asking, "completed").await;
    expect_records(&gate, "slow_compute", 2).await;
    let bob = ModernClient::new(&gate, "modern", BOB);
    assert_eq!(bob.get(&done).await["error"]["code"], UNKNOWN);
}

#[tokio::test]
async fn task_fails_with_its_servers_process() {
    let mut gate = start_gate(&zoo("legacy", &["--tasks"])).await;
    let client = ModernClient {
        capabilities: r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        ..ModernClient::new(&gate, "legacy", ALICE)
    };
    let id = client.start("slow_compute", json!({"seconds": 600})).await;
    client.call("die", json!({})).await;
    let task = client.wait_for(&id, "failed").await;
    assert!(task["error"]["message"].is_string(), "{task}");
    expect_records(&gate, "slow_compute", 1).await;

    gate.wait_for_state("legacy", "healthy").await;
    let id = ModernClient {
        capabilities: client.capabilities,
        ..ModernClient::new(&gate, "legacy", ALICE)
    }
    .start("slow_compute", json!({"seconds": 600}))
    .await;
    gate.restart().await;
    let task = ModernClient::new(&gate, "legacy", ALICE)
        .wait_for(&id, "failed")
        .await;
    let message = task["error"]["message"].as_str().unwrap();
    assert!(message.contains("restarted"), "{task}");
}

#[tokio::test]
async fn modern_client_answers_questions_of_a_legacy_task() {
    let http = HttpZoo::start(&["--tasks"]);
    let over_http = http_server("legacy", &http.url());
    for server in [zoo("legacy", &["--tasks"]), over_http] {
        let gate = start_gate(&server).await;
        let client = ModernClient::new(&gate, "legacy", ALICE);
        let id = client.start("multi_input", json!({})).await;
        for _ in 0..2 {
            let task = client.wait_for(&id, "input_required").await;
            let requests = task["inputRequests"].as_object().unwrap();
            let (key, request) = requests.iter().next().unwrap();
            assert_eq!(request["method"], "elicitation/create", "{task}");
            let responses = json!({key: {"action": "accept", "content": {"name": "x"}}});
            let update = json!({"taskId": id, "inputResponses": responses});
            client.request("tasks/update", update).await;
        }
        let task = client.wait_for(&id, "completed").await;
        let text = task["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("first") && text.contains("second"), "{task}");
        assert!(task["result"]["_meta"]["io.modelcontextprotocol/related-task"].is_null());
    }
}

#[tokio::test]
async fn tools_that_require_tasks_run_to_their_end_for_other_callers() {
    let toml = zoo("legacy", &["--tasks"]) + &zoo("modern", &["--tasks", "--era", "modern"]);
    let gate = start_gate(&toml).await;
    for server in ["legacy", "modern"] {
        let tool = format!("{server}_required_job");
        let arguments = json!({"seconds": 0.2});
        let message = gate.with_key(ALICE).call(&tool, &arguments).await;
        assert_eq!(text(&message), "required_job done");
        let session = LegacySession::open(&gate, "/mcp", Some(ALICE)).await;
        let call = json!({"name": tool, "arguments": arguments});
        let result = session.result("tools/call", call).await;
        assert_eq!(
            result["content"][0]["text"], "required_job done",
            "{result}"
        );
        let modern = ModernClient {
            path: "/mcp".to_owned(),
            capabilities: "{}",
            ..ModernClient::new(&gate, server, ALICE)
        };
        let result = modern.call(&tool, arguments).await;
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(
            result["content"][0]["text"], "required_job done",
            "{result}"
        );
    }
    expect_records(&gate, "required_job", 6).await;
}

#[tokio::test]
async fn legacy_client_runs_tasks_of_servers_of_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    for era in ["legacy", "modern"] {
        let log = folder.path().join(era);
        let flags = ["--tasks", "--era", era, "--count", log.to_str().unwrap()];
        let gate = start_gate(&zoo(era, &flags)).await;
        let path = format!("/mcp/{era}");
        let version = ("2025-11-25", json!({}));
        let session = LegacySession::open_with(&gate, &path, Some(ALICE), version).await;
        let tools = session.result("tools/list", json!({})).await;
        let tools = tools["tools"].as_array().unwrap();
        let required = tools.iter().find(|tool| tool["name"] == "required_job");
        assert_eq!(required.unwrap()["execution"]["taskSupport"], "optional");

        let call = |seconds: f64| json!({"name": "slow_compute", "arguments": {"seconds": seconds}, "task": {"ttl": 30_000}});
        let created = session.result("tools/call", call(0.2)).await;
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        assert_eq!(created["task"]["status"], "working", "{created}");
        let result = session.result("tasks/result", json!({"taskId": id})).await;
        assert_eq!(
            result["content"][0]["text"], "slow_compute done",
            "{result}"
        );
        let related = &result["_meta"]["io.modelcontextprotocol/related-task"]["taskId"];
        assert_eq!(related, &json!(id), "{result}");
        let task = session.result("tasks/get", json!({"taskId": id})).await;
        assert_eq!(task["status"], "completed", "{task}");

        let created = session.result("tools/call", call(600.0)).await;
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        let cancelled = session.result("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
        let (_, again) = session.request("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(again["error"]["code"], UNKNOWN, "{again}");
        eventually("the server is told", WAIT_TIMEOUT, async || {
            let log = std::fs::read_to_string(&log).unwrap();
            log.contains("tasks/cancel").then_some(())
        })
        .await;
        let list = session.result("tasks/list", json!({})).await;
        let statuses: Vec<&Value> = list["tasks"].as_array().unwrap().iter().collect();
        assert_eq!(statuses.len(), 2, "{list}");
        let other = LegacySession::open(&gate, &path, Some(BOB)).await;
        let list = other.result("tasks/list", json!({})).await;
        assert_eq!(list["tasks"], json!([]), "another key");
        let (_, unknown) = other.request("tasks/result", json!({"taskId": id})).await;
        assert_eq!(unknown["error"]["code"], UNKNOWN, "{unknown}");
        let failed = json!({"name": "failing_job", "arguments": {}, "task": {}});
        let created = session.result("tools/call", failed).await;
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        let result = session.result("tasks/result", json!({"taskId": id})).await;
        assert_eq!(result["isError"], true, "{result}");
        let task = session.result("tasks/get", json!({"taskId": id})).await;
        assert_eq!(task["status"], "failed", "{task}");
        expect_records(&gate, "slow_compute", 2).await;
    }
}

#[tokio::test]
async fn modern_client_is_notified_of_its_tasks() {
    let gate = start_gate(&zoo("modern", &["--tasks", "--era", "modern"])).await;
    let client = ModernClient::new(&gate, "modern", ALICE);
    let id = client.start("confirm_delete", json!({})).await;
    let meta = META.replace("Capabilities\":{}", &format!("Capabilities\":{TASKS}"));
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let params = json!({"_meta": meta, "notifications": {"taskIds": [id, "unknown"]}});
    let body =
        json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
    let sent = headers(&[
        ("x-api-key", ALICE),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ]);
    let response = gate.post("/mcp/modern", &body.to_string(), sent).await;
    let mut events = EventStream::new(response);
    let first = events
        .next("notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(
        first["params"]["notifications"]["taskIds"],
        json!([id]),
        "{first}"
    );
    let has_status = |status: &'static str| {
        move |message: &Value| {
            message["method"] == "notifications/tasks" && message["params"]["status"] == status
        }
    };
    let status = events
        .next_where("a question", has_status("input_required"))
        .await;
    let subscription = "io.modelcontextprotocol/subscriptionId";
    assert_eq!(status["params"]["_meta"][subscription], "l", "{status}");
    client.request("tasks/cancel", json!({"taskId": id})).await;
    events.next_where("the end", has_status("cancelled")).await;
    let undeclared = ModernClient {
        capabilities: "{}",
        ..client
    };
    let refused = undeclared.get(&id).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
}

#[tokio::test]
async fn tasks_are_bounded_per_key() {
    let bounds = "[capacity]\nmax_tasks_per_key = 1\nmax_task_ttl = \"20s\"\n";
    let toml = zoo("modern", &["--tasks", "--era", "modern"]) + bounds;
    let gate = start_gate(&toml).await;
    let client = ModernClient::new(&gate, "modern", ALICE);
    let id = client.start("slow_compute", json!({"seconds": 600})).await;
    let task = client.get(&id).await;
    assert_eq!(task["result"]["ttlMs"], 20_000, "{task}");
    // A client that need not get a task waits for the result.
    let result = client.call("slow_compute", json!({"seconds": 0})).await;
    assert_eq!(result["resultType"], "complete", "{result}");
    let version = ("2025-11-25", json!({}));
    let session = LegacySession::open_with(&gate, "/mcp/modern", Some(ALICE), version).await;
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 0}, "task": {}});
    let (_, refused) = session.request("tools/call", call).await;
    assert_eq!(refused["error"]["code"], -32005, "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("capacity.max_tasks_per_key"), "{refused}");
    assert!(reached(&gate, "tasks_per_key").await > 0);
    let bob = ModernClient::new(&gate, "modern", BOB);
    bob.start("slow_compute", json!({"seconds": 0})).await;
}
