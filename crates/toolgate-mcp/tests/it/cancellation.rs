//! Dropping a call cancels it at the server.

use toolgate_testkit::{HttpZoo, ZooLog, eventually};

use crate::support::{WAIT_TIMEOUT, call, call_text, http_server, start_settled, stdio_zoo};

/// Drops a call of server `zoo` once it has arrived, and waits until the server has cancelled it.
async fn check_dropped_call(toml: &str, log: &ZooLog) {
    let registry = start_settled(toml).await;
    let logged = async |line: &str| {
        eventually(&format!("{line}: {toml}"), WAIT_TIMEOUT, async || {
            (log.count(line) > 0).then_some(())
        })
        .await;
    };
    tokio::select! {
        answer = call(&registry, "zoo.sleep", r#"{"ms":600000}"#) => panic!("{answer:?}"),
        () = logged("tools/call sleep") => {}
    }
    logged("cancelled").await;
    assert_eq!(
        call_text(&registry, "zoo.add", r#"{"a":1,"b":1}"#).await,
        "2",
        "the connection stays usable"
    );
    registry.stop().await;
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    for era in ["legacy", "modern"] {
        let log = ZooLog::create();
        let toml = stdio_zoo("zoo", &[&["--era", era][..], &log.flags()].concat());
        check_dropped_call(&toml, &log).await;
    }
    for flags in [
        &["--era", "legacy", "--sessions"][..],
        &["--era", "modern"],
        &["--sse-legacy"],
    ] {
        let log = ZooLog::create();
        let zoo = HttpZoo::start(&[flags, &log.flags()].concat());
        let url = if flags.contains(&"--sse-legacy") {
            zoo.sse_url()
        } else {
            zoo.url()
        };
        check_dropped_call(&http_server("zoo", &url), &log).await;
    }
}
