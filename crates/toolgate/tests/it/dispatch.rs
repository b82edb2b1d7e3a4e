//! Dispatch of calls: timeouts, cancellation, queueing, retries, fallbacks and forwarded headers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue};
use toolgate::{Arguments, Caller, RequestContext, ServerState, ToolCall};
use toolgate_testkit::{HttpZoo, ZooLog, eventually, zoo_path};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, http_server, server, start_settled, stdio_zoo, stop,
    wait_for_state,
};

#[tokio::test]
async fn timeouts_and_dropped_calls_are_cancelled_at_the_server() {
    let log = ZooLog::create();
    let toml = stdio_zoo("zoo", &log.flags()) + "timeout = \"300ms\"\n";
    let gateway = start_settled(&toml).await;
    let cancelled = async |log: &ZooLog| {
        eventually(
            "the server receives the cancellation",
            WAIT_TIMEOUT,
            async || (log.count("cancelled") == 1).then_some(()),
        )
        .await;
    };
    let error = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("did not answer within 0.3 s and was cancelled"),
        "{error}"
    );
    cancelled(&log).await;
    stop(gateway).await;

    let log = ZooLog::create();
    let gateway = start_settled(&stdio_zoo("zoo", &log.flags())).await;
    tokio::select! {
        answer = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#) => panic!("{answer:?}"),
        () = eventually("the server receives the call", WAIT_TIMEOUT, async || {
            (log.calls("sleep") == 1).then_some(())
        }) => {}
    }
    cancelled(&log).await;
    stop(gateway).await;
}

