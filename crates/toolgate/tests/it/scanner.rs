//! The scanner for dangerous arguments: warnings, approvals and denials.

use serde_json::{Value, json};
use toolgate::approval::{ApprovalScope, DecideError};
use toolgate::{CallError, Caller, Gateway};
use toolgate_testkit::ZooLog;

use crate::approval_support::{
    approval, approval_by_id, approve, assert_hello_runs, decide, pending_approval_id,
    request_approval, start_asking,
};
use crate::support::{
    answer_text, call_json, outcomes, records, secret_token, start_settled, stdio_zoo, stop,
};

/// A check of the scanner, arguments that it finds and harmless ones that look similar.
struct Danger {
    name: &'static str,
    bad: Value,
    good: Value,
}

fn dangers() -> [Danger; 4] {
    let danger = |name, bad, good| Danger { name, bad, good };
    [
        danger(
            "path_traversal",
            json!({"path": "../../etc/passwd"}),
            json!({"path": "a..b/c"}),
        ),
        danger(
            "shell",
            json!({"command": "ls; rm -rf /"}),
            json!({"text": "ls; rm -rf /"}),
        ),
        danger(
            "private_address",
            json!({"url": "http://169.254.169.254/latest"}),
            json!({"url": "https://example.com/"}),
        ),
        danger(
            "secret",
            json!({"text": secret_token()}),
            json!({"text": "ghp_short"}),
        ),
    ]
}

/// Starts a zoo with one check of the scanner set to an action and all others off.
async fn start_scanning(checked: &str, action: &str, flags: &[&str]) -> Gateway {
    let settings = dangers().map(|danger| {
        let action = if danger.name == checked {
            action
        } else {
            "off"
        };
        format!("{} = \"{action}\"\n", danger.name)
    });
    start_settled(&(stdio_zoo("zoo", flags) + "[scanner]\n" + &settings.concat())).await
}

async fn assert_echo_runs(gateway: &Gateway, arguments: &Value) {
    let outcome = call_json(gateway, "zoo_echo", arguments).await.unwrap();
    assert_eq!(outcome.result.text(), arguments.to_string());
}

async fn warnings(gateway: &Gateway) -> Vec<usize> {
    let records = records(gateway).await;
    records.iter().map(|record| record.warnings.len()).collect()
}

#[tokio::test]
async fn scanner_warns() {
    for Danger { name, bad, good } in dangers() {
        let gateway = start_scanning(name, "warn", &[]).await;
        assert_echo_runs(&gateway, &bad).await;
        assert_echo_runs(&gateway, &good).await;
        assert_eq!(warnings(&gateway).await, [1, 0], "{name}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn scanner_asks() {
    for Danger { name, bad, good } in dangers() {
        let gateway = start_scanning(name, "ask", &[]).await;
        let answer = call_json(&gateway, "zoo_echo", &bad).await;
        let pending = approval_by_id(&gateway, &pending_approval_id(&answer)).await;
        assert_eq!(pending.request.rule, format!("scanner.{name}"));
        assert_echo_runs(&gateway, &good).await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn scanner_denies() {
    for Danger { name, bad, good } in dangers() {
        let log = ZooLog::create();
        let gateway = start_scanning(name, "deny", &log.flags()).await;
        let nested = json!({"options": {"list": [{"deep": bad}]}});
        for arguments in [&bad, &nested] {
            let answer = call_json(&gateway, "zoo_echo", arguments).await;
            assert!(
                matches!(&answer, Err(CallError::Denied { because, .. }) if *because == format!("scanner.{name}")),
                "{answer:?}"
            );
            assert!(
                !answer_text(&answer).contains(&secret_token()),
                "{answer:?}"
            );
        }
        assert_eq!(log.calls("echo"), 0, "the call never reached the server");
        assert_echo_runs(&gateway, &good).await;
        assert_eq!(log.calls("echo"), 1);
        assert_eq!(
            outcomes(&gateway).await,
            ["denied", "denied", "ok"],
            "{name}"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn disabled_scanner_finds_nothing() {
    let gateway = start_scanning("none", "off", &[]).await;
    for danger in dangers() {
        assert_echo_runs(&gateway, &danger.bad).await;
    }
    assert_eq!(warnings(&gateway).await, [0; 4]);
    stop(gateway).await;
}

#[tokio::test]
async fn approval_of_scanned_arguments_is_used_once() {
    let gateway = start_asking("[scanner]\nsecret = \"ask\"\n").await;
    let caller = Caller::library();
    let id = request_approval(&gateway, &caller).await;
    approve(&gateway, &id, ApprovalScope::Always).await;
    assert_hello_runs(&gateway, &caller).await;
    assert_hello_runs(&gateway, &caller).await;

    let secret = json!({"text": secret_token()});
    let say_secret = async || call_json(&gateway, "zoo_say", &secret).await;
    let id = pending_approval_id(&say_secret().await);
    let rule = approval_by_id(&gateway, &id).await.request.rule;
    assert!(
        rule.contains("permissions.rules[0] and scanner.secret"),
        "{rule}"
    );
    let always = decide(&gateway, &id, approval(ApprovalScope::Always)).await;
    assert!(matches!(always, Err(DecideError::OnlyOnce)), "{always:?}");
    approve(&gateway, &id, ApprovalScope::Once).await;
    assert_eq!(say_secret().await.unwrap().result.text(), secret_token());
    assert_ne!(pending_approval_id(&say_secret().await), id);
    stop(gateway).await;
}
