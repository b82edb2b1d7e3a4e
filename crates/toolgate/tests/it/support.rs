//! Starts gateways from inline configuration, and helpers to call tools and wait for states.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolgate::audit::{AuditKind, AuditQuery, AuditRecord};
use toolgate::registry::RegistryEntry;
use toolgate::{
    Arguments, CallError, Caller, Config, Environment, Gateway, Outcome, RequestContext,
    ServerState, Store, ToolCall,
};
use toolgate_core::config::{ConfigFormat, Document};
use toolgate_testkit::eventually;

pub(crate) use toolgate_testkit::{WAIT_TIMEOUT, http_server, stdio_zoo};

/// Prefix of the ids of requests that only mark a position in the audit trail.
const MARKER_PREFIX: &str = "mark-";

/// Two keys, `alice` and `bob`, without roles.
pub(crate) const KEYS: &str = "[keys.alice]\nkey = \"alice-key-0123456789abcdef\"\n[keys.bob]\nkey = \"bob-key-0123456789abcdef\"\n";

/// A text that the scanner and redaction take for a secret.
pub(crate) fn secret_token() -> String {
    format!("ghp_{}", "a1B2".repeat(9))
}

pub(crate) fn config(toml: &str) -> Config {
    let document = Document::parse("test.toml", ConfigFormat::Toml, toml);
    Config::load(&[document]).expect("valid configuration").0
}

/// Starts a gateway whose environment has `PATH` and a secret, and waits until all its servers have
/// settled.
pub(crate) async fn start_settled(toml: &str) -> Gateway {
    start_with_store(toml, Store::in_memory().await.unwrap()).await
}

/// Like [`start_settled`], with persistent state in a folder that no running gateway uses.
pub(crate) async fn start_in_folder(folder: &Path, toml: &str) -> Gateway {
    start_with_store(toml, Store::open(folder).await.unwrap()).await
}

async fn start_with_store(toml: &str, store: Store) -> Gateway {
    let environment = Environment::new(|name| match name {
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
        "ZOO_SECRET" => Some("s3cr3t-value".to_owned()),
        _ => None,
    });
    let builder = Gateway::builder(config(toml)).environment(environment);
    let gateway = builder.store(store).start().await.unwrap();
    gateway.wait_until_settled().await;
    gateway
}

/// Returns the caller with a key, by name.
pub(crate) fn with_key(name: &str) -> Caller {
    Caller::library().with_key(name)
}

pub(crate) async fn call_as(
    gateway: &Gateway,
    caller: &Caller,
    name: &str,
    arguments: &Value,
) -> Result<Outcome, CallError> {
    let call = ToolCall::parse(name, &arguments.to_string());
    gateway.call(caller, call).await
}

/// Calls a tool without a key.
pub(crate) async fn call_json(
    gateway: &Gateway,
    name: &str,
    arguments: &Value,
) -> Result<Outcome, CallError> {
    call_as(gateway, &Caller::library(), name, arguments).await
}

/// Returns the text that a model reads: the result, or the reason why there is none.
pub(crate) fn answer_text(answer: &Result<Outcome, CallError>) -> String {
    match answer {
        Ok(outcome) => outcome.result.text(),
        Err(error) => error.to_string(),
    }
}

/// Returns whether the call failed: before it ran, or in the tool itself.
pub(crate) fn is_failed(answer: &Result<Outcome, CallError>) -> bool {
    !matches!(answer, Ok(outcome) if !outcome.result.is_error())
}

pub(crate) fn is_unknown_tool(answer: &Result<Outcome, CallError>) -> bool {
    matches!(answer, Err(CallError::Unknown { .. }))
}

/// Returns the audit records of all calls answered so far, oldest first.
pub(crate) async fn records(gateway: &Gateway) -> Vec<AuditRecord> {
    // Records are written in order, so all earlier ones are there once this one is.
    let marker = format!("{MARKER_PREFIX}{}", uuid::Uuid::now_v7());
    let last =
        ToolCall::parse("no_such_tool", "{}").with_request(&RequestContext::with_id(&marker));
    gateway.call(&Caller::library(), last).await.unwrap_err();
    let query = AuditQuery {
        kind: Some(AuditKind::Tool),
        limit: 1000,
        ..AuditQuery::default()
    };
    let mut records = eventually("the marker is recorded", WAIT_TIMEOUT, async || {
        let page = gateway.audit().query(&query).await.unwrap();
        let is_written = page.records.iter().any(|r| r.request_id == marker);
        is_written.then_some(page.records)
    })
    .await;
    records.retain(|record| !record.request_id.starts_with(MARKER_PREFIX));
    records.reverse();
    records
}

pub(crate) async fn outcomes(gateway: &Gateway) -> Vec<String> {
    let records = records(gateway).await;
    records.into_iter().map(|record| record.outcome).collect()
}

pub(crate) async fn call(
    gateway: &Gateway,
    name: &str,
    arguments: &str,
) -> Result<Outcome, String> {
    let call = ToolCall::new(name, Arguments::parse(arguments).expect("JSON object"));
    gateway
        .call(&Caller::library(), call)
        .await
        .map_err(|error| error.to_string())
}

/// Returns the text of a call that must succeed.
pub(crate) async fn call_text(gateway: &Gateway, name: &str, arguments: &str) -> String {
    let outcome = call(gateway, name, arguments)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    outcome.result.text()
}

pub(crate) fn server(gateway: &Gateway, name: &str) -> Arc<RegistryEntry> {
    let entries = gateway.servers().list();
    let found = entries
        .into_iter()
        .find(|entry| entry.server.name.as_str() == name);
    found.expect("configured server")
}

/// Waits until a server is in a state and returns the reason for the state.
pub(crate) async fn wait_for_state(gateway: &Gateway, name: &str, state: ServerState) -> String {
    let entry = server(gateway, name);
    toolgate_testkit::wait_for_state(name, state, || {
        let status = entry.status();
        (status.state, status.reason.clone())
    })
    .await
}

/// Repeats a call until it succeeds and returns its text.
pub(crate) async fn call_until_ok(gateway: &Gateway, name: &str, arguments: &str) -> String {
    eventually(&format!("{name} succeeds"), WAIT_TIMEOUT, async || {
        call(gateway, name, arguments)
            .await
            .ok()
            .map(|outcome| outcome.result.text())
    })
    .await
}

pub(crate) async fn stop(gateway: Gateway) {
    gateway.stop(Duration::from_secs(5)).await;
}
