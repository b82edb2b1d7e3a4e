//! A gateway on a configuration written in the test, and what tests ask of it.

use std::sync::Arc;
use std::time::Duration;

use toolgate::registry::Entry;
use toolgate::{Arguments, Caller, Config, Environment, Gateway, Outcome, State, ToolCall};
use toolgate_core::config::{Document, Format};
use toolgate_testkit::{eventually, zoo_path};

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// `[mcp_servers.NAME]` for a zoo over stdio with these flags.
pub(crate) fn zoo(name: &str, flags: &[&str]) -> String {
    let path = zoo_path();
    format!(
        "[mcp_servers.{name}]\ncommand = {path:?}\nargs = {:?}\n",
        [&["stdio"], flags].concat()
    )
}

/// `[mcp_servers.NAME]` for a server at a URL.
pub(crate) fn at(name: &str, url: &str) -> String {
    format!("[mcp_servers.{name}]\nurl = {url:?}\n")
}

pub(crate) fn config(toml: &str) -> Config {
    let document = Document::parse("test.toml", Format::Toml, toml);
    Config::load(&[document]).expect("a valid configuration").0
}

/// A started gateway whose environment has PATH and one secret.
pub(crate) async fn start(toml: &str) -> Gateway {
    let environment = Environment::new(|name| match name {
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
        "ZOO_SECRET" => Some("s3cr3t-value".to_owned()),
        "UNRELATED" => Some("must not leak".to_owned()),
        _ => None,
    });
    Gateway::builder(config(toml))
        .environment(environment)
        .start()
        .await
        .unwrap()
}

/// A gateway all of whose servers have settled.
pub(crate) async fn settled(toml: &str) -> Gateway {
    let gateway = start(toml).await;
    gateway.settled().await;
    gateway
}

pub(crate) async fn call(
    gateway: &Gateway,
    name: &str,
    arguments: &str,
) -> Result<Outcome, String> {
    let call = ToolCall::new(name, Arguments::parse(arguments).expect("an object"));
    gateway
        .call(&Caller::library(), call)
        .await
        .map_err(|error| error.to_string())
}

/// The text of a call that must succeed.
pub(crate) async fn text(gateway: &Gateway, name: &str, arguments: &str) -> String {
    let outcome = call(gateway, name, arguments)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    outcome.result.text()
}

pub(crate) fn server(gateway: &Gateway, name: &str) -> Arc<Entry> {
    let entries = gateway.servers();
    let found = entries
        .into_iter()
        .find(|entry| entry.server.name.as_str() == name);
    found.expect("a configured server")
}

/// Waits until a server is in a state, and gives the reason for it.
pub(crate) async fn reaches(gateway: &Gateway, name: &str, state: State) -> String {
    let entry = server(gateway, name);
    eventually(&format!("{name} is {}", state.as_str()), SOON, async || {
        let status = entry.status();
        (status.state == state).then(|| status.reason.clone().unwrap_or_default())
    })
    .await
}

/// Waits until a call succeeds.
pub(crate) async fn heals(gateway: &Gateway, name: &str, arguments: &str) -> String {
    eventually(&format!("{name} answers again"), SOON, async || {
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
