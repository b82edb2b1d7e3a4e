//! Who calls the gateway in a test: what they send with every request, and what they get.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolgate_testkit::eventually;

use crate::gate::{SOON, TestGate};

pub(crate) const EXECUTE: &str = "/v1/mcp/tool/execute";
pub(crate) const SESSION: &str = "x-bf-mcp-session-id";
pub(crate) const INCLUDE_CLIENTS: &str = "x-bf-mcp-include-clients";
pub(crate) const EXCLUDE_CLIENTS: &str = "x-bf-mcp-exclude-clients";
pub(crate) const INCLUDE_TOOLS: &str = "x-bf-mcp-include-tools";
pub(crate) const EXCLUDE_TOOLS: &str = "x-bf-mcp-exclude-tools";

/// How the ids of requests begin that only mark a place in the audit trail.
const MARK: &str = "mark-";

/// A key of a file, long enough to be told from other text.
pub(crate) const ALICE: &str = "alice-key-0123456789abcdef";
pub(crate) const BOB: &str = "bob-key-0123456789abcdef";

#[derive(Clone)]
pub(crate) struct Caller<'g> {
    gate: &'g TestGate,
    headers: HeaderMap,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

/// A tool call as Chat Completions writes it.
pub(crate) fn tool_call(name: &str, arguments: &Value) -> Value {
    json!({"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
}

/// The text that a tool message has for the model.
pub(crate) fn text(message: &Value) -> &str {
    message["content"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {message}"))
}

pub(crate) fn is_unknown(message: &Value) -> bool {
    let text = message["content"].as_str();
    text.is_some_and(|text| text.starts_with("unknown tool"))
}

impl TestGate {
    /// Someone without a key.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller {
            gate: self,
            headers: HeaderMap::new(),
        }
    }

    pub(crate) fn with_key(&self, key: &str) -> Caller<'_> {
        self.caller()
            .with("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn edit(&self, toml: &str) {
        std::fs::write(self.folder.path().join("toolgate.toml"), toml).unwrap();
    }

    /// All records of the audit trail once everything answered before this is in it, the oldest
    /// first.
    pub(crate) async fn records(&self, caller: &Caller<'_>) -> Vec<Value> {
        let mark = format!("{MARK}{}", uuid::Uuid::now_v7());
        let last = caller.clone().with("x-request-id", &mark);
        last.execute("no_such_tool", &json!({})).await;
        eventually("the mark is in the audit trail", SOON, async || {
            let records = self.all_records().await;
            let before = records.iter().position(|r| r["request_id"] == *mark)?;
            let is_mark = |r: &Value| r["request_id"].as_str().unwrap().starts_with(MARK);
            let earlier = records.into_iter().take(before);
            Some(earlier.filter(|record| !is_mark(record)).collect())
        })
        .await
    }

    /// What is in the audit trail now, the oldest first.
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
    /// Sends a header too, besides those of the same name.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.with_bytes(name, value.as_bytes())
    }

    pub(crate) fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        let name: HeaderName = name.parse().unwrap();
        let value = HeaderValue::from_bytes(value).unwrap();
        self.headers.append(name, value);
        self
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let url = format!("{}{path}", self.gate.url);
        let request = self.gate.client.request(method, url);
        let request = request.headers(self.headers.clone()).body(body.to_string());
        let response = request.send().await.unwrap();
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.map(|value| value.to_str().unwrap().to_owned());
        let body = response.text().await.unwrap();
        Answer {
            status,
            retry_after,
            body: serde_json::from_str(&body).unwrap_or_else(|_| panic!("no JSON: {body}")),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    pub(crate) async fn execute(&self, name: &str, arguments: &Value) -> Answer {
        self.post(EXECUTE, &tool_call(name, arguments)).await
    }

    /// The tool message of a call.
    pub(crate) async fn call(&self, name: &str, arguments: &Value) -> Value {
        let answer = self.execute(name, arguments).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
        answer.body
    }

    /// The status of a call that only tells whether the caller is let in.
    pub(crate) async fn knock(&self) -> u16 {
        let answer = self.execute("zoo_add", &json!({"a": 1, "b": 2})).await;
        answer.status.as_u16()
    }
}

impl Answer {
    /// The body of an answer with this status.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }
}
