//! Misbehaving servers, which must not affect any others.

use toolgate_mcp::ServerState;
use toolgate_testkit::eventually;

use crate::support::{
    WAIT_TIMEOUT, call, call_until_ok, check_concurrent_sums, server, start, start_settled,
    stdio_zoo, timeouts, wait_for_state,
};

#[tokio::test]
async fn tolerates_noisy_servers() {
    for flags in [
        &["--garbage"][..],
        &["--notify-first"],
        &["--reorder"],
        &["--stderr-flood"],
        &["--list-changed-storm", "200"],
        &["--slow-start", "700"],
        &[
            "--garbage",
            "--notify-first",
            "--reorder",
            "--stderr-flood",
            "--era",
            "modern",
        ],
    ] {
        let registry = start_settled(&stdio_zoo("zoo", flags)).await;
        check_concurrent_sums(&registry, "zoo", 20, flags).await;
        registry.stop().await;
    }
}

#[tokio::test]
async fn legacy_server_is_not_sent_the_modern_probe() {
    let registry = start_settled(&stdio_zoo("zoo", &["--exit-on", "server/discover"])).await;
    assert_eq!(
        server(&registry, "zoo").status().state,
        ServerState::Healthy
    );
    registry.stop().await;
}

#[tokio::test]
async fn modern_server_that_exits_on_initialize_is_probed_with_discover() {
    let registry = start(&stdio_zoo(
        "zoo",
        &["--era", "modern", "--exit-on", "initialize"],
    ));
    assert_eq!(
        call_until_ok(&registry, "zoo.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let session = server(&registry, "zoo").status().session.clone().unwrap();
    assert_eq!(session.version, "2026-07-28");
    registry.stop().await;
}

#[tokio::test]
async fn broken_servers_report_reasons_and_do_not_affect_others() {
    let toml = [
        stdio_zoo("good", &[]),
        stdio_zoo(
            "exits",
            &[
                "--stderr",
                "no licence found",
                "--exit-on",
                "initialize",
                "--exit-on",
                "server/discover",
            ],
        ),
        stdio_zoo("mute", &["--silent"]),
        "[mcp_servers.missing]\ncommand = \"no-such-program\"\n".to_owned(),
        "[mcp_servers.nowhere]\ncommand = \"sh\"\ncwd = \"/no/such/folder\"\n".to_owned(),
        "[mcp_servers.refused]\nurl = \"http://127.0.0.1:9/mcp\"\n".to_owned(),
    ]
    .concat();
    let registry = start(&toml);
    for (name, expected) in [
        ("exits", "no licence found"),
        ("missing", "`no-such-program` not found"),
        (
            "nowhere",
            "directory `/no/such/folder` (`cwd`) does not exist",
        ),
        ("refused", "cannot be reached: Connection refused"),
    ] {
        let reason = wait_for_state(&registry, name, ServerState::Unavailable).await;
        assert!(reason.contains(expected), "{name}: {reason}");
        assert!(server(&registry, name).status().last_error.is_some());
    }
    assert_eq!(
        call_until_ok(&registry, "good.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    assert_eq!(
        server(&registry, "mute").status().state,
        ServerState::Connecting
    );
    let mute = &server(&registry, "mute").server.name;
    let error = registry.access(mute, &None, timeouts()).await.unwrap_err();
    assert_eq!(error.to_string(), "server `mute` is connecting");
    registry.stop().await;
}

#[tokio::test]
async fn killed_child_is_restarted_even_if_others_hold_its_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let zoo = toolgate_testkit::zoo_path();
    let script = format!(
        "sleep 300 & exec {} stdio --pid {}",
        zoo.display(),
        pid.display()
    );
    let registry = start_settled(&format!(
        "[mcp_servers.zoo]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ))
    .await;
    let first = std::fs::read_to_string(&pid).unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first.trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    eventually("the server is restarted", WAIT_TIMEOUT, async || {
        let now = std::fs::read_to_string(&pid).unwrap();
        (now != first && !now.is_empty()).then_some(())
    })
    .await;
    assert_eq!(
        call_until_ok(&registry, "zoo.add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    registry.stop().await;
}

#[tokio::test]
async fn failed_tools_list_keeps_the_previous_tools() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("server.sh");
    let program = r#"n=0
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo "{\"id\":$id,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}}}}";;
    *'"tools/list"'*) n=$((n+1))
      if [ $n -gt 1 ]; then echo "{\"id\":$id,\"error\":{\"code\":-32603,\"message\":\"try later\"}}"
      else echo "{\"id\":$id,\"result\":{\"tools\":[{\"name\":\"t\",\"inputSchema\":{}}]}}"; fi;;
    *'"tools/call"'*) echo "{\"id\":$id,\"result\":{\"content\":[]}}";;
    *'"id"'*) echo "{\"id\":$id,\"result\":{}}";;
  esac
done"#;
    std::fs::write(&script, program).unwrap();
    let toml = format!(
        "mcp.tool_sync_interval = \"100ms\"\n[mcp_servers.s]\ncommand = \"sh\"\nargs = [{script:?}]\n"
    );
    let registry = start_settled(&toml).await;
    let reason = wait_for_state(&registry, "s", ServerState::Degraded).await;
    assert!(
        reason.contains("`tools/list` failed: try later"),
        "{reason}"
    );
    assert!(
        call(&registry, "s.t", "{}").await.is_ok(),
        "previously listed tools can still be called"
    );
    registry.stop().await;
}
