//! The engine: visibility, permissions, names and errors of tool calls.

use std::sync::Arc;

use toolgate::{Arguments, CallError, Caller, Gateway, RequestContext, ServerState, ToolCall};
use toolgate_core::scope::Filters;
use toolgate_testkit::ZooLog;

use crate::support::{call, call_text, start_settled, stdio_zoo, stop, wait_for_state};

fn visible_aliases(gateway: &Gateway) -> Vec<String> {
    let scope = gateway.scope(&Caller::library(), &Filters::default());
    let scope = scope.unwrap();
    let tools = scope.tools();
    tools.map(|(entry, _)| entry.alias.to_string()).collect()
}

#[tokio::test]
async fn hidden_tools_are_indistinguishable_from_unknown_ones() {
    for setting in [
        "tools_to_execute = [\"echo\"]\n",
        "tools_to_execute = []\n",
        "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"deny\"\n",
        "[[permissions.rules]]\ntool = \"*.add\"\naction = \"deny\"\n[[permissions.rules]]\ntool = \"zoo.*\"\naction = \"allow\"\n",
        "[[permissions.rules]]\nserver = \"z*\"\ntool = \"a?d\"\naction = \"deny\"\n",
        "[mcp]\nenabled = false\n",
    ] {
        let gateway = start_settled(&(stdio_zoo("zoo", &[]) + setting)).await;
        assert!(
            !visible_aliases(&gateway).contains(&"zoo_add".to_owned()),
            "{setting}"
        );
        let hidden = call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        let absent = call(&gateway, "zoo_qqq", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        let without_name = |error: &str, name: &str| error.replace(name, "NAME");
        let hidden = without_name(&hidden, "zoo_add");
        assert!(
            hidden.starts_with("unknown tool `NAME`"),
            "{setting}: {hidden}"
        );
        assert!(
            !hidden.contains("`zoo_add`"),
            "a suggestion must not reveal it: {hidden}"
        );
        assert!(without_name(&absent, "zoo_qqq").starts_with("unknown tool `NAME`"));
        stop(gateway).await;
    }
}

#[tokio::test]
async fn server_allowlist_and_denylist_apply_to_connections_and_calls() {
    let servers = stdio_zoo("a", &[]) + &stdio_zoo("b", &[]) + &stdio_zoo("c", &[]);
    let lists =
        "[security]\nmcp_server_allowlist = [\"a\", \"b\"]\nmcp_server_denylist = [\"b\"]\n";
    let gateway = start_settled(&(servers + lists)).await;
    assert_eq!(call_text(&gateway, "a_add", r#"{"a":1,"b":1}"#).await, "2");
    for (name, list) in [("b", "mcp_server_denylist"), ("c", "mcp_server_allowlist")] {
        let reason = wait_for_state(&gateway, name, ServerState::Disabled).await;
        assert!(reason.contains(list), "{reason}");
        let error = call(&gateway, &format!("{name}_add"), "{}")
            .await
            .unwrap_err();
        assert!(error.starts_with("unknown tool"), "{error}");
    }
    assert!(
        visible_aliases(&gateway)
            .iter()
            .all(|alias| alias.starts_with("a_"))
    );
    stop(gateway).await;
}

#[tokio::test]
async fn tool_with_ask_rule_is_visible_but_does_not_run_without_approval() {
    let log = ZooLog::create();
    let rule = "[[permissions.rules]]\ntool = \"zoo-add\"\naction = \"ask\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &log.flags()) + rule)).await;
    assert!(
        visible_aliases(&gateway).contains(&"zoo_add".to_owned()),
        "visible"
    );
    let error = call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("needs an approval (`permissions.rules[0]`)"),
        "{error}"
    );
    assert!(!log.text().contains("tools/call"));
    stop(gateway).await;
}

#[tokio::test]
async fn accepts_every_name_style_and_suggests_similar_names() {
    let gateway =
        start_settled(&("tool_name_style = \"hyphen\"\n".to_owned() + &stdio_zoo("a", &[]))).await;
    for name in ["a-echo", "a_echo", "mcp__a__echo", "a.echo"] {
        assert_eq!(call_text(&gateway, name, "{}").await, "{}");
    }
    let error = call(&gateway, "a-ehco", "{}").await.unwrap_err();
    assert!(
        error.contains("did you mean") && error.contains("`a-echo`"),
        "{error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn schema_violations_give_hints_and_unknown_names_suggestions() {
    let log = ZooLog::create();
    let gateway = start_settled(&stdio_zoo("zoo", &log.flags())).await;
    for (arguments, hint) in [
        (r#"{"a":1}"#, "b"),
        (r#"{"a":"one","b":2}"#, "integer"),
        (r#"{"a":1,"b":2,"c":3}"#, "c"),
        (r#"{"a":1.5,"b":2}"#, "integer"),
    ] {
        let error = call(&gateway, "zoo_add", arguments).await.unwrap_err();
        assert!(error.contains(hint), "{arguments}: {error}");
    }
    assert_eq!(log.calls("add"), 0);
    for (name, near) in [
        ("zoo_ad", "`zoo_add`"),
        ("zoo_ecoh", "`zoo_echo`"),
        ("echo", "`zoo_echo`"),
    ] {
        let error = call(&gateway, name, "{}").await.unwrap_err();
        assert!(error.contains(near), "{error}");
    }
    let error = call(&gateway, "completely-different", "{}")
        .await
        .unwrap_err();
    assert!(!error.contains("did you mean"), "{error}");
    stop(gateway).await;
}

#[tokio::test]
async fn tool_failures_are_outcomes_and_rpc_errors_name_the_server() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let failed = call(&gateway, "zoo_fail", "{}").await.unwrap();
    assert!(failed.result.is_error());
    let error = call(&gateway, "zoo_rpc_error", "{}").await.unwrap_err();
    assert!(
        error.starts_with("server `zoo`: ") && error.contains("-32602"),
        "{error}"
    );
    assert_eq!(call_text(&gateway, "zoo_empty", "{}").await, "");
    stop(gateway).await;
}

#[tokio::test]
async fn metrics_and_stats_count_calls_by_outcome() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await.unwrap();
    call(&gateway, "zoo_fail", "{}").await.unwrap();
    call(&gateway, "nothing", "{}").await.unwrap_err();
    let metrics = gateway.metrics();
    for line in [
        r#"toolgate_tool_calls_total{server="zoo",tool="add",outcome="ok"} 1"#,
        r#"toolgate_tool_calls_total{server="zoo",tool="fail",outcome="tool_error"} 1"#,
        r#"toolgate_tool_calls_total{server="",tool="",outcome="unknown"} 1"#,
        r#"toolgate_server_state{server="zoo",state="healthy"} 1"#,
        r#"toolgate_tool_call_seconds_count{server="zoo",tool="add"} 1"#,
        r#"toolgate_tool_call_bytes_sent_total{server="zoo",tool="add"} 13"#,
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let stats = gateway.stats();
    let zoo = &stats.servers["zoo"];
    assert_eq!((zoo.calls, zoo.errors, zoo.bytes_sent), (2, 1, 15));
    assert!(zoo.p50_ms > 0.0 && zoo.p99_ms >= zoo.p50_ms, "{zoo:?}");
    assert_eq!(stats.tools.len(), 2);
    stop(gateway).await;
}

#[tokio::test]
async fn arguments_with_line_breaks_cannot_inject_messages() {
    let log = ZooLog::create();
    let rule = "[[permissions.rules]]\ntool = \"zoo.fail\"\naction = \"deny\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &log.flags()) + rule)).await;
    let inner =
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fail","arguments":{}}}"#;
    for line_break in ["\n", "\r", "\r\n"] {
        let arguments = format!("{{\"x\":[{line_break}{inner}{line_break}]}}");
        let echoed = call_text(&gateway, "zoo_echo", &arguments).await;
        assert_eq!(
            echoed,
            arguments.replace(['\n', '\r'], " "),
            "pretty-printed arguments arrive"
        );
    }
    assert!(!log.text().contains("fail"), "the denied tool did not run");
    stop(gateway).await;
}

#[tokio::test]
async fn unavailable_denied_server_is_not_revealed() {
    let toml = "[mcp_servers.hidden]\ncommand = \"no-such-program\"\n[[permissions.rules]]\nserver = \"hidden\"\naction = \"deny\"\n";
    let gateway = start_settled(toml).await;
    let error = call(&gateway, "hidden_anything", "{}").await.unwrap_err();
    assert_eq!(error, "unknown tool `hidden_anything`");
    let long = call(&gateway, &"x".repeat(1_000_000), "{}")
        .await
        .unwrap_err();
    assert!(long.len() < 200, "{} characters", long.len());
    stop(gateway).await;
}

#[tokio::test]
async fn call_errors_contain_no_server_secrets() {
    let toml = stdio_zoo("zoo", &["--stderr", "token s3cr3t-value is bad"])
        + "env = { TOKEN = \"env.ZOO_SECRET\" }\n";
    let gateway = start_settled(&toml).await;
    let error = call(&gateway, "zoo_die", "{}").await.unwrap_err();
    assert!(
        error.contains("process exited") && !error.contains("s3cr3t") && !error.contains("token"),
        "{error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn admitted_calls_are_counted_once_and_only_for_their_key() {
    let keys = "[keys.a]\nkey = \"a-has-a-long-key\"\nrate_limit = \"4/hour\"\n[keys.b]\nkey = \"b-has-a-long-key\"\nrate_limit = \"1/hour\"\n";
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + keys)).await;
    let [a, b] = ["a", "b"].map(|key| Caller::library().with_key(key));
    let too_many = gateway.keys().admit_calls(&a, 5).unwrap_err();
    assert!(
        matches!(
            too_many,
            CallError::TooManyCalls {
                calls: 5,
                max: 4,
                ..
            }
        ),
        "{too_many}"
    );
    let admission = gateway.keys().admit_calls(&a, 3).unwrap();
    let refused = gateway.keys().admit_calls(&a, 2).unwrap_err();
    let (_, wait) = refused.key_limit().expect("the limit of the key");
    assert!(wait.is_some(), "{refused}");
    let request = Arc::new(RequestContext {
        rate_admission: Some(admission),
        ..RequestContext::default()
    });
    let arguments = || Arguments::parse(r#"{"a":1,"b":1}"#).unwrap();
    let call = || ToolCall::new("zoo_add", arguments()).with_request(&request);
    // The admission of another key does not help.
    assert!(gateway.call(&b, call()).await.is_ok());
    assert!(gateway.call(&b, call()).await.is_err());
    // Three admitted calls, and one that is counted by itself.
    for _ in 0..4 {
        gateway.call(&a, call()).await.unwrap();
    }
    let exceeded = gateway.call(&a, call()).await.unwrap_err();
    assert!(exceeded.key_limit().is_some(), "{exceeded}");
    assert!(gateway.keys().admit_calls(&Caller::library(), 1000).is_ok());
    let unknown = Caller::library().with_key("nobody");
    assert!(matches!(
        gateway.keys().admit_calls(&unknown, 1),
        Err(CallError::InvalidKey(_))
    ));
    stop(gateway).await;
}
