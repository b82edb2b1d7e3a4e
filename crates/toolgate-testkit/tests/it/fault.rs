//! Fault injection, as a client observes it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use toolgate_testkit::{eventually, is_alive};

use crate::stdio_zoo::{META, StdioZoo, TIMEOUT, call, request};

#[tokio::test]
async fn garbage_lines_surround_answers() {
    let mut zoo = StdioZoo::start(&["--garbage"]);
    zoo.send(&call(1, "echo", "{}")).await;
    let mut noise = 0;
    loop {
        match serde_json::from_slice::<Value>(&zoo.next_bytes().await) {
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
async fn reorder_sends_answers_newest_first() {
    let mut zoo = StdioZoo::start(&["--reorder"]);
    let (early, late) = (call(1, "echo", "{}"), call(2, "sleep", r#"{"ms":5}"#));
    let both = format!("{early}\n{late}");
    // On a busy machine the second answer may miss the hold time of the first.
    eventually("an answer overtakes another", TIMEOUT, async || {
        let (first, second) = (zoo.exchange(&both).await, zoo.next_line().await);
        (first.contains(r#""id":2"#) && second.contains(r#""id":1"#)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn notify_first_sends_notifications_before_answer() {
    let mut zoo = StdioZoo::start(&["--notify-first"]);
    let line = zoo.exchange(&call(1, "echo", "{}")).await;
    assert!(line.contains("notifications/message"));
    assert!(zoo.next_line().await.contains("notifications/progress"));
    assert!(zoo.next_line().await.contains(r#""id":1"#));
}

#[tokio::test]
async fn silent_on_affects_only_named_method() {
    let mut zoo = StdioZoo::start(&["--silent-on", "server/discover"]);
    zoo.send(&request(1, "server/discover", "{}")).await;
    assert!(
        zoo.exchange(&request(2, "ping", "{}"))
            .await
            .contains(r#""id":2"#)
    );

    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = StdioZoo::start(&["--silent", "--count", count.to_str().unwrap()]);
    zoo.send("nonsense").await;
    zoo.send(&request(1, "ping", "{}")).await;
    wait_for_lines(&count, 1).await;
    zoo.close_stdin();
    assert!(zoo.wait_for_exit().await.success());
    assert_eq!(zoo.read_to_end().await, "");
}

#[tokio::test]
async fn zoo_exits_on_method_and_die_tool() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = StdioZoo::start(&[
        "--exit-on",
        "initialize",
        "--count",
        count.to_str().unwrap(),
    ]);
    zoo.send(&request(1, "initialize", "{}")).await;
    assert_eq!(zoo.wait_for_exit().await.code(), Some(3));
    assert_eq!(wait_for_lines(&count, 1).await, ["initialize"]);

    let mut zoo = StdioZoo::start(&[]);
    zoo.send(&call(1, "die", "{}")).await;
    assert_eq!(zoo.wait_for_exit().await.code(), Some(7));
}

#[tokio::test]
async fn cancelled_sleep_is_logged_and_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let mut zoo = StdioZoo::start(&["--count", count.to_str().unwrap()]);
    zoo.send(&call(1, "sleep", r#"{"ms":600000}"#)).await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    assert_eq!(
        wait_for_lines(&count, 2).await,
        ["tools/call sleep", "cancelled"]
    );
    assert!(
        zoo.exchange(&request(2, "ping", "{}"))
            .await
            .contains(r#""id":2"#)
    );
}

#[tokio::test]
async fn list_changed_storm_follows_initialized_and_listen() {
    let mut zoo = StdioZoo::start(&["--list-changed-storm", "50", "--era", "dual"]);
    zoo.exchange(&request(1, "initialize", "{}")).await;
    zoo.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    for _ in 0..50 {
        assert!(
            zoo.next_line()
                .await
                .contains("notifications/tools/list_changed")
        );
    }
    let params = format!(r#"{{{META},"notifications":{{"toolsListChanged":true}}}}"#);
    let first = zoo
        .exchange(&request(7, "subscriptions/listen", &params))
        .await;
    assert!(first.contains("notifications/subscriptions/acknowledged"));
    for _ in 0..50 {
        let note: Value = serde_json::from_str(&zoo.next_line().await).unwrap();
        let id = &note["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(id, 7);
    }
}

#[tokio::test]
async fn sigterm_and_stdin_eof_can_be_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (pid, grandchild) = (folder.path().join("pid"), folder.path().join("grandchild"));
    let mut zoo = StdioZoo::start(&[
        "--ignore-sigterm",
        "--pid",
        pid.to_str().unwrap(),
        "--grandchild",
        grandchild.to_str().unwrap(),
    ]);
    let (pid, grandchild) = (wait_for_pid(&pid).await, wait_for_pid(&grandchild).await);
    assert_eq!(Some(pid), zoo.child.id());
    kill("-TERM", pid).await;
    assert!(
        zoo.exchange(&request(1, "ping", "{}"))
            .await
            .contains(r#""id":1"#)
    );
    zoo.close_stdin();
    kill("-TERM", pid).await;
    assert!(is_alive(pid) && is_alive(grandchild));
    kill("-KILL", pid).await;
    zoo.wait_for_exit().await;
    assert!(!is_alive(pid));
    assert!(is_alive(grandchild), "the grandchild outlives its parent");
    kill("-KILL", grandchild).await;
    eventually("the grandchild exits", TIMEOUT, async || {
        (!is_alive(grandchild)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stderr_flood_precedes_first_answer() {
    let mut zoo = StdioZoo::start(&["--stderr", "hello", "--stderr-flood", "--slow-start", "1"]);
    let mut stderr = zoo.child.stderr.take().unwrap();
    zoo.send(&request(1, "ping", "{}")).await;
    zoo.close_stdin();
    let mut noise = Vec::new();
    stderr.read_to_end(&mut noise).await.unwrap();
    assert!(noise.starts_with(b"hello\n"));
    assert!(noise.len() > 5_000_000);
    assert!(zoo.next_line().await.contains(r#""id":1"#));
}

#[tokio::test]
#[should_panic(expected = "for: the moon")]
async fn eventually_names_the_awaited_condition() {
    eventually::<()>("the moon", Duration::ZERO, async || None).await;
}

pub(crate) async fn wait_for_lines(file: &Path, at_least: usize) -> Vec<String> {
    eventually("lines in the count file", TIMEOUT, async || {
        let text = std::fs::read_to_string(file).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= at_least).then_some(lines)
    })
    .await
}

async fn wait_for_pid(file: &Path) -> u32 {
    eventually("a process id in a file", TIMEOUT, async || {
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
