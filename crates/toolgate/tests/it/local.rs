//! In-process servers of the embedding program.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use toolgate::client_handler::ClientHandler;
use toolgate::gateway::{LocalServerOptions, StartError};
use toolgate::local::{
    Json, LocalServer, LocalTool, LocalToolOutput, NoArguments, ToolContext, ToolError, ToolHints,
};
use toolgate::mcp_server::{Delivery, McpEndpoint, Reply, Server};
use toolgate::{Caller, Config, Gateway, RequestContext, ServerName, ToolCall};
use toolgate_mcp::jsonrpc::RpcResult;
use toolgate_testkit::{eventually, script_worker_path};

use crate::support::{WAIT_TIMEOUT, call, call_text, call_until_ok, config, stop};

/// Records the parameters of the notifications it receives.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Value>>);

impl ClientHandler for Recorder {
    fn on_notification(&self, _: &str, params: Option<&RawValue>) {
        let params = params.expect("parameters");
        let params = serde_json::from_str(params.get()).expect("JSON");
        self.0.lock().unwrap().push(params);
    }

    fn on_request(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        panic!("unexpected request `{method}`")
    }
}

fn name(name: &str) -> ServerName {
    ServerName::parse(name).unwrap()
}

fn echo() -> LocalTool {
    LocalTool::raw(
        "echo",
        json!({"type": "object"}),
        |_, arguments| async move { Ok(arguments.get().to_owned()) },
    )
}

fn server(server: &str) -> LocalServer {
    let any = || json!({"type": "object"});
    LocalServer::new(name(server))
        .tool(echo())
        .tool(LocalTool::raw("sum", any(), |_, _| async {
            Ok(LocalToolOutput::Structured(json!({"sum": 3})))
        }))
        .tool(LocalTool::raw("fail", any(), |_, _| async {
            Err::<String, _>(ToolError::new("out of paper"))
        }))
        .tool(LocalTool::new(
            "panic",
            |_, arguments: NoArguments| async move {
                assert_ne!(arguments, NoArguments {}, "boom");
                Ok("")
            },
        ))
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number.
    a: i64,
    b: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
    caller: Option<String>,
    request_id: String,
}

/// Adds numbers, reports progress, and returns the caller.
fn add() -> LocalTool {
    let run = |context: ToolContext, Add { a, b }: Add| async move {
        context.progress(1.0, Some(2.0), Some("adding"));
        Ok(Json(Sum {
            sum: a.checked_add(b).ok_or("the sum is too large")?,
            caller: context.caller().key().map(ToString::to_string),
            request_id: context.request_id().to_owned(),
        }))
    };
    LocalTool::new("add", run)
        .title("Add")
        .description("Adds two numbers")
        .annotations(ToolHints {
            read_only: Some(true),
            ..ToolHints::default()
        })
}

async fn start(server: LocalServer) -> Gateway {
    let builder = Gateway::builder(config("[keys.alice]\nkey = \"alice-secret-123456\"\n"));
    let options = LocalServerOptions::default().allow_on_all_keys();
    let gateway = builder.local_with(server, options).start().await.unwrap();
    gateway.wait_until_settled().await;
    gateway
}

