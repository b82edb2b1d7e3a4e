//! `toolgate serve` on a free port in a temporary folder, for the duration of a test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::eventually;

pub(crate) use toolgate_testkit::{WAIT_TIMEOUT, stdio_zoo as zoo};

pub(crate) fn server(name: &str, command: &str, args: &[&str]) -> String {
    format!("[mcp_servers.{name}]\ncommand = {command:?}\nargs = {args:?}\n")
}

/// Builds a command for the binary with a clean environment and this working folder.
pub(crate) fn toolgate(folder: &Path) -> Command {
    clean_environment(Command::new(env!("CARGO_BIN_EXE_toolgate")), folder)
}

/// Gives a command a clean environment and this working folder. Its `toolgate.toml` needs no trust, and a
/// gateway no admin key unless that file sets one: most tests are not about these.
pub(crate) fn clean_environment(mut command: Command, folder: &Path) -> Command {
    command
        .current_dir(folder)
        .env_clear()
        .env("PATH", env!("PATH"))
        .env("HOME", folder);
    let file = folder.join("toolgate.toml");
    let toml = fs::read_to_string(&file).unwrap_or_default();
    if file.exists() {
        command.env("TOOLGATE_CONFIG", "toolgate.toml");
    }
    if !toml.contains("admin_key") {
        command.env("TOOLGATE_ADMIN_KEY", "off");
    }
    command
}

/// Returns a client that sends everything as JSON, as the admin API requires without a key.
pub(crate) fn json_client() -> Client {
    let json = HeaderValue::from_static("application/json");
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    Client::builder().default_headers(headers).build().unwrap()
}

/// Returns a program and its arguments that start the gateway on a free port.
pub(crate) fn serve_args() -> [&'static str; 6] {
    let program = env!("CARGO_BIN_EXE_toolgate");
    [program, "serve", "--port", "0", "--data-dir", "data"]
}

/// Returns the files in a folder, such as a data directory, which may also have a socket.
pub(crate) fn files_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.is_file())
}

/// Runs the binary to completion and returns its output, stdout and stderr.
pub(crate) fn run(folder: &Path, args: &[&str]) -> (Output, String, String) {
    let output = toolgate(folder).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// A running gateway; dropping it kills the process.
pub(crate) struct TestGate {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    pub(crate) client: Client,
}

impl TestGate {
    /// Starts the gateway with this `toolgate.toml`.
    pub(crate) fn start(toml: &str) -> Self {
        Self::start_with(toml, &[], &[])
    }

    pub(crate) fn start_with(toml: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("toolgate.toml"), toml).unwrap();
        let (child, url) = spawn(folder.path(), args, env);
        Self::new(child, url, folder)
    }

    /// Starts the gateway in a folder with a `toolgate.toml`.
    pub(crate) fn start_in(folder: TempDir) -> Self {
        let (child, url) = spawn(folder.path(), &[], &[]);
        Self::new(child, url, folder)
    }

    /// Takes over a gateway that was started in a folder.
    pub(crate) fn new(child: Child, url: String, folder: TempDir) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            url,
            child,
            client: json_client(),
            folder,
        }
    }

    /// Stops the gateway with SIGTERM and starts it again in the same folder.
    pub(crate) async fn restart(&mut self) {
        self.signal("-TERM");
        assert_eq!(self.wait_for_exit().await, Some(0), "{}", self.log());
        self.relaunch();
    }

    /// Starts an exited gateway again in the same folder.
    pub(crate) fn relaunch(&mut self) {
        self.relaunch_with(&[]);
    }

    /// Starts an exited gateway again in the same folder, with further variables.
    pub(crate) fn relaunch_with(&mut self, env: &[(&str, &str)]) {
        (self.child, self.url) = spawn(self.folder.path(), &[], env);
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap()
    }

    /// Gets a path and returns the JSON body of a 200 response.
    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &str, headers: HeaderMap) -> Response {
        let request = self
            .client
            .post(format!("{}{path}", self.url))
            .headers(headers);
        request.body(body.to_owned()).send().await.unwrap()
    }

    /// Calls a tool and returns the tool message.
    pub(crate) async fn call(&self, name: &str, arguments: &str) -> Value {
        let body = json!({"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}});
        let response = self
            .post("/v1/mcp/tool/execute", &body.to_string(), HeaderMap::new())
            .await;
        assert_eq!(response.status(), 200);
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }

    /// Waits until a server reaches a state and returns its API entry.
    pub(crate) async fn wait_for_state(&self, server: &str, state: &str) -> Value {
        eventually(
            &format!("{server} is {state}\n{}", self.log()),
            WAIT_TIMEOUT,
            async || {
                let response = self.get(&format!("/api/mcp/client/{server}")).await;
                let entry: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
                (entry["state"] == state).then_some(entry)
            },
        )
        .await
    }

    /// Waits until the server `zoo` has one call in flight.
    pub(crate) async fn wait_for_in_flight_call(&self) {
        eventually("the call is in flight", WAIT_TIMEOUT, async || {
            let metrics = self.get("/metrics").await.text().await.unwrap();
            metrics
                .contains("in_flight{server=\"zoo\"} 1")
                .then_some(())
        })
        .await;
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .args([name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
    }

    /// Waits for the process to exit and returns its exit code.
    pub(crate) async fn wait_for_exit(&mut self) -> Option<i32> {
        let child = &mut self.child;
        eventually("the gateway exits", WAIT_TIMEOUT, async || {
            child.try_wait().unwrap()
        })
        .await
        .code()
    }
}

/// Returns the processes whose arguments contain a text, except for those that launch and supervise servers.
/// In a sandbox, processes know only their numbers in its PID namespace.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let mut found = all_processes_with(text);
    let flags = ["__launch-server", "__restrict-server"];
    let launchers = flags.map(all_processes_with).concat();
    found.retain(|pid| !launchers.contains(pid));
    found
}

/// Returns the processes whose arguments contain a text.
pub(crate) fn all_processes_with(text: &str) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let matches = |pid: &u32| {
        // It may have exited by now.
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args = String::from_utf8_lossy(&args).replace('\0', " ");
        args.contains(text)
    };
    numbers.filter(matches).collect()
}

fn spawn(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> (Child, String) {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let mut child = toolgate(folder)
        .args(["serve", "--port", "0", "--data-dir", "data"])
        .args(args)
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let url = wait_for_url(&mut child, folder);
    (child, url)
}

/// Waits until a gateway that was started in a folder listens, and returns its URL.
pub(crate) fn wait_for_url(child: &mut Child, folder: &Path) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap_or_else(|| {
            let log = fs::read_to_string(folder.join("log")).unwrap();
            panic!("the gateway did not start: {line}{log}")
        });
    url.to_owned()
}

impl Drop for TestGate {
    fn drop(&mut self) {
        // Server processes exit when their stdin closes. Either call fails if the gateway has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
