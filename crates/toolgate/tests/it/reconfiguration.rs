//! Configuration changes while calls are in flight.

use futures_util::future::join_all;
use toolgate::ServerState;
use toolgate_testkit::eventually;

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, config, server, start_settled, stdio_zoo, stop,
    wait_for_state,
};

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
        gateway.apply(config(&after)).await.unwrap();
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
        .await
        .unwrap();
    wait_for_state(&gateway, "zoo", ServerState::Disabled).await;
    eventually("its tools are removed", WAIT_TIMEOUT, async || {
        gateway.catalog().tools().is_empty().then_some(())
    })
    .await;
    gateway.apply(config(&on)).await.unwrap();
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
            .await
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
            gateway.apply(config(&edited(n))).await.unwrap();
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
        .await
        .unwrap();
    assert_eq!(
        call_text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );

    gateway
        .apply(config("[mcp_servers.zoo]\ncommand = \"no-such-program\"\n"))
        .await
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
