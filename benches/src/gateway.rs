//! The gateway under test: its configuration, with keys, roles, rules and audit switched on, and
//! the process.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::load::client;
use crate::load::{Exchange, Method};
use crate::mock::mcp::Era;

pub(crate) const ADMIN_KEY: &str = "bench-key-of-the-administrator";

/// Rules that match, rules that do not, and rules that look at arguments.
const RULES: &str = r#"
[permissions]
default = "manual"
[[permissions.rules]]
tool = "*.delete_*"
action = "deny"
[[permissions.rules]]
tool = "*.tool_*"
arguments = { query = ["*drop table*", "*/.ssh/*"] }
action = "deny"
[[permissions.rules]]
server = "*"
hint = "destructive"
action = "ask"
[[permissions.rules]]
server = "http*"
tool = "tool_*"
action = "allow"
[[permissions.rules]]
server = "*"
tool = "admin_*"
action = "ask"
"#;

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Http,
    Pipe,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) link: Link,
    pub(crate) era: Era,
    pub(crate) tools: usize,
}

/// The server whose tools are called by scripts.
pub(crate) const SCRIPTED: &str = "coded";

/// One way to set the gateway up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) injects: bool,
    pub(crate) servers: Vec<Server>,
}

/// A running gateway; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    folder: TempDir,
    pub(crate) address: String,
    /// Until it said that it listens.
    pub(crate) listened: Duration,
}

pub(crate) fn server(name: &str, link: Link, era: Era, tools: usize) -> Server {
    Server {
        name: name.to_owned(),
        link,
        era,
        tools,
    }
}

/// Settings of the allocator, to try others out.
const ALLOCATOR: &str = "_RJEM_MALLOC_CONF";

/// Callers who may use all servers.
pub(crate) const ALL: [&str; 4] = ["all", "all-2", "all-3", "all-4"];

/// The key of one of [`ALL`], of who may use none (`none`), or one server, by its name.
pub(crate) fn key(of: &str) -> String {
    format!("bench-key-with-some-length-{of}")
}

impl Setup {
    fn toml(&self, mock: &str) -> anyhow::Result<String> {
        let program = std::env::current_exe()?;
        let mut toml = format!(
            "[providers.mock]\nbase_url = \"http://{mock}/v1\"\napi_key = \"bench\"\ndialect = [\"openai\", \"responses\", \"anthropic\"]\nmodels = [\"bench-model\"]\n\
             [providers.claude]\nbase_url = \"http://{mock}/v1\"\napi_key = \"bench\"\ndialect = \"anthropic\"\nmodels = [\"bench-claude\"]\n\
             [mcp.tool_manager_config]\nmax_agent_depth = 50\ndisable_auto_tool_inject = {}\n\
             [audit]\ncontent = \"redacted\"\n{RULES}",
            !self.injects
        );
        for Server {
            name,
            link,
            era,
            tools,
        } in &self.servers
        {
            let (short, protocol) = (era.short(), era.protocol());
            writeln!(toml, "[mcp_servers.{name}]\nprotocol = \"{protocol}\"")?;
            if name == SCRIPTED {
                writeln!(toml, "is_code_mode_client = true")?;
            }
            match link {
                Link::Http => writeln!(toml, "url = \"http://{mock}/mcp/{short}/{tools}\"")?,
                Link::Pipe => writeln!(
                    toml,
                    "command = {program:?}\nargs = [\"pipe\", \"--era\", \"{short}\", \"--tools\", \"{tools}\"]"
                )?,
            }
        }
        let own = self.servers.iter().take(20);
        let own = own.map(|server| (server.name.as_str(), format!("[\"{}.*\"]", server.name)));
        let all = ALL.map(|name| (name, "[\"*.tool_*\"]".to_owned()));
        let none = ("none", "[]".to_owned());
        for (name, tools) in own.chain(all).chain([none]) {
            writeln!(
                toml,
                "[roles.{name}]\ntools = {tools}\n[keys.{name}]\nkey = \"{}\"\nroles = [\"{name}\"]",
                key(name)
            )?;
        }
        Ok(toml)
    }
}

impl Era {
    fn protocol(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

impl Gateway {
    /// Starts it and waits until it listens, not for its servers.
    pub(crate) async fn start(binary: &Path, setup: &Setup, mock: &str) -> anyhow::Result<Self> {
        Self::start_under(&[], binary, setup, mock).await
    }

    /// The same under another program, such as valgrind, by its name and flags.
    pub(crate) async fn start_under(
        wrapper: &[&str],
        binary: &Path,
        setup: &Setup,
        mock: &str,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("toolgate.toml"), setup.toml(mock)?)?;
        Self::spawn(wrapper, binary, folder).await
    }

    /// Starts it in a folder that has a configuration, and data perhaps.
    pub(crate) async fn start_in(binary: &Path, folder: TempDir) -> anyhow::Result<Self> {
        Self::spawn(&[], binary, folder).await
    }

    async fn spawn(wrapper: &[&str], binary: &Path, folder: TempDir) -> anyhow::Result<Self> {
        let own = binary.as_os_str();
        let mut words = wrapper.iter().map(OsStr::new).chain([own]);
        let program = words.next().unwrap_or(own);
        let log = fs::File::create(folder.path().join("log"))?;
        let began = Instant::now();
        let mut child = Command::new(program)
            .args(words)
            .args([
                "serve",
                "--config",
                "toolgate.toml",
                "--port",
                "0",
                "--data-dir",
                "data",
            ])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", folder.path())
            .env("TOOLGATE_ADMIN_KEY", ADMIN_KEY)
            .envs(std::env::var_os(ALLOCATOR).map(|settings| (ALLOCATOR, settings)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line).await?;
        let listened = began.elapsed();
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            bail!("the gateway did not start: {line}{log}");
        };
        Ok(Self {
            address: address.to_owned(),
            child,
            folder,
            listened,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Waits until so many servers are connected; how long that took.
    pub(crate) async fn connected(&self, servers: usize) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let exchange = Exchange {
            method: Method::Get,
            path: "/ready".to_owned(),
            ..Exchange::default()
        };
        loop {
            let body = client::once(&self.address, &exchange).await?;
            let ready: Value = serde_json::from_slice(&body)?;
            if ready["connected"] == servers {
                return Ok(began.elapsed());
            }
            if began.elapsed() > Duration::from_secs(120) {
                bail!("the servers do not come up: {ready}\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends the process; what it kept stays.
    pub(crate) async fn end(mut self) -> anyhow::Result<TempDir> {
        self.child.kill().await?;
        Ok(self.folder)
    }
}

/// The binary to measure: what was said, or the release build beside this program.
pub(crate) fn binary(said: Option<&str>) -> anyhow::Result<PathBuf> {
    let path = match said {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name("toolgate"),
    };
    match path.exists() {
        true => Ok(fs::canonicalize(path)?),
        false => bail!(
            "there is no gateway at {}; build it, or say `--binary PATH`",
            path.display()
        ),
    }
}
