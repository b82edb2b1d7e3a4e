//! Servers as child processes.

use std::time::Duration;

use futures_util::future::join_all;
use toolgate::{Arguments, Caller, State, ToolCall};
use toolgate_testkit::{alive, eventually};

use crate::support::{SOON, call, heals, reaches, server, settled, stop, text, zoo};

#[tokio::test]
async fn every_era_in_every_protocol_setting() {
    for (era, protocol, version) in [
        ("legacy", "auto", "2025-11-25"),
        ("legacy", "legacy", "2025-11-25"),
        ("modern", "auto", "2026-07-28"),
        ("modern", "modern", "2026-07-28"),
        ("dual", "auto", "2025-11-25"),
        ("dual", "modern", "2026-07-28"),
    ] {
        let toml = zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let gateway = settled(&toml).await;
        let status = server(&gateway, "zoo").status();
        assert_eq!(
            status.state,
            State::Healthy,
            "{era} {protocol}: {:?}",
            status.reason
        );
        assert_eq!(
            status.session.as_ref().unwrap().version,
            version,
            "{era} {protocol}"
        );
        assert_eq!(text(&gateway, "zoo_add", r#"{"a":2,"b":3}"#).await, "5");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn a_wrong_protocol_setting_is_told() {
    for (era, protocol) in [("legacy", "modern"), ("modern", "legacy")] {
        let toml = zoo("zoo", &["--era", era]) + &format!("protocol = {protocol:?}\n");
        let gateway = settled(&toml).await;
        let reason = reaches(&gateway, "zoo", State::Unavailable).await;
        assert!(reason.contains("-32601"), "{reason}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn a_thousand_calls_in_flight_come_back_to_their_callers() {
    let gateway = settled(&(zoo("zoo", &[]) + "max_in_flight = 1000\n")).await;
    let sleepers = join_all((0..1000).map(|n| {
        let gateway = gateway.clone();
        let ms = 3000 + n;
        async move {
            let slept = text(&gateway, "zoo_sleep", &format!(r#"{{"ms":{ms}}}"#)).await;
            assert_eq!(
                slept,
                format!("slept {ms} ms"),
                "each caller gets its own answer"
            );
        }
    }));
    let all_at_once = eventually("a thousand calls are under way", SOON, async || {
        (server(&gateway, "zoo").in_flight() == 1000).then_some(())
    });
    tokio::join!(sleepers, all_at_once);
    stop(gateway).await;
}

#[tokio::test]
async fn a_message_over_the_limit_fails_its_call_alone() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let big = r#"{"bytes":41943040}"#;
    let small = async {
        for n in 0..50 {
            assert_eq!(
                text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await,
                (n + 1).to_string()
            );
        }
    };
    let (error, ()) = tokio::join!(call(&gateway, "zoo_big", big), small);
    assert!(error.unwrap_err().contains("larger than 33554432 bytes"));
    assert_eq!(
        text(&gateway, "zoo_big", r#"{"bytes":1048576}"#)
            .await
            .len(),
        1_048_576
    );
    stop(gateway).await;
}

#[tokio::test]
async fn giving_up_and_timeouts_cancel_at_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let toml = zoo("zoo", &["--count", ledger.to_str().unwrap()]) + "timeout = \"300ms\"\n";
    let gateway = settled(&toml).await;
    let cancelled = |expected: usize| {
        let ledger = ledger.clone();
        eventually("the server hears of the cancel", SOON, async move || {
            let text = std::fs::read_to_string(&ledger).unwrap();
            (text.lines().filter(|line| *line == "cancelled").count() == expected).then_some(())
        })
    };
    let error = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#)
        .await
        .unwrap_err();
    assert!(
        error.contains("did not answer within 0.3 s and was cancelled"),
        "{error}"
    );
    cancelled(1).await;

    let sleeping = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#);
    let given_up = tokio::time::timeout(Duration::from_millis(100), sleeping).await;
    assert!(given_up.is_err());
    cancelled(2).await;
    stop(gateway).await;
}

#[tokio::test]
async fn a_dead_child_fails_its_calls_at_once_and_comes_back() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let sleeping = call(&gateway, "zoo_sleep", r#"{"ms":60000}"#);
    let dying = call(&gateway, "zoo_die", "{}");
    let (sleeping, dying) = tokio::join!(sleeping, dying);
    for error in [sleeping.unwrap_err(), dying.unwrap_err()] {
        assert!(error.contains("process ended (exit status: 7)"), "{error}");
    }
    assert_eq!(heals(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn a_child_gets_its_own_variables_and_a_minimal_environment() {
    let toml = zoo("zoo", &[]) + "env = { TOKEN = \"env.ZOO_SECRET\", MODE = \"test\" }\n";
    let gateway = settled(&toml).await;
    let env: serde_json::Value =
        serde_json::from_str(&text(&gateway, "zoo_env", "{}").await).unwrap();
    let mut names: Vec<&str> = env
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["MODE", "PATH", "TOKEN"]);
    assert_eq!(env["TOKEN"], "s3cr3t-value");
    stop(gateway).await;
}

#[tokio::test]
async fn an_unset_secret_is_an_error_of_that_server_alone() {
    let toml = zoo("a", &[]) + "env = { TOKEN = \"env.NOT_SET\" }\n" + &zoo("b", &[]);
    let gateway = settled(&toml).await;
    let reason = reaches(&gateway, "a", State::Error).await;
    assert!(reason.contains("`NOT_SET` is not set"), "{reason}");
    assert_eq!(text(&gateway, "b_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn secrets_stay_out_of_what_is_shown_of_a_server() {
    let flags = [
        "--stderr",
        "cannot use token s3cr3t-value today",
        "--exit-on",
        "initialize",
    ];
    let toml = zoo("zoo", &flags) + "env = { TOKEN = \"env.ZOO_SECRET\" }\n";
    let gateway = settled(&toml).await;
    let reason = reaches(&gateway, "zoo", State::Unavailable).await;
    assert!(reason.contains("cannot use token *** today"), "{reason}");
    let tail = server(&gateway, "zoo").stderr_tail();
    assert!(tail.contains("***") && !tail.contains("s3cr3t"), "{tail}");
    stop(gateway).await;
}

#[tokio::test]
async fn stopping_ends_stubborn_children_and_grandchildren() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (pid, grandchild) = (file("pid"), file("grandchild"));
    let gateway = settled(&zoo(
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
    assert_eq!(text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    let pids = [pid, grandchild].map(|file| {
        std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    });
    assert!(pids.iter().all(|&pid| alive(pid)));
    stop(gateway).await;
    for pid in pids {
        eventually("the process is gone", SOON, async || {
            (!alive(pid)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_stopping_gateway_waits_for_calls_up_to_its_bound() {
    let gateway = settled(&zoo("zoo", &[])).await;
    let run = |ms: u32| {
        let gateway = gateway.clone();
        async move {
            let arguments = Arguments::parse(&format!(r#"{{"ms":{ms}}}"#)).unwrap();
            gateway
                .call(&Caller::library(), ToolCall::new("zoo_sleep", arguments))
                .await
        }
    };
    let in_flight = async {
        let (short, long) = tokio::join!(run(200), run(60_000));
        assert!(short.is_ok(), "{short:?}");
        assert!(
            matches!(long, Err(toolgate::CallError::Cancelled)),
            "{long:?}"
        );
    };
    let stopping = async {
        eventually("both calls are under way", SOON, async || {
            gateway
                .metrics()
                .contains("in_flight{server=\"zoo\"} 2")
                .then_some(())
        })
        .await;
        gateway.stop(Duration::from_secs(1)).await;
    };
    tokio::join!(in_flight, stopping);
}
