//! `toolgate approvals list|approve|deny`

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::say;
use super::target::RemoteFlags;
use crate::remote::Remote;

#[derive(Debug, clap::Args)]
pub(super) struct Approvals {
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what waits for a decision
    List {
        /// Another state: approved, denied, expired, executing, done, unknown, or all
        #[arg(long, default_value = "pending")]
        state: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a call run
    Approve {
        id: String,
        /// How far it reaches
        #[arg(long, value_enum, default_value_t)]
        scope: Scope,
        /// Run it with these arguments instead, as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
    },
    /// Refuse a call
    Deny {
        id: String,
        /// Why; the caller is told
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Scope {
    /// This call
    #[default]
    Once,
    /// Every call of the tool in the caller's session, whatever its arguments
    Session,
    /// Every call of the tool by the caller, whatever its arguments
    Always,
}

impl Approvals {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        self.action.run(&remote).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Action {
    async fn run(self, remote: &Remote) -> anyhow::Result<()> {
        match self {
            Self::List { state, json } => {
                let query = [("state", state.as_str()), ("limit", "1000")];
                let page: Value = remote.get("api/approvals", &query).await?;
                list(&page["approvals"], json)
            }
            Self::Approve { id, scope, args } => {
                let scope = match scope {
                    Scope::Once => "once",
                    Scope::Session => "session",
                    Scope::Always => "always",
                };
                let mut body = json!({"decision": "approve", "scope": scope});
                if let Some(args) = args {
                    let args: Value =
                        serde_json::from_str(&args).context("--args is not valid JSON")?;
                    body["arguments"] = args;
                }
                decide(remote, &id, &body).await
            }
            Self::Deny { id, reason } => {
                let body = json!({"decision": "deny", "reason": reason});
                decide(remote, &id, &body).await
            }
        }
    }
}

async fn decide(remote: &Remote, id: &str, body: &Value) -> anyhow::Result<()> {
    let path = format!("api/approvals/{id}");
    let decided: Value = remote.write(Method::POST, &path, body).await?;
    say(&line(&decided))
}

fn list(approvals: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return say(&format!("{approvals:#}"));
    }
    let approvals = approvals.as_array().map(Vec::as_slice).unwrap_or_default();
    if approvals.is_empty() {
        return say("nothing waits for a decision");
    }
    approvals
        .iter()
        .try_for_each(|approval| say(&line(approval)))
}

fn line(approval: &Value) -> String {
    let text = |key: &str| approval[key].as_str().unwrap_or("nobody");
    format!(
        "{}  {}  {} {}  by {}, until {} ({})",
        text("id"),
        text("state"),
        text("alias"),
        approval["arguments"],
        text("caller"),
        text("expires_at"),
        text("rule"),
    )
}
