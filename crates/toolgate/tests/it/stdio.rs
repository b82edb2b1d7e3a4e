//! Servers that run as child processes over stdio.

use std::time::Duration;

use futures_util::future::join_all;
use toolgate::{Arguments, Caller, ServerState, ToolCall};
use toolgate_testkit::{eventually, is_alive};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, server, start_settled, stdio_zoo, stop,
    wait_for_state,
};

#[tokio::test]
async fn connects_to_every_era_with_every_protocol_setting() {
    for (era, protocol, version) in [
        ("legacy", "auto", "2025-11-25"),
        ("legacy", "legacy", "2025-11-25"),
        ("modern", "auto", "2026-07-28"),
        ("modern", "modern", "2026-07-28"),
        ("dual", "auto", "2025-11-25"),
        ("dual", "modern", "2026-07-28"),
    ] {
        let toml = stdio_zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let gateway = start_settled(&toml).await;
        let status = server(&gateway, "zoo").status();
        assert_eq!(
            status.state,
            ServerState::Healthy,
            "{era} {protocol}: {:?}",
            status.reason
        );
        assert_eq!(
            status.session.as_ref().unwrap().version,
            version,
            "{era} {protocol}"
        );
        assert_eq!(
            call_text(&gateway, "zoo_add", r#"{"a":2,"b":3}"#).await,
            "5"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn wrong_protocol_setting_is_reported() {
    for (era, protocol) in [("legacy", "modern"), ("modern", "legacy")] {
        let toml = stdio_zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let gateway = start_settled(&toml).await;
        let reason = wait_for_state(&gateway, "zoo", ServerState::Unavailable).await;
        assert!(reason.contains("-32601"), "{reason}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn thousand_concurrent_calls_get_their_own_answers() {
    let gateway = start_settled(&(stdio_zoo("zoo", &[]) + "max_in_flight = 1000\n")).await;
    let sleepers = join_all((0..1000).map(|n| {
        let gateway = gateway.clone();
        let ms = 3000 + n;
        async move {
            let slept = call_text(&gateway, "zoo_sleep", &format!(r#"{{"ms":{ms}}}"#)).await;
            assert_eq!(
                slept,
                format!("slept {ms} ms"),
                "each caller gets its own answer"
            );
        }
    }));
    let all_in_flight = eventually("a thousand calls are in flight", WAIT_TIMEOUT, async || {
        (server(&gateway, "zoo").in_flight() == 1000).then_some(())
    });
    tokio::join!(sleepers, all_in_flight);
    stop(gateway).await;
}

#[tokio::test]
async fn oversized_message_fails_only_its_own_call() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let big = r#"{"bytes":41943040}"#;
    let small = async {
        for n in 0..50 {
            assert_eq!(
                call_text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await,
                (n + 1).to_string()
            );
        }
    };
    let (error, ()) = tokio::join!(call(&gateway, "zoo_big", big), small);
    assert!(error.unwrap_err().contains("larger than 33554432 bytes"));
    assert_eq!(
        call_text(&gateway, "zoo_big", r#"{"bytes":1048576}"#)
            .await
            .len(),
        1_048_576
    );
    stop(gateway).await;
}

#[tokio::test]
async fn timeouts_and_dropped_calls_are_cancelled_at_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let request_log = folder.path().join("request_log");
    let toml =
        stdio_zoo("zoo", &["--count", request_log.to_str().unwrap()]) + "timeout = \"300ms\"\n";
    let gateway = start_settled(&toml).await;
    let cancelled = |expected: usize| {
        let request_log = request_log.clone();
        eventually(
            "the server receives the cancellation",
            WAIT_TIMEOUT,
            async move || {
                let text = std::fs::read_to_string(&request_log).unwrap();
                (text.lines().filter(|line| *line == "cancelled").count() == expected).then_some(())
            },
        )
    };
    let error = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("did not answer within 0.3 s and was cancelled"),
        "{error}"
    );
    cancelled(1).await;

    let sleeping = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#);
    let dropped = tokio::time::timeout(Duration::from_millis(100), sleeping).await;
    assert!(dropped.is_err());
    cancelled(2).await;
    stop(gateway).await;
}

#[tokio::test]
async fn crashed_child_fails_its_calls_immediately_and_is_restarted() {
    let gateway = start_settled(&stdio_zoo("zoo", &[])).await;
    let sleeping = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#);
    let dying = call(&gateway, "zoo_die", "{}");
    let (sleeping, dying) = tokio::join!(sleeping, dying);
    for error in [sleeping.unwrap_err(), dying.unwrap_err()] {
        assert!(error.contains("process exited (exit status: 7)"), "{error}");
    }
    assert_eq!(
        call_until_ok(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn child_gets_configured_variables_and_a_minimal_environment() {
    let toml = stdio_zoo("zoo", &[]) + "env = { TOKEN = \"env.ZOO_SECRET\", MODE = \"test\" }\n";
    let gateway = start_settled(&toml).await;
    let env: serde_json::Value =
        serde_json::from_str(&call_text(&gateway, "zoo_env", "{}").await).unwrap();
    let mut names: Vec<&str> = env
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["MODE", "PATH", "TOKEN"]);
    assert_eq!(env["TOKEN"], "s3cr3t-value");
    stop(gateway).await;
}

#[tokio::test]
async fn unset_secret_affects_only_its_server() {
    let toml = stdio_zoo("a", &[]) + "env = { TOKEN = \"env.NOT_SET\" }\n" + &stdio_zoo("b", &[]);
    let gateway = start_settled(&toml).await;
    let reason = wait_for_state(&gateway, "a", ServerState::Error).await;
    assert!(reason.contains("`NOT_SET` is not set"), "{reason}");
    assert_eq!(call_text(&gateway, "b_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn secrets_are_masked_in_status_and_stderr() {
    let flags = [
        "--stderr",
        "cannot use token s3cr3t-value today",
        "--exit-on",
        "initialize",
    ];
    let toml = stdio_zoo("zoo", &flags) + "env = { TOKEN = \"env.ZOO_SECRET\" }\n";
    let gateway = start_settled(&toml).await;
    let reason = wait_for_state(&gateway, "zoo", ServerState::Unavailable).await;
    assert!(reason.contains("cannot use token *** today"), "{reason}");
    let tail = server(&gateway, "zoo").stderr_tail();
    assert!(tail.contains("***") && !tail.contains("s3cr3t"), "{tail}");
    stop(gateway).await;
}

#[tokio::test]
async fn stop_kills_children_and_grandchildren_that_ignore_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (pid, grandchild) = (file("pid"), file("grandchild"));
    let gateway = start_settled(&stdio_zoo(
        "zoo",
        &[
            "--ignore-sigterm",
            "--pid",
            &pid,
            "--grandchild",
            &grandchild,
        ],
    ))
    .await;
    assert_eq!(
        call_text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let pids = [pid, grandchild].map(|file| {
        std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    });
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    stop(gateway).await;
    for pid in pids {
        eventually("the process has exited", WAIT_TIMEOUT, async || {
            (!is_alive(pid)).then_some(())
        })
        .await;
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
