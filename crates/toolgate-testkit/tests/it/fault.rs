//! The faults, each seen from the client that has to cope with it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use toolgate_testkit::{alive, eventually};

use crate::pipe::{META, PATIENCE, Pipe, call, request};

#[tokio::test]
async fn garbage_surrounds_the_answers() {
    let mut zoo = Pipe::start(&["--garbage"]);
    zoo.send(&call(1, "echo", "{}")).await;
    let mut noise = 0;
    loop {
        match serde_json::from_slice::<Value>(&zoo.bytes().await) {
            Ok(Value::Object(answer)) => {
                assert_eq!(answer["id"], 1);
                break;
            }
            _ => noise += 1,
        }
    }
    assert!(noise > 5);
}

#[tokio::test]
async fn answers_come_newest_first() {
    let mut zoo = Pipe::start(&["--reorder"]);
    let (early, late) = (call(1, "echo", "{}"), call(2, "sleep", r#"{"ms":5}"#));
    let both = format!("{early}\n{late}");
    // On a busy machine the second may miss the time for which the first is held back.
    eventually("an answer that overtakes another", PATIENCE, async || {
        let (first, second) = (zoo.ask(&both).await, zoo.line().await);
        (first.contains(r#""id":2"#) && second.contains(r#""id":1"#)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn notifications_precede_the_answer() {
    let mut zoo = Pipe::start(&["--notify-first"]);
    let line = zoo.ask(&call(1, "echo", "{}")).await;
    assert!(line.contains("notifications/message"));
    assert!(zoo.line().await.contains("notifications/progress"));
    assert!(zoo.line().await.contains(r#""id":1"#));
}

#[tokio::test]
async fn silence_is_for_the_named_method_only() {
    let mut zoo = Pipe::start(&["--silent-on", "server/discover"]);
    zoo.send(&request(1, "server/discover", "{}")).await;
    assert!(
        zoo.ask(&request(2, "ping", "{}"))
            .await
            .contains(r#""id":2"#)
    );

    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = Pipe::start(&["--silent", "--count", count.to_str().unwrap()]);
    zoo.send("nonsense").await;
    zoo.send(&request(1, "ping", "{}")).await;
    lines(&count, 1).await;
    zoo.close_stdin();
    assert!(zoo.ended().await.success());
    assert_eq!(zoo.rest().await, "");
}

#[tokio::test]
async fn it_exits_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = Pipe::start(&[
        "--exit-on",
        "initialize",
        "--count",
        count.to_str().unwrap(),
    ]);
    zoo.send(&request(1, "initialize", "{}")).await;
    assert_eq!(zoo.ended().await.code(), Some(3));
    assert_eq!(lines(&count, 1).await, ["initialize"]);

    let mut zoo = Pipe::start(&[]);
    zoo.send(&call(1, "die", "{}")).await;
    assert_eq!(zoo.ended().await.code(), Some(7));
}

#[tokio::test]
async fn a_cancelled_sleep_is_counted_and_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = Pipe::start(&["--count", count.to_str().unwrap()]);
    zoo.send(&call(1, "sleep", r#"{"ms":600000}"#)).await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    assert_eq!(lines(&count, 2).await, ["tools/call sleep", "cancelled"]);
    assert!(
        zoo.ask(&request(2, "ping", "{}"))
            .await
            .contains(r#""id":2"#)
    );
}

#[tokio::test]
async fn changes_storm_after_initialized_and_in_a_subscription() {
    let mut zoo = Pipe::start(&["--list-changed-storm", "50", "--era", "dual"]);
    zoo.ask(&request(1, "initialize", "{}")).await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    for _ in 0..50 {
        assert!(
            zoo.line()
                .await
                .contains("notifications/tools/list_changed")
        );
    }
    let params = format!(r#"{{{META},"notifications":{{"toolsListChanged":true}}}}"#);
    let first = zoo.ask(&request(7, "subscriptions/listen", &params)).await;
    assert!(first.contains("notifications/subscriptions/acknowledged"));
    for _ in 0..50 {
        let note: Value = serde_json::from_str(&zoo.line().await).unwrap();
        let id = &note["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(id, 7);
    }
}

#[tokio::test]
async fn sigterm_and_the_end_of_stdin_can_be_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (pid, grandchild) = (folder.path().join("pid"), folder.path().join("grandchild"));
    let mut zoo = Pipe::start(&[
        "--ignore-sigterm",
        "--pid",
        pid.to_str().unwrap(),
        "--grandchild",
        grandchild.to_str().unwrap(),
    ]);
    let (pid, grandchild) = (number(&pid).await, number(&grandchild).await);
    assert_eq!(Some(pid), zoo.child.id());
    kill("-TERM", pid).await;
    assert!(
        zoo.ask(&request(1, "ping", "{}"))
            .await
            .contains(r#""id":1"#)
    );
    zoo.close_stdin();
    kill("-TERM", pid).await;
    assert!(alive(pid) && alive(grandchild));
    kill("-KILL", pid).await;
    zoo.ended().await;
    assert!(!alive(pid));
    assert!(alive(grandchild), "the child outlives its parent");
    kill("-KILL", grandchild).await;
    eventually("the end of the grandchild", PATIENCE, async || {
        (!alive(grandchild)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stderr_is_flooded_before_anything_is_answered() {
    let mut zoo = Pipe::start(&["--stderr", "hello", "--stderr-flood", "--slow-start", "1"]);
    let mut stderr = zoo.child.stderr.take().unwrap();
    zoo.send(&request(1, "ping", "{}")).await;
    zoo.close_stdin();
    let mut noise = Vec::new();
    stderr.read_to_end(&mut noise).await.unwrap();
    assert!(noise.starts_with(b"hello\n"));
    assert!(noise.len() > 5_000_000);
    assert!(zoo.line().await.contains(r#""id":1"#));
}

#[tokio::test]
#[should_panic(expected = "for: the moon")]
async fn eventually_says_what_was_awaited() {
    eventually::<()>("the moon", Duration::ZERO, async || None).await;
}

pub(crate) async fn lines(file: &Path, at_least: usize) -> Vec<String> {
    eventually("lines in the count file", PATIENCE, async || {
        let text = std::fs::read_to_string(file).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= at_least).then_some(lines)
    })
    .await
}

async fn number(file: &Path) -> u32 {
    eventually("a process id in a file", PATIENCE, async || {
        let text = std::fs::read_to_string(file).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    })
    .await
}

async fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args([signal, &pid.to_string()])
        .stdin(Stdio::null())
        .status()
        .await
        .unwrap();
    assert!(status.success());
}
