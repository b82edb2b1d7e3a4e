//! Misbehaving servers, which must not affect any others.

use toolgate::ServerState;

use crate::support::{
    call, call_text, call_until_ok, server, start, start_settled, stdio_zoo, stop, wait_for_state,
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
        let gateway = start_settled(&stdio_zoo("zoo", flags)).await;
        let sums = (0..20).map(|n| {
            let gateway = gateway.clone();
            async move { call_text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
        });
        let sums = futures_util::future::join_all(sums).await;
        let expected: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
        assert_eq!(sums, expected, "{flags:?}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn legacy_server_is_not_sent_the_modern_probe() {
    let gateway = start_settled(&stdio_zoo("zoo", &["--exit-on", "server/discover"])).await;
    assert_eq!(server(&gateway, "zoo").status().state, ServerState::Healthy);
    stop(gateway).await;
}

#[tokio::test]
async fn modern_server_that_exits_on_initialize_is_probed_with_discover() {
    let gateway = start(&stdio_zoo(
        "zoo",
        &["--era", "modern", "--exit-on", "initialize"],
    ))
    .await;
    assert_eq!(
        call_until_ok(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    let session = server(&gateway, "zoo").status().session.clone().unwrap();
    assert_eq!(session.version, "2026-07-28");
    stop(gateway).await;
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
    let gateway = start(&toml).await;
    for (name, expected) in [
        ("exits", "no licence found"),
        ("missing", "`no-such-program` not found"),
        (
            "nowhere",
            "directory `/no/such/folder` (`cwd`) does not exist",
        ),
        ("refused", "cannot be reached: Connection refused"),
    ] {
        let reason = wait_for_state(&gateway, name, ServerState::Unavailable).await;
        assert!(reason.contains(expected), "{name}: {reason}");
        assert!(server(&gateway, name).status().last_error.is_some());
    }
    assert_eq!(
        call_until_ok(&gateway, "good_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    assert_eq!(
        server(&gateway, "mute").status().state,
        ServerState::Connecting
    );
    let error = call(&gateway, "mute_add", "{}").await.unwrap_err();
    assert_eq!(error, "server `mute` is connecting");
    stop(gateway).await;
}

#[tokio::test]
async fn calls_to_an_unavailable_server_report_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("started");
    // Starts successfully once; every later start finds the flag file and exits.
    let script = format!(
        "if [ -e {flag:?} ]; then echo worn out >&2; exit 1; fi; touch {flag:?}; exec {} stdio",
        toolgate_testkit::zoo_path().display()
    );
    let gateway = start_settled(&format!(
        "[mcp_servers.once]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ))
    .await;
    call(&gateway, "once_die", "{}").await.unwrap_err();
    let reason = wait_for_state(&gateway, "once", ServerState::Unavailable).await;
    assert!(reason.contains("exited"), "{reason}");
    let restarted = toolgate_testkit::eventually(
        "the server was restarted",
        crate::support::WAIT_TIMEOUT,
        async || {
            let reason = server(&gateway, "once")
                .status()
                .reason
                .clone()
                .unwrap_or_default();
            reason.contains("worn out").then_some(())
        },
    );
    restarted.await;
    let error = call(&gateway, "once_echo", "{}").await.unwrap_err();
    assert!(error.starts_with("server `once` is unavailable"), "{error}");
    assert!(
        !error.contains("worn out"),
        "stderr must not be shown to callers: {error}"
    );
    stop(gateway).await;
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
    let gateway = start_settled(&format!(
        "[mcp_servers.zoo]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ))
    .await;
    let first = std::fs::read_to_string(&pid).unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first.trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    toolgate_testkit::eventually(
        "the server is restarted",
        crate::support::WAIT_TIMEOUT,
        async || {
            let now = std::fs::read_to_string(&pid).unwrap();
            (now != first && !now.is_empty()).then_some(())
        },
    )
    .await;
    assert_eq!(
        call_until_ok(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
        "2"
    );
    stop(gateway).await;
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
    let gateway = start_settled(&toml).await;
    let reason = wait_for_state(&gateway, "s", ServerState::Degraded).await;
    assert!(
        reason.contains("`tools/list` failed: try later"),
        "{reason}"
    );
    assert!(
        call(&gateway, "s_t", "{}").await.is_ok(),
        "previously listed tools can still be called"
    );
    stop(gateway).await;
}
