//! Several hooks compose: before and after a call, and around a model request.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolgate::audit::AuditQuery;
use toolgate::local::{LocalServer, LocalTool};
use toolgate::{
    Arguments, CallError, Caller, CompletedCall, Dialect, Gateway, Hook, ModelProposal,
    ModelRequest, ModelResponseEvent, ModelReview, Proposal, Review, ServerName, ToolCall,
};
use toolgate_testkit::eventually;
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::support::{WAIT_TIMEOUT, config, stop};

type Log = Arc<Mutex<Vec<String>>>;

/// Appends its name to the argument `path`, to results and to the prompt, and logs what it sees.
#[derive(Debug)]
struct Tagger {
    name: &'static str,
    log: Log,
}

impl Hook for Tagger {
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        let path = proposal.arguments.value()["path"].as_str().unwrap_or("");
        let review = match path {
            "plain" => Review::Proceed,
            "approve-late" if self.name == "a" => Review::Proceed,
            "approve" | "approve-late" => Review::Approve,
            path if path.ends_with(self.name) => Review::Deny {
                reason: format!("{} denies {path}", self.name),
            },
            path => {
                let edited = json!({"path": format!("{path}{}", self.name)});
                Review::Edit(Arguments::parse(&edited.to_string()).unwrap())
            }
        };
        Box::pin(std::future::ready(review))
    }

    fn after_call<'a>(&'a self, call: CompletedCall<'a>) -> BoxFuture<'a, Option<Box<RawValue>>> {
        let seen = match call.result {
            Ok(result) => result.text(),
            Err(error) => error.code().to_owned(),
        };
        self.log.lock().push(format!("{}: {seen}", self.name));
        let text = format!("{seen}+{}", self.name);
        let result = json!({"content": [{"type": "text", "text": text}]});
        let replaced = (seen != "keep").then(|| to_raw_value(&result).unwrap());
        Box::pin(std::future::ready(replaced))
    }

    fn before_model_request<'a>(
        &'a self,
        request: ModelProposal<'a>,
    ) -> BoxFuture<'a, ModelReview> {
        let mut body: Value = serde_json::from_str(request.body).unwrap();
        let prompt = body["messages"][0]["content"].as_str().unwrap().to_owned();
        let review = match prompt.as_str() {
            "forbidden" if self.name == "a" => ModelReview::Proceed,
            "forbidden" => ModelReview::Refuse {
                reason: "not that".to_owned(),
            },
            "stream" => {
                body["stream"] = json!(true);
                ModelReview::Edit(body)
            }
            _ => {
                body["messages"][0]["content"] = json!(format!("{prompt}{}", self.name));
                ModelReview::Edit(body)
            }
        };
        Box::pin(std::future::ready(review))
    }

    fn after_model_response(&self, response: ModelResponseEvent<'_>) {
        let ModelResponseEvent {
            request_id,
            outcome,
            usage,
            ..
        } = response;
        let tokens = usage.map_or(0, |usage| usage.output);
        let line = format!("{}: {request_id} {outcome} {tokens}", self.name);
        self.log.lock().push(line);
    }

    fn request_id(&self) -> Option<String> {
        (self.name == "b").then(|| "from-b".to_owned())
    }
}

const RULES: &str = r#"
[[permissions.rules]]
tool = "files.read"
action = "ask"
"#;

async fn start(base_url: &str) -> (Gateway, Log) {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let read = LocalTool::raw("read", schema, |_, arguments| async move {
        let arguments: Value = serde_json::from_str(arguments.get())?;
        match arguments["path"].as_str() {
            Some("approve-late") => Ok("keep".to_owned()),
            path => Ok(path.unwrap_or("").to_owned()),
        }
    });
    let files = LocalServer::new(ServerName::parse("files").unwrap()).tool(read);
    let log = Log::default();
    let hook = |name| Tagger {
        name,
        log: Arc::clone(&log),
    };
    let toml = format!("[providers.p]\nbase_url = \"{base_url}/v1\"\n{RULES}");
    let builder = Gateway::builder(config(&toml)).local(files);
    let gateway = builder.hook(hook("a")).hook(hook("b")).start();
    let gateway = gateway.await.unwrap();
    gateway.wait_until_settled().await;
    (gateway, log)
}

async fn read(gateway: &Gateway, path: &str) -> Result<String, CallError> {
    let call = ToolCall::parse("files_read", &json!({"path": path}).to_string());
    let outcome = gateway.call(&Caller::library(), call).await?;
    Ok(outcome.result.text())
}

