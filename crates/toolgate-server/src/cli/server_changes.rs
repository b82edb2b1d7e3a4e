//! `toolgate servers add|remove|restart|logs`: changes the servers of a running gateway.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde_json::{Map, Value, json};
use toolgate_core::plural::count;

use super::names::{KnownNames, check_name};
use super::output::{print_line, print_note};
use crate::remote::{RemoteGateway, format_state};

/// Interval at which the state of a server that starts is looked up.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct AddCommand {
    /// Name of the server
    name: String,
    /// Command that starts the server, and its arguments, after `--`
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "endpoint"
    )]
    command: Vec<String>,
    /// URL of a remote server
    #[arg(long = "endpoint", value_name = "URL", conflicts_with = "command")]
    endpoint: Option<String>,
    /// Environment variable of the command as NAME=VALUE, or NAME to pass on the gateway's; can be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "endpoint")]
    env: Vec<String>,
    /// Header for a remote server as NAME=VALUE; `env.NAME` as the value reads a variable; can be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "endpoint")]
    headers: Vec<String>,
    /// Tool that agent runs may call without approval, `*` for all; can be repeated
    #[arg(long = "auto-execute", value_name = "TOOL")]
    auto_execute: Vec<String>,
    /// Add the server even if the gateway cannot connect to it now
    #[arg(long)]
    no_verify: bool,
}

impl AddCommand {
    pub(super) async fn run(self, remote: &RemoteGateway) -> anyhow::Result<ExitCode> {
        let path = if self.no_verify {
            "api/mcp/client"
        } else {
            print_note(&format!("connecting to `{}` …", self.name));
            "api/mcp/client?verify=true"
        };
        let name = self.name.clone();
        let body = self.into_entry()?;
        let entry: Value = remote.send_json(Method::POST, path, &body).await?;
        match entry["state"].as_str() {
            // The server that was verified is started once more.
            Some("connecting") if path.ends_with("true") => {
                print_state(&name, &wait_settled(remote, &name).await?)
            }
            _ => {
                print_line(&format!("added `{name}`"))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn into_entry(self) -> anyhow::Result<Value> {
        let mut entry = json!({"name": self.name, "tools_to_execute": ["*"]});
        if let Some(url) = self.endpoint {
            entry["connection_type"] = "http".into();
            entry["connection_string"] = url.into();
            let headers = self.headers.iter().map(|header| {
                let (name, value) = header
                    .split_once('=')
                    .with_context(|| format!("`{header}` is not NAME=VALUE"))?;
                Ok((name.trim().to_owned(), Value::from(value.trim())))
            });
            entry["headers"] = headers.collect::<anyhow::Result<Map<_, _>>>()?.into();
        } else if let [command, args @ ..] = self.command.as_slice() {
            entry["connection_type"] = "stdio".into();
            entry["stdio_config"] = json!({"command": command, "args": args, "envs": self.env});
        }
        if !self.auto_execute.is_empty() {
            entry["tools_to_auto_execute"] = self.auto_execute.into();
        }
        Ok(entry)
    }
}

pub(super) async fn remove(remote: &RemoteGateway, name: &str) -> anyhow::Result<ExitCode> {
    check_name(remote, KnownNames::Servers, name).await?;
    let path = server_path(name);
    let _: Value = remote.send_json(Method::DELETE, &path, &json!({})).await?;
    print_line(&format!("removed `{name}`"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn restart(remote: &RemoteGateway, name: &str) -> anyhow::Result<ExitCode> {
    check_name(remote, KnownNames::Servers, name).await?;
    let path = server_path(name);
    let before: Value = remote.get(&path, &[]).await?;
    let restart = format!("{path}/reconnect");
    let _: Value = remote.send_json(Method::POST, &restart, &json!({})).await?;
    // The supervisor notices the request a moment later.
    let mut entry: Value = remote.get(&path, &[]).await?;
    while entry["since"] == before["since"] {
        tokio::time::sleep(POLL_INTERVAL).await;
        entry = remote.get(&path, &[]).await?;
    }
    print_state(name, &wait_settled(remote, name).await?)
}

pub(super) async fn show_logs(remote: &RemoteGateway, name: &str) -> anyhow::Result<ExitCode> {
    check_name(remote, KnownNames::Servers, name).await?;
    let entry: Value = remote.get(&server_path(name), &[]).await?;
    match entry["stderr_tail"].as_str() {
        Some(text) => print_line(text)?,
        None if entry["config"]["connection_type"] != "stdio" => {
            bail!("server `{name}` has no process on the gateway's machine");
        }
        None => print_note("the server has written nothing to its standard error"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until a server has connected or failed, and returns its entry.
async fn wait_settled(remote: &RemoteGateway, name: &str) -> anyhow::Result<Value> {
    loop {
        let entry: Value = remote.get(&server_path(name), &[]).await?;
        if entry["state"] != "connecting" {
            return Ok(entry);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints the state of a server; fails if it is not usable.
fn print_state(name: &str, entry: &Value) -> anyhow::Result<ExitCode> {
    let state = entry["state"].as_str().unwrap_or_default();
    let tools = entry["tools"].as_array().map_or(0, Vec::len) as u64;
    let state_text = format_state(state, entry["reason"].as_str());
    print_line(&format!(
        "`{name}` is {state_text}, {}",
        count(tools, "tool", "tools")
    ))?;
    Ok(if matches!(state, "healthy" | "degraded" | "asleep") {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn server_path(name: &str) -> String {
    format!("api/mcp/client/{name}")
}
