//! The engine: what may be called, and what callers are told otherwise.

use toolgate::{Caller, Gateway, State};
use toolgate_core::scope::Filters;

use crate::support::{call, reaches, settled, stop, text, zoo};

fn listed(gateway: &Gateway) -> Vec<String> {
    let scope = gateway.scope(&Caller::library(), &Filters::default());
    let scope = scope.unwrap();
    let tools = scope.tools();
    tools.map(|(entry, _)| entry.alias.to_string()).collect()
}

#[tokio::test]
async fn what_is_not_in_scope_does_not_exist() {
    for setting in [
        "tools_to_execute = [\"echo\"]\n",
        "tools_to_execute = []\n",
        "[[permissions.rules]]\ntool = \"zoo_add\"\naction = \"deny\"\n",
        "[[permissions.rules]]\ntool = \"*.add\"\naction = \"deny\"\n[[permissions.rules]]\ntool = \"zoo.*\"\naction = \"allow\"\n",
        "[[permissions.rules]]\nserver = \"z*\"\ntool = \"a?d\"\naction = \"deny\"\n",
        "[mcp]\nenabled = false\n",
    ] {
        let gateway = settled(&(zoo("zoo", &[]) + setting)).await;
        assert!(
            !listed(&gateway).contains(&"zoo_add".to_owned()),
            "{setting}"
        );
        let hidden = call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        let absent = call(&gateway, "zoo_qqq", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        let told = |error: &str, name: &str| error.replace(name, "NAME");
        let hidden = told(&hidden, "zoo_add");
        assert!(
            hidden.starts_with("unknown tool `NAME`"),
            "{setting}: {hidden}"
        );
        assert!(
            !hidden.contains("`zoo_add`"),
            "a suggestion must not give it away: {hidden}"
        );
        assert!(told(&absent, "zoo_qqq").starts_with("unknown tool `NAME`"));
        stop(gateway).await;
    }
}

#[tokio::test]
async fn server_lists_hold_at_connect_and_at_call() {
    let servers = zoo("a", &[]) + &zoo("b", &[]) + &zoo("c", &[]);
    let lists =
        "[security]\nmcp_server_allowlist = [\"a\", \"b\"]\nmcp_server_denylist = [\"b\"]\n";
    let gateway = settled(&(servers + lists)).await;
    assert_eq!(text(&gateway, "a_add", r#"{"a":1,"b":1}"#).await, "2");
    for (name, list) in [("b", "mcp_server_denylist"), ("c", "mcp_server_allowlist")] {
        let reason = reaches(&gateway, name, State::Disabled).await;
        assert!(reason.contains(list), "{reason}");
        let error = call(&gateway, &format!("{name}_add"), "{}")
            .await
            .unwrap_err();
        assert!(error.starts_with("unknown tool"), "{error}");
    }
    assert!(listed(&gateway).iter().all(|alias| alias.starts_with("a_")));
    stop(gateway).await;
}

#[tokio::test]
async fn a_tool_that_needs_approval_does_not_run_while_nobody_can_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let rule = "[[permissions.rules]]\ntool = \"zoo-add\"\naction = \"ask\"\n";
    let gateway = settled(&(zoo("zoo", &["--count", ledger.to_str().unwrap()]) + rule)).await;
    assert!(
        listed(&gateway).contains(&"zoo_add".to_owned()),
        "it can be seen"
    );
    let error = call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("needs an approval (`permissions.rules[0]`)"),
        "{error}"
    );
    assert!(
        !std::fs::read_to_string(ledger)
            .unwrap()
            .contains("tools/call")
    );
    stop(gateway).await;
}

#[tokio::test]
async fn names_are_taken_in_every_style_and_unknown_ones_get_suggestions() {
    let gateway = settled(&("tool_name_style = \"hyphen\"\n".to_owned() + &zoo("a", &[]))).await;
    for name in ["a-echo", "a_echo", "mcp__a__echo", "a.echo"] {
        assert_eq!(text(&gateway, name, "{}").await, "{}");
    }
    let error = call(&gateway, "a-ehco", "{}").await.unwrap_err();
    assert!(
        error.contains("did you mean") && error.contains("`a-echo`"),
        "{error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn failures_of_tools_are_outcomes_and_errors_name_the_server() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let failed = call(&gateway, "zoo_fail", "{}").await.unwrap();
    assert!(failed.result.is_error());
    let error = call(&gateway, "zoo_rpc_error", "{}").await.unwrap_err();
    assert!(
        error.starts_with("server `zoo`: ") && error.contains("-32602"),
        "{error}"
    );
    assert_eq!(text(&gateway, "zoo_empty", "{}").await, "");
    stop(gateway).await;
}

#[tokio::test]
async fn figures_count_calls_by_outcome() {
    let gateway = settled(&zoo("zoo", &[])).await;
    call(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await.unwrap();
    call(&gateway, "zoo_fail", "{}").await.unwrap();
    call(&gateway, "nothing", "{}").await.unwrap_err();
    let figures = gateway.metrics();
    for line in [
        r#"toolgate_tool_calls_total{server="zoo",tool="add",outcome="ok"} 1"#,
        r#"toolgate_tool_calls_total{server="zoo",tool="fail",outcome="tool_error"} 1"#,
        r#"toolgate_tool_calls_total{server="",tool="",outcome="unknown"} 1"#,
        r#"toolgate_server_state{server="zoo",state="healthy"} 1"#,
        r#"toolgate_tool_call_seconds_count{server="zoo",tool="add"} 1"#,
        r#"toolgate_tool_call_bytes_sent_total{server="zoo",tool="add"} 13"#,
    ] {
        assert!(figures.contains(line), "{line} in\n{figures}");
    }
    let stats = gateway.stats();
    let zoo = &stats.servers["zoo"];
    assert_eq!((zoo.calls, zoo.errors, zoo.bytes_sent), (2, 1, 15));
    assert!(zoo.p50_ms > 0.0 && zoo.p99_ms >= zoo.p50_ms, "{zoo:?}");
    assert_eq!(stats.tools.len(), 2);
    stop(gateway).await;
}

#[tokio::test]
async fn arguments_cannot_smuggle_messages_to_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let rule = "[[permissions.rules]]\ntool = \"zoo.fail\"\naction = \"deny\"\n";
    let gateway = settled(&(zoo("zoo", &["--count", ledger.to_str().unwrap()]) + rule)).await;
    let inner =
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fail","arguments":{}}}"#;
    for line_break in ["\n", "\r", "\r\n"] {
        let arguments = format!("{{\"x\":[{line_break}{inner}{line_break}]}}");
        let echoed = text(&gateway, "zoo_echo", &arguments).await;
        assert_eq!(
            echoed,
            arguments.replace(['\n', '\r'], " "),
            "pretty-printed arguments arrive"
        );
    }
    assert!(
        !std::fs::read_to_string(ledger).unwrap().contains("fail"),
        "the denied tool did not run"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn a_denied_server_does_not_show_itself_by_being_down() {
    let toml = "[mcp_servers.hidden]\ncommand = \"no-such-program\"\n[[permissions.rules]]\nserver = \"hidden\"\naction = \"deny\"\n";
    let gateway = settled(toml).await;
    let error = call(&gateway, "hidden_anything", "{}").await.unwrap_err();
    assert_eq!(error, "unknown tool `hidden_anything`");
    let long = call(&gateway, &"x".repeat(1_000_000), "{}")
        .await
        .unwrap_err();
    assert!(long.len() < 200, "{} characters", long.len());
    stop(gateway).await;
}

#[tokio::test]
async fn secrets_of_a_server_stay_out_of_call_errors() {
    let toml = zoo("zoo", &["--stderr", "token s3cr3t-value is bad"])
        + "env = { TOKEN = \"env.ZOO_SECRET\" }\n";
    let gateway = settled(&toml).await;
    let error = call(&gateway, "zoo_die", "{}").await.unwrap_err();
    assert!(
        error.contains("process ended") && !error.contains("s3cr3t") && !error.contains("token"),
        "{error}"
    );
    stop(gateway).await;
}
