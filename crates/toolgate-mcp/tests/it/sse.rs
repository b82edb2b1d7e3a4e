//! Servers that use the HTTP+SSE transport of 2024-11-05.

use toolgate_mcp::ServerState;
use toolgate_testkit::HttpZoo;

use crate::support::{call_until_ok, check_concurrent_sums, http_server, server, start_settled};

#[tokio::test]
async fn connects_over_the_legacy_sse_transport() {
    let sse = HttpZoo::start(&["--sse-legacy"]);
    for transport in ["auto", "sse"] {
        let registry = start_settled(
            &(http_server("web", &sse.sse_url()) + &format!("transport = {transport:?}\n")),
        )
        .await;
        let status = server(&registry, "web").status();
        assert_eq!(
            status.state,
            ServerState::Healthy,
            "{transport}: {:?}",
            status.reason
        );
        check_concurrent_sums(&registry, "web", 30, transport).await;
        registry.stop().await;
    }
}

#[tokio::test]
async fn closed_sse_stream_is_reopened() {
    let mut sse = HttpZoo::start(&["--sse-legacy"]);
    let registry = start_settled(&http_server("web", &sse.sse_url())).await;
    sse.restart();
    assert_eq!(
        call_until_ok(&registry, "web.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    registry.stop().await;
}
