//! Progress reaches whoever made the call, and nobody else.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use toolgate::ear::Ear;
use toolgate::{Caller, Gateway, Request, ToolCall};
use toolgate_mcp::jsonrpc::{Answer, RpcError};
use toolgate_testkit::HttpZoo;

use crate::support::{at, settled, stop, zoo};

/// Notes what it hears.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<(String, Value)>>);

impl Ear for Notes {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        let params = params.map(|raw| serde_json::from_str(raw.get()).unwrap());
        let note = (method.to_owned(), params.unwrap_or_default());
        self.0.lock().unwrap().push(note);
    }

    fn asked(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let error = RpcError {
            code: -32601,
            message: format!("nobody answers `{method}`"),
            data: None,
        };
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Calls `progress` with so many steps, and gives what was told meanwhile.
async fn steps(gateway: &Gateway, server: &str, steps: usize) -> Vec<f64> {
    let notes = Arc::new(Notes::default());
    let request = Arc::new(Request {
        ear: Some(Arc::clone(&notes) as Arc<dyn Ear>),
        ..Request::default()
    });
    let call = ToolCall::parse(
        &format!("{server}_progress"),
        &format!("{{\"steps\":{steps}}}"),
    );
    let outcome = gateway.call(&Caller::library(), call.of(&request)).await;
    assert_eq!(outcome.unwrap().result.text(), format!("{steps} steps"));
    let notes = notes.0.lock().unwrap();
    let progress = notes
        .iter()
        .filter(|(method, _)| method == "notifications/progress");
    progress
        .map(|(_, params)| params["progress"].as_f64().unwrap())
        .collect()
}

#[tokio::test]
async fn progress_reaches_its_caller_in_order() {
    let web = HttpZoo::start(&["--era", "modern"]);
    let old_web = HttpZoo::start(&["--sessions"]);
    let toml = [
        zoo("old", &[]),
        zoo("new", &["--era", "modern"]),
        at("web", &web.url()),
        at("old_web", &old_web.url()),
    ]
    .concat();
    let gateway = settled(&toml).await;
    for server in ["old", "new", "web", "old_web"] {
        let (few, many) = tokio::join!(steps(&gateway, server, 3), steps(&gateway, server, 20));
        for (told, expected) in [(few, 3), (many, 20)] {
            assert_eq!(told.len(), expected, "{server}: {told:?}");
            assert!(told.is_sorted(), "{server}: {told:?}");
        }
    }
    stop(gateway).await;
}
