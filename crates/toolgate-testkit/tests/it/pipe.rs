//! A zoo on stdio, written to and read from line by line.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;
use toolgate_testkit::zoo_path;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

pub(crate) struct Pipe {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Pipe {
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
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line as it came, which need not be UTF-8.
    pub(crate) async fn bytes(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        timeout(PATIENCE, self.stdout.read_until(b'\n', &mut line))
            .await
            .expect("a line arrives in time")
            .unwrap();
        assert_eq!(line.pop(), Some(b'\n'), "stdout ended");
        line
    }

    pub(crate) async fn line(&mut self) -> String {
        String::from_utf8(self.bytes().await).unwrap()
    }

    /// All that is still to come, up to the end of stdout.
    pub(crate) async fn rest(&mut self) -> String {
        let mut text = String::new();
        timeout(PATIENCE, self.stdout.read_to_string(&mut text))
            .await
            .expect("stdout ends in time")
            .unwrap();
        text
    }

    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.line().await
    }

    pub(crate) async fn ask_value(&mut self, line: &str) -> Value {
        serde_json::from_str(&self.ask(line).await).unwrap()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(PATIENCE, self.child.wait())
            .await
            .expect("it ends in time")
            .unwrap()
    }
}

/// A request with this raw `params`.
pub(crate) fn request(id: u32, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A legacy `tools/call`.
pub(crate) fn call(id: u32, tool: &str, arguments: &str) -> String {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    request(id, "tools/call", &params)
}
