//! Start-up, shutdown and logging of `toolgate serve`.

use std::os::unix::fs::PermissionsExt as _;

use toolgate_testkit::{eventually, is_alive};

use crate::gate::{TestGate, WAIT_TIMEOUT, processes_with, run, server, toolgate, zoo};

#[tokio::test]
async fn serves_without_configuration() {
    let gate = TestGate::start("");
    assert_eq!(gate.json("/health").await["status"], "ok");
    assert_eq!(gate.json("/ready").await["servers"], 0);
    assert_eq!(
        gate.json("/api/mcp/clients").await["clients"],
        serde_json::json!([])
    );
    let mode = std::fs::metadata(gate.folder.path().join("data"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn broken_servers_do_not_affect_others() {
    let mut toml = String::new();
    for n in 0..15 {
        let era = ["legacy", "modern", "dual"][n % 3];
        toml += &zoo(&format!("good{n:02}"), &["--era", era]);
    }
    toml += &server("gone", "no-such-program", &[]);
    toml += &server("dies", "sh", &["-c", "echo out of licences >&2; exit 4"]);
    toml += "[mcp_servers.refuses]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    toml += &(zoo("unset", &[]) + "env = { TOKEN = \"env.NOT_SET\" }\n");
    toml += &zoo("mute", &["--silent"]);
    let gate = TestGate::start(&toml);
    for n in 0..15 {
        let name = format!("good{n:02}");
        gate.wait_for_state(&name, "healthy").await;
        let message = gate
            .call(&format!("{name}_add"), r#"{"a":20,"b":22}"#)
            .await;
        assert_eq!(message["content"], "42");
    }
    for (name, state, reason) in [
        ("gone", "unavailable", "`no-such-program` not found"),
        ("dies", "unavailable", "out of licences"),
        ("refuses", "unavailable", "cannot be reached"),
        ("unset", "error", "`NOT_SET` is not set"),
    ] {
        let entry = gate.wait_for_state(name, state).await;
        assert!(
            entry["reason"].as_str().unwrap().contains(reason),
            "{entry}"
        );
        assert_eq!(entry["last_error"], entry["reason"]);
        assert_eq!(
            entry["next_try_at"].is_string(),
            state == "unavailable",
            "{entry}"
        );
    }
    assert_eq!(
        gate.json("/api/mcp/client/mute").await["state"],
        "connecting"
    );
    assert_eq!(
        gate.json("/api/mcp/client/dies").await["stderr_tail"]
            .as_str()
            .unwrap()
            .lines()
            .next(),
        Some("out of licences")
    );
    let ready = gate.json("/ready").await;
    assert_eq!(
        (ready["servers"].as_u64(), ready["connected"].as_u64()),
        (Some(20), Some(15))
    );
}

#[tokio::test]
async fn sigterm_drains_and_stops_server_processes() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let mut gate = TestGate::start(&zoo("zoo", &["--pid", pid_file.to_str().unwrap()]));
    gate.wait_for_state("zoo", "healthy").await;
    let processes = processes_with(pid_file.to_str().unwrap());
    assert_eq!(processes.len(), 1, "{processes:?}");

    let call = async {
        let message = gate.call("zoo_sleep", r#"{"ms":1500}"#).await;
        assert!(message.get("is_error").is_none(), "{message}");
    };
    let stop = async {
        gate.wait_for_in_flight_call().await;
        gate.signal("-TERM");
    };
    tokio::join!(call, stop);
    assert_eq!(gate.wait_for_exit().await, Some(0));
    assert!(
        !is_alive(processes[0]),
        "the server process exits with the gateway"
    );
    assert!(gate.log().contains("stopped"));
}

#[tokio::test]
async fn second_signal_skips_drain() {
    let mut gate = TestGate::start(&(zoo("zoo", &[]) + "timeout = \"5m\"\n"));
    gate.wait_for_state("zoo", "healthy").await;
    let url = format!("{}/v1/mcp/tool/execute", gate.url);
    let body = r#"{"id":"c","function":{"name":"zoo_sleep","arguments":"{\"ms\":200000}"}}"#;
    let long = gate.client.post(url).body(body).send();
    let stop = async {
        gate.wait_for_in_flight_call().await;
        gate.signal("-TERM");
        eventually("the gateway is stopping", WAIT_TIMEOUT, async || {
            gate.log().contains("stopping").then_some(())
        })
        .await;
        gate.signal("-TERM");
    };
    // The call lasts until the shutdown cancels it.
    let answered = async {
        let answer = long.await;
        let text = match answer {
            Ok(response) => response.text().await.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        assert!(
            gate.log().contains("stopping"),
            "answered too early: {text}\n{}",
            gate.log()
        );
    };
    tokio::join!(answered, stop);
    assert_eq!(gate.wait_for_exit().await, Some(0));
}

#[test]
fn non_loopback_host_requires_admin_key() {
    let folder = tempfile::tempdir().unwrap();
    let (output, _, stderr) = run(
        folder.path(),
        &["serve", "--host", "0.0.0.0", "--port", "0"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("requires an admin key"), "{stderr}");
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let gate = TestGate::start("");
    let port = gate.url.rsplit(':').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (output, _, stderr) = run(folder.path(), &["serve", "--port", port]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("cannot listen on 127.0.0.1") && stderr.contains("--port 0"),
        "{stderr}"
    );
}

#[test]
fn invalid_configuration_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("toolgate.toml"),
        "[mcp_servers.a]\ncomand = \"x\"\n",
    )
    .unwrap();
    let (output, _, stderr) = run(folder.path(), &["serve", "--port", "0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("did you mean `command`?"), "{stderr}");
}

#[tokio::test]
async fn flags_override_variables_override_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("toolgate.toml"),
        "host = \"nonsense\"\nport = 1\n",
    )
    .unwrap();
    let mut command = toolgate(folder.path());
    let output = command
        .args(["serve", "--port", "0"])
        .env("TOOLGATE_HOST", "elsewhere")
        .env("TOOLGATE_PORT", "2")
        .output();
    let stderr = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(
        stderr.contains("`elsewhere` is not an IP address"),
        "{stderr}"
    );
}

#[tokio::test]
async fn logs_are_json_without_a_terminal() {
    let gate = TestGate::start(&zoo("zoo", &[]));
    gate.wait_for_state("zoo", "healthy").await;
    let log = gate.log();
    let connected = log
        .lines()
        .find(|line| line.contains("connected"))
        .expect("no log line about the connection");
    let line: serde_json::Value = serde_json::from_str(connected).unwrap();
    assert_eq!(
        (line["level"].as_str(), line["server"].as_str()),
        (Some("INFO"), Some("zoo"))
    );
}
