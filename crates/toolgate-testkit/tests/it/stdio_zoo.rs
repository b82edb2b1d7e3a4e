//! A zoo process on stdio, driven line by line.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use toolgate_testkit::zoo_path;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

pub(crate) struct StdioZoo {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl StdioZoo {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(zoo_path())
            .arg("stdio")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is closed");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Reads the next line, which need not be UTF-8.
    pub(crate) async fn next_bytes(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        timeout(TIMEOUT, self.stdout.read_until(b'\n', &mut line))
            .await
            .expect("timed out waiting for a line")
            .unwrap();
        assert_eq!(line.pop(), Some(b'\n'), "stdout ended");
        line
    }

    pub(crate) async fn next_line(&mut self) -> String {
        String::from_utf8(self.next_bytes().await).unwrap()
    }

    /// Reads the rest of stdout.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut text = String::new();
        timeout(TIMEOUT, self.stdout.read_to_string(&mut text))
            .await
            .expect("timed out waiting for the end of stdout")
            .unwrap();
        text
    }

    pub(crate) async fn exchange(&mut self, line: &str) -> String {
        self.send(line).await;
        self.next_line().await
    }

    pub(crate) async fn exchange_json(&mut self, line: &str) -> Value {
        serde_json::from_str(&self.exchange(line).await).unwrap()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) async fn wait_for_exit(&mut self) -> ExitStatus {
        timeout(TIMEOUT, self.child.wait())
            .await
            .expect("timed out waiting for the exit")
            .unwrap()
    }
}

/// Builds a request with these raw parameters.
pub(crate) fn request(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Builds a legacy `tools/call`.
pub(crate) fn call(id: u32, tool: &str, arguments: &str) -> String {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    request(id, "tools/call", &params)
}
