//! In-process servers of the embedding program.

use serde_json::json;
use toolgate::gateway::StartError;
use toolgate::local::{LocalServer, LocalTool, LocalToolOutput, ToolError};
use toolgate::{Config, Gateway, ServerName};

use crate::support::{call, call_text, stop};

fn server(name: &str) -> LocalServer {
    let any = || json!({"type": "object"});
    LocalServer::new(ServerName::parse(name).unwrap())
        .tool(LocalTool::raw("echo", any(), |_, arguments| async move {
            Ok(arguments.get().to_owned())
        }))
        .tool(LocalTool::raw("sum", any(), |_, _| async {
            Ok(LocalToolOutput::Structured(json!({"sum": 3})))
        }))
        .tool(LocalTool::raw("fail", any(), |_, _| async {
            Err::<String, _>(ToolError::new("out of paper"))
        }))
        .tool(LocalTool::raw("panic", any(), |_, _| async {
            panic!("boom");
            #[allow(unreachable_code, reason = "gives the result its type")]
            Ok("")
        }))
}

#[tokio::test]
async fn local_tools_are_called_like_remote_ones() {
    let gateway = Gateway::builder(Config::default())
        .local(server("own"))
        .start()
        .await
        .unwrap();
    gateway.wait_until_settled().await;
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
    let gateway = Gateway::builder(Config::default())
        .local(server("own"))
        .start()
        .await
        .unwrap();
    gateway.wait_until_settled().await;
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
}
