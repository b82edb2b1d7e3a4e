//! Servers that use streamable HTTP.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use toolgate::{Caller, RequestContext, ServerState, ToolCall};
use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, http_server, server, start_settled, stop,
    wait_for_state,
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
        let gateway = start_settled(&http_server("web", &zoo.url())).await;
        let status = server(&gateway, "web").status();
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
        let sums = (0..50).map(|n| {
            let gateway = gateway.clone();
            async move { call_text(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
        });
        let sums = futures_util::future::join_all(sums).await;
        assert_eq!(
            sums,
            (1..=50).map(|n| n.to_string()).collect::<Vec<_>>(),
            "{flags:?}"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn modern_server_receives_arguments_as_headers() {
    let zoo = HttpZoo::start(&["--era", "modern"]);
    let gateway = start_settled(&http_server("web", &zoo.url())).await;
    assert_eq!(
        call_text(&gateway, "web_header_tool", r#"{"region":"eu-west"}"#).await,
        "eu-west"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn sends_configured_headers_and_only_allowed_caller_headers() {
    let zoo = HttpZoo::start(&["--require-header", "Authorization:Bearer s3cr3t-value"]);
    let toml = http_server("web", &zoo.url())
        + "headers = { Authorization = \"Bearer s3cr3t-value\", X-Fixed = \"set\" }\nallowed_extra_headers = [\"X-Tenant\", \"Authorization\", \"X-Fixed\", \"Mcp-Method\", \"X-Forwarded-For\"]\n";
    let gateway = start_settled(&toml).await;
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-tenant", "blue"),
        ("x-other", "no"),
        ("x-fixed", "changed"),
        ("mcp-method", "forged"),
        ("x-forwarded-for", "1.2.3.4"),
        ("authorization", "Bearer caller"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let request = Arc::new(RequestContext {
        headers,
        ..RequestContext::default()
    });
    let call = ToolCall::parse("web_headers", "{}").with_request(&request);
    let outcome = gateway.call(&Caller::library(), call).await.unwrap();
    let sent: serde_json::Value = serde_json::from_str(&outcome.result.text()).unwrap();
    assert_eq!(sent["x-tenant"], "blue");
    assert_eq!(sent["authorization"], "Bearer s3cr3t-value");
    assert_eq!(sent["x-fixed"], "set");
    for name in ["x-other", "mcp-method", "x-forwarded-for"] {
        assert!(sent.get(name).is_none(), "{name}");
    }
    stop(gateway).await;
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
    let gateway = start_settled(&toml).await;
    let reason = wait_for_state(&gateway, "key", ServerState::NeedsAuth).await;
    assert!(
        reason.contains("401") && reason.contains("`headers`"),
        "{reason}"
    );
    for (name, status) in [("broken", "500"), ("missing", "405"), ("elsewhere", "307")] {
        let reason = wait_for_state(&gateway, name, ServerState::Unavailable).await;
        assert!(reason.contains(status), "{name}: {reason}");
    }
    stop(gateway).await;
}

#[tokio::test]
async fn interrupted_stream_is_resumed_if_the_server_supports_it() {
    let resumable = HttpZoo::start(&["--half-close", "--resumable", "--sessions"]);
    let cut = HttpZoo::start(&["--half-close"]);
    let gateway = start_settled(
        &(http_server("resumable", &resumable.url()) + &http_server("cut", &cut.url())),
    )
    .await;
    assert_eq!(
        call_text(&gateway, "resumable_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let error = call(&gateway, "cut_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("closed the stream before responding"),
        "{error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn expired_session_is_renewed() {
    let zoo = HttpZoo::start(&["--sessions", "--expire-after", "12"]);
    let gateway = start_settled(&http_server("web", &zoo.url())).await;
    for n in 0..40 {
        let sum = call_until_ok(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(sum, (n + 1).to_string());
    }
    stop(gateway).await;
}

#[tokio::test]
async fn reconnects_to_a_restarted_server() {
    for flags in [&["--sessions"][..], &["--era", "modern"]] {
        let mut zoo = HttpZoo::start(flags);
        let gateway = start_settled(&http_server("web", &zoo.url())).await;
        assert_eq!(
            call_text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        zoo.kill();
        let error = call(&gateway, "web_add", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        assert!(
            error.contains("cannot be reached") || error.contains("connection"),
            "{error}"
        );
        wait_for_state(&gateway, "web", ServerState::Unavailable).await;
        zoo.restart();
        assert_eq!(
            call_until_ok(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        stop(gateway).await;
    }
}

#[tokio::test]
async fn timeouts_are_cancelled_at_the_server() {
    for flags in [&["--era", "legacy", "--sessions"][..], &["--era", "modern"]] {
        let folder = tempfile::tempdir().unwrap();
        let request_log = folder.path().join("request_log");
        let zoo = HttpZoo::start(&[flags, &["--count", request_log.to_str().unwrap()]].concat());
        let toml = http_server("web", &zoo.url()) + "timeout = \"200ms\"\n";
        let gateway = start_settled(&toml).await;
        call(&gateway, "web_sleep", r#"{"ms":60000}"#)
            .await
            .unwrap_err();
        eventually(
            "the server receives the cancellation",
            WAIT_TIMEOUT,
            async || {
                std::fs::read_to_string(&request_log)
                    .unwrap()
                    .contains("cancelled")
                    .then_some(())
            },
        )
        .await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    for flags in [&["--json"][..], &[]] {
        let zoo = HttpZoo::start(flags);
        let gateway = start_settled(&http_server("web", &zoo.url())).await;
        let error = call(&gateway, "web_big", r#"{"bytes":41943040}"#)
            .await
            .unwrap_err();
        assert!(error.contains("larger than 33554432 bytes"), "{error}");
        assert_eq!(
            call_text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        stop(gateway).await;
    }
}
