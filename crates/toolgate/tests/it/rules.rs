//! Permission rules: what they match, and which of several applies.

use serde_json::json;
use toolgate::policy::Verdict;
use toolgate::{CallError, Caller};
use toolgate_core::scope::Filters;

use crate::approval_support::needs_approval;
use crate::support::{
    KEYS, call_as, call_json, is_unknown_tool, start_settled, stdio_zoo, stop, with_key,
};

#[tokio::test]
async fn rules_match_arguments() {
    let rules = "[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"deny\"\narguments = { path = [\"/etc/*\", \"*.pem\"] }\n\
                 [[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"ask\"\narguments = { \"options.mode\" = \"w?\", path = \"*\" }\n\
                 [scanner]\npath_traversal = \"off\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + rules)).await;
    for (arguments, expected) in [
        (json!({"path": "/tmp/x"}), "runs"),
        (json!({}), "runs"),
        (json!({"other": "/etc/passwd"}), "runs"),
        (json!({"path": "/etc/passwd"}), "denied"),
        (json!({"path": "/home/key.pem"}), "denied"),
        (json!({"path": ["/tmp/x", "/etc/passwd"]}), "denied"),
        (json!({"path": "/tmp/x", "options": {"mode": "wb"}}), "asks"),
        (
            json!({"path": "/etc/x", "options": {"mode": "wb"}}),
            "denied",
        ),
        (json!({"path": "/tmp/x", "options": {"mode": "rb"}}), "runs"),
    ] {
        let answer = call_json(&gateway, "zoo_echo", &arguments).await;
        let outcome = match &answer {
            Ok(outcome) if !outcome.result.is_error() => "runs",
            Err(CallError::NeedsApproval { because, .. }) => {
                assert_eq!(because, "permissions.rules[1]");
                "asks"
            }
            Err(CallError::Denied { because, .. }) => {
                assert_eq!(because, "permissions.rules[0]");
                "denied"
            }
            _ => "fails",
        };
        assert_eq!(outcome, expected, "{arguments}: {answer:?}");
    }
    let tools = gateway.tools();
    let explained = tools.explain(&Caller::library(), &Filters::default(), "zoo_echo");
    assert!(explained.unwrap().visible);
    stop(gateway).await;
}

#[tokio::test]
async fn rules_match_role_server_and_hint() {
    let rules = "[[permissions.rules]]\nserver = \"z*\"\nhint = \"destructive\"\naction = \"deny\"\n\
                 [[permissions.rules]]\nserver = \"zoo\"\ntool = \"k*\"\nroles = \"intern\"\naction = \"ask\"\n\
                 [roles.intern]\n[keys.carol]\nkey = \"carol-key-0123456789abcdef\"\nroles = [\"intern\"]\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + KEYS + rules)).await;
    let (alice, carol) = (with_key("alice"), with_key("carol"));
    for (tool, unknown) in [
        ("zoo_fail", true),
        ("zoo_die", true),
        ("zoo_sleep", true),
        ("zoo_kinds", false),
        ("zoo_add", false),
    ] {
        let arguments = json!({"a": 1, "b": 2, "ms": 0});
        let answer = call_as(&gateway, &alice, tool, &arguments).await;
        assert_eq!(is_unknown_tool(&answer), unknown, "{tool}: {answer:?}");
    }
    let answer = call_as(&gateway, &carol, "zoo_kinds", &json!({})).await;
    assert!(needs_approval(&answer), "{answer:?}");
    let answer = call_as(&gateway, &alice, "zoo_kinds", &json!({})).await;
    assert!(answer.is_ok(), "{answer:?}");
    stop(gateway).await;
}

#[tokio::test]
async fn strictest_rule_wins_in_any_order() {
    let rule = |action: &str| {
        format!("[[permissions.rules]]\ntool = \"zoo_echo\"\naction = \"{action}\"\n")
    };
    let orders = [
        ["allow", "ask", "manual"],
        ["manual", "allow", "ask"],
        ["ask", "manual", "allow"],
    ];
    for order in orders {
        let rules: String = order.map(rule).concat();
        let gateway = start_settled(&(stdio_zoo("zoo", &[]) + &rules)).await;
        let answer = call_json(&gateway, "zoo_echo", &json!({})).await;
        assert!(needs_approval(&answer), "{order:?}: {answer:?}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn default_verdict_only_tightens() {
    for (default, verdict) in [
        ("allow", Some(Verdict::Manual)),
        ("manual", Some(Verdict::Manual)),
        ("ask", Some(Verdict::Ask)),
        ("deny", None),
    ] {
        let setting = format!("[permissions]\ndefault = \"{default}\"\n");
        let gateway = start_settled(&(stdio_zoo("zoo", &[]) + &setting)).await;
        let tools = gateway.tools();
        let explained = tools.explain(&Caller::library(), &Filters::default(), "zoo_echo");
        assert_eq!(explained.unwrap().verdict, verdict, "{default}");
        let answer = call_json(&gateway, "zoo_echo", &json!({})).await;
        let is_expected = match verdict {
            Some(Verdict::Ask) => needs_approval(&answer),
            Some(_) => answer.is_ok(),
            None => is_unknown_tool(&answer),
        };
        assert!(is_expected, "{default}: {answer:?}");
        stop(gateway).await;
    }
}