#[tokio::test]
async fn hooks_review_in_order_and_replace_results() {
    let (gateway, log) = start("http://127.0.0.1:9").await;
    let asked = read(&gateway, "plain").await.unwrap_err();
    assert!(matches!(asked, CallError::NeedsApproval { .. }), "{asked}");
    assert_eq!(read(&gateway, "approve").await.unwrap(), "approve+a+b");
    assert_eq!(read(&gateway, "approve-late").await.unwrap(), "keep");
    assert_eq!(
        read(&gateway, "x").await.unwrap(),
        "xab+a+b",
        "edited twice"
    );
    let denied = read(&gateway, "xa").await.unwrap_err().to_string();
    assert!(denied.contains("a denies xa"), "{denied}");
    let expected = [
        "a: approve",
        "b: approve+a",
        "a: keep",
        "b: keep",
        "a: xab",
        "b: xab+a",
    ];
    assert_eq!(*log.lock(), expected);
    // Every attempt has one record, under the id that the second hook generated.
    let query = AuditQuery {
        request_id: Some("from-b".to_owned()),
        limit: 10,
        ..AuditQuery::default()
    };
    let records = eventually("all records are written", WAIT_TIMEOUT, async || {
        let records = gateway.audit().query(&query).await.unwrap().records;
        (records.len() >= 5).then_some(records)
    });
    let mut outcomes: Vec<_> = records
        .await
        .into_iter()
        .map(|record| record.outcome)
        .collect();
    outcomes.sort();
    assert_eq!(outcomes, ["ask", "denied", "ok", "ok", "ok"]);
    stop(gateway).await;
}

#[tokio::test]
async fn hooks_edit_refuse_and_observe_model_requests() {
    let model = ScriptedModel::start_strict(vec![Reply::text("Hi.").with_usage(3, 4)]);
    let (gateway, log) = start(&model.url()).await;
    let complete = async |prompt: &str| {
        let body = json!({"model": "p/m", "messages": [{"role": "user", "content": prompt}]});
        let request = ModelRequest::new(Dialect::Chat, &body);
        let response = gateway.complete(&Caller::library(), request).await;
        response.map(|response| response.status)
    };
    assert_eq!(complete("hello ").await.unwrap(), 200);
    let sent = model.turns().last().unwrap().body.clone();
    assert_eq!(sent["messages"][0]["content"], "hello ab");
    let lines = eventually("the response is observed", WAIT_TIMEOUT, async || {
        let lines = log.lock().clone();
        (lines.len() == 2).then_some(lines)
    });
    assert_eq!(lines.await, ["a: from-b ok 4", "b: from-b ok 4"]);
    let refused = complete("forbidden").await.unwrap_err();
    assert_eq!(refused.to_string(), "the request was refused: not that");
    assert_eq!(refused.status(), 403);
    let stream = complete("stream").await.unwrap_err().to_string();
    assert!(stream.contains("`stream` must not be changed"), "{stream}");
    assert_eq!(model.turns().len(), 1);
    stop(gateway).await;
}

/// Observes the ids of model requests and generates none.
#[derive(Debug)]
struct IdObserver(Log);

impl Hook for IdObserver {
    fn after_model_response(&self, response: ModelResponseEvent<'_>) {
        self.0.lock().push(response.request_id.to_owned());
    }
}

#[tokio::test]
async fn model_requests_without_an_id_get_different_ones() {
    let model = ScriptedModel::start(vec![Reply::text("Hi."), Reply::text("Hi.")]);
    let toml = format!("[providers.p]\nbase_url = \"{}/v1\"\n", model.url());
    let ids = Log::default();
    let builder = Gateway::builder(config(&toml)).hook(IdObserver(Arc::clone(&ids)));
    let gateway = builder.start().await.unwrap();
    for _ in 0..2 {
        let body = json!({"model": "p/m", "messages": [{"role": "user", "content": "hello"}]});
        let request = ModelRequest::new(Dialect::Chat, &body);
        let response = gateway.complete(&Caller::library(), request).await.unwrap();
        response.bytes().await;
    }
    let ids = eventually("both responses are observed", WAIT_TIMEOUT, async || {
        let ids = ids.lock().clone();
        (ids.len() == 2).then_some(ids)
    });
    let ids = ids.await;
    assert!(
        ids[0] != ids[1] && ids.iter().all(|id| id.len() == 36),
        "{ids:?}"
    );
    stop(gateway).await;
}
