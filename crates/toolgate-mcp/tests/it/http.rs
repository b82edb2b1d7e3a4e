//! Servers that use streamable HTTP.

use http::{HeaderMap, HeaderValue};
use toolgate_mcp::ServerState;
use toolgate_testkit::HttpZoo;

use crate::support::{
    CallOptions, call, call_text, call_until_ok, call_with, check_concurrent_sums, http_server,
    server, start_settled, text, wait_for_state,
};

#[tokio::test]
async fn connects_to_every_era_and_response_format() {
    for (flags, version) in [
        (&["--era", "legacy"][..], "2025-11-25"),
        (&["--era", "legacy", "--json"], "2025-11-25"),
        (&["--era", "legacy", "--sessions"], "2025-11-25"),
        (
            &["--era", "legacy", "--sessions", "--json", "--notify-first"],
            "2025-11-25",
        ),
        (&["--era", "modern"], "2026-07-28"),
        (&["--era", "modern", "--json"], "2026-07-28"),
        (&["--era", "dual", "--notify-first"], "2026-07-28"),
    ] {
        let zoo = HttpZoo::start(flags);
        let registry = start_settled(&http_server("web", &zoo.url())).await;
        let status = server(&registry, "web").status();
        assert_eq!(
            status.state,
            ServerState::Healthy,
            "{flags:?}: {:?}",
            status.reason
        );
        assert_eq!(
            status.session.as_ref().unwrap().version,
            version,
            "{flags:?}"
        );
        check_concurrent_sums(&registry, "web", 50, flags).await;
        registry.stop().await;
    }
}

#[tokio::test]
async fn modern_server_receives_arguments_as_headers() {
    let zoo = HttpZoo::start(&["--era", "modern"]);
    let registry = start_settled(&http_server("web", &zoo.url())).await;
    assert_eq!(
        call_text(&registry, "web.header_tool", r#"{"region":"eu-west"}"#).await,
        "eu-west"
    );
    registry.stop().await;
}

#[tokio::test]
async fn sends_configured_headers_and_those_of_the_call() {
    let zoo = HttpZoo::start(&["--require-header", "Authorization:Bearer s3cr3t-value"]);
    let toml = http_server("web", &zoo.url())
        + "headers = { Authorization = \"Bearer s3cr3t-value\", X-Fixed = \"set\" }\n";
    let registry = start_settled(&toml).await;
    let options = CallOptions {
        headers: HeaderMap::from_iter([(
            "x-tenant".parse().unwrap(),
            HeaderValue::from_static("blue"),
        )]),
        ..CallOptions::default()
    };
    let result = call_with(&registry, "web.headers", "{}", options).await;
    let sent: serde_json::Value = serde_json::from_str(&text(&result.unwrap())).unwrap();
    assert_eq!(sent["x-tenant"], "blue");
    assert_eq!(sent["authorization"], "Bearer s3cr3t-value");
    assert_eq!(sent["x-fixed"], "set");
    registry.stop().await;
}

#[tokio::test]
async fn http_errors_become_server_states_with_reasons() {
    let needs_key = HttpZoo::start(&["--require-header", "Authorization:Bearer x"]);
    let broken = HttpZoo::start(&["--status", "500"]);
    let missing = HttpZoo::start(&["--status", "405"]);
    let elsewhere = HttpZoo::start(&["--redirect", "http://127.0.0.1:9/mcp"]);
    let toml = http_server("key", &needs_key.url())
        + &http_server("broken", &broken.url())
        + &http_server("missing", &missing.url())
        + &http_server("elsewhere", &elsewhere.url());
    let registry = start_settled(&toml).await;
    let reason = wait_for_state(&registry, "key", ServerState::NeedsAuth).await;
    assert!(
        reason.contains("401") && reason.contains("`headers`"),
        "{reason}"
    );
    for (name, status) in [("broken", "500"), ("missing", "405"), ("elsewhere", "307")] {
        let reason = wait_for_state(&registry, name, ServerState::Unavailable).await;
        assert!(reason.contains(status), "{name}: {reason}");
    }
    registry.stop().await;
}

#[tokio::test]
async fn interrupted_stream_is_resumed_if_the_server_supports_it() {
    let resumable = HttpZoo::start(&["--half-close", "--resumable", "--sessions"]);
    let cut = HttpZoo::start(&["--half-close"]);
    let registry = start_settled(
        &(http_server("resumable", &resumable.url()) + &http_server("cut", &cut.url())),
    )
    .await;
    assert_eq!(
        call_text(&registry, "resumable.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let error = call(&registry, "cut.add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("closed the stream before responding"),
        "{error}"
    );
    registry.stop().await;
}

#[tokio::test]
async fn expired_session_is_renewed() {
    let zoo = HttpZoo::start(&["--sessions", "--expire-after", "12"]);
    let registry = start_settled(&http_server("web", &zoo.url())).await;
    for n in 0..40 {
        let sum = call_until_ok(&registry, "web.add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(sum, (n + 1).to_string());
    }
    registry.stop().await;
}

#[tokio::test]
async fn reconnects_to_a_restarted_server() {
    for flags in [&["--sessions"][..], &["--era", "modern"]] {
        let mut zoo = HttpZoo::start(flags);
        let registry = start_settled(&http_server("web", &zoo.url())).await;
        assert_eq!(
            call_text(&registry, "web.add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        zoo.kill();
        let error = call(&registry, "web.add", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        assert!(
            error.contains("cannot be reached") || error.contains("connection"),
            "{error}"
        );
        wait_for_state(&registry, "web", ServerState::Unavailable).await;
        zoo.restart();
        assert_eq!(
            call_until_ok(&registry, "web.add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        registry.stop().await;
    }
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    for flags in [&["--json"][..], &[]] {
        let zoo = HttpZoo::start(flags);
        let registry = start_settled(&http_server("web", &zoo.url())).await;
        let error = call(&registry, "web.big", r#"{"bytes":41943040}"#)
            .await
            .unwrap_err();
        assert!(error.contains("larger than 33554432 bytes"), "{error}");
        assert_eq!(
            call_text(&registry, "web.add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        registry.stop().await;
    }
}
