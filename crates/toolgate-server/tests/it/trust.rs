//! Configuration files in the working folder are used only after they were trusted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use toolgate_testkit::eventually;

use crate::gate::{TestGate, WAIT_TIMEOUT, server, toolgate, wait_for_url, zoo};

/// Builds a command that looks for the configuration file itself.
fn in_project(folder: &Path, args: &[&str]) -> Command {
    let mut command = toolgate(folder);
    command.args(args).env_remove("TOOLGATE_CONFIG");
    command
}

/// Runs a command to completion; returns whether it succeeded, and its output.
fn run_in_project(folder: &Path, args: &[&str]) -> (bool, String) {
    let output = in_project(folder, args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn trust(folder: &Path) -> String {
    let (ok, text) = run_in_project(folder, &["trust"]);
    assert!(ok, "{text}");
    text
}

fn project(file: &str, text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(file), text).unwrap();
    folder
}

/// Starts a gateway with the trusted file of a project.
fn start(folder: TempDir) -> TestGate {
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let args = ["serve", "--port", "0", "--data-dir", "data"];
    let mut child = in_project(folder.path(), &args)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let url = wait_for_url(&mut child, folder.path());
    TestGate::new(child, url, folder)
}

/// Returns a server whose command leaves a file behind as soon as it is started.
fn touching_server(file: &str) -> String {
    server("evil", "touch", &[file])
}

async fn problems(gate: &TestGate) -> Vec<String> {
    let list = gate.json("/api/problems").await;
    let problems = list["problems"].as_array().unwrap().iter();
    let texts = problems.map(|problem| problem["message"].as_str().unwrap().to_owned());
    texts.collect()
}

#[test]
fn untrusted_project_file_starts_nothing() {
    let json = r#"{"mcp_servers": {"evil": {"command": "touch", "args": ["ran"]}}}"#;
    for (file, text) in [
        ("toolgate.toml", touching_server("ran").as_str()),
        ("config.json", json),
    ] {
        let folder = project(file, text);
        for args in [
            &["serve", "--port", "0", "--data-dir", "data"][..],
            &["mcp"],
            &["backup", "copy"],
        ] {
            let (ok, text) = run_in_project(folder.path(), args);
            assert!(!ok, "{args:?}: {text}");
            for expected in [
                "is not trusted",
                file,
                r#"mcp_servers.evil: "touch" "ran""#,
                "toolgate trust",
                "--no-project",
                "--config",
            ] {
                assert!(text.contains(expected), "{expected}\nin\n{text}");
            }
        }
        assert!(!folder.path().join("ran").exists());
        let (ok, text) = run_in_project(folder.path(), &["check"]);
        assert!(ok && text.contains("is not trusted"), "{text}");
        let (ok, text) = run_in_project(folder.path(), &["check", "--no-project"]);
        assert!(ok && text.contains("no configuration file"), "{text}");
        let (ok, text) = run_in_project(folder.path(), &["check", "--config", file]);
        assert!(ok && !text.contains("is not trusted"), "{text}");
    }
}

#[test]
fn names_of_tools_in_a_project_file_are_checked_once_it_is_trusted() {
    let role = "[roles.dev]\ntools = [\"zoo.ad\"]\n";
    let folder = project("toolgate.toml", &(zoo("zoo", &[]) + role));
    let (ok, text) = run_in_project(folder.path(), &["check"]);
    assert!(
        ok && text.contains("tools in it were not checked"),
        "{text}"
    );
    trust(folder.path());
    let (ok, text) = run_in_project(folder.path(), &["check"]);
    let expected = "roles.dev.tools: error: `zoo.ad` names a tool that server `zoo` does not have";
    assert!(!ok && text.contains(expected), "{text}");
}

#[test]
fn trust_covers_one_content_at_one_path() {
    let folder = project("toolgate.toml", &touching_server("ran"));
    let path = folder.path().join("toolgate.toml");
    let shown = trust(folder.path());
    assert!(
        shown.contains(r#"mcp_servers.evil: "touch" "ran""#),
        "{shown}"
    );
    let store = folder.path().join(".local/share/toolgate/trusted.json");
    let mode = fs::metadata(&store).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let is_trusted = |folder: &Path| {
        let (ok, text) = run_in_project(folder, &["check"]);
        assert!(ok, "{text}");
        !text.contains("is not trusted")
    };
    assert!(is_trusted(folder.path()));
    assert!(trust(folder.path()).contains("trusted already"));

    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.clone() + "#").unwrap();
    assert!(!is_trusted(folder.path()), "the whole file counts");
    fs::write(&path, &text).unwrap();
    assert!(is_trusted(folder.path()));

    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(&path, copy.join("toolgate.toml")).unwrap();
    let mut check = in_project(folder.path(), &["check"]);
    let output = check.current_dir(&copy).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("is not trusted"), "{stdout}");

    fs::write(&store, "{").unwrap();
    let (ok, text) = run_in_project(folder.path(), &["mcp"]);
    assert!(!ok && text.contains("trusted.json"), "{text}");
    let (ok, text) = run_in_project(copy.parent().unwrap(), &["trust"]);
    assert!(!ok, "{text}");
    fs::remove_file(&path).unwrap();
    let (ok, text) = run_in_project(folder.path(), &["trust"]);
    assert!(
        !ok && text.contains("there is no `toolgate.toml`"),
        "{text}"
    );
}

