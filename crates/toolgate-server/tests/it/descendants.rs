//! Processes that a server leaves behind, detached from it, end with it and with the gateway.

use serde_json::json;
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, all_processes_with, processes_with};
use crate::mcp::LegacySession;
use crate::process_usage::wait_for_usage;
use crate::sandbox::{
    SECRET, Surroundings, client_with_key, folder_with, is_root, shell, shell_server, start_in,
};
use crate::sessions::elicitation_client;

/// Returns a command that starts a process outside of the group and session of the server, whose parent exits,
/// and which ignores requests to exit.
fn detach(marker: &str) -> String {
    let program = "(trap \"\" TERM HUP INT; while :; do sleep 0.1; done) &";
    format!("setsid sh -c '{program}' {marker} >/dev/null 2>&1 </dev/null &")
}

/// Waits until exactly one process has the marker.
async fn wait_for_detached(marker: &str) {
    eventually("the process is detached", WAIT_TIMEOUT, async || {
        (processes_with(marker).len() == 1).then_some(())
    })
    .await;
}

/// Waits until no process has the marker, not even one that supervises a server.
async fn wait_for_end(marker: &str) {
    eventually(
        &format!("all processes of {marker} end"),
        WAIT_TIMEOUT,
        async || all_processes_with(marker).is_empty().then_some(()),
    )
    .await;
}

/// Starts a gateway with a server that has left a process behind, whose marker is returned.
async fn start_detached(surroundings: Surroundings, user: Option<u32>) -> (TestGate, String) {
    let folder = folder_with(|folder| {
        "admin_key = \"env.GATEWAY_SECRET\"\n".to_owned() + &shell_server(folder, "a", "")
    });
    let mut gate = start_in(surroundings, folder, user);
    gate.client = client_with_key(SECRET);
    gate.wait_for_state("sh_a", "healthy").await;
    let marker = format!("{}/detached", gate.folder.path().display());
    assert_eq!(shell(&gate, "a", &detach(&marker)).await, "exit 0");
    wait_for_detached(&marker).await;
    (gate, marker)
}

async fn assert_descendants_end(surroundings: Surroundings, user: Option<u32>) {
    let (mut gate, marker) = start_detached(surroundings, user).await;
    // With the server, which the gateway starts again.
    let arguments = json!({"command": "kill -9 $PPID"}).to_string();
    let message = gate.call("sh_a_sh", &arguments).await;
    let text = message["content"].as_str().unwrap();
    assert!(text.contains("signal: 9"), "{text}");
    wait_for_end(&marker).await;
    wait_for_usage(&gate, "sh_a", |usage| usage["restarts"] == 1).await;
    gate.wait_for_state("sh_a", "healthy").await;

    // With its removal.
    assert_eq!(shell(&gate, "a", &detach(&marker)).await, "exit 0");
    wait_for_detached(&marker).await;
    gate.edit("admin_key = \"env.GATEWAY_SECRET\"\n");
    wait_for_end(&marker).await;
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());

    // With the gateway, stopped or killed; the folder is in the arguments of all processes of the server.
    for signal in ["-TERM", "-KILL"] {
        let (mut gate, marker) = start_detached(surroundings, user).await;
        gate.signal(signal);
        gate.wait_for_exit().await;
        wait_for_end(&marker).await;
        wait_for_end(gate.folder.path().to_str().unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_processes_end_with_their_server_and_the_gateway() {
    assert_descendants_end(Surroundings::Host, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_processes_of_an_unprivileged_user_end_too() {
    if is_root() {
        assert_descendants_end(Surroundings::Host, Some(65534)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_processes_in_a_container_end_too() {
    assert_descendants_end(Surroundings::Container, None).await;
    if is_root() {
        assert_descendants_end(Surroundings::Container, Some(65534)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_processes_end_with_their_session() {
    let folder = folder_with(|folder| shell_server(folder, "a", "per_session = true"));
    let gate = TestGate::start_in(folder);
    gate.wait_for_state("sh_a", "healthy").await;
    let session = LegacySession::open_with(&gate, "/mcp", None, elicitation_client()).await;
    let marker = format!("{}/detached", gate.folder.path().display());
    let arguments = json!({"command": detach(&marker)});
    let call = json!({"name": "sh_a_sh", "arguments": arguments});
    let answer = session.result("tools/call", call).await;
    assert_eq!(answer["content"][0]["text"], "exit 0", "{answer}");
    wait_for_detached(&marker).await;
    session.end(&gate).await;
    wait_for_end(&marker).await;
}

/// A server that does not exit when its input closes, and ignores requests to.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_does_not_exit_by_itself_is_ended() {
    for surroundings in [Surroundings::Host, Surroundings::Container] {
        for signal in ["-TERM", "-KILL"] {
            let folder = folder_with(|folder| {
                let command = "trap '' TERM HUP; python3 $0; while :; do sleep 0.1; done";
                let args =
                    ["-c", command, folder.join("shell.py").to_str().unwrap()].map(String::from);
                format!(
                    "admin_key = \"env.GATEWAY_SECRET\"\n[mcp_servers.sh_a]\ncommand = \"sh\"\nargs = {args:?}\n"
                )
            });
            let mut gate = start_in(surroundings, folder, None);
            gate.client = client_with_key(SECRET);
            gate.wait_for_state("sh_a", "healthy").await;
            gate.signal(signal);
            gate.wait_for_exit().await;
            wait_for_end(gate.folder.path().to_str().unwrap()).await;
        }
    }
}

/// Attacks a server and its supervisors from within, then kills the gateway.
async fn assert_attack_fails(surroundings: Surroundings, attack: &str) {
    let (mut gate, marker) = start_detached(surroundings, None).await;
    let folder = gate.folder.path().to_str().unwrap().to_owned();
    let launchers = all_processes_with("__launch-server");
    let mut supervisor = all_processes_with(&folder);
    supervisor.retain(|pid| launchers.contains(pid));
    let attack = attack.replace("SUPERVISOR", &supervisor[0].to_string());
    let arguments = json!({"command": format!("{attack}; true")}).to_string();
    let call = gate.call("sh_a_sh", &arguments);
    // A stopped server does not answer.
    let is_stopped = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    let stopped = eventually("the server is stopped", WAIT_TIMEOUT, async || {
        let processes = processes_with(&folder);
        processes.iter().any(is_stopped).then_some(())
    });
    tokio::select! {
        _ = call => {}
        () = stopped => {}
    }
    gate.signal("-KILL");
    gate.wait_for_exit().await;
    wait_for_end(&marker).await;
    wait_for_end(&folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_attacks_its_supervisor_is_ended() {
    let group = ["kill -STOP 0", "kill -KILL 0"];
    let outside = ["kill -STOP SUPERVISOR", "kill -KILL SUPERVISOR"];
    for attack in group.iter().chain(&outside) {
        assert_attack_fails(Surroundings::Container, attack).await;
    }
    // Never outside of a PID namespace, where these would reach every process of the user.
    let inside = ["kill -STOP 1 -1", "kill -KILL 1 -1"]
        .map(|attack| format!("grep -q hold-namespace /proc/1/cmdline && {attack}"));
    for attack in group
        .iter()
        .copied()
        .chain(inside.iter().map(String::as_str))
    {
        assert_attack_fails(Surroundings::Host, attack).await;
    }
}
