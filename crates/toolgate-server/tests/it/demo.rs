//! `make demo` without a terminal: with a scripted model, and with the small real model where it is
//! installed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use toolgate_testkit::zoo_path;

use crate::gate::WAIT_TIMEOUT;
use crate::mcp_sdk::env_file;
use crate::optional_env::OptionalComponent;

const DEMO_TIMEOUT: Duration = Duration::from_secs(300);

/// Builds the demo command for the binaries of this build, with temporary files in this folder.
fn demo_command(folder: &Path, flags: &[&str]) -> Command {
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

/// Runs the whole demo and returns its output.
async fn run_demo(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = tokio::time::timeout(DEMO_TIMEOUT, demo_command(folder.path(), flags).output());
    let output = output.await.expect("the demo timed out").unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{output_text}");
    for part in [
        "tool   time_get_current_time {\"timezone\":",
        "result time_get_current_time: { \"timezone\": \"Europe/Paris\"",
        "waits  files_read_text_file {\"path\":",
        "result files_read_text_file: The demo works",
        "call_waits",
        "call_closed",
        "done: 2 model calls",
        "/api/runs/run_",
        "Open the web page: http://127.0.0.1:",
        "nothing was left behind",
    ] {
        assert!(output_text.contains(part), "{part}: {output_text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    output_text
}

#[tokio::test]
async fn demo_runs_with_scripted_model() {
    let output_text = run_demo(&["--scripted-only"]).await;
    assert!(
        output_text.contains("a script plays the model"),
        "{output_text}"
    );
}

#[tokio::test]
async fn demo_runs_with_real_model() {
    if !OptionalComponent::Model.check_available("demo") {
        return;
    }
    let output_text = run_demo(&[]).await;
    assert!(!output_text.contains("a script plays"), "{output_text}");
}

#[tokio::test]
async fn interrupted_demo_cleans_up() {
    // On a busy machine the demo may end before the signal arrives.
    for _ in 0..10 {
        if interrupt_demo().await == Some(130) {
            return;
        }
    }
    panic!("the demo ignored every interrupt");
}

/// Interrupts the demo once it is ready and returns its exit code.
async fn interrupt_demo() -> Option<i32> {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo_command(folder.path(), &["--scripted-only"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("the demo ended before it was ready");
        if let Some(url) = line.strip_prefix("ready: ") {
            break url.to_owned();
        }
    };
    // Without a process of its own, since the demo takes only a moment.
    let id = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    while lines.next_line().await.unwrap().is_some() {}
    let exit = tokio::time::timeout(WAIT_TIMEOUT, child.wait()).await;
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let connection = std::net::TcpStream::connect(url.strip_prefix("http://").unwrap());
    assert!(connection.is_err(), "the gateway still listens");
    exit.unwrap().unwrap().code()
}
