//! Real MCP servers from npm and PyPI, installed by `make test-env`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use toolgate_testkit::model::{Reply, ScriptedModel};

use crate::gate::{TestGate, server};
use crate::mcp_sdk::env_file;

fn installed_path(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make test-env`",
        path.display()
    );
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn npm_binary(name: &str) -> String {
    installed_path(&format!("node/node_modules/.bin/{name}"))
}

/// Not canonicalized: a virtual environment is found by its path.
fn python_binary(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env/python/.venv/bin")
        .join(name);
    assert!(
        path.exists(),
        "{} is missing; run `make test-env`",
        path.display()
    );
    path.to_str().unwrap().to_owned()
}

/// A server process over HTTP; dropping it kills the process.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn text(message: &Value) -> &str {
    assert!(message.get("is_error").is_none(), "{message}");
    message["content"]
        .as_str()
        .unwrap_or_else(|| panic!("{message}"))
}

#[tokio::test]
async fn npm_servers_work_over_stdio() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("hello.txt"), "hello from a file").unwrap();
    let root = root.to_str().unwrap();
    let toml = server(
        "everything",
        &npm_binary("mcp-server-everything"),
        &["stdio"],
    ) + &server("filesystem", &npm_binary("mcp-server-filesystem"), &[root])
        + &server("memory", &npm_binary("mcp-server-memory"), &[])
        + &format!("env = {{ MEMORY_FILE_PATH = \"{root}/memory.json\" }}\n");
    let gate = TestGate::start(&toml);
    for name in ["everything", "filesystem", "memory"] {
        let entry = gate.wait_for_state(name, "healthy").await;
        assert_eq!(entry["protocol_version"], "2025-11-25", "{name}");
        assert_eq!(entry["problems"], json!([]), "{name}");
    }
    let echo = gate.call("everything_echo", r#"{"message":"hi"}"#).await;
    assert_eq!(text(&echo), "Echo: hi");
    let image = gate.call("everything.get-tiny-image", "{}").await;
    let parts = image["content"]
        .as_array()
        .unwrap_or_else(|| panic!("{image}"));
    assert!(
        parts.iter().any(|part| part["type"] == "image_url"),
        "{image}"
    );
    let everything = gate.json("/api/mcp/client/everything").await;
    assert!(!everything["resources"].as_array().unwrap().is_empty());
    assert!(!everything["prompts"].as_array().unwrap().is_empty());

    let arguments = json!({"path": format!("{root}/hello.txt")}).to_string();
    assert_eq!(
        text(&gate.call("filesystem_read_text_file", &arguments).await),
        "hello from a file"
    );
    let outside = gate
        .call("filesystem_read_text_file", r#"{"path":"/etc/passwd"}"#)
        .await;
    assert_eq!(outside["is_error"], true);

    let entity =
        r#"{"entities":[{"name":"Ada","entityType":"person","observations":["likes engines"]}]}"#;
    text(&gate.call("memory_create_entities", entity).await);
    assert!(text(&gate.call("memory_read_graph", "{}").await).contains("likes engines"));
}

/// Script of a model that was asked which notes mention a deadline.
const SCRIPT: &str = r#"paths = filesystem.search_files(path=".", pattern="*.md")["content"].splitlines()
texts = parallel([(filesystem.read_text_file, {"path": path}) for path in paths])
late = []
for path, text in zip(paths, texts):
    for line in text["content"].splitlines():
        if "deadline" in line.lower():
            late.append({"note": path.split("/")[-1], "line": line})
memory.create_entities(entities=[
    {"name": one["note"], "entityType": "note", "observations": [one["line"]]} for one in late
])
result = sorted([one["note"] for one in late])
"#;

#[tokio::test]
async fn openai_sdk_runs_script_over_real_servers() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for (name, text) in [
        ("garden.md", "Water the beans."),
        ("release.md", "Cut the branch.\nDeadline: Friday."),
        ("taxes.md", "The deadline is in May."),
    ] {
        std::fs::write(root.join(name), text).unwrap();
    }
    let root = root.to_str().unwrap();
    let scripted = "is_code_mode_client = true\ntools_to_auto_execute = [\"*\"]\n";
    let model = ScriptedModel::start_strict(vec![
        Reply::calls([("c1", "listToolFiles", json!({}))]),
        Reply::calls([(
            "c2",
            "readToolFile",
            json!({"fileName": "servers/filesystem.pyi"}),
        )]),
        Reply::calls([("c3", "executeToolCode", json!({"code": SCRIPT}))]),
        Reply::text("release.md and taxes.md; I have remembered both."),
    ]);
    let toml = server("filesystem", &npm_binary("mcp-server-filesystem"), &[root])
        + &format!("cwd = {root:?}\n{scripted}")
        + &server("memory", &npm_binary("mcp-server-memory"), &[])
        + &format!("env = {{ MEMORY_FILE_PATH = \"{root}/memory.json\" }}\n{scripted}")
        + &format!(
            "[providers.openai]\nbase_url = \"{}/v1\"\napi_key = \"k\"\n",
            model.url()
        );
    let gate = TestGate::start(&toml);
    for name in ["filesystem", "memory"] {
        gate.wait_for_state(name, "healthy").await;
    }
    let client = tokio::process::Command::new(env_file("models/.venv/bin/python"))
        .arg(env_file("models/code_client.py"))
        .args([gate.url.as_str(), "openai/gpt"])
        .output()
        .await
        .unwrap();
    let stdout = String::from_utf8_lossy(&client.stdout);
    assert!(
        client.status.success(),
        "{}",
        String::from_utf8_lossy(&client.stderr)
    );
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        answer["text"],
        "release.md and taxes.md; I have remembered both."
    );
    let executed = answer["toolgate"]["executed"].as_array().unwrap();
    let script = executed[2]["result"].as_str().unwrap();
    assert_eq!(
        script,
        "[\"release.md\",\"taxes.md\"]\ncalls: filesystem.search_files, filesystem.read_text_file×3, memory.create_entities",
        "{executed:?}"
    );
    let memory = std::fs::read_to_string(format!("{root}/memory.json")).unwrap();
    assert!(memory.contains("Deadline: Friday."), "{memory}");
}

#[tokio::test]
async fn pypi_servers_work_in_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repo");
    let init = Command::new("git")
        .args(["init", "-q", "-b", "trunk"])
        .arg(&repository)
        .status()
        .unwrap();
    assert!(init.success());
    let repository = repository.to_str().unwrap();
    for (protocol, version) in [("auto", "2025-11-25"), ("modern", "2026-07-28")] {
        let era = format!("protocol = {protocol:?}\n");
        let toml = server(
            "git",
            &python_binary("mcp-server-git"),
            &["--repository", repository],
        ) + &era
            + &server(
                "time",
                &python_binary("mcp-server-time"),
                &["--local-timezone", "UTC"],
            )
            + &era;
        let gate = TestGate::start(&toml);
        for name in ["git", "time"] {
            assert_eq!(
                gate.wait_for_state(name, "healthy").await["protocol_version"],
                version,
                "{name}"
            );
        }
        let arguments = json!({"repo_path": repository}).to_string();
        assert!(text(&gate.call("git_git_status", &arguments).await).contains("trunk"));
        let time = gate
            .call("time_get_current_time", r#"{"timezone":"Europe/Berlin"}"#)
            .await;
        assert!(text(&time).contains("Europe/Berlin"));
    }
}

#[tokio::test]
async fn real_legacy_server_works_over_http() {
    let port = free_port();
    let _process = ServerProcess(
        Command::new(npm_binary("mcp-server-everything"))
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let gate = TestGate::start(&format!(
        "[mcp_servers.web]\nurl = \"http://127.0.0.1:{port}/mcp\"\n"
    ));
    assert_eq!(
        gate.wait_for_state("web", "healthy").await["protocol_version"],
        "2025-11-25"
    );
    assert_eq!(
        text(&gate.call("web_echo", r#"{"message":"hi"}"#).await),
        "Echo: hi"
    );
}

#[tokio::test]
async fn real_dual_era_server_works_over_http() {
    let port = free_port();
    let mut child = Command::new(python_binary("python"))
        .arg(installed_path("python/calculator.py"))
        .arg(port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let _process = ServerProcess(child);
    std::thread::spawn(move || {
        let mut line = String::new();
        while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {}
    });
    for (protocol, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let toml = format!(
            "[mcp_servers.web]\nurl = \"http://127.0.0.1:{port}/mcp\"\nprotocol = {protocol:?}\n"
        );
        let gate = TestGate::start(&toml);
        assert_eq!(
            gate.wait_for_state("web", "healthy").await["protocol_version"],
            version
        );
        let sum = gate.call("web_add", r#"{"a":40,"b":2}"#).await;
        assert_eq!(text(&sum), "42");
    }
}
