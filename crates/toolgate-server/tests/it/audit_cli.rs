//! `toolgate audit verify` on the data directory of a gateway that has stopped.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::gate::{TestGate, run, toolgate};

const KEY: &str = "a-seal-key-that-was-changed";
const VERIFY: [&str; 4] = ["audit", "verify", "--data-dir", "data"];

/// Runs a command and returns its exit code and standard output.
fn finish(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), stdout)
}

fn verify(folder: &Path) -> Command {
    let mut command = toolgate(folder);
    command.args(VERIFY);
    command
}

#[tokio::test]
async fn earlier_seal_key_is_read_from_a_file_or_variable() {
    let mut gate = TestGate::start(&format!("[audit]\nseal_key = {KEY:?}\n"));
    gate.caller().execute("no_such_tool", &json!({})).await;
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
    let folder = gate.folder.path();
    let (code, stdout) = finish(&mut verify(folder));
    assert_eq!(code, Some(0), "the key is in the configuration: {stdout}");
    assert!(stdout.contains("1 entry and 1 seal checked"), "{stdout}");

    gate.edit("[audit]\nseal_key = \"the-seal-key-of-today\"\n");
    let (code, stdout) = finish(&mut verify(folder));
    assert_eq!(code, Some(1), "{stdout}");
    assert!(stdout.contains("NOT intact"), "{stdout}");
    fs::write(folder.join("other-key"), "not-the-key-that-sealed-it").unwrap();
    fs::write(folder.join("key"), format!("{KEY}\n")).unwrap();
    let files = ["--seal-key-file", "other-key", "--seal-key-file", "key"];
    let (code, stdout) = finish(verify(folder).args(files));
    assert_eq!(code, Some(0), "{stdout}");
    let (code, stdout) = finish(verify(folder).env("TOOLGATE_SEAL_KEY", KEY));
    assert_eq!(code, Some(0), "{stdout}");
    let (code, _) = finish(verify(folder).env("TOOLGATE_SEAL_KEY", ""));
    assert_eq!(code, Some(1), "an empty variable counts as unset");
    let (code, _) = finish(verify(folder).args(["--seal-key-file", "missing"]));
    assert_ne!(code, Some(0));
    let (output, _, stderr) = run(folder, &[&VERIFY[..], &["--seal-key", KEY]].concat());
    assert_eq!(output.status.code(), Some(2), "{stderr}");
}
