//! The key of the store outside of the data directory: in a file, a variable or the output of a command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, run, serve_args, toolgate, zoo};

/// Two keys of the right length, in base64.
const KEY: &str = "c3RvcmUta2V5LXN0b3JlLWtleS1zdG9yZS1rZXktMDE=";
const OTHER_KEY: &str = "b3RoZXIta2V5LW90aGVyLWtleS1vdGhlci1rZXktMDI=";

/// The settings that say where the key is, of which each can open what another one sealed.
fn settings() -> [String; 4] {
    [
        "[store]\nkey = \"env.DATABASE_KEY\"\n".to_owned(),
        "[store]\nkey_file = \"outside.key\"\n".to_owned(),
        "[store]\nkey_command = [\"sh\", \"-c\", \"echo progress >&2; echo $PRINTED\"]\nkey_command_env = [\"PRINTED=env.DATABASE_KEY\"]\n".to_owned(),
        String::new(), // TOOLGATE_STORE_KEY
    ]
}

/// Starts a gateway with the key in several places, of which the settings select one.
fn start(folder: TempDir, settings: &str) -> TestGate {
    write_settings(folder.path(), settings);
    let mut command = toolgate(folder.path());
    command.args(&serve_args()[1..]);
    set_variables(&mut command, settings);
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let url = crate::gate::wait_for_url(&mut child, folder.path());
    TestGate::new(child, url, folder)
}

fn set_variables(command: &mut Command, settings: &str) {
    command.env("DATABASE_KEY", KEY);
    if settings.is_empty() {
        command.env("TOOLGATE_STORE_KEY", KEY);
    }
}

fn write_settings(folder: &Path, settings: &str) {
    let toml = format!("{settings}{}", zoo("zoo", &[]));
    fs::write(folder.join("toolgate.toml"), toml).unwrap();
}

