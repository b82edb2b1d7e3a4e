//! Keys in files outside of the data directory, which servers must not see, also after they were replaced.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::gate::{TestGate, run};
use crate::sandbox::{SECRET, client_with_key, folder_with, is_root, shell, shell_server, start};

/// Creates a folder with a key, written by `write_key`, and two servers, of which one has no sandbox.
fn folder_with_key(file: &str, write_key: impl Fn(&Path)) -> TempDir {
    folder_with(|folder| {
        write_key(folder);
        format!("admin_key = \"env.GATEWAY_SECRET\"\n[store]\nkey_file = {file:?}\n")
            + &shell_server(folder, "bad", "")
            + &shell_server(folder, "off", "sandbox = \"off\"")
    })
}

/// Starts the gateway and waits for the servers.
async fn start_all(folder: TempDir, user: Option<u32>) -> TestGate {
    let mut gate = start(folder, user);
    gate.client = client_with_key(SECRET);
    for server in ["sh_bad", "sh_off"] {
        gate.wait_for_state(server, "healthy").await;
    }
    gate
}

/// Asserts that only the server without a sandbox finds a key with these digits.
async fn assert_hidden(gate: &TestGate, digits: &str) {
    let folder = gate.folder.path().display();
    let command = format!("cat {folder}/keys/* {folder}/keys/..*/* {folder}/*.key; true");
    for (server, is_visible) in [("bad", false), ("off", true)] {
        let output = shell(gate, server, &command).await;
        assert_eq!(output.contains(digits), is_visible, "{server}: {output}");
    }
}

/// Returns the users to run a gateway as.
fn users() -> Vec<Option<u32>> {
    let other = is_root().then_some(Some(65534));
    [None].into_iter().chain(other).collect()
}

fn show_sandbox(gate: &TestGate) -> String {
    let args = ["servers", "sandbox", "sh_bad", "--config", "toolgate.toml"];
    let (_, text, _) = run(gate.folder.path(), &args);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn key_in_a_directory_of_its_own_stays_hidden_when_it_is_replaced() {
    for user in users() {
        let folder = folder_with_key("keys/store.key", |folder| {
            fs::create_dir(folder.join("keys")).unwrap();
            fs::write(folder.join("keys/store.key"), "0a".repeat(32)).unwrap();
        });
        let gate = start_all(folder, user).await;
        assert_hidden(&gate, "0a0a").await;
        let keys = gate.folder.path().join("keys");
        fs::write(keys.join("new"), "0b".repeat(32)).unwrap();
        fs::rename(keys.join("new"), keys.join("store.key")).unwrap();
        assert_hidden(&gate, "0b0b").await;
        let text = show_sandbox(&gate);
        assert!(!text.contains("is replaced"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_in_a_kubernetes_volume_stays_hidden_when_its_content_is_swapped() {
    for user in users() {
        let folder = folder_with_key("keys/store.key", |folder| {
            let keys = folder.join("keys");
            fs::create_dir_all(keys.join("..first")).unwrap();
            fs::write(keys.join("..first/store.key"), "0a".repeat(32)).unwrap();
            symlink("..first", keys.join("..data")).unwrap();
            symlink("..data/store.key", keys.join("store.key")).unwrap();
            // Another entry of the same volume.
            fs::write(keys.join("..first/token"), "token").unwrap();
            symlink("..data/token", keys.join("token")).unwrap();
        });
        let gate = start_all(folder, user).await;
        assert_hidden(&gate, "0a0a").await;
        let keys = gate.folder.path().join("keys");
        fs::create_dir(keys.join("..second")).unwrap();
        fs::write(keys.join("..second/store.key"), "0b".repeat(32)).unwrap();
        symlink("..second", keys.join("..new")).unwrap();
        fs::rename(keys.join("..new"), keys.join("..data")).unwrap();
        fs::remove_dir_all(keys.join("..first")).unwrap();
        assert_hidden(&gate, "0b0b").await;
    }
}

/// The folder is the home of the servers, so it cannot be hidden as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn key_beside_other_files_is_hidden_and_what_that_does_not_achieve_is_reported() {
    let folder = folder_with_key("outside.key", |folder| {
        fs::write(folder.join("outside.key"), "0a".repeat(32)).unwrap();
    });
    let gate = start_all(folder, None).await;
    assert_hidden(&gate, "0a0a").await;
    let note = "outside.key` is replaced, running servers see the new file until they are restarted; keep it in a directory of its own";
    let entry = gate.json("/api/mcp/client/sh_bad").await;
    let reported = entry["sandbox"]["measures"][0]["note"].as_str().unwrap();
    assert!(reported.contains(note), "{entry}");
    let text = show_sandbox(&gate);
    assert!(text.contains(note), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_with_another_hard_link_is_reported() {
    let folder = folder_with_key("keys/store.key", |folder| {
        fs::create_dir(folder.join("keys")).unwrap();
        fs::write(folder.join("keys/store.key"), "0a".repeat(32)).unwrap();
    });
    fs::hard_link(
        folder.path().join("keys/store.key"),
        folder.path().join("copy"),
    )
    .unwrap();
    let gate = start_all(folder, None).await;
    let log = gate.log();
    assert_eq!(
        log.matches("the key file has other hard links").count(),
        1,
        "{log}"
    );
}
