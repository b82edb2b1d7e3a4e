//! Supervision of servers: health checks, idle stop and refreshed listings.

use std::time::Duration;

use toolgate_mcp::ServerState;
use toolgate_testkit::{HttpZoo, eventually, is_alive};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, check_concurrent_sums, http_server, server,
    start, start_settled, stdio_zoo, wait_for_state,
};

const FAST_HEALTH_CHECKS: &str = "[mcp]\nhealth_interval = \"200ms\"\n";

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
        let registry = start_settled(&(http_server("web", &url) + FAST_HEALTH_CHECKS)).await;
        web.kill();
        wait_for_state(&registry, "web", ServerState::Unavailable).await;
        web.restart();
        wait_for_state(&registry, "web", ServerState::Healthy).await;
        assert_eq!(
            call_text(&registry, "web.add", r#"{"a":1,"b":1}"#).await,
            "2",
            "{flags:?}"
        );
        registry.stop().await;
    }
}

#[tokio::test]
async fn unresponsive_child_is_replaced_unless_it_has_calls_in_flight() {
    let registry =
        start_settled(&(stdio_zoo("zoo", &["--silent-on", "ping"]) + FAST_HEALTH_CHECKS)).await;
    // Ends, and cancels its call, once the server is degraded.
    let reason = tokio::select! {
        answer = call(&registry, "zoo.sleep", r#"{"ms":600000}"#) => panic!("{answer:?}"),
        reason = wait_for_state(&registry, "zoo", ServerState::Degraded) => reason,
    };
    assert_eq!(reason, "server does not answer pings");
    let reason = wait_for_state(&registry, "zoo", ServerState::Unavailable).await;
    assert_eq!(reason, "server does not answer pings");
    registry.stop().await;
}

#[tokio::test]
async fn health_check_lists_tools_if_ping_is_disabled() {
    let toml = stdio_zoo("zoo", &["--silent-on", "ping"]);
    let toml = toml.replace("[mcp_servers.zoo]\ncommand = ", "[[mcp.client_configs]]\nname = \"zoo\"\nconnection_type = \"stdio\"\nis_ping_available = false\ntools_to_execute = [\"*\"]\nstdio_config.command = ");
    let toml = toml.replace("\nargs = ", "\nstdio_config.args = ");
    let registry = start_settled(&format!("mcp.health_interval = \"50ms\"\n{toml}")).await;
    for _ in 0..20 {
        call_text(&registry, "zoo.sleep", r#"{"ms":30}"#).await;
        assert_eq!(
            server(&registry, "zoo").status().state,
            ServerState::Healthy
        );
    }
    registry.stop().await;
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
    let registry = start_settled(&toml).await;
    let first = pid();
    wait_for_state(&registry, "zoo", ServerState::Asleep).await;
    eventually("the process has exited", WAIT_TIMEOUT, async || {
        (!is_alive(first)).then_some(())
    })
    .await;
    assert!(
        !registry.catalog().tools().is_empty(),
        "its tools stay listed"
    );

    check_concurrent_sums(&registry, "zoo", 20, "restarted").await;
    assert_ne!(pid(), first);
    call_text(&registry, "zoo.sleep", r#"{"ms":500}"#).await;
    registry.stop().await;
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
            let registry = start(&toml);
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
                call_until_ok(&registry, "zoo.echo", "{}"),
            )
            .await
            .unwrap();
            assert!(lists() < 30, "a burst of notifications is coalesced");
            registry.stop().await;
        }
    }
}