/// Creates a folder with the key in `outside.key`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outside.key");
    fs::write(&file, format!("{KEY}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    folder
}

/// Runs the binary with the variables of a gateway.
fn run_with(folder: &Path, settings: &str, args: &[&str]) -> (bool, String) {
    let mut command = toolgate(folder);
    set_variables(&mut command, settings);
    let output = command.args(args).output().unwrap();
    (output.status.success(), text_of(&output))
}

fn text_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Runs a gateway that must not start, with further variables, and returns what it says.
fn refuse_start(folder: &Path, settings: &str, env: &[(&str, &str)]) -> String {
    write_settings(folder, settings);
    let output = toolgate(folder)
        .args(&serve_args()[1..])
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = text_of(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for key in [KEY, OTHER_KEY] {
        assert!(!text.contains(key), "{text}");
    }
    text
}

async fn create_key(gate: &TestGate, name: &str) {
    let body = json!({"name": name}).to_string();
    let created = gate.post("/api/keys", &body, Default::default()).await;
    assert_eq!(created.status(), 201);
}

async fn stop(mut gate: TestGate) -> TempDir {
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0), "{}", gate.log());
    std::mem::replace(&mut gate.folder, tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn each_place_opens_what_another_sealed_and_the_data_directory_has_no_key() {
    let mut folder = folder();
    for (index, settings) in settings().iter().enumerate() {
        let gate = start(folder, settings);
        let keys = gate.json("/api/keys").await;
        assert_eq!(keys["keys"].as_array().unwrap().len(), index, "{keys}");
        create_key(&gate, &format!("k{index}")).await;
        let data = gate.folder.path().join("data");
        assert!(data.join("toolgate.db").exists());
        assert!(!data.join("store.key").exists());
        assert!(!gate.log().contains(KEY), "{}", gate.log());
        folder = stop(gate).await;
        // The command line reads the trail with the same key.
        for args in [&["audit", "verify"][..], &["audit", "export"]] {
            let args = [args, &["--data-dir", "data"]].concat();
            let (succeeded, text) = run_with(folder.path(), settings, &args);
            assert!(succeeded, "{settings}: {text}");
            if args[1] == "export" {
                fs::write(folder.path().join("export"), text).unwrap();
            }
        }
        // An export is verified without the data directory.
        let args = ["audit", "verify", "--file", "export", "--data-dir", "none"];
        let (succeeded, text) = run_with(folder.path(), settings, &args);
        assert!(succeeded && !text.contains(" 0 seals"), "{text}");
    }
    let verified = toolgate(folder.path())
        .args(["audit", "verify", "--file", "export", "--data-dir", "none"])
        .env("TOOLGATE_STORE_KEY", OTHER_KEY)
        .output();
    let text = text_of(&verified.unwrap());
    assert!(text.contains("the audit trail is NOT intact"), "{text}");
    // Without the key, nothing opens it.
    let text = refuse_start(folder.path(), "", &[]);
    assert!(
        text.contains("data/store.key` is missing") && text.contains("`[store]`"),
        "{text}"
    );
    assert!(!folder.path().join("data/store.key").exists());
    for args in [
        &["audit", "verify", "--data-dir", "data"][..],
        &["audit", "export", "--data-dir", "data"],
    ] {
        let (output, _, stderr) = run(folder.path(), args);
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("is missing"), "{stderr}");
    }
}

#[tokio::test]
async fn wrong_ambiguous_and_malformed_keys_are_refused() {
    let gate = start(folder(), "");
    create_key(&gate, "alice").await;
    let folder = stop(gate).await;
    let path = folder.path();
    for (settings, env, expected) in [
        (
            "",
            &[("TOOLGATE_STORE_KEY", OTHER_KEY)][..],
            "from TOOLGATE_STORE_KEY does not fit the database",
        ),
        (
            "",
            &[("TOOLGATE_STORE_KEY", "s3cret-and-too-short")],
            "from TOOLGATE_STORE_KEY is not valid: it must have 32 bytes",
        ),
        (
            "",
            &[
                ("TOOLGATE_STORE_KEY", KEY),
                ("TOOLGATE_STORE_KEY_FILE", "outside.key"),
            ],
            "set in several places",
        ),
        (
            "[store]\nkey_file = \"outside.key\"\n",
            &[("TOOLGATE_STORE_KEY", KEY)],
            "set in several places",
        ),
        (
            "[store]\nkey = \"env.UNSET\"\n",
            &[],
            "from the variable UNSET (`store.key`): it is not set",
        ),
        (
            "[store]\nkey_file = \"missing.key\"\n",
            &[],
            "from `missing.key` (`store.key_file`): No such file",
        ),
        ("[store]\nkey_file = \"data\"\n", &[], "it is not a file"),
        (
            "[store]\nkey_file = \"toolgate.toml\"\n",
            &[],
            "from `toolgate.toml` (`store.key_file`) is not valid",
        ),
    ] {
        let text = refuse_start(path, settings, env);
        assert!(text.contains(expected), "{settings}{env:?}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(!path.join("data/store.key").exists());
    let gate = start(folder, "");
    let keys = gate.json("/api/keys").await;
    assert_eq!(keys["keys"][0]["name"], "alice", "{keys}");
}

#[tokio::test]
async fn key_moves_out_of_the_data_directory() {
    let folder = folder();
    let path = folder.path();
    write_settings(path, "");
    let mut gate = TestGate::start_in(folder);
    create_key(&gate, "alice").await;
    gate.signal("-TERM");
    assert_eq!(gate.wait_for_exit().await, Some(0));
    let path = gate.folder.path();
    let inside = path.join("data/store.key");
    // Another key is configured: the database belongs to the one in the data directory.
    let settings = "[store]\nkey_file = \"outside.key\"\n";
    let text = refuse_start(path, settings, &[]);
    assert!(
        text.contains("but the one in `data/store.key` does; to keep it elsewhere"),
        "{text}"
    );
    // The content moves, as bytes. The file that is left behind is reported.
    fs::copy(&inside, path.join("outside.key")).unwrap();
    gate.relaunch();
    assert_eq!(gate.json("/api/keys").await["keys"][0]["name"], "alice");
    assert!(gate.log().contains("also has a key file"), "{}", gate.log());
    fs::remove_file(&inside).unwrap();
    let public = fs::Permissions::from_mode(0o644);
    fs::set_permissions(gate.folder.path().join("outside.key"), public).unwrap();
    gate.restart().await;
    assert_eq!(gate.json("/api/keys").await["keys"][0]["name"], "alice");
    assert!(!inside.exists());
    let log = gate.log();
    assert!(log.contains("other users may read the key"), "{log}");
}

#[tokio::test]
async fn backup_leaves_an_outside_key_out_and_restores_only_with_it() {
    let settings = "[store]\nkey_file = \"outside.key\"\n";
    let gate = start(folder(), settings);
    create_key(&gate, "alice").await;
    let path = gate.folder.path();
    let (succeeded, text) = run_with(path, settings, &["backup", "copy", "--data-dir", "data"]);
    assert!(succeeded, "{text}");
    assert!(
        text.contains("does not contain the key of the store") && text.contains("outside.key"),
        "{text}"
    );
    assert!(!path.join("copy/store.key").exists());
    create_key(&gate, "later").await;
    let folder = stop(gate).await;
    let path = folder.path();
    // With another key, or without one, nothing is touched.
    let restore = ["restore", "copy", "--data-dir", "data", "--force"];
    for (toml, expected) in [
        (
            "[store]\nkey_file = \"other.key\"\n",
            "does not fit the database",
        ),
        ("", "copy/store.key` is missing"),
    ] {
        fs::write(path.join("other.key"), OTHER_KEY).unwrap();
        write_settings(path, toml);
        let (output, _, stderr) = run(path, &restore);
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!stderr.contains(OTHER_KEY), "{stderr}");
    }
    let moved = fs::read_dir(path.join("data")).unwrap().flatten();
    let mut moved = moved.filter(|entry| entry.path().is_dir());
    assert!(moved.next().is_none());
    write_settings(path, settings);
    let (succeeded, text) = run_with(path, settings, &restore);
    assert!(succeeded, "{text}");
    assert!(!path.join("data/store.key").exists());
    let gate = start(folder, settings);
    let keys = gate.json("/api/keys").await;
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1, "{keys}");
}

#[tokio::test]
async fn hostile_key_commands_are_stopped_and_explained() {
    let folder = folder();
    let path = folder.path();
    for (script, expected) in [
        ("true", "it printed nothing"),
        ("echo why >&2", "it printed nothing: why"),
        (
            "echo no access >&2; echo s3cret; exit 3",
            "it failed (exit status: 3): no access",
        ),
        ("yes s3cret", "it printed more than 4096 bytes"),
        ("yes s3cret >&2", "it did not finish within 1s"),
        ("kill -9 $$", "it failed (signal: 9"),
        ("echo s3cret", "is not valid: it must have 32 bytes"),
    ] {
        // What must end by itself has time for it, however slow the machine is.
        let timeout = if expected.contains("within 1s") {
            "1s"
        } else {
            "60s"
        };
        let settings = format!(
            "[store]\nkey_command = [\"sh\", \"-c\", {script:?}]\nkey_command_timeout = \"{timeout}\"\n"
        );
        let text = refuse_start(path, &settings, &[]);
        assert!(text.contains(expected), "{script}: {text}");
        assert!(
            text.contains("the command `sh` (`store.key_command`)"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{script}: {text}");
        assert!(text.len() < 4096, "{script}: {}", text.len());
    }
    let text = refuse_start(path, "[store]\nkey_command = [\"no-such-program\"]\n", &[]);
    assert!(text.contains("the program does not exist"), "{text}");
    // Nothing of a command is left running. On a slow machine, it is stopped before it has begun.
    let hanging = "[store]\nkey_command = [\"sh\", \"-c\", \"sleep 600 & echo $! > new; mv new pid; wait\"]\nkey_command_timeout = \"1s\"\n";
    let pid = eventually("the command began", WAIT_TIMEOUT, async || {
        let text = refuse_start(path, hanging, &[]);
        assert!(text.contains("it did not finish within 1s"), "{text}");
        fs::read_to_string(path.join("pid")).ok()
    })
    .await;
    let process = Path::new("/proc").join(pid.trim());
    eventually("the command is gone", WAIT_TIMEOUT, async || {
        (!process.exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn key_reaches_no_process_and_no_server_can_be_given_it() {
    let settings = "[store]\nkey_command = [\"sh\", \"-c\", \"env > seen; cat outside.key\"]\nkey_command_env = [\"GIVEN=yes\"]\n";
    let gate = start(folder(), settings);
    let seen = fs::read_to_string(gate.folder.path().join("seen")).unwrap();
    assert!(
        seen.contains("GIVEN=yes") && seen.contains("PATH="),
        "{seen}"
    );
    assert!(!seen.contains(KEY), "{seen}");
    let folder = stop(gate).await;
    let gate = start(folder, "");
    let patch = json!({"stdio_config": {"command": "sh", "envs": ["TOOLGATE_STORE_KEY"]}, "name": "evil", "connection_type": "stdio"});
    let added = gate
        .post("/api/mcp/client", &patch.to_string(), Default::default())
        .await;
    assert_eq!(added.status(), 400);
    let text = added.text().await.unwrap();
    assert!(text.contains("holds the key of the store"), "{text}");
    gate.wait_for_state("zoo", "healthy").await;
    // No process of the gateway has it in its environment.
    let mut checked = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        if parent.is_some_and(|parent| parent.trim() == gate.child.id().to_string())
            && let Ok(environ) = fs::read(process.path().join("environ"))
        {
            checked += 1;
            let environ = String::from_utf8_lossy(&environ);
            assert!(!environ.contains(KEY), "{environ}");
        }
    }
    assert!(checked > 0);
}

#[test]
fn project_file_cannot_say_where_the_key_is() {
    let folder = folder();
    let settings = "[store]\nkey_command = [\"touch\", \"planted\"]\n";
    fs::write(folder.path().join("toolgate.toml"), settings).unwrap();
    for args in [&["trust"][..], &serve_args()[1..]] {
        let output = toolgate(folder.path())
            .env_remove("TOOLGATE_CONFIG")
            .args(args)
            .output()
            .unwrap();
        if args.len() > 1 {
            let text = text_of(&output);
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(
                text.contains("`store` has no place in the file of a project"),
                "{text}"
            );
        }
    }
    assert!(!folder.path().join("planted").exists());
}
