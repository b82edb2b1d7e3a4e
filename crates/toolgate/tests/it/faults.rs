//! Servers that misbehave, and their neighbours, which must not notice.

use toolgate::State;

use crate::support::{call, heals, reaches, server, settled, start, stop, text, zoo};

#[tokio::test]
async fn noise_does_not_matter() {
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
        let gateway = settled(&zoo("zoo", flags)).await;
        let sums = (0..20).map(|n| {
            let gateway = gateway.clone();
            async move { text(&gateway, "zoo_add", &format!(r#"{{"a":{n},"b":1}}"#)).await }
        });
        let sums = futures_util::future::join_all(sums).await;
        let expected: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
        assert_eq!(sums, expected, "{flags:?}");
        stop(gateway).await;
    }
}

#[tokio::test]
async fn an_old_server_that_dies_of_the_probe_never_sees_it() {
    let gateway = settled(&zoo("zoo", &["--exit-on", "server/discover"])).await;
    assert_eq!(server(&gateway, "zoo").status().state, State::Healthy);
    stop(gateway).await;
}

#[tokio::test]
async fn a_new_server_that_dies_of_initialize_is_asked_the_other_way() {
    let gateway = start(&zoo("zoo", &["--era", "modern", "--exit-on", "initialize"])).await;
    assert_eq!(heals(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    let session = server(&gateway, "zoo").status().session.clone().unwrap();
    assert_eq!(session.version, "2026-07-28");
    stop(gateway).await;
}

#[tokio::test]
async fn broken_servers_say_why_and_harm_nobody() {
    let toml = [
        zoo("good", &[]),
        zoo(
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
        zoo("mute", &["--silent"]),
        "[mcp_servers.missing]\ncommand = \"no-such-program\"\n".to_owned(),
        "[mcp_servers.nowhere]\ncommand = \"sh\"\ncwd = \"/no/such/folder\"\n".to_owned(),
        "[mcp_servers.refused]\nurl = \"http://127.0.0.1:9/mcp\"\n".to_owned(),
    ]
    .concat();
    let gateway = start(&toml).await;
    for (name, expected) in [
        ("exits", "no licence found"),
        ("missing", "`no-such-program` was not found"),
        ("nowhere", "folder `/no/such/folder` (cwd) does not exist"),
        ("refused", "cannot be reached: Connection refused"),
    ] {
        let reason = reaches(&gateway, name, State::Unavailable).await;
        assert!(reason.contains(expected), "{name}: {reason}");
        assert!(server(&gateway, name).status().last_error.is_some());
    }
    assert_eq!(heals(&gateway, "good_add", r#"{"a":1,"b":1}"#).await, "2");
    assert_eq!(server(&gateway, "mute").status().state, State::Connecting);
    let error = call(&gateway, "mute_add", "{}").await.unwrap_err();
    assert_eq!(error, "server `mute` is connecting");
    stop(gateway).await;
}

#[tokio::test]
async fn a_server_that_went_away_says_so_when_its_tools_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("started");
    // It starts once; then it finds that it has run before, and exits.
    let script = format!(
        "if [ -e {flag:?} ]; then echo worn out >&2; exit 1; fi; touch {flag:?}; exec {} stdio",
        toolgate_testkit::zoo_path().display()
    );
    let gateway = settled(&format!(
        "[mcp_servers.once]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ))
    .await;
    call(&gateway, "once_die", "{}").await.unwrap_err();
    let reason = reaches(&gateway, "once", State::Unavailable).await;
    assert!(reason.contains("ended"), "{reason}");
    let told =
        toolgate_testkit::eventually("it was tried again", crate::support::SOON, async || {
            let reason = server(&gateway, "once")
                .status()
                .reason
                .clone()
                .unwrap_or_default();
            reason.contains("worn out").then_some(())
        });
    told.await;
    let error = call(&gateway, "once_echo", "{}").await.unwrap_err();
    assert!(error.starts_with("server `once` is unavailable"), "{error}");
    assert!(
        !error.contains("worn out"),
        "its last words are not for callers: {error}"
    );
    stop(gateway).await;
}

#[tokio::test]
async fn a_child_that_leaves_its_pipes_to_others_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let zoo = toolgate_testkit::zoo_path();
    let script = format!(
        "sleep 300 & exec {} stdio --pid {}",
        zoo.display(),
        pid.display()
    );
    let gateway = settled(&format!(
        "[mcp_servers.zoo]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"
    ))
    .await;
    let first = std::fs::read_to_string(&pid).unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first.trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    toolgate_testkit::eventually("another one is started", crate::support::SOON, async || {
        let now = std::fs::read_to_string(&pid).unwrap();
        (now != first && !now.is_empty()).then_some(())
    })
    .await;
    assert_eq!(heals(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
    stop(gateway).await;
}

#[tokio::test]
async fn a_list_that_fails_for_once_takes_no_tools_away() {
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
    let gateway = settled(&toml).await;
    let reason = reaches(&gateway, "s", State::Degraded).await;
    assert!(
        reason.contains("`tools/list` failed: try later"),
        "{reason}"
    );
    assert!(
        call(&gateway, "s_t", "{}").await.is_ok(),
        "what it had before can still be called"
    );
    stop(gateway).await;
}