#[tokio::test]
async fn timeouts_are_cancelled_at_http_servers() {
    for flags in [&["--era", "legacy", "--sessions"][..], &["--era", "modern"]] {
        let log = ZooLog::create();
        let zoo = HttpZoo::start(&[flags, &log.flags()].concat());
        let toml = http_server("web", &zoo.url()) + "timeout = \"200ms\"\n";
        let gateway = start_settled(&toml).await;
        call(&gateway, "web_sleep", r#"{"ms":60000}"#)
            .await
            .unwrap_err();
        eventually(
            "the server receives the cancellation",
            WAIT_TIMEOUT,
            async || (log.count("cancelled") > 0).then_some(()),
        )
        .await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn stop_waits_for_calls_up_to_its_timeout() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let run = |ms: u32| {
        let gateway = gateway.clone();
        async move {
            let arguments = Arguments::parse(&format!(r#"{{"ms":{ms}}}"#)).unwrap();
            gateway
                .call(&Caller::library(), ToolCall::new("zoo_sleep", arguments))
                .await
        }
    };
    let in_flight = async {
        let (short, long) = tokio::join!(run(200), run(60_000));
        assert!(short.is_ok(), "{short:?}");
        assert!(
            matches!(long, Err(toolgate::CallError::Cancelled)),
            "{long:?}"
        );
    };
    let stopping = async {
        eventually("both calls are in flight", WAIT_TIMEOUT, async || {
            gateway
                .metrics()
                .contains("in_flight{server=\"zoo\"} 2")
                .then_some(())
        })
        .await;
        gateway.stop(Duration::from_secs(1)).await;
    };
    tokio::join!(in_flight, stopping);
}

#[tokio::test]
async fn calls_queue_up_to_the_limit_and_then_fail_as_busy() {
    let gateway =
        start_settled(&(stdio_zoo("zoo", &[]) + "max_in_flight = 2\nmax_queue = 3\n")).await;
    let calls = || join_all((0..5).map(|_| call(&gateway, "zoo_sleep", r#"{"ms":600000}"#)));
    // Polled first, so that the first five calls take all permits and places in the queue.
    let rejected = tokio::select! {
        biased;
        answers = calls() => panic!("{answers:?}"),
        answers = calls() => answers,
    };
    for answer in rejected {
        let error = answer.unwrap_err();
        assert!(
            error.contains("server `zoo` is busy: 2 calls in flight and 3 queued"),
            "{error}"
        );
    }
    stop(gateway).await;
}

#[tokio::test]
async fn queueing_is_bounded_by_the_timeout() {
    let gateway =
        start_settled(&(stdio_zoo("zoo", &[]) + "max_in_flight = 1\ntimeout = \"400ms\"\n")).await;
    let calls = join_all((0..6).map(|_| {
        let gateway = gateway.clone();
        async move { call(&gateway, "zoo_sleep", r#"{"ms":300}"#).await }
    }));
    let failed: Vec<String> = calls.await.into_iter().filter_map(Result::err).collect();
    // On a slow machine, the running call may time out too.
    let expected = |error: &String| error.contains("is busy") || error.contains("did not answer");
    assert!(failed.iter().all(expected), "{failed:?}");
    assert!(
        failed.iter().any(|error| error.contains("is busy")),
        "{failed:?}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn call_on_an_expired_session_is_retried_and_runs_once() {
    let log = ZooLog::create();
    let flags = &["--sessions", "--expire-after", "15"][..];
    let web = HttpZoo::start(&[flags, &log.flags()].concat());
    let gateway = start_settled(&http_server("web", &web.url())).await;
    for n in 0..40 {
        let sum = call(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(
            sum.unwrap().result.text(),
            (n + 1).to_string(),
            "no call fails"
        );
    }
    assert_eq!(log.calls("add"), 40, "each ran once");
    assert!(log.text().contains("refused 404"), "sessions did expire");
    stop(gateway).await;
}

#[tokio::test]
async fn call_that_may_have_run_is_retried_only_for_read_only_tools() {
    let log = ZooLog::create();
    let web = HttpZoo::start(&[&["--half-close"][..], &log.flags()].concat());
    let gateway = start_settled(&http_server("web", &web.url())).await;
    call(&gateway, "web_sleep", r#"{"ms":1}"#)
        .await
        .unwrap_err();
    assert_eq!(log.calls("sleep"), 1, "not marked as safe to repeat");
    call(&gateway, "web_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert_eq!(log.calls("add"), 2, "marked as read-only");
    stop(gateway).await;
}

#[tokio::test]
async fn fallback_handles_calls_while_a_server_is_unavailable() {
    let mut main = HttpZoo::start(&[]);
    let toml = http_server("main", &main.url())
        + "fallback = \"spare\"\n"
        + &stdio_zoo("spare", &[])
        + "[mcp]\nhealth_interval = \"200ms\"\n";
    let gateway = start_settled(&toml).await;
    let ran_on = async |name: &str| {
        let outcome = call(&gateway, name, r#"{"a":1,"b":1}"#).await.unwrap();
        assert_eq!(outcome.result.text(), "2");
        (
            outcome.tool.server.to_string(),
            outcome.fallback_for.map(|tool| tool.server.to_string()),
        )
    };
    assert_eq!(ran_on("main_add").await, ("main".to_owned(), None));
    main.kill();
    assert_eq!(
        ran_on("main_add").await,
        ("spare".to_owned(), Some("main".to_owned()))
    );
    main.restart();
    eventually("main is back", WAIT_TIMEOUT, async || {
        (ran_on("main_add").await.0 == "main").then_some(())
    })
    .await;
    stop(gateway).await;
}

#[tokio::test]
async fn fallback_tool_outside_the_scope_is_not_used() {
    let toml = "[mcp_servers.main]\ncommand = \"no-such-program\"\nfallback = \"spare\"\n"
        .to_owned()
        + &stdio_zoo("spare", &[])
        + "tools_to_execute = [\"echo\"]\n";
    let gateway = start_settled(&toml).await;
    assert_eq!(call_text(&gateway, "main_echo", "{}").await, "{}");
    let error = call(&gateway, "main_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(error.starts_with("server `main` is unavailable"), "{error}");
    stop(gateway).await;
}

#[tokio::test]
async fn calls_to_an_unavailable_server_report_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("started");
    // Starts successfully once; every later start finds the flag file and exits.
    let script = format!(
        "if [ -e {flag:?} ]; then echo worn out >&2; exit 1; fi; touch {flag:?}; exec {} stdio",
        zoo_path().display()
    );
    let gateway = start_settled(&format!(
        "[mcp_servers.once]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\nreconnect_wait = \"0s\"\n"
    ))
    .await;
    call(&gateway, "once_die", "{}").await.unwrap_err();
    let reason = wait_for_state(&gateway, "once", ServerState::Unavailable).await;
    assert!(reason.contains("exited"), "{reason}");
    let restarted = eventually("the server was restarted", WAIT_TIMEOUT, async || {
        let reason = server(&gateway, "once")
            .status()
            .reason
            .clone()
            .unwrap_or_default();
        reason.contains("worn out").then_some(())
    });
    restarted.await;
    let error = call(&gateway, "once_echo", "{}").await.unwrap_err();
    assert!(error.starts_with("server `once` is unavailable"), "{error}");
    assert!(
        !error.contains("worn out"),
        "stderr must not be shown to callers: {error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn sends_configured_headers_and_only_allowed_caller_headers() {
    let zoo = HttpZoo::start(&["--require-header", "Authorization:Bearer s3cr3t-value"]);
    let toml = http_server("web", &zoo.url())
        + "headers = { Authorization = \"Bearer s3cr3t-value\", X-Fixed = \"set\" }\nallowed_extra_headers = [\"X-Tenant\", \"Authorization\", \"X-Fixed\", \"Mcp-Method\", \"X-Forwarded-For\"]\n";
    let gateway = start_settled(&toml).await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-tenant", "blue"),
        ("x-other", "no"),
        ("x-fixed", "changed"),
        ("mcp-method", "forged"),
        ("x-forwarded-for", "1.2.3.4"),
        ("authorization", "Bearer caller"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let request = Arc::new(RequestContext {
        headers,
        ..RequestContext::default()
    });
    let call = ToolCall::parse("web_headers", "{}").with_request(&request);
    let outcome = gateway.call(&Caller::library(), call).await.unwrap();
    let sent: serde_json::Value = serde_json::from_str(&outcome.result.text()).unwrap();
    assert_eq!(sent["x-tenant"], "blue");
    assert_eq!(sent["authorization"], "Bearer s3cr3t-value");
    assert_eq!(sent["x-fixed"], "set");
    for name in ["x-other", "mcp-method", "x-forwarded-for"] {
        assert!(sent.get(name).is_none(), "{name}");
    }
    stop(gateway).await;
}
