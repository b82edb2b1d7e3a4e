//! `toolgate mcp`: what a client does and sees that starts the gateway itself.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::gate::{SOON, toolgate, zoo};

/// A client and the gateway that it started.
struct Pipes {
    child: Child,
    /// None once it is closed.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    _folder: TempDir,
}

impl Pipes {
    fn start(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let mut command = Command::from(toolgate(folder.path()));
        let command = command.arg("mcp").kill_on_drop(true);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            _folder: folder,
        }
    }

    /// One of the old era, which can do so much.
    async fn old(toml: &str, version: &str, capabilities: Value) -> Self {
        let mut pipes = Self::start(toml);
        let params = json!({"protocolVersion": version, "capabilities": capabilities});
        let hello = pipes.ask("initialize", params).await;
        assert_eq!(hello["result"]["protocolVersion"], version, "{hello}");
        pipes
    }

    async fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": "r", "method": method, "params": params});
        self.say(&request).await;
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await;
        let line = line.unwrap().unwrap().expect("a message");
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.request(method, params).await;
        self.next().await
    }

    async fn ends(mut self) {
        let ended = tokio::time::timeout(SOON, self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
    }
}

fn asking() -> String {
    zoo("zoo", &["--fixtures"]) + "per_session = true\n"
}

#[tokio::test]
async fn it_ends_although_a_question_is_open() {
    let mut pipes = Pipes::old(&asking(), "2025-11-25", json!({"elicitation": {}})).await;
    let call = json!({"name": "zoo_test_elicitation", "arguments": {"message": "Who?"}});
    pipes.request("tools/call", call).await;
    let question = pipes.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    pipes.stdin.take();
    pipes.ends().await;
}

#[tokio::test]
async fn a_signal_ends_it_although_its_input_is_open() {
    let pipes = Pipes::old(&zoo("zoo", &[]), "2025-11-25", json!({})).await;
    let id = pipes.child.id().unwrap().to_string();
    let sent = std::process::Command::new("kill").arg(id).status();
    assert!(sent.unwrap().success());
    pipes.ends().await;
}

#[tokio::test]
async fn a_batch_is_answered_as_one_by_the_revision_that_knows_it() {
    let add = |id: u64| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "zoo_add", "arguments": {"a": id, "b": 1}}})
    };
    let batch = json!([add(1), {"jsonrpc": "2.0", "method": "notifications/x"}, add(2)]);
    let mut pipes = Pipes::old(&zoo("zoo", &[]), "2025-03-26", json!({})).await;
    pipes.say(&batch).await;
    let answers = pipes.next().await;
    let texts = answers.as_array().unwrap().iter();
    let texts: Vec<&Value> = texts
        .map(|one| &one["result"]["content"][0]["text"])
        .collect();
    assert_eq!(texts, ["2", "3"]);
    let mut newer = Pipes::old(&zoo("zoo", &[]), "2025-06-18", json!({})).await;
    newer.say(&batch).await;
    assert_eq!(newer.next().await["error"]["code"], -32600);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_and_the_next_is_read() {
    let mut pipes = Pipes::old(&zoo("zoo", &[]), "2025-11-25", json!({})).await;
    pipes
        .say(&json!({"long": "x".repeat(17 * 1024 * 1024)}))
        .await;
    assert_eq!(pipes.next().await["error"]["code"], -32600);
    let level = pipes
        .ask("logging/setLevel", json!({"level": "loud"}))
        .await;
    assert_eq!(level["error"]["code"], -32602, "{level}");
    let level = pipes
        .ask("logging/setLevel", json!({"level": "error"}))
        .await;
    assert_eq!(level["result"], json!({}));
    let mut rude = Pipes::start("");
    let refused = rude.ask("tools/list", json!({})).await;
    assert_eq!(refused["error"]["code"], -32600, "it has not said hello");
}
