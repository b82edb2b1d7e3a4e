//! Supervision of servers: health checks, reconnects, idle stop, fallbacks and configuration
//! changes.

use std::time::Duration;

use futures_util::future::join_all;
use toolgate::ServerState;
use toolgate_testkit::{HttpZoo, eventually, is_alive};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, config, http_server, server, start,
    start_settled, stdio_zoo, stop, wait_for_state,
};

const FAST_HEALTH_CHECKS: &str = "[mcp]\nhealth_interval = \"200ms\"\n";

#[tokio::test]
async fn connects_over_the_legacy_sse_transport() {
    let sse = HttpZoo::start(&["--sse-legacy"]);
    for transport in ["auto", "sse"] {
        let gateway = start_settled(
            &(http_server("web", &sse.sse_url()) + &format!("transport = {transport:?}\n")),
        )
        .await;
        let status = server(&gateway, "web").status();
        assert_eq!(
            status.state,
            ServerState::Healthy,
            "{transport}: {:?}",
            status.reason
        );
        let sums = join_all((0..30).map(|n| {
            let gateway = gateway.clone();
            async move { call_text(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
        }));
        assert_eq!(
            sums.await,
            (1..=30).map(|n| n.to_string()).collect::<Vec<_>>()
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn closed_sse_stream_is_reopened() {
    let mut sse = HttpZoo::start(&["--sse-legacy"]);
    let gateway = start_settled(&http_server("web", &sse.sse_url())).await;
    sse.restart();
    assert_eq!(
        call_until_ok(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn health_checks_detect_dead_and_restarted_servers() {
    for flags in [
        &["--sessions"][..],
        &["--era", "modern"],
        &["--sse-legacy"],
        &["--json"],
    ] {
        let mut web = HttpZoo::start(flags);
        let url = if flags.contains(&"--sse-legacy") {
            web.sse_url()
        } else {
            web.url()
        };
        let gateway = start_settled(&(http_server("web", &url) + FAST_HEALTH_CHECKS)).await;
        web.kill();
        wait_for_state(&gateway, "web", ServerState::Unavailable).await;
        web.restart();
        wait_for_state(&gateway, "web", ServerState::Healthy).await;
        assert_eq!(
            call_text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
            "2",
            "{flags:?}"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn unresponsive_child_is_replaced_unless_it_has_calls_in_flight() {
    let gateway =
        start_settled(&(stdio_zoo("zoo", &["--silent-on", "ping"]) + FAST_HEALTH_CHECKS)).await;
    // Ends, and cancels its call, once the server is degraded.
    let reason = tokio::select! {
        answer = call(&gateway, "zoo_sleep", r#"{"ms":600000}"#) => panic!("{answer:?}"),
        reason = wait_for_state(&gateway, "zoo", ServerState::Degraded) => reason,
    };
    assert_eq!(reason, "server does not answer pings");
    let reason = wait_for_state(&gateway, "zoo", ServerState::Unavailable).await;
    assert_eq!(reason, "server does not answer pings");
    stop(gateway).await;
}

#[tokio::test]
async fn health_check_lists_tools_if_ping_is_disabled() {
    let toml = stdio_zoo("zoo", &["--silent-on", "ping"]);
    let toml = toml.replace("[mcp_servers.zoo]\ncommand = ", "[[mcp.client_configs]]\nname = \"zoo\"\nconnection_type = \"stdio\"\nis_ping_available = false\ntools_to_execute = [\"*\"]\nstdio_config.command = ");
    let toml = toml.replace("\nargs = ", "\nstdio_config.args = ");
    let gateway = start_settled(&format!("mcp.health_interval = \"50ms\"\n{toml}")).await;
    for _ in 0..20 {
        call_text(&gateway, "zoo_sleep", r#"{"ms":30}"#).await;
        assert_eq!(server(&gateway, "zoo").status().state, ServerState::Healthy);
    }
    stop(gateway).await;
}

#[tokio::test]
async fn call_on_an_expired_session_is_retried_and_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let request_log = folder.path().join("request_log");
    let web = HttpZoo::start(&[
        "--sessions",
        "--expire-after",
        "15",
        "--count",
        request_log.to_str().unwrap(),
    ]);
    let gateway = start_settled(&http_server("web", &web.url())).await;
    for n in 0..40 {
        let sum = call(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(
            sum.unwrap().result.text(),
            (n + 1).to_string(),
            "no call fails"
        );
    }
    let ran = std::fs::read_to_string(&request_log).unwrap();
    assert_eq!(
        ran.lines().filter(|line| *line == "tools/call add").count(),
        40,
        "each ran once"
    );
    assert!(ran.contains("refused 404"), "sessions did expire");
    stop(gateway).await;
}

#[tokio::test]
async fn call_that_may_have_run_is_retried_only_for_read_only_tools() {
    let folder = tempfile::tempdir().unwrap();
    let request_log = folder.path().join("request_log");
    let web = HttpZoo::start(&["--half-close", "--count", request_log.to_str().unwrap()]);
    let gateway = start_settled(&http_server("web", &web.url())).await;
    let ran = |tool: &str| {
        let text = std::fs::read_to_string(&request_log).unwrap();
        text.lines()
            .filter(|line| *line == format!("tools/call {tool}"))
            .count()
    };
    call(&gateway, "web_sleep", r#"{"ms":1}"#)
        .await
        .unwrap_err();
    assert_eq!(ran("sleep"), 1, "not marked as safe to repeat");
    call(&gateway, "web_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert_eq!(ran("add"), 2, "marked as read-only");
    stop(gateway).await;
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
async fn idle_child_is_stopped_and_restarted_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let pid = || {
        std::fs::read_to_string(&pid_file)
            .unwrap()
            .trim()
            .parse::<u32>()
            .unwrap()
    };
    let toml = stdio_zoo("zoo", &["--pid", pid_file.to_str().unwrap()]) + "idle_stop = \"150ms\"\n";
    let gateway = start_settled(&toml).await;
    let first = pid();
    wait_for_state(&gateway, "zoo", ServerState::Asleep).await;
    eventually("the process has exited", WAIT_TIMEOUT, async || {
        (!is_alive(first)).then_some(())
    })
    .await;
    assert!(
        !gateway.catalog().tools().is_empty(),
        "its tools stay listed"
    );

    let woken = join_all((0..20).map(|n| {
        let gateway = gateway.clone();
        async move { call_text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
    }));
    assert_eq!(
        woken.await,
        (1..=20).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_ne!(pid(), first);
    call_text(&gateway, "zoo_sleep", r#"{"ms":500}"#).await;
    stop(gateway).await;
}

#[tokio::test]
async fn fallback_handles_calls_while_a_server_is_unavailable() {
    let mut main = HttpZoo::start(&[]);
    let toml = http_server("main", &main.url())
        + "fallback = \"spare\"\n"
        + &stdio_zoo("spare", &[])
        + FAST_HEALTH_CHECKS;
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
async fn applying_a_configuration_drops_no_calls() {
    let before = stdio_zoo("same", &[]) + &stdio_zoo("changes", &[]) + &stdio_zoo("goes", &[]);
    let gateway = start_settled(&before).await;
    let same_since = server(&gateway, "same").status().since;
    let long = join_all(["same_sleep", "changes_sleep", "goes_sleep"].map(|name| {
        let gateway = gateway.clone();
        async move { call(&gateway, name, r#"{"ms":1000}"#).await.map(drop) }
    }));
    let edit = async {
        eventually("the calls are in flight", WAIT_TIMEOUT, async || {
            gateway
                .servers()
                .list()
                .iter()
                .all(|entry| entry.in_flight() == 1)
                .then_some(())
        })
        .await;
        let after = stdio_zoo("same", &[])
            + "timeout = \"5s\"\n"
            + &stdio_zoo("changes", &["--tools", "1"])
            + &stdio_zoo("comes", &[]);
        gateway.apply(config(&after)).unwrap();
        for n in 0..200 {
            let sum = call(&gateway, "changes_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
            assert_eq!(sum.unwrap().result.text(), (n + 1).to_string());
        }
    };
    let (ended, ()) = tokio::join!(long, edit);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert_eq!(
        server(&gateway, "same").status().since,
        same_since,
        "an unchanged server is not restarted"
    );
    assert_eq!(
        call_until_ok(&gateway, "comes_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    assert_eq!(
        call_until_ok(&gateway, "changes_tool_0001", "{}").await,
        "{}"
    );
    let error = call(&gateway, "goes_add", "{}").await.unwrap_err();
    assert!(error.starts_with("unknown tool"), "{error}");
    eventually("its tools are removed", WAIT_TIMEOUT, async || {
        let catalog = gateway.catalog();
        catalog
            .tools()
            .iter()
            .all(|entry| entry.tool.id.server.as_str() != "goes")
            .then_some(())
    })
    .await;
    stop(gateway).await;
}

#[tokio::test]
async fn server_can_be_disabled_reenabled_and_reconnected() {
    let on = stdio_zoo("zoo", &[]);
    let gateway = start_settled(&on).await;
    gateway
        .apply(config(&(on.clone() + "enabled = false\n")))
        .unwrap();
    wait_for_state(&gateway, "zoo", ServerState::Disabled).await;
    eventually("its tools are removed", WAIT_TIMEOUT, async || {
        gateway.catalog().tools().is_empty().then_some(())
    })
    .await;
    gateway.apply(config(&on)).unwrap();
    assert_eq!(
        call_until_ok(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    server(&gateway, "zoo").reconnect();
    assert_eq!(
        call_until_ok(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn list_changed_notifications_trigger_a_refresh() {
    for flags in [&["--era", "legacy"][..], &["--era", "modern"]] {
        for over_http in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let request_log = folder.path().join("request_log");
            let flags = [
                flags,
                &[
                    "--list-changed-storm",
                    "50",
                    "--count",
                    request_log.to_str().unwrap(),
                ],
            ]
            .concat();
            let web = over_http.then(|| HttpZoo::start(&flags));
            let toml = web.as_ref().map_or_else(
                || stdio_zoo("zoo", &flags),
                |web| http_server("zoo", &web.url()),
            );
            let gateway = start(&toml).await;
            let lists = || {
                std::fs::read_to_string(&request_log).map_or(0, |text| {
                    text.lines().filter(|l| *l == "tools/list").count()
                })
            };
            eventually(
                &format!("the tools are listed again {flags:?} {over_http}"),
                WAIT_TIMEOUT,
                async || (lists() >= 2).then_some(()),
            )
            .await;
            tokio::time::timeout(
                Duration::from_secs(5),
                call_until_ok(&gateway, "zoo_echo", "{}"),
            )
            .await
            .unwrap();
            assert!(lists() < 30, "a burst of notifications is coalesced");
            stop(gateway).await;
        }
    }
}

#[tokio::test]
async fn queued_calls_survive_reconfiguration_and_reconnect() {
    let narrow = stdio_zoo("zoo", &[]) + "max_in_flight = 1\n";
    let gateway = start_settled(&narrow).await;
    let calls = |count: usize| {
        join_all((0..count).map(|_| {
            let gateway = gateway.clone();
            async move { call(&gateway, "zoo_sleep", r#"{"ms":100}"#).await.map(drop) }
        }))
    };
    let wait_for_call = async || {
        eventually("a call is in flight", WAIT_TIMEOUT, async || {
            (server(&gateway, "zoo").in_flight() == 1).then_some(())
        })
        .await;
    };
    let edit = async {
        wait_for_call().await;
        gateway
            .apply(config(&(narrow.clone() + "max_queue = 100\n")))
            .unwrap();
    };
    let (done, ()) = tokio::join!(calls(8), edit);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let reconnect = async {
        wait_for_call().await;
        server(&gateway, "zoo").reconnect();
    };
    let (done, ()) = tokio::join!(calls(8), reconnect);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    stop(gateway).await;
}

#[tokio::test]
async fn rapid_reconfiguration_keeps_the_working_connection() {
    let edited = |n: usize| stdio_zoo("zoo", &["--slow-start", "700", "--tools", &n.to_string()]);
    let gateway = start_settled(&edited(1)).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let work = async {
        let mut calls = 0;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(
                call_text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
                "2"
            );
            calls += 1;
        }
        calls
    };
    let edits = async {
        for n in 2..8 {
            gateway.apply(config(&edited(n))).unwrap();
            call_text(&gateway, "zoo_sleep", r#"{"ms":50}"#).await;
        }
        eventually(
            "the last configuration is in force",
            WAIT_TIMEOUT,
            async || {
                let catalog = gateway.catalog();
                catalog
                    .tools()
                    .iter()
                    .any(|entry| entry.tool.id.tool.as_str() == "tool_0007")
                    .then_some(())
            },
        )
        .await;
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (calls, ()) = tokio::join!(work, edits);
    assert!(calls > 10, "{calls}");
    stop(gateway).await;
}

#[tokio::test]
async fn stopped_server_starts_with_new_settings_and_replaced_server_leaves_no_tools() {
    let asleep = stdio_zoo("zoo", &[]) + "idle_stop = \"100ms\"\n";
    let gateway = start_settled(&asleep).await;
    wait_for_state(&gateway, "zoo", ServerState::Asleep).await;
    gateway
        .apply(config(&(asleep + "max_queue = 9\n")))
        .unwrap();
    assert_eq!(
        call_text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );

    gateway
        .apply(config("[mcp_servers.zoo]\ncommand = \"no-such-program\"\n"))
        .unwrap();
    wait_for_state(&gateway, "zoo", ServerState::Unavailable).await;
    eventually(
        "the old program's tools are removed",
        WAIT_TIMEOUT,
        async || gateway.catalog().tools().is_empty().then_some(()),
    )
    .await;
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
