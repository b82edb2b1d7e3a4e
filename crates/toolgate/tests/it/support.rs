//! Starts gateways from inline configuration, and helpers to call tools and wait for states.

use std::sync::Arc;
use std::time::Duration;

use toolgate::registry::RegistryEntry;
use toolgate::{Arguments, Caller, Config, Environment, Gateway, Outcome, ServerState, ToolCall};
use toolgate_core::config::{ConfigFormat, Document};
use toolgate_testkit::eventually;

pub(crate) use toolgate_testkit::{WAIT_TIMEOUT, http_server, stdio_zoo};

pub(crate) fn config(toml: &str) -> Config {
    let document = Document::parse("test.toml", ConfigFormat::Toml, toml);
    Config::load(&[document]).expect("valid configuration").0
}

/// Starts a gateway whose environment has `PATH` and a secret, and waits until all its servers have
/// settled.
pub(crate) async fn start_settled(toml: &str) -> Gateway {
    let environment = Environment::new(|name| match name {
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
        "ZOO_SECRET" => Some("s3cr3t-value".to_owned()),
        _ => None,
    });
    let gateway = Gateway::builder(config(toml))
        .environment(environment)
        .start()
        .await
        .unwrap();
    gateway.wait_until_settled().await;
    gateway
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
    eventually(
        &format!("{name} is {}", state.as_str()),
        WAIT_TIMEOUT,
        async || {
            let status = entry.status();
            (status.state == state).then(|| status.reason.clone().unwrap_or_default())
        },
    )
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
