//! Servers behind streamable HTTP.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use toolgate::{Caller, Request, State, ToolCall};
use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{SOON, at, call, heals, reaches, server, settled, stop, text};

#[tokio::test]
async fn every_era_and_answer_form() {
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
        let gateway = settled(&at("web", &zoo.url())).await;
        let status = server(&gateway, "web").status();
        assert_eq!(
            status.state,
            State::Healthy,
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
            async move { text(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
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
async fn a_modern_server_gets_arguments_as_headers() {
    let zoo = HttpZoo::start(&["--era", "modern"]);
    let gateway = settled(&at("web", &zoo.url())).await;
    assert_eq!(
        text(&gateway, "web_header_tool", r#"{"region":"eu-west"}"#).await,
        "eu-west"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn own_headers_are_sent_and_the_callers_only_where_allowed() {
    let zoo = HttpZoo::start(&["--require-header", "Authorization:Bearer s3cr3t-value"]);
    let toml = at("web", &zoo.url())
        + "headers = { Authorization = \"Bearer s3cr3t-value\", X-Fixed = \"set\" }\nallowed_extra_headers = [\"X-Tenant\", \"Authorization\", \"X-Fixed\", \"Mcp-Method\", \"X-Forwarded-For\"]\n";
    let gateway = settled(&toml).await;
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
    let request = Arc::new(Request {
        headers,
        ..Request::default()
    });
    let call = ToolCall::parse("web_headers", "{}").of(&request);
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
async fn refusals_become_states_with_reasons() {
    let needs_key = HttpZoo::start(&["--require-header", "Authorization:Bearer x"]);
    let broken = HttpZoo::start(&["--status", "500"]);
    let missing = HttpZoo::start(&["--status", "405"]);
    let elsewhere = HttpZoo::start(&["--redirect", "http://127.0.0.1:9/mcp"]);
    let toml = at("key", &needs_key.url())
        + &at("broken", &broken.url())
        + &at("missing", &missing.url())
        + &at("elsewhere", &elsewhere.url());
    let gateway = settled(&toml).await;
    let reason = reaches(&gateway, "key", State::NeedsAuth).await;
    assert!(
        reason.contains("401") && reason.contains("`headers`"),
        "{reason}"
    );
    for (name, status) in [("broken", "500"), ("missing", "405"), ("elsewhere", "307")] {
        let reason = reaches(&gateway, name, State::Unavailable).await;
        assert!(reason.contains(status), "{name}: {reason}");
    }
    stop(gateway).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_resumed_where_the_server_can() {
    let resumable = HttpZoo::start(&["--half-close", "--resumable", "--sessions"]);
    let cut = HttpZoo::start(&["--half-close"]);
    let gateway = settled(&(at("resumable", &resumable.url()) + &at("cut", &cut.url()))).await;
    assert_eq!(
        text(&gateway, "resumable_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let error = call(&gateway, "cut_add", r#"{"a":1,"b":1}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("ended the stream before the answer"),
        "{error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn a_forgotten_session_is_made_anew() {
    let zoo = HttpZoo::start(&["--sessions", "--expire-after", "12"]);
    let gateway = settled(&at("web", &zoo.url())).await;
    for n in 0..40 {
        let sum = heals(&gateway, "web_add", &format!(r#"{{"a":{n},"b":1}}"#)).await;
        assert_eq!(sum, (n + 1).to_string());
    }
    stop(gateway).await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    for flags in [&["--sessions"][..], &["--era", "modern"]] {
        let mut zoo = HttpZoo::start(flags);
        let gateway = settled(&at("web", &zoo.url())).await;
        assert_eq!(text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await, "2");
        zoo.kill();
        let error = call(&gateway, "web_add", r#"{"a":1,"b":1}"#)
            .await
            .unwrap_err();
        assert!(
            error.contains("cannot be reached") || error.contains("connection"),
            "{error}"
        );
        reaches(&gateway, "web", State::Unavailable).await;
        zoo.restart();
        assert_eq!(heals(&gateway, "web_add", r#"{"a":1,"b":1}"#).await, "2");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn giving_up_cancels_at_the_server() {
    for flags in [&["--era", "legacy", "--sessions"][..], &["--era", "modern"]] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        let zoo = HttpZoo::start(&[flags, &["--count", ledger.to_str().unwrap()]].concat());
        let toml = at("web", &zoo.url()) + "timeout = \"200ms\"\n";
        let gateway = settled(&toml).await;
        call(&gateway, "web_sleep", r#"{"ms":60000}"#)
            .await
            .unwrap_err();
        eventually("the server hears of the cancel", SOON, async || {
            std::fs::read_to_string(&ledger)
                .unwrap()
                .contains("cancelled")
                .then_some(())
        })
        .await;
        stop(gateway).await;
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_errors() {
    for flags in [&["--json"][..], &[]] {
        let zoo = HttpZoo::start(flags);
        let gateway = settled(&at("web", &zoo.url())).await;
        let error = call(&gateway, "web_big", r#"{"bytes":41943040}"#)
            .await
            .unwrap_err();
        assert!(error.contains("larger than 33554432 bytes"), "{error}");
        assert_eq!(text(&gateway, "web_add", r#"{"a":1,"b":1}"#).await, "2");
        stop(gateway).await;
    }
}
