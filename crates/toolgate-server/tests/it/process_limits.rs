//! Limits of the strict profile on memory, CPU time and processes.

use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, run, server};
use crate::mcp_sdk::{env_file, node};
use crate::process_usage::{metric, wait_for_usage};
use crate::sandbox::{SECRET, client_with_key, folder_with, is_root, shell, shell_server, start};

const EXCEEDED: &str = "exceeded its memory limit of 100 MiB (`sandbox.memory_mb`)";

/// Creates a folder with strict servers `sh_NAME` that may write to `work`.
fn folder_with_limits(servers: &[(&str, &str)]) -> TempDir {
    folder_with(|folder| {
        let work = folder.join("work");
        std::fs::create_dir(&work).unwrap();
        let script = folder.join("shell.py");
        let settings = |(name, limits): &(&str, &str)| {
            let sandbox = format!(
                "cwd = {work:?}\n[mcp_servers.sh_{name}.sandbox]\nread = [{script:?}]\nwrite = [{work:?}]\n{limits}"
            );
            shell_server(folder, name, &sandbox)
        };
        servers.iter().map(settings).collect()
    })
}

fn error_text(message: &Value) -> &str {
    assert_eq!(message["is_error"], true, "{message}");
    message["content"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_exceeds_its_memory_limit_is_stopped_and_restarted() {
    let folder = folder_with_limits(&[("small", "memory_mb = 100"), ("large", "memory_mb = 1000")]);
    let gate = TestGate::start_in(folder);
    gate.wait_for_state("sh_small", "healthy").await;
    gate.wait_for_state("sh_large", "healthy").await;
    let held = gate.call("sh_large_hold", r#"{"mb": 200}"#).await;
    assert_eq!(held["content"], "held", "{held}");

    // Less than the limit, then more, in the server itself.
    let held = gate.call("sh_small_hold", r#"{"mb": 30}"#).await;
    assert_eq!(held["content"], "held", "{held}");
    gate.call("sh_small_hold", r#"{"mb": 300}"#).await;
    wait_for_usage(&gate, "sh_small", |usage| usage["restarts"] == 1).await;
    let entry = gate.wait_for_state("sh_small", "healthy").await;
    let reason = entry["last_error"].as_str().unwrap();
    assert!(reason.contains(EXCEEDED), "{reason}");
    assert_eq!(entry["process_usage"]["memory_limit_exceeded"], 1);

    // In a child, during a call.
    let child = "python3 -c 'import time; held = b\"x\" * 300_000_000; time.sleep(600)'";
    let arguments = json!({"command": child}).to_string();
    let message = gate.call("sh_small_sh", &arguments).await;
    let text = error_text(&message);
    assert!(text.contains(EXCEEDED), "{text}");
    wait_for_usage(&gate, "sh_small", |usage| usage["restarts"] == 2).await;
    let exceeded = metric(&gate, "memory_limit_exceeded_total", "sh_small").await;
    assert_eq!(exceeded, Some(2.0));
    let log = gate.log();
    let warning = log
        .lines()
        .find(|line| line.contains("stopped a server that exceeded its memory limit"))
        .unwrap_or_else(|| panic!("{log}"));
    for part in ["sh_small", "sandbox.memory_mb", "100"] {
        assert!(warning.contains(part), "{warning}");
    }

    // A server below its limit is left alone.
    assert_eq!(shell(&gate, "large", "echo ok").await, "ok\nexit 0");
    let entry = gate.json("/api/mcp/client/sh_large").await;
    assert_eq!(entry["process_usage"]["restarts"], 0, "{entry}");
    assert_eq!(entry["process_usage"]["memory_limit_exceeded"], 0);

    let sandbox = ["servers", "sandbox", "sh_small", "--url", &gate.url];
    let (_, text, _) = run(gate.folder.path(), &sandbox);
    let memory = text.lines().find(|line| line.starts_with("memory "));
    let memory = memory.unwrap_or_else(|| panic!("{text}"));
    assert!(
        memory.ends_with("in force (watchdog)") || memory.ends_with("in force (cgroup)"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_process_counts_towards_the_memory_limit() {
    let gate = TestGate::start_in(folder_with_limits(&[("small", "memory_mb = 100")]));
    gate.wait_for_state("sh_small", "healthy").await;
    // The shell exits at once, so that the process has neither its parent nor its process group.
    let marker = gate.folder.path().display();
    let program = format!("import time; held = b\"x\" * 300_000_000; time.sleep(600) # {marker}");
    let detach = format!("(setsid python3 -c '{program}' >/dev/null 2>&1 &)");
    let arguments = json!({"command": detach}).to_string();
    gate.call("sh_small_sh", &arguments).await;
    let exceeded = |usage: &Value| usage["memory_limit_exceeded"] == 1;
    wait_for_usage(&gate, "sh_small", exceeded).await;
    let program = format!("time.sleep(600) # {marker}");
    eventually("the process is killed", WAIT_TIMEOUT, async || {
        processes_with(&program).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn node_server_runs_with_a_memory_limit() {
    let modules = env_file("node/node_modules").canonicalize().unwrap();
    let node = node().canonicalize().unwrap();
    let script = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let everything = server(
        "everything",
        node.to_str().unwrap(),
        &[script.to_str().unwrap(), "stdio"],
    );
    let sandbox = format!(
        "[mcp_servers.everything.sandbox]\nread = [{modules:?}]\nmemory_mb = 256\nfiles = 256\ncpu_seconds = 600\n"
    );
    let gate = TestGate::start(&(everything + "tools_to_auto_execute = [\"*\"]\n" + &sandbox));
    gate.wait_for_state("everything", "healthy").await;
    let echo = gate.call("everything_echo", r#"{"message":"hi"}"#).await;
    assert_eq!(echo["content"], "Echo: hi", "{echo}");
    let has_sample = |usage: &Value| usage["memory_bytes"].as_u64() > Some(1 << 20);
    let usage = wait_for_usage(&gate, "everything", has_sample).await;
    assert_eq!(usage["memory_limit_exceeded"], 0, "{usage}");
}

#[tokio::test]
async fn server_that_uses_up_its_cpu_time_says_so() {
    let gate = TestGate::start_in(folder_with_limits(&[("small", "cpu_seconds = 2")]));
    gate.wait_for_state("sh_small", "healthy").await;
    let message = gate.call("sh_small_spin", "{}").await;
    let text = error_text(&message);
    assert!(
        text.contains("CPU time used up, see `sandbox.cpu_seconds`"),
        "{text}"
    );
}

/// The limit counts the processes of the server, not all of the gateway's user.
#[tokio::test(flavor = "multi_thread")]
async fn processes_are_limited_except_those_of_root() {
    let limits = [("small", "processes = 8")];
    if is_root() {
        let gate = TestGate::start_in(folder_with_limits(&limits));
        let entry = gate.wait_for_state("sh_small", "error").await;
        let reason = entry["reason"].as_str().unwrap();
        assert!(reason.contains("`processes`: the kernel does not limit the processes of root"));
    }
    let folder = folder_with_limits(&limits);
    let file = folder.path().join("toolgate.toml");
    let toml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("admin_key = \"env.GATEWAY_SECRET\"\n{toml}")).unwrap();
    let mut gate = start(folder, is_root().then_some(65534));
    gate.client = client_with_key(SECRET);
    gate.wait_for_state("sh_small", "healthy").await;
    for _ in 0..3 {
        let few = "sleep 0.1 & ".repeat(4);
        let output = shell(&gate, "small", &format!("{few} wait; echo done")).await;
        assert_eq!(output, "done\nexit 0");
    }
    // Long enough that all would run at the same time.
    let many = "sleep 20 >/dev/null 2>&1 & ".repeat(20);
    let output = shell(&gate, "small", &many).await;
    assert!(output.contains("fork"), "{output}");
}
