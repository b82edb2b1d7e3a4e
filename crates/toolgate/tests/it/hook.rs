//! Hooks of the embedding program around calls.

use futures_util::future::BoxFuture;
use toolgate::audit::{AuditQuery, AuditRecord};
use toolgate::{
    Arguments, CallError, Caller, Environment, Gateway, Hook, Proposal, RequestContext, Review,
    ToolCall,
};
use toolgate_testkit::eventually;

use crate::support::{WAIT_TIMEOUT, config, records, start_settled, stdio_zoo, stop};

/// Chooses the review by the argument `b`.
#[derive(Debug)]
struct ByArgument;

impl Hook for ByArgument {
    fn review<'a>(&'a self, proposal: Proposal<'a>) -> BoxFuture<'a, Review> {
        let edit = |text: &str| Review::Edit(Arguments::parse(text).unwrap());
        let review = match proposal.arguments.value()["b"].as_u64() {
            Some(1) => Review::Approve,
            Some(2) => edit(r#"{"a": 40, "b": 2}"#),
            Some(3) => edit(r#"{"a": 13, "b": 2}"#),
            Some(4) => edit(r#"{"a": "no number", "b": 2}"#),
            Some(6) => edit(r#"{"a": "40", "b": "2"}"#),
            Some(7) => edit(r#"{"a": "13", "b": 2}"#),
            Some(5) => Review::Deny {
                reason: format!("{} said no", proposal.decision.decided_by),
            },
            _ => Review::Proceed,
        };
        Box::pin(std::future::ready(review))
    }

    fn request_id(&self) -> Option<String> {
        Some("from-the-hook".to_owned())
    }
}

const RULES: &str = r#"
[[permissions.rules]]
tool = "zoo.add"
arguments = { a = "7" }
action = "ask"
[[permissions.rules]]
tool = "zoo.add"
arguments = { a = "13" }
action = "deny"
"#;

async fn gateway() -> Gateway {
    let environment = Environment::new(|name| (name == "PATH").then(|| env!("PATH").to_owned()));
    let builder = Gateway::builder(config(&(stdio_zoo("zoo", &[]) + RULES)));
    let gateway = builder.environment(environment).hook(ByArgument).start();
    let gateway = gateway.await.unwrap();
    gateway.wait_until_settled().await;
    gateway
}

async fn add(gateway: &Gateway, a: u32, b: u32) -> Result<String, CallError> {
    let call = ToolCall::parse("zoo_add", &format!(r#"{{"a": {a}, "b": {b}}}"#));
    let outcome = gateway.call(&Caller::library(), call).await?;
    Ok(outcome.result.text())
}

/// Waits for the audit record of a call that was denied for a reason.
async fn denied_record(gateway: &Gateway, reason: &str) -> AuditRecord {
    let query = AuditQuery {
        outcome: Some("denied".to_owned()),
        limit: 10,
        ..AuditQuery::default()
    };
    let matches_reason =
        |record: &AuditRecord| record.error.as_ref().is_some_and(|e| e.contains(reason));
    eventually("the record is written", WAIT_TIMEOUT, async || {
        let page = gateway.audit().query(&query).await.unwrap();
        page.records.into_iter().find(matches_reason)
    })
    .await
}

#[tokio::test]
async fn hook_can_satisfy_ask_but_not_override_deny() {
    let gateway = gateway().await;
    assert_eq!(add(&gateway, 7, 1).await.unwrap(), "8", "approved");
    assert_eq!(add(&gateway, 7, 2).await.unwrap(), "42", "edited");
    let edited = add(&gateway, 1, 3).await.unwrap_err();
    assert_eq!(
        edited.code(),
        "denied",
        "edited arguments are denied by a rule"
    );
    let invalid = add(&gateway, 1, 4).await.unwrap_err();
    assert_eq!(invalid.code(), "bad_arguments", "{invalid}");
    let denied = add(&gateway, 13, 1).await.unwrap_err();
    assert_eq!(
        denied.code(),
        "denied",
        "approving does not override the rule"
    );
    let asked = add(&gateway, 7, 9).await.unwrap_err();
    assert!(matches!(asked, CallError::NeedsApproval { .. }), "{asked}");
    let refused = add(&gateway, 7, 5).await.unwrap_err().to_string();
    assert!(
        refused.contains("permissions.rules[0] said no"),
        "{refused}"
    );
    let record = denied_record(&gateway, "said no").await;
    assert_eq!(record.request_id, "from-the-hook");
    assert_eq!(record.verdict.as_deref(), Some("deny"));
    stop(gateway).await;
}

#[tokio::test]
async fn hook_sees_converted_arguments_and_its_edit_is_converted() {
    let gateway = gateway().await;
    let add = async |arguments: &str| {
        let call = ToolCall::parse("zoo_add", arguments);
        gateway.call(&Caller::library(), call).await
    };
    let edited = add(r#"{"a": "7", "b": "6"}"#).await.unwrap();
    assert_eq!(edited.result.text(), "42");
    let denied = add(r#"{"a": 7, "b": "7"}"#).await.unwrap_err();
    assert_eq!(denied.code(), "denied", "{denied}");
    let denied = add(r#"{"a": "13", "b": 2}"#).await.unwrap_err();
    assert_eq!(denied.code(), "denied", "{denied}");
    let record = records(&gateway).await.remove(0);
    assert_eq!(record.arguments.unwrap().get(), r#"{"a":40,"b":2}"#);
    let detail = serde_json::json!({"converted_arguments": ["a", "b"]});
    assert_eq!(record.detail, Some(detail));
    stop(gateway).await;
}

#[tokio::test]
async fn calls_are_recorded_under_their_request_id() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let request = RequestContext::with_id("mine");
    for name in ["zoo_echo", "zoo_nothing"] {
        let call = ToolCall::parse(name, "{}").with_request(&request);
        let _ = gateway.call(&Caller::library(), call).await;
    }
    let query = AuditQuery {
        request_id: Some("mine".to_owned()),
        limit: 10,
        ..AuditQuery::default()
    };
    let records = eventually("both calls are recorded", WAIT_TIMEOUT, async || {
        let page = gateway.audit().query(&query).await.unwrap();
        (page.records.len() == 2).then_some(page.records)
    })
    .await;
    assert_eq!(
        records
            .iter()
            .map(|r| r.outcome.as_str())
            .collect::<Vec<_>>(),
        ["unknown", "ok"],
        "newest first"
    );
    stop(gateway).await;
}
