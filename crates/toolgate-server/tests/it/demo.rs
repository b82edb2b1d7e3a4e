//! `make demo`, without anybody at the terminal: with a scripted model, and with the real small one
//! where that is installed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use toolgate_testkit::zoo_path;

use crate::gate::SOON;
use crate::real_model;
use crate::sdk::env_file;

const PATIENCE: Duration = Duration::from_secs(300);

/// The demo on the binaries of this build, with its temporary folder in another one.
fn demo(folder: &Path, flags: &[&str]) -> Command {
    for installed in [
        "node_modules/.bin/mcp-server-filesystem",
        ".venv/bin/mcp-server-time",
    ] {
        env_file(&format!("../../examples/demo/servers/{installed}"));
    }
    let mut command = Command::new("python3");
    command
        .arg(env_file("../../examples/demo/demo.py"))
        .args(["--toolgate", env!("CARGO_BIN_EXE_toolgate"), "--scripted"])
        .arg(zoo_path().with_file_name("toolgate-model"))
        .args(flags)
        .env_clear()
        .env("PATH", env!("PATH"))
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Plays the whole demo, and gives what it shows.
async fn played(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = tokio::time::timeout(PATIENCE, demo(folder.path(), flags).output());
    let output = output.await.expect("the demo ends").unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    for part in [
        "tool   time_get_current_time {\"timezone\":",
        "result time_get_current_time: { \"timezone\": \"Europe/Paris\"",
        "waits  files_read_text_file {\"path\":",
        "result files_read_text_file: The demo works",
        "call_waits",
        "call_closed",
        "done: 2 model calls",
        "/api/runs/run_",
        "nothing was left behind",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    shown
}

#[tokio::test]
async fn it_shows_what_a_scripted_model_does() {
    let shown = played(&["--scripted-only"]).await;
    assert!(shown.contains("a script plays the model"), "{shown}");
}

#[tokio::test]
async fn it_shows_what_the_real_model_does() {
    if !real_model::is_installed() {
        return real_model::skipped("demo");
    }
    let shown = played(&[]).await;
    assert!(!shown.contains("a script plays"), "{shown}");
}

#[tokio::test]
async fn it_cleans_up_when_it_is_interrupted() {
    // On a busy machine it may come to its end before the signal does.
    for _ in 0..10 {
        if interrupted().await == Some(130) {
            return;
        }
    }
    panic!("it goes on when it is interrupted");
}

/// How the demonstration ends if it is interrupted once it is ready.
async fn interrupted() -> Option<i32> {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--scripted-only"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = loop {
        let line = lines.next_line().await.unwrap().expect("it gets ready");
        if let Some(url) = line.strip_prefix("ready: ") {
            break url.to_owned();
        }
    };
    let id = child.id().unwrap().to_string();
    let interrupted = Command::new("kill").args(["-INT", &id]).status().await;
    assert!(interrupted.unwrap().success());
    while lines.next_line().await.unwrap().is_some() {}
    let ended = tokio::time::timeout(SOON, child.wait()).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let gone = std::net::TcpStream::connect(url.strip_prefix("http://").unwrap());
    assert!(gone.is_err(), "the gateway is gone");
    ended.unwrap().unwrap().code()
}
