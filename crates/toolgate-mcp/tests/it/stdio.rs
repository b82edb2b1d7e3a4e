//! Servers that run as child processes over stdio.

use futures_util::future::join_all;
use toolgate_mcp::ServerState;
use toolgate_testkit::{eventually, is_alive};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, call_until_ok, server, start_settled, stdio_zoo, wait_for_state,
};

#[tokio::test]
async fn connects_to_every_era_with_every_protocol_setting() {
    for (era, protocol, version) in [
        ("legacy", "auto", "2025-11-25"),
        ("legacy", "legacy", "2025-11-25"),
        ("modern", "auto", "2026-07-28"),
        ("modern", "modern", "2026-07-28"),
        ("dual", "auto", "2025-11-25"),
        ("dual", "modern", "2026-07-28"),
    ] {
        let toml = stdio_zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let registry = start_settled(&toml).await;
        let status = server(&registry, "zoo").status();
        assert_eq!(
            status.state,
            ServerState::Healthy,
            "{era} {protocol}: {:?}",
            status.reason
        );
        assert_eq!(
            status.session.as_ref().unwrap().version,
            version,
            "{era} {protocol}"
        );
        assert_eq!(
            call_text(&registry, "zoo.add", r#"{"a":2,"b":3}"#).await,
            "5"
        );
        registry.stop().await;
    }
}

#[tokio::test]
async fn wrong_protocol_setting_is_reported() {
    for (era, protocol) in [("legacy", "modern"), ("modern", "legacy")] {
        let toml = stdio_zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let registry = start_settled(&toml).await;
        let reason = wait_for_state(&registry, "zoo", ServerState::Unavailable).await;
        assert!(reason.contains("-32601"), "{reason}");
        registry.stop().await;
    }
}

#[tokio::test]
async fn thousand_concurrent_calls_get_their_own_answers() {
    let registry = start_settled(&(stdio_zoo("zoo", &[]) + "max_in_flight = 1000\n")).await;
    let sleepers = join_all((0..1000).map(|n| {
        let registry = &registry;
        let ms = 3000 + n;
        async move {
            let slept = call_text(registry, "zoo.sleep", &format!(r#"{{"ms":{ms}}}"#)).await;
            assert_eq!(
                slept,
                format!("slept {ms} ms"),
                "each caller gets its own answer"
            );
        }
    }));
    let all_in_flight = eventually("a thousand calls are in flight", WAIT_TIMEOUT, async || {
        (server(&registry, "zoo").in_flight() == 1000).then_some(())
    });
    tokio::join!(sleepers, all_in_flight);
    registry.stop().await;
}

#[tokio::test]
async fn oversized_message_fails_only_its_own_call() {
    let registry = start_settled(&stdio_zoo("zoo", &[])).await;
    let big = r#"{"bytes":41943040}"#;
    let small = async {
        for n in 0..50 {
            assert_eq!(
                call_text(&registry, "zoo.add", &format!(r#"{{"a":{n},"b":1}}"#)).await,
                (n + 1).to_string()
            );
        }
    };
    let (error, ()) = tokio::join!(call(&registry, "zoo.big", big), small);
    assert!(error.unwrap_err().contains("larger than 33554432 bytes"));
    assert_eq!(
        call_text(&registry, "zoo.big", r#"{"bytes":1048576}"#)
            .await
            .len(),
        1_048_576
    );
    registry.stop().await;
}

#[tokio::test]
async fn crashed_child_fails_its_calls_immediately_and_is_restarted() {
    let registry = start_settled(&stdio_zoo("zoo", &[])).await;
    let sleeping = call(&registry, "zoo.sleep", r#"{"ms":60000}"#);
    let dying = call(&registry, "zoo.die", "{}");
    let (sleeping, dying) = tokio::join!(sleeping, dying);
    for error in [sleeping.unwrap_err(), dying.unwrap_err()] {
        assert!(error.contains("process exited (exit status: 7)"), "{error}");
    }
    assert_eq!(
        call_until_ok(&registry, "zoo.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    registry.stop().await;
}

#[tokio::test]
async fn child_gets_configured_variables_and_a_minimal_environment() {
    let toml = stdio_zoo("zoo", &[]) + "env = { TOKEN = \"env.ZOO_SECRET\", MODE = \"test\" }\n";
    let registry = start_settled(&toml).await;
    let env: serde_json::Value =
        serde_json::from_str(&call_text(&registry, "zoo.env", "{}").await).unwrap();
    let mut names: Vec<&str> = env
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["MODE", "PATH", "TOKEN"]);
    assert_eq!(env["TOKEN"], "s3cr3t-value");
    registry.stop().await;
}

#[tokio::test]
async fn unset_secret_affects_only_its_server() {
    let toml = stdio_zoo("a", &[]) + "env = { TOKEN = \"env.NOT_SET\" }\n" + &stdio_zoo("b", &[]);
    let registry = start_settled(&toml).await;
    let reason = wait_for_state(&registry, "a", ServerState::Error).await;
    assert!(reason.contains("`NOT_SET` is not set"), "{reason}");
    assert_eq!(call_text(&registry, "b.add", r#"{"a":1,"b":1}"#).await, "2");
    registry.stop().await;
}

#[tokio::test]
async fn secrets_are_masked_in_status_and_stderr() {
    let flags = [
        "--stderr",
        "cannot use token s3cr3t-value today",
        "--exit-on",
        "initialize",
    ];
    let toml = stdio_zoo("zoo", &flags) + "env = { TOKEN = \"env.ZOO_SECRET\" }\n";
    let registry = start_settled(&toml).await;
    let reason = wait_for_state(&registry, "zoo", ServerState::Unavailable).await;
    assert!(reason.contains("cannot use token *** today"), "{reason}");
    let tail = server(&registry, "zoo").stderr_tail();
    assert!(tail.contains("***") && !tail.contains("s3cr3t"), "{tail}");
    registry.stop().await;
}

#[tokio::test]
async fn stop_kills_children_and_grandchildren_that_ignore_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (pid, grandchild) = (file("pid"), file("grandchild"));
    let registry = start_settled(&stdio_zoo(
        "zoo",
        &[
            "--ignore-sigterm",
            "--pid",
            &pid,
            "--grandchild",
            &grandchild,
        ],
    ))
    .await;
    assert_eq!(
        call_text(&registry, "zoo.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let pids = [pid, grandchild].map(|file| {
        std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    });
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    registry.stop().await;
    for pid in pids {
        eventually("the process has exited", WAIT_TIMEOUT, async || {
            (!is_alive(pid)).then_some(())
        })
        .await;
    }
}
