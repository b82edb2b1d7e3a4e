//! `toolgate mcp`: MCP over standard input and output, for clients that launch their servers as child
//! processes. Relays to a gateway: the one at a URL, the one that uses the data directory, or one that it
//! starts itself.

use std::path::PathBuf;
use std::process::ExitCode;

use url::Url;

use super::ConfigFlags;
use super::signals::ShutdownSignals;
use crate::files;
use crate::relay::{self, RelaySettings, Upstream};
use crate::standalone::Standalone;
use crate::store_key::StoreKeyFlags;

/// Connect one MCP client, over standard input and output, to the running gateway, or run the servers without one
///
/// Without --url, messages are relayed to the process that uses the data directory: `toolgate serve`, or another
/// `toolgate mcp`. If there is none, this process runs the configured servers, with approvals and records, until
/// its client ends.
#[derive(Debug, clap::Args)]
pub(super) struct McpCommand {
    #[command(flatten)]
    config: ConfigFlags,
    /// URL of the gateway to relay to [default: the one that uses the data directory]
    #[arg(long, env = "TOOLGATE_URL")]
    url: Option<Url>,
    /// Name of the environment variable that holds the caller key, if the gateway requires one
    #[arg(long, value_name = "VARIABLE", default_value = "TOOLGATE_KEY")]
    key_env: String,
    /// Expose only this server, with its original tool names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Expose only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
    /// Data directory [default: $XDG_DATA_HOME/toolgate]
    #[arg(long, env = "TOOLGATE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    store_key: StoreKeyFlags,
}

impl McpCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = files::environment();
        let path = self.path();
        let key = environment.get(&self.key_env);
        let mut signals = ShutdownSignals::new()?;
        let upstream = match self.url {
            Some(url) => Upstream::at_url(url)?,
            None => {
                let selection = self.config.selection();
                let standalone =
                    Standalone::new(selection, self.data_dir, self.store_key, environment)?;
                tokio::select! {
                    upstream = Upstream::local(standalone) => upstream?,
                    () = signals.recv() => return Ok(ExitCode::SUCCESS),
                }
            }
        };
        let settings = RelaySettings {
            upstream,
            path,
            key: key.filter(|key| !key.is_empty()),
            key_variable: self.key_env,
        };
        relay::run(settings, signals.recv()).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the path of the endpoint.
    fn path(&self) -> String {
        match (&self.server, &self.virtual_server) {
            (Some(name), _) => format!("mcp/{name}"),
            (None, Some(name)) => format!("mcp/v/{name}"),
            (None, None) => "mcp".to_owned(),
        }
    }
}
