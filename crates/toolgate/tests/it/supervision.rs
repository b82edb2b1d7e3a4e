//! Servers that stay connected, change, sleep, and stand in for each other.

use std::time::Duration;

use futures_util::future::join_all;
use toolgate::State;
use toolgate_testkit::{HttpZoo, alive, eventually};

use crate::support::{
    SOON, at, call, config, heals, reaches, server, settled, start, stop, text, zoo,
};

const QUICK: &str = "[mcp]\nhealth_interval = \"200ms\"\n";

#[tokio::test]
async fn the_old_event_stream_transport() {
    let old = HttpZoo::start(&["--sse-legacy"]);
    for transport in ["auto", "sse"] {
        let gateway =
            settled(&(at("web", &old.sse_url()) + &format!("transport = {transport:?}\n"))).await;
        let status = server(&gateway, "web").status();
        assert_eq!(
            status.state,
            State::Healthy,
            "{transport}: {:?}",
            status.reason
        );
        let sums = join_all((0..30).map(|n| {
            let gateway = gateway.clone();
            async move { text(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
        }));
        assert_eq!(
            sums.await,
            (1..=30).map(|n| n.to_string()).collect::<Vec<_>>()
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn an_event_stream_that_ends_is_opened_again() {
    let mut old = HttpZoo::start(&["--sse-legacy"]);
    let gateway = settled(&at("web", &old.sse_url())).await;
    old.restart();
    assert_eq!(heals(&gateway, "web_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn a_restarted_or_dead_server_is_noticed_without_anyone_asking() {
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
        let gateway = settled(&(at("web", &url) + QUICK)).await;
        web.kill();
        reaches(&gateway, "web", State::Unavailable).await;
        web.restart();
        reaches(&gateway, "web", State::Healthy).await;
        assert_eq!(
            text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
            "2",
            "{flags:?}"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn a_child_that_hangs_is_replaced_but_not_while_it_works() {
    let gateway = settled(&(zoo("zoo", &["--silent-on", "ping"]) + QUICK)).await;
    let working = text(&gateway, "zoo_sleep", r#"{"ms":1500}"#);
    let degraded = reaches(&gateway, "zoo", State::Degraded);
    let (_, reason) = tokio::join!(working, degraded);
    assert_eq!(reason, "it does not answer pings");
    let reason = reaches(&gateway, "zoo", State::Unavailable).await;
    assert_eq!(reason, "it does not answer pings");
    stop(gateway).await;
}

#[tokio::test]
async fn a_server_without_ping_is_asked_for_a_list() {
    let toml = zoo("zoo", &["--silent-on", "ping"]);
    let toml = toml.replace("[mcp_servers.zoo]\ncommand = ", "[[mcp.client_configs]]\nname = \"zoo\"\nconnection_type = \"stdio\"\nis_ping_available = false\ntools_to_execute = [\"*\"]\nstdio_config.command = ");
    let toml = toml.replace("\nargs = ", "\nstdio_config.args = ");
    let gateway = settled(&format!("mcp.health_interval = \"50ms\"\n{toml}")).await;
    for _ in 0..20 {
        text(&gateway, "zoo_sleep", r#"{"ms":30}"#).await;
        assert_eq!(server(&gateway, "zoo").status().state, State::Healthy);
    }
    stop(gateway).await;
}

#[tokio::test]
async fn a_call_on_a_forgotten_session_is_repeated_and_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let web = HttpZoo::start(&[
        "--sessions",
        "--expire-after",
        "15",
        "--count",
        ledger.to_str().unwrap(),
    ]);
    let gateway = settled(&at("web", &web.url())).await;
    for n in 0..40 {
        let sum = call(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(
            sum.unwrap().result.text(),
            (n + 1).to_string(),
            "no call fails"
        );
    }
    let ran = std::fs::read_to_string(&ledger).unwrap();
    assert_eq!(
        ran.lines().filter(|line| *line == "tools/call add").count(),
        40,
        "each ran once"
    );
    assert!(ran.contains("refused 404"), "sessions did expire");
    stop(gateway).await;
}

#[tokio::test]
async fn a_call_that_may_have_run_is_repeated_only_if_that_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let web = HttpZoo::start(&["--half-close", "--count", ledger.to_str().unwrap()]);
    let gateway = settled(&at("web", &web.url())).await;
    let ran = |tool: &str| {
        let text = std::fs::read_to_string(&ledger).unwrap();
        text.lines()
            .filter(|line| *line == format!("tools/call {tool}"))
            .count()
    };
    call(&gateway, "web_sleep", r#"{"ms":1}"#)
        .await
        .unwrap_err();
    assert_eq!(ran("sleep"), 1, "nothing says that it may run twice");
    call(&gateway, "web_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert_eq!(ran("add"), 2, "the server says that it only reads");
    stop(gateway).await;
}

#[tokio::test]
async fn calls_wait_for_their_turn_and_too_many_are_told() {
    let gateway = settled(&(zoo("zoo", &[]) + "max_in_flight = 2\nmax_queue = 3\n")).await;
    let calls = join_all((0..10).map(|_| {
        let gateway = gateway.clone();
        async move { call(&gateway, "zoo_sleep", r#"{"ms":200}"#).await }
    }));
    let (done, busy): (Vec<_>, Vec<_>) = calls.await.into_iter().partition(Result::is_ok);
    assert_eq!((done.len(), busy.len()), (5, 5));
    for error in busy {
        let error = error.unwrap_err();
        assert!(
            error.contains("server `zoo` is busy: 2 calls are under way and 3 wait"),
            "{error}"
        );
    }
    stop(gateway).await;
}

#[tokio::test]
async fn an_idle_child_sleeps_and_wakes_at_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let pid = || {
        std::fs::read_to_string(&pid_file)
            .unwrap()
            .trim()
            .parse::<u32>()
            .unwrap()
    };
    let toml = zoo("zoo", &["--pid", pid_file.to_str().unwrap()]) + "idle_stop = \"150ms\"\n";
    let gateway = settled(&toml).await;
    let first = pid();
    reaches(&gateway, "zoo", State::Asleep).await;
    eventually("its process is gone", SOON, async || {
        (!alive(first)).then_some(())
    })
    .await;
    assert!(
        !gateway.catalog().tools().is_empty(),
        "its tools stay listed"
    );

    let woken = join_all((0..20).map(|n| {
        let gateway = gateway.clone();
        async move { text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
    }));
    assert_eq!(
        woken.await,
        (1..=20).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    assert_ne!(pid(), first);
    text(&gateway, "zoo_sleep", r#"{"ms":500}"#).await;
    stop(gateway).await;
}

#[tokio::test]
async fn a_fallback_takes_over_while_a_server_is_away() {
    let mut main = HttpZoo::start(&[]);
    let toml = at("main", &main.url()) + "fallback = \"spare\"\n" + &zoo("spare", &[]) + QUICK;
    let gateway = settled(&toml).await;
    let ran_on = async |name: &str| {
        let outcome = call(&gateway, name, r#"{"a":1,"b":1}"#).await.unwrap();
        assert_eq!(outcome.result.text(), "2");
        (
            outcome.tool.server.to_string(),
            outcome.instead_of.map(|tool| tool.server.to_string()),
        )
    };
    assert_eq!(ran_on("main_add").await, ("main".to_owned(), None));
    main.kill();
    assert_eq!(
        ran_on("main_add").await,
        ("spare".to_owned(), Some("main".to_owned()))
    );
    main.restart();
    eventually("main is back", SOON, async || {
        (ran_on("main_add").await.0 == "main").then_some(())
    })
    .await;
    stop(gateway).await;
}

#[tokio::test]
async fn a_fallback_that_is_not_in_scope_does_not_take_over() {
    let toml = "[mcp_servers.main]\ncommand = \"no-such-program\"\nfallback = \"spare\"\n"
        .to_owned()
        + &zoo("spare", &[])
        + "tools_to_execute = [\"echo\"]\n";
    let gateway = settled(&toml).await;
    assert_eq!(text(&gateway, "main_echo", "{}").await, "{}");
    let error = call(&gateway, "main_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(error.starts_with("server `main` is unavailable"), "{error}");
    stop(gateway).await;
}

#[tokio::test]
async fn a_new_configuration_drops_nothing() {
    let before = zoo("same", &[]) + &zoo("changes", &[]) + &zoo("goes", &[]);
    let gateway = settled(&before).await;
    let pid_of_same = server(&gateway, "same").status().since;
    let long = join_all(["same_sleep", "changes_sleep", "goes_sleep"].map(|name| {
        let gateway = gateway.clone();
        async move { call(&gateway, name, r#"{"ms":1000}"#).await.map(drop) }
    }));
    let edit = async {
        eventually("the calls are under way", SOON, async || {
            gateway
                .servers()
                .iter()
                .all(|entry| entry.in_flight() == 1)
                .then_some(())
        })
        .await;
        let after = zoo("same", &[])
            + "timeout = \"5s\"\n"
            + &zoo("changes", &["--tools", "1"])
            + &zoo("comes", &[]);
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
        pid_of_same,
        "it was not touched"
    );
    assert_eq!(heals(&gateway, "comes_add", r#"{"a":1,"b":1}"#).await, "2");
    assert_eq!(heals(&gateway, "changes_tool_0001", "{}").await, "{}");
    let error = call(&gateway, "goes_add", "{}").await.unwrap_err();
    assert!(error.starts_with("unknown tool"), "{error}");
    eventually("its tools are gone", SOON, async || {
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
async fn switching_off_and_on_and_reconnecting() {
    let on = zoo("zoo", &[]);
    let gateway = settled(&on).await;
    gateway
        .apply(config(&(on.clone() + "enabled = false\n")))
        .unwrap();
    reaches(&gateway, "zoo", State::Disabled).await;
    eventually("its tools are gone", SOON, async || {
        gateway.catalog().tools().is_empty().then_some(())
    })
    .await;
    gateway.apply(config(&on)).unwrap();
    assert_eq!(heals(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    server(&gateway, "zoo").reconnect();
    assert_eq!(heals(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn news_of_changed_lists_is_fetched_in_every_way_it_comes() {
    for flags in [&["--era", "legacy"][..], &["--era", "modern"]] {
        for over_http in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let ledger = folder.path().join("ledger");
            let flags = [
                flags,
                &[
                    "--list-changed-storm",
                    "50",
                    "--count",
                    ledger.to_str().unwrap(),
                ],
            ]
            .concat();
            let web = over_http.then(|| HttpZoo::start(&flags));
            let toml = web
                .as_ref()
                .map_or_else(|| zoo("zoo", &flags), |web| at("zoo", &web.url()));
            let gateway = start(&toml).await;
            let lists = || {
                std::fs::read_to_string(&ledger).map_or(0, |text| {
                    text.lines().filter(|l| *l == "tools/list").count()
                })
            };
            eventually(
                &format!("it is listed again {flags:?} {over_http}"),
                SOON,
                async || (lists() >= 2).then_some(()),
            )
            .await;
            tokio::time::timeout(Duration::from_secs(5), heals(&gateway, "zoo_echo", "{}"))
                .await
                .unwrap();
            assert!(lists() < 30, "a storm is one change, not fifty");
            stop(gateway).await;
        }
    }
}

#[tokio::test]
async fn calls_that_wait_survive_an_edit_and_a_reconnect() {
    let narrow = zoo("zoo", &[]) + "max_in_flight = 1\n";
    let gateway = settled(&narrow).await;
    let calls = |count: usize| {
        join_all((0..count).map(|_| {
            let gateway = gateway.clone();
            async move { call(&gateway, "zoo_sleep", r#"{"ms":100}"#).await.map(drop) }
        }))
    };
    let waiting = async || {
        eventually("a call is under way", SOON, async || {
            (server(&gateway, "zoo").in_flight() == 1).then_some(())
        })
        .await;
    };
    let edit = async {
        waiting().await;
        gateway
            .apply(config(&(narrow.clone() + "max_queue = 100\n")))
            .unwrap();
    };
    let (done, ()) = tokio::join!(calls(8), edit);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let reconnect = async {
        waiting().await;
        server(&gateway, "zoo").reconnect();
    };
    let (done, ()) = tokio::join!(calls(8), reconnect);
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    stop(gateway).await;
}

#[tokio::test]
async fn edits_faster_than_a_start_keep_the_connection_that_is_up() {
    let edited = |n: usize| zoo("zoo", &["--slow-start", "700", "--tools", &n.to_string()]);
    let gateway = settled(&edited(1)).await;
    let over = std::sync::atomic::AtomicBool::new(false);
    let work = async {
        let mut calls = 0;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            assert_eq!(text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
            calls += 1;
        }
        calls
    };
    let edits = async {
        for n in 2..8 {
            gateway.apply(config(&edited(n))).unwrap();
            text(&gateway, "zoo_sleep", r#"{"ms":50}"#).await;
        }
        eventually("the last edit is in force", SOON, async || {
            let catalog = gateway.catalog();
            catalog
                .tools()
                .iter()
                .any(|entry| entry.tool.id.tool.as_str() == "tool_0007")
                .then_some(())
        })
        .await;
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (calls, ()) = tokio::join!(work, edits);
    assert!(calls > 10, "{calls}");
    stop(gateway).await;
}

#[tokio::test]
async fn a_sleeping_server_is_woken_under_new_settings_and_a_replaced_one_leaves_no_tools() {
    let asleep = zoo("zoo", &[]) + "idle_stop = \"100ms\"\n";
    let gateway = settled(&asleep).await;
    reaches(&gateway, "zoo", State::Asleep).await;
    gateway
        .apply(config(&(asleep + "max_queue = 9\n")))
        .unwrap();
    assert_eq!(text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");

    gateway
        .apply(config("[mcp_servers.zoo]\ncommand = \"no-such-program\"\n"))
        .unwrap();
    reaches(&gateway, "zoo", State::Unavailable).await;
    eventually("the old program's tools are gone", SOON, async || {
        gateway.catalog().tools().is_empty().then_some(())
    })
    .await;
    stop(gateway).await;
}

#[tokio::test]
async fn waiting_for_a_turn_is_bounded_by_the_timeout() {
    let gateway = settled(&(zoo("zoo", &[]) + "max_in_flight = 1\ntimeout = \"400ms\"\n")).await;
    let calls = join_all((0..6).map(|_| {
        let gateway = gateway.clone();
        async move { call(&gateway, "zoo_sleep", r#"{"ms":300}"#).await }
    }));
    let failed: Vec<String> = calls.await.into_iter().filter_map(Result::err).collect();
    // On a slow machine the one that has its turn may be late too.
    let expected = |error: &String| error.contains("is busy") || error.contains("did not answer");
    assert!(failed.iter().all(expected), "{failed:?}");
    assert!(
        failed.iter().any(|error| error.contains("is busy")),
        "{failed:?}"
    );
    stop(gateway).await;
}
