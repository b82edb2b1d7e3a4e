//! `toolgate approvals list|approve|deny`: lists and decides approvals of a running gateway.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::output::{Cell, Table, Tone, find_by_id, format_id, format_time, print_line};
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

/// Approvals that are listed, and among which ids are looked up.
const MAX_APPROVALS: usize = 1000;
/// Length of a whole id.
const FULL_ID_CHARS: usize = 36;

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
        /// State to list
        #[arg(long, value_enum, default_value_t)]
        state: StateArg,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve a call
    Approve {
        /// Id of the approval, or a unique part of its beginning or end
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
        /// Id of the approval, or a unique part of its beginning or end
        id: String,
        /// Reason, passed on to the caller
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum StateArg {
    #[default]
    Pending,
    Approved,
    Denied,
    Expired,
    Executing,
    Done,
    Unknown,
    /// Approvals in any state
    All,
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
                let approvals = list(remote, state.as_str()).await?;
                if json {
                    return print_line(&format!("{:#}", Value::Array(approvals)));
                }
                let mut table = Table::new([
                    "ID",
                    "STATE",
                    "TOOL",
                    "ARGUMENTS",
                    "CALLER",
                    "UNTIL",
                    "RULE",
                ]);
                for approval in &approvals {
                    table.push(row(approval));
                }
                table.print("no approvals")
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

impl StateArg {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Executing => "executing",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::All => "all",
        }
    }
}

async fn list(remote: &RemoteGateway, state: &str) -> anyhow::Result<Vec<Value>> {
    let query = [("state", state)];
    remote
        .list_items("api/approvals", "approvals", &query, MAX_APPROVALS)
        .await
}

async fn decide(remote: &RemoteGateway, id: &str, body: &Value) -> anyhow::Result<()> {
    let pending = list(remote, "pending").await?;
    let ids = pending
        .iter()
        .filter_map(|approval| approval["id"].as_str());
    // The gateway explains what is wrong with an id that is not among the pending ones.
    let id = match find_by_id("pending approval", id, ids) {
        Ok(full) => full,
        Err(error) if id.len() < FULL_ID_CHARS => return Err(error),
        Err(_) => id,
    };
    let path = format!("api/approvals/{id}");
    let decided: Value = remote.send_json(Method::POST, &path, body).await?;
    let text = |key: &str| decided[key].as_str().unwrap_or("-");
    print_line(&format!(
        "{} {} {}",
        text("state"),
        text("alias"),
        decided["arguments"]
    ))
}

fn row(approval: &Value) -> [Cell; 7] {
    let text = |key: &str| approval[key].as_str().unwrap_or("-");
    [
        Cell::whole(format_id(text("id"))),
        Cell::from(text("state")).tone(Tone::of_state(text("state"))),
        text("alias").into(),
        approval["arguments"].to_string().into(),
        text("caller").into(),
        Cell::whole(format_time(text("expires_at"))),
        text("rule").into(),
    ]
}
