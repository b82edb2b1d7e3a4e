//! `toolgate mcp` without a URL: clients that share a data directory share one gateway and its store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::caller::ALICE;
use crate::gate::{TestGate, WAIT_TIMEOUT, run, zoo};
use crate::stdio_client::StdioClient;

const DATA: &str = ".local/share/toolgate";

fn folder(toml: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
    folder
}

/// Starts `toolgate mcp` in a folder and initializes a legacy client.
async fn start(folder: &Path) -> StdioClient {
    let mut client = StdioClient::start_in(folder, &[], &[]);
    client.initialize().await;
    client
}

async fn add(client: &mut StdioClient) -> Value {
    let params = json!({"name": "zoo_add", "arguments": {"a": 20, "b": 22}});
    client.request("tools/call", params).await
}

fn run_ok(folder: &Path, args: &[&str]) -> String {
    let (output, stdout, stderr) = run(folder, args);
    assert!(output.status.success(), "{args:?}: {stdout}{stderr}");
    stdout
}

/// Waits until the audit trail has this many calls.
async fn wait_for_records(folder: &Path, count: usize) {
    eventually("the calls are recorded", WAIT_TIMEOUT, async || {
        let records = run_ok(folder, &["audit", "--json"]);
        let records: Value = serde_json::from_str(&records).unwrap();
        let found = records.as_array().map_or(0, Vec::len);
        (found == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn clients_share_servers_and_the_second_takes_over() {
    let folder = folder(&zoo("zoo", &[]));
    let mut first = start(folder.path()).await;
    assert_eq!(add(&mut first).await["result"]["content"][0]["text"], "42");
    let socket = folder.path().join(DATA).join("mcp.sock");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut second = start(folder.path()).await;
    let added = add(&mut second).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    // Both calls are in one audit trail, which the first process writes.
    wait_for_records(folder.path(), 2).await;

    let (exit, stderr) = first.finish().await;
    assert!(exit.success(), "{stderr}");
    second
        .notification("notifications/tools/list_changed")
        .await;
    let added = add(&mut second).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    let modern = json!({"name": "zoo_add", "arguments": {"a": 1, "b": 2}});
    let mut third = StdioClient::start_in(folder.path(), &[], &[]);
    let added = third.modern("tools/call", modern).await;
    assert_eq!(added["result"]["content"][0]["text"], "3", "{added}");
    wait_for_records(folder.path(), 4).await;
    let (exit, _) = second.finish().await;
    assert!(exit.success());
    drop(third);
}

#[tokio::test]
async fn killed_process_is_replaced() {
    let folder = folder(&zoo("zoo", &[]));
    let mut first = start(folder.path()).await;
    let mut second = start(folder.path()).await;
    first.child.kill().await.unwrap();
    second
        .notification("notifications/tools/list_changed")
        .await;
    let added = add(&mut second).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
}

#[tokio::test]
async fn call_waits_for_approval_on_the_command_line() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.add\"\naction = \"ask\"\n[permissions]\napproval_wait = \"10m\"\n";
    let folder = folder(&(zoo("zoo", &[]) + rule));
    let mut client = start(folder.path()).await;
    let params = json!({"name": "zoo_add", "arguments": {"a": 20, "b": 22}});
    let call = client.send_request("tools/call", params).await;
    let approval = eventually("the call waits for approval", WAIT_TIMEOUT, async || {
        let list = run_ok(folder.path(), &["approvals", "list", "--json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        list[0]["id"].as_str().map(str::to_owned)
    })
    .await;
    run_ok(folder.path(), &["approvals", "approve", &approval]);
    let added = client.response(call).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
}

/// The approval needs the admin key, which only those have who can read the data directory.
#[tokio::test]
async fn approval_needs_the_admin_key() {
    let rule =
        "admin_key = \"auto\"\n[[permissions.rules]]\ntool = \"zoo.add\"\naction = \"ask\"\n";
    let (first, rest) = rule.split_once('\n').unwrap();
    let folder = folder(&format!("{first}\n{}{rest}", zoo("zoo", &[])));
    let mut client = start(folder.path()).await;
    let refused = add(&mut client).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let list = run_ok(folder.path(), &["approvals", "list", "--json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let approval = list[0]["id"].as_str().unwrap();
    fs::rename(
        folder.path().join(DATA).join("admin.key"),
        folder.path().join("key"),
    )
    .unwrap();
    let (output, ..) = run(folder.path(), &["approvals", "approve", approval]);
    assert!(!output.status.success());
    fs::rename(
        folder.path().join("key"),
        folder.path().join(DATA).join("admin.key"),
    )
    .unwrap();
    run_ok(folder.path(), &["approvals", "approve", approval]);
    let added = add(&mut client).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
}

#[tokio::test]
async fn running_gateway_is_used_with_its_keys() {
    let key = format!("[keys.alice]\nkey = {ALICE:?}\ntools = [\"zoo.add\"]\n");
    let mut gate = TestGate::start(&(zoo("zoo", &[]) + &key));
    gate.wait_for_state("zoo", "healthy").await;
    let data = ["--data-dir", "data"];
    let path = gate.folder.path().to_owned();
    let mut refused = StdioClient::start_in(&path, &data, &[]);
    let refused = refused.modern("tools/list", json!({})).await;
    let text = refused["error"]["message"].as_str().unwrap();
    assert!(text.contains("requires a key"), "{text}");

    let mut client = StdioClient::start_in(&path, &data, &[("TOOLGATE_KEY", ALICE)]);
    client.initialize().await;
    let listed = client.request("tools/list", json!({})).await;
    assert_eq!(
        listed["result"]["tools"].as_array().unwrap().len(),
        1,
        "{listed}"
    );
    // The relay does not take the place of a gateway that restarts.
    gate.restart().await;
    client
        .notification("notifications/tools/list_changed")
        .await;
    gate.wait_for_state("zoo", "healthy").await;
    let added = add(&mut client).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0));
    let failed = add(&mut client).await;
    let text = failed["error"]["message"].as_str().unwrap();
    assert!(text.contains("toolgate serve"), "{text}");
}

/// A server whose sandbox hides the files of the data directory may still be able to connect to the socket.
#[tokio::test]
async fn socket_answers_only_with_the_token_of_the_data_directory() {
    let folder = folder(&zoo("zoo", &[]));
    let _client = start(folder.path()).await;
    let data = folder.path().join(DATA);
    let token_file = data.join("socket.token");
    let mode = fs::metadata(&token_file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = fs::read_to_string(token_file).unwrap();
    let client = reqwest::Client::builder().unix_socket(data.join("mcp.sock"));
    let client = client.build().unwrap();
    let status = async |token: Option<&str>| {
        let mut request = client.get("http://localhost/health");
        if let Some(token) = token {
            request = request.header("x-toolgate-socket-token", token);
        }
        request.send().await.unwrap().status()
    };
    assert_eq!(status(None).await, 403);
    assert_eq!(status(Some("wrong")).await, 403);
    assert_eq!(status(Some(token.trim())).await, 200);
}

#[tokio::test]
async fn other_configuration_than_that_of_the_running_process_is_refused() {
    let folder = folder(&zoo("zoo", &[]));
    let _client = start(folder.path()).await;
    let other = folder.path().join("other.toml");
    fs::write(&other, "[permissions]\ndefault = \"deny\"\n").unwrap();
    let (output, stdout, stderr) = run(folder.path(), &["mcp", "--config", "other.toml"]);
    assert!(!output.status.success(), "{stdout}");
    assert!(stderr.contains("--data-dir"), "{stderr}");
    let same = ["--config", "toolgate.toml"];
    let mut second = StdioClient::start_in(folder.path(), &same, &[]);
    second.initialize().await;
    let added = add(&mut second).await;
    assert_eq!(added["result"]["content"][0]["text"], "42", "{added}");
}

#[tokio::test]
async fn second_gateway_is_refused_and_invalid_configuration_reported() {
    let folder = folder(&zoo("zoo", &[]));
    let _client = start(folder.path()).await;
    let (output, _, stderr) = run(folder.path(), &["serve", "--port", "0"]);
    assert!(!output.status.success());
    assert!(stderr.contains("toolgate mcp"), "{stderr}");
    let broken = self::folder("nonsense = 1\n");
    let (output, stdout, stderr) = run(broken.path(), &["mcp"]);
    assert!(!output.status.success());
    assert!(stdout.is_empty(), "{stdout}");
    assert!(stderr.contains("nonsense"), "{stderr}");
}

/// The only client gets the log messages of the process that it could share with others.
#[tokio::test]
async fn only_client_receives_log_messages_of_shared_processes() {
    let folder = folder(&zoo("zoo", &["--notify-first"]));
    let mut client = start(folder.path()).await;
    let params = json!({"name": "zoo_add", "arguments": {"a": 20, "b": 22}});
    // Messages that belong to no request are lost until the relay listens to them.
    let mut log = None;
    while log.is_none() {
        let id = client.send_request("tools/call", params.clone()).await;
        loop {
            let message = client.next().await;
            if message["method"] == "notifications/message" {
                log = Some(message);
            } else if message["id"] == id {
                break;
            }
        }
    }
    assert_eq!(log.unwrap()["params"]["data"], "about to answer");
}
