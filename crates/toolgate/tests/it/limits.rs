//! Limits of tools and servers: timeouts, rates and concurrency.

use futures_util::future::{join_all, select_all};
use serde_json::json;
use toolgate::CallError;
use toolgate::call::LimitReached;
use toolgate_testkit::{ZooLog, eventually};

use crate::support::{
    WAIT_TIMEOUT, answer_text, call_json, call_text, outcomes, start_settled, stdio_zoo, stop,
};

#[tokio::test]
async fn tool_timeout_overrides_server_timeout() {
    let log = ZooLog::create();
    let toml = stdio_zoo("zoo", &log.flags())
        + "timeout = \"60s\"\n[mcp_servers.zoo.tools.sleep]\ntimeout = \"150ms\"\n";
    let gateway = start_settled(&toml).await;
    let answer = call_json(&gateway, "zoo_sleep", &json!({"ms": 60000})).await;
    assert!(
        matches!(&answer, Err(CallError::Timeout { after, .. }) if after.as_millis() == 150),
        "{answer:?}"
    );
    eventually(
        "the server receives the cancellation",
        WAIT_TIMEOUT,
        async || (log.count("cancelled") == 1).then_some(()),
    )
    .await;
    assert_eq!(outcomes(&gateway).await, ["timeout"]);
    stop(gateway).await;
}

#[tokio::test]
async fn tool_and_server_rate_limits_say_when_to_retry() {
    let log = ZooLog::create();
    let toml = stdio_zoo("zoo", &log.flags())
        + "rate_limit = \"3/hour\"\n[mcp_servers.zoo.tools.add]\nrate_limit = \"1/hour\"\n";
    let gateway = start_settled(&toml).await;
    let add = json!({"a": 1, "b": 2});
    let outcome = call_json(&gateway, "zoo_add", &add).await.unwrap();
    assert_eq!(outcome.result.text(), "3");
    let limited = call_json(&gateway, "zoo_add", &add).await;
    assert!(
        matches!(
            &limited,
            Err(CallError::Limited {
                limit: LimitReached::ToolRate { .. },
                retry_after: Some(_)
            })
        ),
        "{limited:?}"
    );
    assert!(answer_text(&limited).contains("try again in"));
    assert_eq!(log.calls("add"), 1);
    let limited = eventually(
        "the server's rate limit is exhausted",
        WAIT_TIMEOUT,
        async || call_json(&gateway, "zoo_echo", &json!({})).await.err(),
    )
    .await;
    assert!(
        matches!(
            &limited,
            CallError::Limited {
                limit: LimitReached::ServerRate { .. },
                ..
            }
        ),
        "{limited}"
    );
    assert!(limited.to_string().contains("server `zoo`"), "{limited}");
    assert!(log.calls("echo") <= 2);
    stop(gateway).await;
}

#[tokio::test]
async fn max_in_flight_limits_tool() {
    let toml = stdio_zoo("zoo", &[]) + "[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n";
    let gateway = start_settled(&toml).await;
    let long = json!({"ms": 60000});
    let calls = (0..6).map(|_| Box::pin(call_json(&gateway, "zoo_sleep", &long)));
    let (refused, _, others) = select_all(calls).await;
    assert!(
        matches!(
            &refused,
            Err(CallError::Limited {
                limit: LimitReached::ToolBusy { .. },
                ..
            })
        ),
        "{refused:?}"
    );
    assert!(answer_text(&refused).contains("in flight"));
    assert_eq!(call_text(&gateway, "zoo_echo", "{}").await, "{}");
    drop(others);
    stop(gateway).await;
}

#[tokio::test]
async fn queued_calls_eventually_run() {
    let log = ZooLog::create();
    let toml =
        stdio_zoo("zoo", &log.flags()) + "[mcp_servers.zoo.tools.sleep]\nmax_in_flight = 1\n";
    let gateway = start_settled(&toml).await;
    let short = json!({"ms": 1});
    let calls = (0..5).map(|_| call_json(&gateway, "zoo_sleep", &short));
    for answer in join_all(calls).await {
        assert_eq!(answer_text(&answer), "slept 1 ms");
    }
    assert_eq!(log.calls("sleep"), 5);
    stop(gateway).await;
}
