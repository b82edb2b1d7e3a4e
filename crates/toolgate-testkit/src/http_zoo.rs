//! A `toolgate-zoo http` process on its own port, for the duration of a test.

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
    /// Starts the zoo on a free port with these flags and returns once it listens.
    ///
    /// # Panics
    /// If it does not start because the flags are wrong or the binary was not built.
    #[must_use]
    pub fn start(flags: &[&str]) -> Self {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let (child, port) = spawn(0, &flags);
        Self { child, port, flags }
    }

    /// Returns the URL of the MCP endpoint, which stays the same after a restart.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns the URL of the HTTP+SSE transport of 2024-11-05, for `--sse-legacy`.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://127.0.0.1:{}/sse", self.port)
    }

    /// Returns the port, even after [`HttpZoo::kill`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process; nothing listens on the port when this returns.
    pub fn kill(&mut self) {
        // Either fails only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills the process and starts a new one with the same flags on the same port.
    ///
    /// # Panics
    /// If the new process does not start.
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
        .expect("failed to start `toolgate-zoo`");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout is not piped"))
        .read_line(&mut line)
        .expect("failed to read stdout");
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
            panic!(
                "`toolgate-zoo http` with {flags:?} printed {line:?} and exited with {status:?}"
            );
        }
    }
}