#[tokio::test]
async fn local_tools_are_called_like_remote_ones() {
    let gateway = start(server("own")).await;
    let odd = r#"{"n": 1e400, "m":-0.0}"#;
    assert_eq!(call_text(&gateway, "own_echo", odd).await, odd);
    let sum = call(&gateway, "own.sum", "{}").await.unwrap();
    assert!(
        sum.result
            .raw()
            .get()
            .contains(r#""structuredContent":{"sum":3}"#)
    );
    let failed = call(&gateway, "own_fail", "{}").await.unwrap();
    assert!(failed.result.is_error());
    assert_eq!(failed.result.text(), "out of paper");
    stop(gateway).await;
}

#[tokio::test]
async fn panic_fails_only_its_own_call() {
    let gateway = start(server("own")).await;
    let error = call(&gateway, "own_panic", "{}").await.unwrap_err();
    assert_eq!(error, "tool `own.panic` panicked");
    assert_eq!(call_text(&gateway, "own_echo", "{}").await, "{}");
    stop(gateway).await;
}

#[tokio::test]
async fn duplicate_server_names_are_rejected() {
    let builder = Gateway::builder(Config::default())
        .local(server("own"))
        .local(server("OWN"));
    let error = builder.start().await.unwrap_err();
    assert!(matches!(error, StartError::NameTaken(name) if name.as_str() == "OWN"));
    let gateway = start(server("own")).await;
    let taken = gateway
        .servers()
        .register(server("Own"), LocalServerOptions::default());
    assert!(matches!(taken.await, Err(StartError::NameTaken(_))));
    assert_eq!(call_text(&gateway, "own_echo", "{}").await, "{}");
    stop(gateway).await;
}

#[tokio::test]
async fn typed_tool_has_a_definition_and_a_context() {
    let gateway = start(LocalServer::new(name("math")).tool(add())).await;
    let catalog = gateway.catalog();
    let definition: Value = serde_json::from_str(catalog.tools()[0].tool.definition.get()).unwrap();
    assert_eq!(definition["title"], "Add");
    assert_eq!(definition["annotations"], json!({"readOnlyHint": true}));
    let input = &definition["inputSchema"];
    assert_eq!(input["properties"]["a"]["description"], "The first number.");
    assert_eq!(
        definition["outputSchema"]["properties"]["sum"]["type"],
        "integer"
    );

    let recorder = Arc::new(Recorder::default());
    let request = Arc::new(RequestContext {
        id: Some("request-1".to_owned()),
        client_handler: Some(Arc::clone(&recorder) as Arc<dyn ClientHandler>),
        ..RequestContext::default()
    });
    let call = ToolCall::parse("math_add", r#"{"a": 1, "b": 2}"#).with_request(&request);
    let alice = Caller::library().with_key("alice");
    let outcome = gateway.call(&alice, call).await.unwrap();
    let result: Value = serde_json::from_str(outcome.result.raw().get()).unwrap();
    assert_eq!(
        result["structuredContent"],
        json!({"sum": 3, "caller": "alice", "request_id": "request-1"})
    );
    let progress = recorder.0.lock().unwrap().clone();
    assert_eq!(progress.len(), 1);
    assert_eq!(progress[0]["message"], "adding");
    stop(gateway).await;
}

#[tokio::test]
async fn invalid_typed_arguments_name_the_field() {
    let gateway = start(LocalServer::new(name("math")).tool(add())).await;
    let invalid = call(&gateway, "math_add", r#"{"a": "one", "b": 2}"#).await;
    let invalid = invalid.unwrap_err();
    assert!(
        invalid.contains('a') && invalid.contains("integer"),
        "{invalid}"
    );
    // The schema of an `i64` has no bounds in JSON Schema, so the tool reports this one.
    let large = call(
        &gateway,
        "math_add",
        r#"{"a": 99999999999999999999, "b": 2}"#,
    )
    .await;
    let large = large.map_or_else(|error| error, |outcome| outcome.result.text());
    assert!(large.contains("`a`") || large.contains("/a"), "{large}");
    let failed = call(
        &gateway,
        "math_add",
        r#"{"a": 9223372036854775807, "b": 1}"#,
    )
    .await;
    assert_eq!(failed.unwrap().result.text(), "the sum is too large");
    stop(gateway).await;
}

#[tokio::test]
async fn scripts_call_the_tools_of_a_code_mode_server() {
    let toml = format!(
        "[code_mode]\nworker_command = [{:?}]\n",
        script_worker_path()
    );
    let numbers = LocalServer::new(name("numbers")).tool(add());
    let options = LocalServerOptions::default().code_mode();
    let builder = Gateway::builder(config(&toml)).local_with(numbers, options);
    let gateway = builder.start().await.unwrap();
    gateway.wait_until_settled().await;
    let code = json!({"code": r#"result = numbers.add(a=40, b=2)["sum"]"#});
    let result = call_text(&gateway, "executeToolCode", &code.to_string()).await;
    assert!(result.contains("42"), "{result}");
    stop(gateway).await;
}

#[tokio::test]
async fn cancelled_call_cancels_the_work_it_has_spawned() {
    let (sender, mut cancelled) = tokio::sync::mpsc::unbounded_channel();
    let tasks = TaskTracker::new();
    let spawner = tasks.clone();
    let run = move |context: ToolContext, _: NoArguments| {
        let (sender, tasks) = (sender.clone(), spawner.clone());
        async move {
            let _ = sender.send("started");
            let spawned = context.clone();
            tasks.spawn(async move {
                spawned.cancelled().await;
                let _ = sender.send("cancelled");
            });
            std::future::pending::<Result<String, ToolError>>().await
        }
    };
    let gateway = start(LocalServer::new(name("own")).tool(LocalTool::new("wait", run))).await;
    tokio::select! {
        ended = call(&gateway, "own_wait", "{}") => panic!("{ended:?}"),
        started = cancelled.recv() => assert_eq!(started, Some("started")),
    }
    assert_eq!(cancelled.recv().await, Some("cancelled"));
    tasks.close();
    tasks.wait().await;
    stop(gateway).await;
}

#[tokio::test]
async fn clients_hear_of_tools_that_come_and_go() {
    let own = LocalServer::new(name("own")).tool(echo());
    let gateway = start(own.clone()).await;
    let mcp = Server::new(gateway.clone());
    let connection = mcp.connect(McpEndpoint::All, Caller::library()).unwrap();
    let (connection, messages) = connection.into_dedicated();
    tokio::pin!(messages);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let initialize = initialize.to_string();
    let reply = connection.handle(initialize.as_bytes(), Delivery::without_headers());
    assert!(matches!(reply.await, Reply::Single(_)));
    let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let reply = connection.handle(initialized, Delivery::without_headers());
    assert!(matches!(reply.await, Reply::Accepted));

    own.add_tool(add());
    assert_list_changed(messages.next().await);
    call_until_ok(&gateway, "own_add", r#"{"a": 1, "b": 2}"#).await;
    assert!(own.remove_tool("add"));
    assert!(!own.remove_tool("add"));
    assert_list_changed(messages.next().await);
    eventually("the tool is gone", WAIT_TIMEOUT, async || {
        call(&gateway, "own_add", r#"{"a": 1, "b": 2}"#).await.err()
    })
    .await;

    let other = LocalServer::new(name("other")).tool(echo());
    let options = LocalServerOptions::default();
    gateway.servers().register(other, options).await.unwrap();
    assert_list_changed(messages.next().await);
    assert_eq!(call_text(&gateway, "other_echo", "{}").await, "{}");
    gateway.apply(Config::default()).await.unwrap();
    assert_eq!(call_text(&gateway, "other_echo", "{}").await, "{}", "kept");
    assert!(gateway.servers().remove(&name("other")).unwrap());
    assert!(!gateway.servers().remove(&name("other")).unwrap());
    assert_list_changed(messages.next().await);
    assert!(call(&gateway, "other_echo", "{}").await.is_err());
    connection.disconnect();
    stop(gateway).await;
}

fn assert_list_changed(message: Option<String>) {
    let message: Value = serde_json::from_str(&message.unwrap()).unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed");
}
