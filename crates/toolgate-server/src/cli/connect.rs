//! `toolgate connect`: prints the settings that connect an MCP client to a running gateway.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};
use url::Url;

use super::print_line;

/// Print the settings that connect an MCP client to a running gateway
#[derive(Debug, clap::Args)]
pub(super) struct ConnectCommand {
    /// MCP client to configure
    #[arg(value_enum)]
    client: Client,
    /// URL of the running gateway
    #[arg(long, env = "TOOLGATE_URL", default_value = super::DEFAULT_URL)]
    url: Url,
    /// Name of the environment variable that holds the caller key, if one is needed
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Expose only this server, with its original tool names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Expose only this virtual server
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    virtual_server: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Client {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
}

impl ConnectCommand {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let path = match (&self.server, &self.virtual_server) {
            (Some(name), _) => format!("mcp/{name}"),
            (None, Some(name)) => format!("mcp/v/{name}"),
            (None, None) => "mcp".to_owned(),
        };
        let mut args = vec!["mcp"];
        match (&self.server, &self.virtual_server) {
            (Some(name), _) => args.extend(["--server", name]),
            (None, Some(name)) => args.extend(["--virtual-server", name]),
            (None, None) => {}
        }
        let url = self.url.join(&path)?;
        let key = self.key_env.as_deref();
        print_line(&match self.client {
            Client::ClaudeDesktop => format_snippet(
                "claude_desktop_config.json (Claude Desktop starts the gateway itself)",
                &json!({"mcpServers": {"toolgate": {"command": "toolgate", "args": args}}}),
            ),
            Client::ClaudeCode => {
                let header = key.map(|key| format!(" --header \"Authorization: Bearer ${key}\""));
                let header = header.unwrap_or_default();
                format!("claude mcp add --transport http toolgate {url}{header}")
            }
            Client::Cursor => format_snippet(
                "~/.cursor/mcp.json, or .cursor/mcp.json in a project",
                &json!({"mcpServers": {"toolgate": url_entry(&url, key, "${env:KEY}", json!({}))}}),
            ),
            Client::VsCode => format_snippet(
                ".vscode/mcp.json",
                &json!({"servers": {"toolgate": url_entry(&url, key, "${env:KEY}", json!({"type": "http"}))}}),
            ),
            Client::Codex => {
                let key = key.map(|key| format!("\nbearer_token_env_var = \"{key}\""));
                let key = key.unwrap_or_default();
                format!("# in ~/.codex/config.toml\n[mcp_servers.toolgate]\nurl = \"{url}\"{key}")
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn format_snippet(file: &str, settings: &Value) -> String {
    format!("// in {file}\n{settings:#}")
}

/// Adds the URL to a client's server entry, and the key as a reference to an environment variable.
fn url_entry(url: &Url, key: Option<&str>, placeholder: &str, mut entry: Value) -> Value {
    entry["url"] = url.as_str().into();
    if let Some(key) = key {
        let reference = placeholder.replace("KEY", key);
        entry["headers"] = json!({"Authorization": format!("Bearer {reference}")});
    }
    entry
}
