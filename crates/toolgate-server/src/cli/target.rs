//! The gateway that a command works with: a running one, or one started for the command.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use toolgate::registry::RegistryEntry;
use toolgate::{Arguments, Caller, Gateway, ServerState, ToolCall};
use toolgate_core::Config;
use toolgate_core::name::ServerName;
use toolgate_core::pattern::strip_server_prefixes;
use toolgate_core::scope::Filters;
use url::Url;

use super::output::{print_error, print_note};
use super::signals::ShutdownSignals;
use crate::files::{self, ConfigSelection};
use crate::http::admin::explain::{self, ExplanationView};
use crate::http::admin::sandbox::SandboxView;
use crate::http::admin::tools::{self, ToolEntry};
use crate::http::auth;
use crate::http::execute::ToolMessage;
use crate::local_socket;
use crate::remote::{self, RemoteGateway, ServerSummary, format_state};

/// Time after which the user is told which server the command waits for.
const SLOW_START_NOTICE: Duration = Duration::from_secs(3);
/// Maximum time to wait for the servers of a running gateway to start.
const MAX_START_WAIT: Duration = Duration::from_secs(120);
const START_POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct TargetFlags {
    /// Start the servers of this configuration for the command instead of using a running gateway
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// With --config: name of the configuration's `environments` entry to use
    #[arg(long, env = "TOOLGATE_ENVIRONMENT", value_name = "NAME", global = true)]
    environment: Option<String>,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Debug, clap::Args)]
pub(super) struct RemoteFlags {
    /// URL of the running gateway [default: the one that uses the data directory, else http://127.0.0.1:8080]
    #[arg(long, env = "TOOLGATE_URL", global = true, value_parser = parse_gateway_url)]
    url: Option<Url>,
}

impl RemoteFlags {
    /// Connects with the key in `TOOLGATE_KEY`. A gateway on this machine gets the generated admin key
    /// instead if that is unset and the file belongs to this user.
    pub(super) fn open(self) -> anyhow::Result<RemoteGateway> {
        let environment = files::environment();
        let data_dir = files::find_data_dir(&environment);
        let key = environment.get("TOOLGATE_KEY");
        let key = key.filter(|key| !key.is_empty());
        let generated_key = || match &data_dir {
            Some(data_dir) => auth::read_generated_key(data_dir),
            None => Ok(None),
        };
        let owner = data_dir.as_deref().and_then(local_socket::find_owner);
        if let (None, Some(data_dir), Some(owner)) = (&self.url, &data_dir, owner) {
            let key = key.map_or_else(generated_key, |key| Ok(Some(key)))?;
            return RemoteGateway::at_socket(data_dir, owner, key);
        }
        let url = self
            .url
            .map_or_else(|| Url::parse(super::DEFAULT_URL), Ok)?;
        let key = match key {
            None if remote::is_local(&url) => generated_key()?,
            key => key,
        };
        RemoteGateway::new(url, key)
    }
}

/// Parses the URL of a gateway; `http://` may be left out.
fn parse_gateway_url(text: &str) -> Result<Url, String> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&full).map_err(|error| error.to_string())?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("the URL of a gateway starts with http:// or https://".to_owned())
    }
}

/// The gateway that a command works with.
pub(super) enum CommandTarget {
    Remote(RemoteGateway),
    Local(Gateway),
}

impl TargetFlags {
    pub(super) async fn open(self) -> anyhow::Result<CommandTarget> {
        let Some(path) = self.config else {
            return Ok(CommandTarget::Remote(self.remote.open()?));
        };
        let environment = files::environment();
        let selection = ConfigSelection {
            path: Some(path),
            environment_name: self.environment,
            ..ConfigSelection::default()
        };
        let documents = files::load(&selection, &environment)?.into_trusted()?;
        let (config, findings) = Config::load(&documents)?;
        for finding in findings {
            tracing::warn!(%finding, "configuration warning");
        }
        let hidden = files::hidden_from_servers(None, &config, &environment);
        let gateway = Gateway::builder(config)
            .script_worker()
            .server_launcher(hidden)
            .environment(environment)
            .start()
            .await?;
        Ok(CommandTarget::Local(gateway))
    }

    /// Runs `work` with the selected gateway until it finishes or is interrupted, then closes the gateway.
    pub(super) async fn run_with(
        self,
        work: impl AsyncFnOnce(&CommandTarget) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let mut signals = ShutdownSignals::new()?;
        let target = self.open().await?;
        let result = tokio::select! {
            result = work(&target) => result,
            () = signals.recv() => Err(anyhow::anyhow!("interrupted")),
        };
        target.close().await;
        result
    }
}

/// Waits until the servers of a running gateway that a command needs have been up once or have failed.
async fn wait_until_started(remote: &RemoteGateway, tool: Option<&str>) {
    let started = tokio::time::Instant::now();
    let mut has_told = false;
    // Without permission to read the states of servers, the command does without.
    while let Ok(servers) = remote.list_servers().await {
        let is_needed = |server: &&ServerSummary| {
            let name = ServerName::parse(&server.name);
            let is_named =
                |tool| name.is_ok_and(|name| strip_server_prefixes(tool, &name).next().is_some());
            server.is_starting() && tool.is_none_or(is_named)
        };
        let starting: Vec<&str> = servers
            .iter()
            .filter(is_needed)
            .map(|server| server.name.as_str())
            .collect();
        if starting.is_empty() || started.elapsed() > MAX_START_WAIT {
            return;
        }
        if !has_told && started.elapsed() > SLOW_START_NOTICE {
            has_told = true;
            print_note(&format!("waiting for {} to start …", starting.join(", ")));
        }
        tokio::time::sleep(START_POLL_INTERVAL).await;
    }
}

