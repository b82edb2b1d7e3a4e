//! Dropping a call cancels it at the server.

use std::path::Path;

use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{WAIT_TIMEOUT, call, call_text, http_server, start_settled, stdio_zoo};

/// Drops a call of server `zoo` once it has arrived, and waits until the server has cancelled it.
async fn check_dropped_call(toml: &str, request_log: &Path) {
    let registry = start_settled(toml).await;
    let logged = async |line: &str| {
        eventually(&format!("{line}: {toml}"), WAIT_TIMEOUT, async || {
            let text = std::fs::read_to_string(request_log).unwrap();
            text.lines().any(|logged| logged == line).then_some(())
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
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for era in ["legacy", "modern"] {
        let request_log = file(&format!("stdio-{era}"));
        let toml = stdio_zoo("zoo", &["--era", era, "--count", &request_log]);
        check_dropped_call(&toml, Path::new(&request_log)).await;
    }
    for flags in [
        &["--era", "legacy", "--sessions"][..],
        &["--era", "modern"],
        &["--sse-legacy"],
    ] {
        let request_log = file(&format!("http{}", flags.concat()));
        let zoo = HttpZoo::start(&[flags, &["--count", &request_log]].concat());
        let url = if flags.contains(&"--sse-legacy") {
            zoo.sse_url()
        } else {
            zoo.url()
        };
        check_dropped_call(&http_server("zoo", &url), Path::new(&request_log)).await;
    }
}
