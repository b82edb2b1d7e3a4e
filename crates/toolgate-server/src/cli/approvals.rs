//! `toolgate approvals list|approve|deny`: lists and decides approvals of a running gateway.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::print_line;
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

#[derive(Debug, clap::Args)]
pub(super) struct ApprovalsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List approvals, by default the pending ones
    List {
        /// State to list: pending, approved, denied, expired, executing, done, unknown, or all
        #[arg(long, default_value = "pending")]
        state: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve a call
    Approve {
        /// Id of the approval
        id: String,
        /// Which calls to approve
        #[arg(long, value_enum, default_value_t)]
        scope: ScopeArg,
        /// Run the call with these arguments instead, given as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
    },
    /// Deny a call
    Deny {
        /// Id of the approval
        id: String,
        /// Reason, passed on to the caller
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ScopeArg {
    /// Only this call
    #[default]
    Once,
    /// All calls of the tool in the caller's session, with any arguments
    Session,
    /// All calls of the tool by the caller, with any arguments
    Always,
}

impl ApprovalsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        self.action.run(&remote).await?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Action {
    async fn run(self, remote: &RemoteGateway) -> anyhow::Result<()> {
        match self {
            Self::List { state, json } => {
                let query = [("state", state.as_str()), ("limit", "1000")];
                let page: Value = remote.get("api/approvals", &query).await?;
                print_list(&page["approvals"], json)
            }
            Self::Approve { id, scope, args } => {
                let scope = match scope {
                    ScopeArg::Once => "once",
                    ScopeArg::Session => "session",
                    ScopeArg::Always => "always",
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

async fn decide(remote: &RemoteGateway, id: &str, body: &Value) -> anyhow::Result<()> {
    let path = format!("api/approvals/{id}");
    let decided: Value = remote.send_json(Method::POST, &path, body).await?;
    print_line(&format_approval(&decided))
}

fn print_list(approvals: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return print_line(&format!("{approvals:#}"));
    }
    let approvals = approvals.as_array().map(Vec::as_slice).unwrap_or_default();
    if approvals.is_empty() {
        return print_line("no approvals");
    }
    approvals
        .iter()
        .try_for_each(|approval| print_line(&format_approval(approval)))
}

fn format_approval(approval: &Value) -> String {
    let text = |key: &str| approval[key].as_str().unwrap_or("-");
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
