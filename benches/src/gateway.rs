//! The gateway under test: its configuration, with keys, roles, rules and audit enabled, and its
//! process.

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

/// Rules that match, rules that do not, and rules that inspect arguments.
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

/// Transport of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Stdio,
}

#[derive(Clone, Debug)]
pub(crate) struct ServerSetup {
    pub(crate) name: String,
    pub(crate) link: Transport,
    pub(crate) era: Era,
    pub(crate) tools: usize,
}

/// Name of the server whose tools are called by scripts.
pub(crate) const SCRIPT_SERVER: &str = "coded";

/// Configuration of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySetup {
    pub(crate) injects: bool,
    pub(crate) servers: Vec<ServerSetup>,
}

/// A running gateway; dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    folder: TempDir,
    pub(crate) address: String,
    /// Time from start until the gateway listens.
    pub(crate) listen_time: Duration,
}

pub(crate) fn server_setup(name: &str, link: Transport, era: Era, tools: usize) -> ServerSetup {
    ServerSetup {
        name: name.to_owned(),
        link,
        era,
        tools,
    }
}

/// Environment variable with allocator settings, passed through for experiments.
const ALLOCATOR_ENV: &str = "_RJEM_MALLOC_CONF";

/// Callers with access to all servers.
pub(crate) const ALL_SERVER_CALLERS: [&str; 4] = ["all", "all-2", "all-3", "all-4"];

/// Returns the key of a caller: one of [`ALL_SERVER_CALLERS`], `none` (no servers), or the name of
/// the only server it may use.
pub(crate) fn caller_key(of: &str) -> String {
    format!("bench-key-with-some-length-{of}")
}

impl GatewaySetup {
    fn to_toml(&self, mock: &str) -> anyhow::Result<String> {
        let program = std::env::current_exe()?;
        let mut toml = format!(
            "[providers.mock]\nbase_url = \"http://{mock}/v1\"\napi_key = \"bench\"\ndialect = [\"openai\", \"responses\", \"anthropic\"]\nmodels = [\"bench-model\"]\n\
             [providers.claude]\nbase_url = \"http://{mock}/v1\"\napi_key = \"bench\"\ndialect = \"anthropic\"\nmodels = [\"bench-claude\"]\n\
             [mcp.tool_manager_config]\nmax_agent_depth = 50\ndisable_auto_tool_inject = {}\n\
             [audit]\ncontent = \"redacted\"\n{RULES}",
            !self.injects
        );
        for ServerSetup {
            name,
            link,
            era,
            tools,
        } in &self.servers
        {
            let (short, protocol) = (era.as_short(), era.protocol());
            writeln!(toml, "[mcp_servers.{name}]\nprotocol = \"{protocol}\"")?;
            if name == SCRIPT_SERVER {
                writeln!(toml, "is_code_mode_client = true")?;
            }
            match link {
                Transport::Http => writeln!(toml, "url = \"http://{mock}/mcp/{short}/{tools}\"")?,
                Transport::Stdio => writeln!(
                    toml,
                    "command = {program:?}\nargs = [\"pipe\", \"--era\", \"{short}\", \"--tools\", \"{tools}\"]"
                )?,
            }
        }
        let own = self.servers.iter().take(20);
        let own = own.map(|server| (server.name.as_str(), format!("[\"{}.*\"]", server.name)));
        let all = ALL_SERVER_CALLERS.map(|name| (name, "[\"*.tool_*\"]".to_owned()));
        let none = ("none", "[]".to_owned());
        for (name, tools) in own.chain(all).chain([none]) {
            writeln!(
                toml,
                "[roles.{name}]\ntools = {tools}\n[keys.{name}]\nkey = \"{}\"\nroles = [\"{name}\"]",
                caller_key(name)
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
    /// Starts the gateway and waits until it listens, but not for its servers.
    pub(crate) async fn start(
        binary: &Path,
        setup: &GatewaySetup,
        mock: &str,
    ) -> anyhow::Result<Self> {
        Self::start_under(&[], binary, setup, mock).await
    }

    /// Starts the gateway under a wrapper such as valgrind, given as program and flags.
    pub(crate) async fn start_under(
        wrapper: &[&str],
        binary: &Path,
        setup: &GatewaySetup,
        mock: &str,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("toolgate.toml"), setup.to_toml(mock)?)?;
        Self::spawn(wrapper, binary, folder).await
    }

    /// Starts the gateway in a folder with a configuration and possibly data.
    pub(crate) async fn start_in(binary: &Path, folder: TempDir) -> anyhow::Result<Self> {
        Self::spawn(&[], binary, folder).await
    }

    async fn spawn(wrapper: &[&str], binary: &Path, folder: TempDir) -> anyhow::Result<Self> {
        let own = binary.as_os_str();
        let mut words = wrapper.iter().map(OsStr::new).chain([own]);
        let program = words.next().unwrap_or(own);
        let log = fs::File::create(folder.path().join("log"))?;
        let started = Instant::now();
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
            .envs(std::env::var_os(ALLOCATOR_ENV).map(|settings| (ALLOCATOR_ENV, settings)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("stdout is not piped")?;
        BufReader::new(stdout).read_line(&mut line).await?;
        let listen_time = started.elapsed();
        let Some(address) = line.trim().strip_prefix("listening on http://") else {
            let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            bail!("the gateway did not start: {line}{log}");
        };
        Ok(Self {
            address: address.to_owned(),
            child,
            folder,
            listen_time,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// Waits until that many servers are connected and returns how long it took.
    pub(crate) async fn wait_connected(&self, servers: usize) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let exchange = Exchange {
            method: Method::Get,
            path: "/ready".to_owned(),
            ..Exchange::default()
        };
        loop {
            let body = client::send_once(&self.address, &exchange).await?;
            let ready: Value = serde_json::from_slice(&body)?;
            if ready["connected"] == servers {
                return Ok(started.elapsed());
            }
            if started.elapsed() > Duration::from_secs(120) {
                bail!("servers did not connect: {ready}\n{}", self.read_log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn read_log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills the process and returns its data folder.
    pub(crate) async fn stop(mut self) -> anyhow::Result<TempDir> {
        self.child.kill().await?;
        Ok(self.folder)
    }
}

/// Returns the binary to measure: the given path, or `toolgate` next to this program.
pub(crate) fn find_binary(path: Option<&str>) -> anyhow::Result<PathBuf> {
    let path = match path {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe()?.with_file_name("toolgate"),
    };
    if !path.exists() {
        bail!(
            "no gateway binary at `{}`; build it, or pass `--binary PATH`",
            path.display()
        );
    }
    Ok(fs::canonicalize(path)?)
}
