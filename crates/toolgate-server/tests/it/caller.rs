//! A client of the gateway's HTTP API in tests, with headers for every request.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT};

pub(crate) const EXECUTE: &str = "/v1/mcp/tool/execute";
pub(crate) const SESSION: &str = "x-bf-mcp-session-id";
pub(crate) const INCLUDE_CLIENTS: &str = "x-bf-mcp-include-clients";
pub(crate) const EXCLUDE_CLIENTS: &str = "x-bf-mcp-exclude-clients";
pub(crate) const INCLUDE_TOOLS: &str = "x-bf-mcp-include-tools";
pub(crate) const EXCLUDE_TOOLS: &str = "x-bf-mcp-exclude-tools";

/// Prefix of the ids of requests that only mark a position in the audit trail.
const MARKER_PREFIX: &str = "mark-";

/// Keys in configuration files, long enough not to match other text by accident.
pub(crate) const ALICE: &str = "alice-key-0123456789abcdef";
pub(crate) const BOB: &str = "bob-key-0123456789abcdef";

#[derive(Clone)]
pub(crate) struct Caller<'g> {
    gate: &'g TestGate,
    headers: HeaderMap,
}

#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

/// Builds a tool call in the format of Chat Completions.
pub(crate) fn tool_call(name: &str, arguments: &Value) -> Value {
    json!({"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
}

/// Returns the text of a tool message.
pub(crate) fn text(message: &Value) -> &str {
    message["content"]
        .as_str()
        .unwrap_or_else(|| panic!("not text: {message}"))
}

pub(crate) fn is_unknown_tool(message: &Value) -> bool {
    let text = message["content"].as_str();
    text.is_some_and(|text| text.starts_with("unknown tool"))
}

impl TestGate {
    /// Creates a caller without a key.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller {
            gate: self,
            headers: HeaderMap::new(),
        }
    }

    pub(crate) fn with_key(&self, key: &str) -> Caller<'_> {
        self.caller()
            .with_header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn edit(&self, toml: &str) {
        std::fs::write(self.folder.path().join("toolgate.toml"), toml).unwrap();
    }

    /// Returns all records of the audit trail, oldest first, including every call answered so far.
    pub(crate) async fn records(&self, caller: &Caller<'_>) -> Vec<Value> {
        let marker = format!("{MARKER_PREFIX}{}", uuid::Uuid::now_v7());
        let last = caller.clone().with_header("x-request-id", &marker);
        last.execute("no_such_tool", &json!({})).await;
        eventually(
            "the marker is in the audit trail",
            WAIT_TIMEOUT,
            async || {
                let records = self.all_records().await;
                let before = records.iter().position(|r| r["request_id"] == *marker)?;
                let is_marker =
                    |r: &Value| r["request_id"].as_str().unwrap().starts_with(MARKER_PREFIX);
                let earlier = records.into_iter().take(before);
                Some(earlier.filter(|record| !is_marker(record)).collect())
            },
        )
        .await
    }

    /// Returns the current records of the audit trail, oldest first.
    pub(crate) async fn all_records(&self) -> Vec<Value> {
        let page = self.json("/api/audit?limit=1000").await;
        let mut records = page["records"].as_array().unwrap().clone();
        records.reverse();
        records
    }

    pub(crate) async fn outcomes(&self, caller: &Caller<'_>) -> Vec<String> {
        let records = self.records(caller).await;
        let outcome = |record: &Value| record["outcome"].as_str().unwrap().to_owned();
        records.iter().map(outcome).collect()
    }
}

impl Caller<'_> {
    /// Adds a header, keeping others of the same name.
    pub(crate) fn with_header(self, name: &str, value: &str) -> Self {
        self.with_header_bytes(name, value.as_bytes())
    }

    pub(crate) fn with_header_bytes(mut self, name: &str, value: &[u8]) -> Self {
        let name: HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        self.headers.append(name, value);
        self
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> ApiResponse {
        let url = format!("{}{path}", self.gate.url);
        let request = self.gate.client.request(method, url);
        let request = request.headers(self.headers.clone()).body(body.to_string());
        let response = request.send().await.unwrap();
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.map(|value| value.to_str().unwrap().to_owned());
        let body = response.text().await.unwrap();
        ApiResponse {
            status,
            retry_after,
            body: serde_json::from_str(&body).unwrap_or_else(|_| panic!("not JSON: {body}")),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> ApiResponse {
        self.send(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> ApiResponse {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    pub(crate) async fn execute(&self, name: &str, arguments: &Value) -> ApiResponse {
        self.post(EXECUTE, &tool_call(name, arguments)).await
    }

    /// Calls a tool and returns the tool message.
    pub(crate) async fn call(&self, name: &str, arguments: &Value) -> Value {
        let response = self.execute(name, arguments).await;
        assert_eq!(response.status, 200, "{name}: {}", response.body);
        response.body
    }

    /// Makes a trivial call and returns its status.
    pub(crate) async fn call_status(&self) -> u16 {
        let response = self.execute("zoo_add", &json!({"a": 1, "b": 2})).await;
        response.status.as_u16()
    }
}

impl ApiResponse {
    /// Checks the status and returns the body.
    pub(crate) fn expect_status(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }
}