#[tokio::test]
async fn changed_project_file_is_not_used_until_trusted_again() {
    let rule = "[[permissions.rules]]\ntool = \"zoo.add\"\naction = \"deny\"\n";
    let folder = project("toolgate.toml", &(zoo("zoo", &[]) + rule));
    trust(folder.path());
    let gate = start(folder);
    gate.wait_for_state("zoo", "healthy").await;
    assert_eq!(problems(&gate).await, Vec::<String>::new());

    // A tool that writes files adds a command and removes the rule.
    gate.edit(&(zoo("zoo", &[]) + &touching_server("ran")));
    let pending = eventually("the change is reported", WAIT_TIMEOUT, async || {
        problems(&gate).await.pop()
    })
    .await;
    assert!(pending.contains("toolgate trust"), "{pending}");
    assert!(gate.log().contains("toolgate trust"), "{}", gate.log());

    // The user's own file still takes effect, with the last trusted file of the project.
    let own = gate.folder.path().join(".config/toolgate");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("toolgate.toml"), zoo("own", &[])).unwrap();
    gate.wait_for_state("own", "healthy").await;
    let denied = async || {
        let rules = gate.json("/api/permissions").await;
        rules.to_string().contains("zoo.add")
    };
    assert!(denied().await);
    assert_eq!(gate.get("/api/mcp/client/evil").await.status(), 404);
    assert!(!gate.folder.path().join("ran").exists());

    trust(gate.folder.path());
    eventually("the change is in force", WAIT_TIMEOUT, async || {
        gate.folder.path().join("ran").exists().then_some(())
    })
    .await;
    eventually("the problem is gone", WAIT_TIMEOUT, async || {
        problems(&gate).await.is_empty().then_some(())
    })
    .await;
    assert!(!denied().await);
}

#[tokio::test]
async fn project_file_reads_only_allowed_variables() {
    let toml = "[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"ran\"]\nenv = { T = \"env.GITHUB_TOKEN\" }\n";
    let folder = project("toolgate.toml", toml);
    let shown = trust(folder.path());
    assert!(
        shown.contains("\"GITHUB_TOKEN\" (mcp_servers.evil.env.T)"),
        "{shown}"
    );
    let serve = ["serve", "--port", "0", "--data-dir", "data"];
    let mut command = in_project(folder.path(), &serve);
    let output = command.env("GITHUB_TOKEN", "secret").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        stderr.contains("toolgate.toml:4:") && stderr.contains("`project_env`"),
        "{stderr}"
    );
    assert!(!folder.path().join("ran").exists());

    let own = folder.path().join(".config/toolgate");
    fs::create_dir_all(&own).unwrap();
    let allow = "project_env = [\"GITHUB_TOKEN\"]\n";
    fs::write(own.join("toolgate.toml"), allow).unwrap();
    let (ok, text) = run_in_project(folder.path(), &["check"]);
    assert!(ok, "{text}");
    let folder_with_allow = project("toolgate.toml", &(allow.to_owned() + toml));
    let (ok, text) = run_in_project(folder_with_allow.path(), &["check"]);
    assert!(
        !ok && text.contains("has no place in the file of a project"),
        "{text}"
    );
}

#[tokio::test]
async fn server_over_own_files_is_reported() {
    let toml = server("files", "true", &["."]);
    let (ok, text) = run_in_project(project("toolgate.toml", &toml).path(), &["check"]);
    let expected = "server `files` can reach the gateway's own files: its argument `.`";
    assert!(ok && text.contains(expected), "{text}");
    let gate = TestGate::start(&toml);
    let found: Value = gate.json("/api/problems").await;
    assert!(found.to_string().contains(expected), "{found}");
    assert!(gate.log().contains(expected), "{}", gate.log());
}
