//! Starts registries from inline configuration, and helpers to call tools and wait for states.
//!
//! Calls go to the lane directly: nothing checks permissions, retries or falls back. Tools are
//! named `server.tool`, with raw names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_core::catalog::Tool;
use toolgate_core::config::{ConfigFormat, Document};
use toolgate_core::{Config, ServerName, ToolId, ToolName};
use toolgate_mcp::client_handler::ClientHandler;
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::lane::{ToolAnswer, UpstreamToolCall};
use toolgate_mcp::registry::{AccessTimeouts, RegistryConfig, RegistryDependencies, RegistryEntry};
use toolgate_mcp::task::TaskUse;
use toolgate_mcp::transport::RequestError;
use toolgate_mcp::{Deadline, Environment, Registry, ServerState};
use toolgate_testkit::eventually;

pub(crate) use toolgate_testkit::{WAIT_TIMEOUT, http_server, stdio_zoo};

/// Waits for slots, but not for lost connections.
pub(crate) fn timeouts() -> AccessTimeouts {
    AccessTimeouts {
        deadline: Deadline::now() + WAIT_TIMEOUT,
        reconnect: Duration::ZERO,
    }
}

/// What a call sends besides its arguments.
#[derive(Debug, Default)]
pub(crate) struct CallOptions {
    pub(crate) headers: HeaderMap,
    pub(crate) handler: Option<Arc<dyn ClientHandler>>,
}

/// Starts a registry whose environment has `PATH`, a secret and an unrelated variable.
pub(crate) fn start(toml: &str) -> Registry {
    let document = Document::parse("test.toml", ConfigFormat::Toml, toml);
    let (config, _) = Config::load(&[document]).expect("valid configuration");
    let environment = Environment::new(|name| match name {
        "PATH" => Some("/usr/local/bin:/usr/bin:/bin".to_owned()),
        "ZOO_SECRET" => Some("s3cr3t-value".to_owned()),
        "UNRELATED" => Some("must not leak".to_owned()),
        _ => None,
    });
    let dependencies = RegistryDependencies {
        environment,
        launcher: None,
    };
    let registry_config = RegistryConfig {
        servers: config.servers,
        locals: Vec::new(),
        lists: config.security,
        style: config.tool_name_style,
        sync_interval: config.tool_manager.tool_sync_interval,
        health_interval: config.tool_manager.health_interval,
        tool_timeout: config.tool_manager.tool_execution_timeout,
        capacity: config.capacity,
    };
    Registry::start(dependencies, registry_config)
}

/// Starts a registry and waits until all its servers have settled.
pub(crate) async fn start_settled(toml: &str) -> Registry {
    let registry = start(toml);
    for entry in registry.entries() {
        entry.wait_settled().await;
    }
    registry
}

pub(crate) fn server(registry: &Registry, name: &str) -> Arc<RegistryEntry> {
    let name = ServerName::parse(name).expect("server name");
    registry.entry(&name).expect("configured server")
}

/// Returns a listed tool.
pub(crate) fn tool(registry: &Registry, name: &str) -> Option<Arc<Tool>> {
    let (server, tool) = name.split_once('.').expect("`server.tool`");
    let id = ToolId {
        server: ServerName::parse(server).expect("server name"),
        tool: ToolName::new(tool),
    };
    let catalog = registry.catalog();
    catalog.tool(&id).map(|entry| Arc::clone(&entry.tool))
}

/// Sends a call once, over the shared lane, and returns the server's result.
pub(crate) async fn call_with(
    registry: &Registry,
    name: &str,
    arguments: &str,
    options: CallOptions,
) -> Result<Box<RawValue>, String> {
    let tool = tool(registry, name).ok_or_else(|| format!("`{name}` is not listed"))?;
    let arguments = RawValue::from_string(arguments.to_owned()).expect("JSON");
    let access = registry
        .access(&tool.id.server, &None, timeouts())
        .await
        .map_err(|error| error.to_string())?;
    let call = UpstreamToolCall {
        tool: &tool,
        arguments: &arguments,
        headers: options.headers,
        meta: Object::default(),
        handler: options.handler,
        identity: None,
        modern_client: None,
        log_level: None,
        tasks: TaskUse::default(),
    };
    let result = async {
        match access.lane.call_tool(call).await? {
            ToolAnswer::Result(result) => Ok(result),
            ToolAnswer::Task(task) => task.follow().await,
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, result)
        .await
        .expect("the call ends in time")
        .map_err(|error: RequestError| error.to_string())
}

pub(crate) async fn call(
    registry: &Registry,
    name: &str,
    arguments: &str,
) -> Result<Box<RawValue>, String> {
    call_with(registry, name, arguments, CallOptions::default()).await
}

/// Returns the text of a call that must succeed.
pub(crate) async fn call_text(registry: &Registry, name: &str, arguments: &str) -> String {
    let result = call(registry, name, arguments).await;
    text(&result.unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// Repeats a call until it succeeds and returns its text.
pub(crate) async fn call_until_ok(registry: &Registry, name: &str, arguments: &str) -> String {
    eventually(&format!("{name} succeeds"), WAIT_TIMEOUT, async || {
        let result = call(registry, name, arguments).await;
        result.ok().map(|result| text(&result))
    })
    .await
}

/// Calls `add` concurrently and checks that every call gets its own sum. A failure shows `context`.
pub(crate) async fn check_concurrent_sums(
    registry: &Registry,
    server: &str,
    calls: usize,
    context: impl fmt::Debug,
) {
    let name = format!("{server}.add");
    let sums = join_all((0..calls).map(|n| {
        let name = &name;
        async move { call_text(registry, name, &format!(r#"{{"a":{n},"b":1}}"#)).await }
    }));
    let expected: Vec<String> = (1..=calls).map(|n| n.to_string()).collect();
    assert_eq!(sums.await, expected, "{context:?}");
}

/// Returns the text of a result's only content block.
pub(crate) fn text(result: &RawValue) -> String {
    let result: Value = serde_json::from_str(result.get()).expect("JSON");
    let [block] = &result["content"].as_array().expect("content")[..] else {
        panic!("one content block: {result}");
    };
    block["text"].as_str().expect("text block").to_owned()
}

/// Waits until a server is in a state and returns the reason for the state.
pub(crate) async fn wait_for_state(registry: &Registry, name: &str, state: ServerState) -> String {
    let entry = server(registry, name);
    toolgate_testkit::wait_for_state(name, state, || {
        let status = entry.status();
        (status.state, status.reason.clone())
    })
    .await
}
