//! What the processes of servers use, as the API, the metrics and the command line report it.

use serde_json::{Value, json};
use toolgate_testkit::{HttpZoo, eventually};

use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};
use crate::sandbox::{folder_with, shell, shell_server};

/// Waits until what the processes of a server use meets a condition, and returns it.
pub(crate) async fn wait_for_usage(
    gate: &TestGate,
    server: &str,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let path = format!("/api/mcp/client/{server}");
    eventually(
        &format!("the processes of {server} meet the condition"),
        WAIT_TIMEOUT,
        async || {
            let usage = gate.json(&path).await["process_usage"].take();
            condition(&usage).then_some(usage)
        },
    )
    .await
}

/// Returns the value of a metric of a server.
pub(crate) async fn metric(gate: &TestGate, name: &str, server: &str) -> Option<f64> {
    let text = gate.get("/metrics").await.text().await.unwrap();
    let line = format!("toolgate_server_{name}{{server=\"{server}\"}} ");
    let value = text.lines().find_map(|text| text.strip_prefix(&line));
    value.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn usage_of_process_tree_is_reported_and_absent_without_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grandchild");
    let remote = HttpZoo::start(&[]);
    let toml = zoo("zoo", &["--grandchild", file.to_str().unwrap()])
        + &format!("[mcp_servers.remote]\nurl = {:?}\n", remote.url())
        + "[mcp_servers.missing]\ncommand = \"no-such-command\"\n";
    let gate = TestGate::start(&toml);
    gate.wait_for_state("zoo", "healthy").await;
    gate.wait_for_state("missing", "unavailable").await;
    let remote = gate.wait_for_state("remote", "healthy").await;
    assert_eq!(remote["process_usage"], Value::Null);
    assert_eq!(metric(&gate, "memory_bytes", "remote").await, None);
    assert_eq!(metric(&gate, "restarts_total", "remote").await, None);

    let is_complete = |usage: &Value| usage["processes"] == 2 && usage["cpu_percent"].is_number();
    let usage = wait_for_usage(&gate, "zoo", is_complete).await;
    assert!(usage["memory_bytes"].as_u64() > Some(1 << 20), "{usage}");
    // Three pipes of each process.
    assert!(usage["open_files"].as_u64() >= Some(6), "{usage}");
    assert_eq!(usage["restarts"], 0);
    assert_eq!(metric(&gate, "processes", "zoo").await, Some(2.0));
    assert_eq!(metric(&gate, "restarts_total", "zoo").await, Some(0.0));
    assert!(metric(&gate, "open_files", "zoo").await >= Some(6.0));
    assert!(metric(&gate, "memory_bytes", "zoo").await > Some(1e6));
    // A server that could not be started has no process, which is known.
    let missing = gate.json("/api/mcp/client/missing").await;
    let usage = &missing["process_usage"];
    assert_eq!(usage["processes"], 0);
    assert_eq!(usage["memory_bytes"], 0);
    assert_eq!(usage["restarts"], 0);

    let folder = gate.folder.path();
    let (output, text, _) = run(folder, &["servers", "list", "--url", &gate.url]);
    assert!(output.status.success());
    let line = text.lines().find(|line| line.starts_with("zoo\t")).unwrap();
    let fields: Vec<&str> = line.split('\t').collect();
    assert_eq!((fields[1], fields[5]), ("healthy", "2"), "{text}");
    let (_, text, _) = run(folder, &["servers", "list", "--json", "--url", &gate.url]);
    let servers: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(servers[1]["name"], "remote");
    assert_eq!(servers[1]["process_usage"], Value::Null);
    assert_eq!(servers[2]["process_usage"]["processes"], 2);
}

#[tokio::test]
async fn cpu_time_survives_a_restart_of_the_server() {
    let folder = folder_with(|folder| shell_server(folder, "a", ""));
    let gate = TestGate::start_in(folder);
    gate.wait_for_state("sh_a", "healthy").await;
    // Used by a child that has exited by the end of the call.
    let burn = "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'";
    assert_eq!(shell(&gate, "a", burn).await, "exit 0");
    let has_used_cpu = |usage: &Value| usage["cpu_seconds"].as_f64() >= Some(0.5);
    wait_for_usage(&gate, "sh_a", has_used_cpu).await;
    let message = gate
        .call("sh_a_sh", &json!({"command": "kill -9 $PPID"}).to_string())
        .await;
    assert_eq!(message["is_error"], true, "{message}");
    let usage = wait_for_usage(&gate, "sh_a", |usage| usage["restarts"] == 1).await;
    assert!(has_used_cpu(&usage), "{usage}");
    assert!(metric(&gate, "cpu_seconds_total", "sh_a").await >= Some(0.5));
    assert_eq!(metric(&gate, "restarts_total", "sh_a").await, Some(1.0));
}

/// Processes whose parent has exited still belong to the server, in its process group or not.
#[tokio::test]
async fn orphans_of_a_server_are_counted() {
    let folder = folder_with(|folder| {
        shell_server(folder, "a", "") + &shell_server(folder, "off", "sandbox = \"off\"")
    });
    let gate = TestGate::start_in(folder);
    for (server, processes) in [("a", 3), ("off", 2)] {
        let name = format!("sh_{server}");
        gate.wait_for_state(&name, "healthy").await;
        // Without a sandbox, a process that leaves the process group cannot be recognized.
        let start =
            "sleep 600 >/dev/null 2>&1 & echo $!; setsid sleep 600 >/dev/null 2>&1 & echo $!";
        let output = shell(&gate, server, start).await;
        let is_counted = |usage: &Value| usage["processes"] == processes;
        let usage = wait_for_usage(&gate, &name, is_counted).await;
        let pids: Vec<&str> = output.lines().take(2).collect();
        let killed = shell(&gate, server, &format!("kill {}", pids.join(" "))).await;
        assert_eq!(killed, "exit 0", "{output}");
        assert_eq!(usage["restarts"], 0);
        wait_for_usage(&gate, &name, |usage| usage["processes"] == 1).await;
    }
}
