//! Where the command line finds tools: in a running gateway, or in one it starts for a moment.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use toolgate::{Arguments, Caller, Gateway, State, ToolCall};
use toolgate_core::Config;
use toolgate_core::pattern::spelled;
use toolgate_core::scope::Filters;
use url::Url;

use super::complain;
use super::signals::Signals;
use crate::files;
use crate::http::admin::explain::{self, ExplanationView};
use crate::http::admin::tools::{self, ToolEntry};
use crate::http::execute::ToolMessage;
use crate::remote::{Remote, describe};

/// After which it is said what is being waited for.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, clap::Args)]
pub(super) struct TargetFlags {
    /// Start the servers of this configuration for the command, instead of asking a running gateway
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// With --config: which of the configuration's environments is in force
    #[arg(long, env = "TOOLGATE_ENVIRONMENT", value_name = "NAME", global = true)]
    environment: Option<String>,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Debug, clap::Args)]
pub(super) struct RemoteFlags {
    /// The running gateway [default: http://127.0.0.1:8080]
    #[arg(long, env = "TOOLGATE_URL", global = true)]
    url: Option<Url>,
    /// Its key
    #[arg(long, env = "TOOLGATE_KEY", hide_env_values = true, global = true)]
    key: Option<String>,
}

impl RemoteFlags {
    pub(super) fn open(self) -> anyhow::Result<Remote> {
        let url = self
            .url
            .map_or_else(|| Url::parse(super::DEFAULT_URL), Ok)?;
        Remote::new(url, self.key)
    }
}

pub(super) enum Target {
    Remote(Remote),
    Own(Gateway),
}

impl TargetFlags {
    pub(super) async fn open(self) -> anyhow::Result<Target> {
        let Some(path) = self.config else {
            return Ok(Target::Remote(self.remote.open()?));
        };
        let environment = files::environment();
        let documents = files::documents(Some(&path), self.environment.as_deref(), &environment)?;
        let (config, findings) = Config::load(&documents)?;
        for finding in findings {
            tracing::warn!("{finding}");
        }
        let gateway = Gateway::builder(config)
            .is_script_worker()
            .environment(environment)
            .start()
            .await?;
        Ok(Target::Own(gateway))
    }

    /// Does something with what they mean, until it is done or interrupted.
    pub(super) async fn during(
        self,
        work: impl AsyncFnOnce(&Target) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        let mut signals = Signals::new()?;
        let target = self.open().await?;
        let done = tokio::select! {
            done = work(&target) => done,
            () = signals.next() => Err(anyhow::anyhow!("interrupted")),
        };
        target.close().await;
        done
    }
}

impl Target {
    /// Waits until the servers that a command needs have come up or failed to: those that a tool's
    /// name may mean, or all.
    pub(super) async fn ready(&self, tool: Option<&str>) {
        let Self::Own(gateway) = self else { return };
        let all = gateway.servers();
        let meant: Vec<_> = match tool {
            Some(tool) => all
                .iter()
                .filter(|entry| spelled(tool, &entry.server.name).next().is_some())
                .cloned()
                .collect(),
            None => Vec::new(),
        };
        for entry in if meant.is_empty() { all } else { meant } {
            if tokio::time::timeout(PATIENCE, entry.settled())
                .await
                .is_err()
            {
                complain(&anyhow::anyhow!(
                    "still waiting for server `{}`",
                    entry.server.name
                ));
                entry.settled().await;
            }
        }
    }

    pub(super) async fn tools(&self) -> anyhow::Result<Vec<ToolEntry>> {
        match self {
            Self::Remote(remote) => remote.tools().await,
            Self::Own(gateway) => Ok(tools::all(gateway, &Caller::cli())?),
        }
    }

    /// Why a tool exists for a caller, or does not.
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
            Self::Own(gateway) => {
                let caller = match key {
                    Some(key) => Caller::cli().with_key(key),
                    None => Caller::cli(),
                };
                Ok(explain::of_tool(
                    gateway,
                    &caller,
                    &Filters::default(),
                    tool,
                )?)
            }
        }
    }

    /// Servers that cannot be used, and why.
    pub(super) async fn away(&self) -> anyhow::Result<Vec<(String, String)>> {
        match self {
            Self::Remote(remote) => remote.away().await,
            Self::Own(gateway) => Ok(gateway
                .servers()
                .iter()
                .map(|entry| (entry.server.name.to_string(), entry.status()))
                .filter(|(_, status)| !matches!(status.state, State::Healthy | State::Disabled))
                .map(|(name, status)| {
                    (
                        name,
                        describe(status.state.as_str(), status.reason.as_deref()),
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
            Self::Remote(remote) => remote.call(name, arguments.raw()).await,
            Self::Own(gateway) => {
                let answer = gateway
                    .call(&Caller::cli(), ToolCall::new(name, arguments))
                    .await;
                Ok(ToolMessage::new("cli", &answer))
            }
        }
    }

    pub(super) async fn close(self) {
        if let Self::Own(gateway) = self {
            gateway.stop(Duration::ZERO).await;
        }
    }
}
