//! An MCP client that starts `toolgate mcp`, as desktop clients do.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::gate::{WAIT_TIMEOUT, toolgate};

/// `_meta` of modern requests.
const MODERN_META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A process of `toolgate mcp` and its client side.
pub(crate) struct StdioClient {
    pub(crate) child: Child,
    /// `None` once closed.
    pub(crate) stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: u64,
    _folder: Option<TempDir>,
}

impl StdioClient {
    /// Starts it in a new folder with this `toolgate.toml`.
    pub(crate) fn start(toml: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let client = Self::start_in(folder.path(), &[], &[]);
        Self {
            _folder: Some(folder),
            ..client
        }
    }

    /// Starts it in a folder, with further arguments and variables.
    pub(crate) fn start_in(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::from(toolgate(folder));
        let command = command.arg("mcp").args(args).envs(env.iter().copied());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            last_id: 0,
            _folder: None,
        }
    }

    /// Starts a gateway and initializes a legacy client with these capabilities.
    pub(crate) async fn start_legacy(toml: &str, version: &str, capabilities: Value) -> Self {
        let mut client = Self::start(toml);
        let params = json!({"protocolVersion": version, "capabilities": capabilities});
        let initialized = client.request("initialize", params).await;
        assert_eq!(
            initialized["result"]["protocolVersion"], version,
            "{initialized}"
        );
        client
    }

    /// Initializes a legacy client without capabilities.
    pub(crate) async fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        let initialized = self.request("initialize", params).await;
        assert_eq!(
            initialized["result"]["protocolVersion"], "2025-11-25",
            "{initialized}"
        );
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send(&ready).await;
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request).await;
        id
    }

    /// Returns the next message.
    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(WAIT_TIMEOUT, self.lines.next_line()).await;
        let line = line.expect("timed out waiting for a message").unwrap();
        serde_json::from_str(&line.expect("stdout ended")).unwrap()
    }

    /// Skips messages until the response to a request.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Skips messages until a notification.
    pub(crate) async fn notification(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params).await;
        self.response(id).await
    }

    /// Sends a modern request.
    pub(crate) async fn send_modern(&mut self, method: &str, mut params: Value) -> u64 {
        params["_meta"] = serde_json::from_str(MODERN_META).unwrap();
        self.send_request(method, params).await
    }

    pub(crate) async fn modern(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_modern(method, params).await;
        self.response(id).await
    }

    /// Closes standard input, waits for the exit, and returns its status and what it wrote to standard error.
    pub(crate) async fn finish(mut self) -> (ExitStatus, String) {
        drop(self.stdin.take());
        let mut stderr = self.child.stderr.take().unwrap();
        let mut text = String::new();
        let exit = async {
            stderr.read_to_string(&mut text).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let exit = tokio::time::timeout(WAIT_TIMEOUT, exit).await;
        (exit.expect("timed out waiting for the exit"), text)
    }

    pub(crate) async fn wait_for_exit(mut self) {
        let exit = tokio::time::timeout(WAIT_TIMEOUT, self.child.wait()).await;
        assert!(
            exit.expect("timed out waiting for the exit")
                .unwrap()
                .success()
        );
    }
}
