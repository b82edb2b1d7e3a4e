//! `toolgate connect`: the settings that point an MCP client at this gateway.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};
use url::Url;

use super::say;

/// Print the settings that point an MCP client at a running gateway
#[derive(Debug, clap::Args)]
pub(super) struct Connect {
    #[arg(value_enum)]
    client: Client,
    /// The running gateway
    #[arg(long, env = "TOOLGATE_URL", default_value = super::DEFAULT_URL)]
    url: Url,
    /// The name of the environment variable that holds the caller's key, if it needs one
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Only this server, with its raw names
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only this virtual server
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

impl Connect {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let path = match (&self.server, &self.virtual_server) {
            (Some(name), _) => format!("mcp/{name}"),
            (None, Some(name)) => format!("mcp/v/{name}"),
            (None, None) => "mcp".to_owned(),
        };
        let mut started = vec!["mcp"];
        match (&self.server, &self.virtual_server) {
            (Some(name), _) => started.extend(["--server", name]),
            (None, Some(name)) => started.extend(["--virtual-server", name]),
            (None, None) => {}
        }
        let url = self.url.join(&path)?;
        let key = self.key_env.as_deref();
        say(&match self.client {
            Client::ClaudeDesktop => in_file(
                "claude_desktop_config.json (it starts its servers itself)",
                &json!({"mcpServers": {"toolgate": {"command": "toolgate", "args": started}}}),
            ),
            Client::ClaudeCode => {
                let header = key.map(|key| format!(" --header \"Authorization: Bearer ${key}\""));
                let header = header.unwrap_or_default();
                format!("claude mcp add --transport http toolgate {url}{header}")
            }
            Client::Cursor => in_file(
                "~/.cursor/mcp.json, or .cursor/mcp.json in a project",
                &json!({"mcpServers": {"toolgate": with_key(&url, key, "${env:KEY}", json!({}))}}),
            ),
            Client::VsCode => in_file(
                ".vscode/mcp.json",
                &json!({"servers": {"toolgate": with_key(&url, key, "${env:KEY}", json!({"type": "http"}))}}),
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

fn in_file(file: &str, settings: &Value) -> String {
    format!("// in {file}\n{settings:#}")
}

/// An entry with the URL, and the key as the client reads it from its environment.
fn with_key(url: &Url, key: Option<&str>, spelled: &str, mut entry: Value) -> Value {
    entry["url"] = url.as_str().into();
    if let Some(key) = key {
        let spelled = spelled.replace("KEY", key);
        entry["headers"] = json!({"Authorization": format!("Bearer {spelled}")});
    }
    entry
}
