//! Progress notifications reach the caller of the tool, and no one else.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::client_handler::ClientHandler;
use toolgate::{Caller, Gateway, RequestContext, ToolCall};
use toolgate_mcp::jsonrpc::{RpcError, RpcResult};
use toolgate_testkit::HttpZoo;

use crate::support::{http_server, start_settled, stdio_zoo, stop};

/// Records the notifications it receives.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<(String, Value)>>);

impl Recorder {
    /// Returns the methods and parameters received so far.
    pub(crate) fn notifications(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().clone()
    }
}

impl ClientHandler for Recorder {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let params = params.map(|raw| serde_json::from_str(raw.get()).unwrap());
        let notification = (method.to_owned(), params.unwrap_or_default());
        self.0.lock().unwrap().push(notification);
    }

    fn on_request(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        let error = RpcError {
            code: -32601,
            message: format!("unexpected request `{method}`"),
            data: None,
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Calls `progress` with a number of steps and returns the progress reported.
async fn reported_progress(gateway: &Gateway, server: &str, steps: usize) -> Vec<f64> {
    let recorder = Arc::new(Recorder::default());
    let request = Arc::new(RequestContext {
        client_handler: Some(Arc::clone(&recorder) as Arc<dyn ClientHandler>),
        ..RequestContext::default()
    });
    let call = ToolCall::parse(
        &format!("{server}_progress"),
        &format!("{{\"steps\":{steps}}}"),
    );
    let outcome = gateway
        .call(&Caller::library(), call.with_request(&request))
        .await;
    assert_eq!(outcome.unwrap().result.text(), format!("{steps} steps"));
    let notifications = recorder.0.lock().unwrap();
    let progress = notifications
        .iter()
        .filter(|(method, _)| method == "notifications/progress");
    progress
        .map(|(_, params)| params["progress"].as_f64().unwrap())
        .collect()
}

#[tokio::test]
async fn caller_receives_only_its_own_progress_in_order() {
    let web = HttpZoo::start(&["--era", "modern"]);
    let legacy_web = HttpZoo::start(&["--sessions"]);
    let toml = [
        stdio_zoo("legacy", &[]),
        stdio_zoo("modern", &["--era", "modern"]),
        http_server("web", &web.url()),
        http_server("legacy_web", &legacy_web.url()),
    ]
    .concat();
    let gateway = start_settled(&toml).await;
    for server in ["legacy", "modern", "web", "legacy_web"] {
        let (few, many) = tokio::join!(
            reported_progress(&gateway, server, 3),
            reported_progress(&gateway, server, 20)
        );
        for (progress, expected) in [(few, 3), (many, 20)] {
            assert_eq!(progress.len(), expected, "{server}: {progress:?}");
            assert!(progress.is_sorted(), "{server}: {progress:?}");
        }
    }
    stop(gateway).await;
}
