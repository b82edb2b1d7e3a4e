//! `toolgate definitions list|trust`: lists and trusts definitions of tools of a running gateway.

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::print_line;
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

#[derive(Debug, clap::Args)]
pub(super) struct DefinitionsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List definitions that changed since they were trusted, or that look suspicious
    List {
        /// List all definitions
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Trust the definitions of tools as they are now, and print what changed
    Trust {
        /// Tools, as SERVER.TOOL
        #[arg(required = true, value_name = "TOOL")]
        tools: Vec<String>,
    },
}

impl DefinitionsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        match self.action {
            Action::List { all, json } => list(&remote, all, json).await?,
            Action::Trust { tools } => trust(&remote, &tools).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(remote: &RemoteGateway, all: bool, json: bool) -> anyhow::Result<()> {
    let definitions = fetch(remote, all).await?;
    if json {
        return print_line(&format!("{:#}", Value::Array(definitions)));
    }
    if definitions.is_empty() {
        return print_line("no definition needs attention");
    }
    definitions.iter().try_for_each(print_definition)
}

async fn trust(remote: &RemoteGateway, tools: &[String]) -> anyhow::Result<()> {
    let definitions = fetch(remote, true).await?;
    let mut read = Vec::new();
    for tool in tools {
        let found = definitions
            .iter()
            .find(|definition| name(definition) == *tool || definition["alias"] == **tool);
        let Some(definition) = found else {
            bail!("there is no tool `{tool}`; `toolgate definitions list --all` lists all of them");
        };
        read.push(definition);
    }
    let entries = read.iter().map(|definition| {
        let member = |name: &str| definition[name].clone();
        json!({"server": member("server"), "tool": member("tool"), "hash": member("hash")})
    });
    let body = json!({"definitions": entries.collect::<Vec<Value>>()});
    let _: Value = remote
        .send_json(Method::POST, "api/mcp/definitions/trust", &body)
        .await?;
    for definition in read {
        print_line(&format!("trusted {}", name(definition)))?;
        print_details(definition)?;
    }
    Ok(())
}

async fn fetch(remote: &RemoteGateway, all: bool) -> anyhow::Result<Vec<Value>> {
    let all = if all { "true" } else { "false" };
    let list: Value = remote.get("api/mcp/definitions", &[("all", all)]).await?;
    Ok(list["definitions"].as_array().cloned().unwrap_or_default())
}

fn name(definition: &Value) -> String {
    let text = |key: &str| definition[key].as_str().unwrap_or_default();
    format!("{}.{}", text("server"), text("tool"))
}

fn print_definition(definition: &Value) -> anyhow::Result<()> {
    let state = definition["state"].as_str().unwrap_or_default();
    let state = match definition["shadows"].as_str() {
        Some(other) => format!("{state} {other}"),
        None => state.to_owned(),
    };
    let hidden = if definition["hidden"] == true {
        ", hidden"
    } else {
        ""
    };
    print_line(&format!("{}  {state}{hidden}", name(definition)))?;
    print_details(definition)
}

/// Prints what looks suspicious in a definition, and what changed.
fn print_details(definition: &Value) -> anyhow::Result<()> {
    let items = |key: &str| definition[key].as_array().cloned().unwrap_or_default();
    for finding in items("findings") {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        print_line(&format!("  ! {} {}", text("place"), text("message")))?;
    }
    for change in items("changes") {
        print_line(&format!("  {}", change["place"].as_str().unwrap_or("/")))?;
        for (sign, key) in [("-", "before"), ("+", "after")] {
            if let Some(value) = change.get(key) {
                print_line(&format!("    {sign} {value}"))?;
            }
        }
    }
    Ok(())
}