impl CommandTarget {
    /// Waits until the servers that a command needs have connected or failed: those that the tool name
    /// may refer to, or all.
    pub(super) async fn wait_until_ready(&self, tool: Option<&str>) {
        let gateway = match self {
            Self::Local(gateway) => gateway,
            Self::Remote(remote) => return wait_until_started(remote, tool).await,
        };
        let all = gateway.servers().list();
        let candidates: Vec<_> = match tool {
            Some(tool) => all
                .iter()
                .filter(|entry| {
                    strip_server_prefixes(tool, &entry.server.name)
                        .next()
                        .is_some()
                })
                .cloned()
                .collect(),
            None => Vec::new(),
        };
        for entry in if candidates.is_empty() {
            all
        } else {
            candidates
        } {
            if tokio::time::timeout(SLOW_START_NOTICE, entry.wait_settled())
                .await
                .is_err()
            {
                print_error(&anyhow::anyhow!(
                    "still waiting for server `{}`",
                    entry.server.name
                ));
                entry.wait_settled().await;
            }
        }
    }

    pub(super) async fn list_tools(&self) -> anyhow::Result<Vec<ToolEntry>> {
        match self {
            Self::Remote(remote) => remote.list_tools().await,
            Self::Local(gateway) => Ok(tools::tools_in_scope(gateway, &Caller::cli())?),
        }
    }

    /// Explains why a tool is or is not visible to a caller.
    pub(super) async fn explain(
        &self,
        tool: &str,
        key: Option<&str>,
    ) -> anyhow::Result<ExplanationView> {
        match self {
            Self::Remote(remote) => {
                let key = key.map(|key| ("key", key));
                let query: Vec<_> = [("tool", tool)].into_iter().chain(key).collect();
                remote.get("api/mcp/tools/explain", &query).await
            }
            Self::Local(gateway) => {
                let caller = match key {
                    Some(key) => Caller::cli().with_key(key),
                    None => Caller::cli(),
                };
                Ok(explain::explain_tool(
                    gateway,
                    &caller,
                    &Filters::default(),
                    tool,
                )?)
            }
        }
    }

    /// Returns the running gateway, for what a gateway of the command alone has no use for.
    pub(super) fn remote(&self) -> anyhow::Result<&RemoteGateway> {
        match self {
            Self::Remote(remote) => Ok(remote),
            Self::Local(_) => {
                bail!("this needs a running gateway; leave out --config, and edit the file instead")
            }
        }
    }

    /// Lists all servers and what their processes use.
    pub(super) async fn list_servers(&self) -> anyhow::Result<Vec<ServerSummary>> {
        let gateway = match self {
            Self::Remote(remote) => return remote.list_servers().await,
            Self::Local(gateway) => gateway,
        };
        let servers = gateway.servers();
        servers.refresh_process_usage().await;
        let catalog = gateway.catalog();
        let summary = |entry: &Arc<RegistryEntry>| {
            let status = entry.status();
            let listing = catalog.listing(&entry.server.name);
            ServerSummary {
                name: entry.server.name.to_string(),
                state: status.state.as_str().to_owned(),
                reason: status.reason.clone(),
                tools: listing.map_or(0, |listing| listing.tools.len()),
                has_connected: status.session.is_some(),
                process_usage: servers.process_usage(&entry.server).map(Into::into),
            }
        };
        Ok(servers.list().iter().map(summary).collect())
    }

    /// Returns how the process of a stdio server is isolated.
    pub(super) async fn sandbox(&self, name: &str) -> anyhow::Result<SandboxView> {
        #[derive(serde::Deserialize)]
        struct Entry {
            sandbox: Option<SandboxView>,
        }
        let sandbox = match self {
            Self::Remote(remote) => {
                let path = format!("api/mcp/client/{name}");
                remote.get::<Entry>(&path, &[]).await?.sandbox
            }
            Self::Local(gateway) => {
                let servers = gateway.servers();
                let mut entries = servers.list().into_iter();
                let entry = entries
                    .find(|entry| entry.server.name.as_str() == name)
                    .with_context(|| format!("the configuration has no server `{name}`"))?;
                let report = servers.sandbox_report(&entry.server).await;
                report.as_deref().map(SandboxView::new)
            }
        };
        sandbox.with_context(|| format!("server `{name}` has no process on this machine"))
    }

    /// Returns the names of unavailable servers with their states.
    pub(super) async fn unavailable_servers(&self) -> anyhow::Result<Vec<(String, String)>> {
        match self {
            Self::Remote(remote) => remote.unavailable_servers().await,
            Self::Local(gateway) => Ok(gateway
                .servers()
                .list()
                .iter()
                .map(|entry| (entry.server.name.to_string(), entry.status()))
                .filter(|(_, status)| {
                    !matches!(status.state, ServerState::Healthy | ServerState::Disabled)
                })
                .map(|(name, status)| {
                    (
                        name,
                        format_state(status.state.as_str(), status.reason.as_deref()),
                    )
                })
                .collect()),
        }
    }

    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Arguments,
    ) -> anyhow::Result<ToolMessage> {
        match self {
            Self::Remote(remote) => remote.call_tool(name, arguments.raw()).await,
            Self::Local(gateway) => {
                let outcome = gateway
                    .call(&Caller::cli(), ToolCall::new(name, arguments))
                    .await;
                Ok(ToolMessage::new("cli", &outcome))
            }
        }
    }

    pub(super) async fn close(self) {
        if let Self::Local(gateway) = self {
            gateway.stop(Duration::ZERO).await;
        }
    }
}
