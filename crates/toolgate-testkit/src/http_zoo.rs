//! One `toolgate-zoo http` process on its own port, for the length of a test.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::zoo_path;

/// A running HTTP zoo; dropping it kills the process.
#[derive(Debug)]
pub struct HttpZoo {
    child: Child,
    port: u16,
    flags: Vec<String>,
}

impl HttpZoo {
    /// Starts the zoo on a free port with these flags, and returns once it listens.
    ///
    /// # Panics
    /// If it does not start: the flags are wrong, or the binary was not built.
    #[must_use]
    pub fn start(flags: &[&str]) -> Self {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let (child, port) = spawn(0, &flags);
        Self { child, port, flags }
    }

    /// The address of its MCP endpoint, the same after a restart.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Where the HTTP+SSE transport of 2024-11-05 begins, under `--sse-legacy`.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// The port it listens on, and after [`HttpZoo::kill`] the one it listened on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of the running process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process at once; nothing listens on the port any more when this returns.
    pub fn kill(&mut self) {
        // Either may fail only because the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills the process and starts a new one with the same flags on the same port.
    ///
    /// # Panics
    /// If the new one does not start.
    pub fn restart(&mut self) {
        self.kill();
        let (child, _) = spawn(self.port, &self.flags);
        self.child = child;
    }
}

impl Drop for HttpZoo {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, flags: &[String]) -> (Child, u16) {
    let mut child = Command::new(zoo_path())
        .args(["http", "--port", &port.to_string()])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`toolgate-zoo` starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout is piped"))
        .read_line(&mut line)
        .expect("stdout is readable");
    let port = line
        .trim_end()
        .strip_prefix("listening on http://127.0.0.1:")
        .and_then(|rest| rest.strip_suffix("/mcp"))
        .and_then(|port| port.parse().ok());
    match port {
        Some(port) => (child, port),
        None => {
            let _ = child.kill();
            let status = child.wait();
            panic!("`toolgate-zoo http` with {flags:?} said {line:?} and ended with {status:?}");
        }
    }
}
