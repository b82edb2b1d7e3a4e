//! `toolgate audit`: shows the audit trail of a running gateway. `audit_verify` checks it.

use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use super::audit_verify::{ExportCommand, VerifyCommand};
use super::names::{KnownNames, check_name};
use super::output::{Cell, Table, Tone, format_time, parse_past_time, print_line};
use super::target::RemoteFlags;
use crate::remote::RemoteGateway;

const KINDS: [&str; 8] = [
    "tool",
    "resource",
    "prompt",
    "completion",
    "approval",
    "auth",
    "admin",
    "all",
];

const OUTCOMES: [&str; 25] = [
    "ok",
    "tool_error",
    "unknown",
    "bad_arguments",
    "bad_filter",
    "denied",
    "ask",
    "manual",
    "limited",
    "away",
    "busy",
    "overloaded",
    "no_worker",
    "timeout",
    "server",
    "invalid_output",
    "cancelled",
    "panicked",
    "unauthorized",
    "unrecorded",
    "interrupted",
    "open",
    "approved",
    "expired",
    "signed_in",
];

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    remote: RemoteFlags,
    /// Kind of record
    #[arg(long, default_value = "tool", value_parser = PossibleValuesParser::new(KINDS))]
    kind: String,
    /// Only calls to this server
    #[arg(long)]
    server: Option<String>,
    /// Only calls of this tool, by its name on the server
    #[arg(long)]
    tool: Option<String>,
    /// Only calls with this key, by its name
    #[arg(long)]
    caller: Option<String>,
    /// Only calls with this outcome
    #[arg(long, value_parser = PossibleValuesParser::new(OUTCOMES))]
    outcome: Option<String>,
    /// Only calls of this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only calls since this time: `1h` ago, or such as `2026-01-31 12:00` or `2026-01-31T12:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    since: Option<String>,
    /// Only calls before this time
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    until: Option<String>,
    /// Maximum number of calls to show, newest first
    #[arg(long, default_value_t = 20)]
    limit: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    Verify(VerifyCommand),
    Export(ExportCommand),
}

impl AuditCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Some(Action::Verify(verify)) => return verify.run().await,
            Some(Action::Export(export)) => return export.run().await,
            None => {}
        }
        let remote = self.remote.open()?;
        let filters = [
            ("kind", Some(&self.kind)),
            ("server", self.server.as_ref()),
            ("tool", self.tool.as_ref()),
            ("caller", self.caller.as_ref()),
            ("outcome", self.outcome.as_ref()),
            ("run_id", self.run.as_ref()),
            ("since", self.since.as_ref()),
            ("until", self.until.as_ref()),
        ];
        let filters = filters
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?.as_str())));
        let query: Vec<(&str, &str)> = filters.collect();
        let limit = usize::from(self.limit);
        let records = remote.list_items("api/audit", "records", &query, limit);
        let records = records.await?;
        if records.is_empty() {
            check_filters(&remote, self.server.as_deref(), self.caller.as_deref()).await?;
        }
        if self.json {
            print_line(&format!("{:#}", Value::Array(records)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(["TIME", "OUTCOME", "NAME", "MS", "CALLER", "RULE", "ERROR"]);
        for record in &records {
            table.push(row(record));
        }
        table.print("no records")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Fails for filters that match nothing because what they name does not exist. The trail may name servers
/// and keys that are gone, so this is checked only if there is no record.
async fn check_filters(
    remote: &RemoteGateway,
    server: Option<&str>,
    caller: Option<&str>,
) -> anyhow::Result<()> {
    if let Some(server) = server {
        check_name(remote, KnownNames::Servers, server).await?;
    }
    if let Some(caller) = caller {
        check_name(remote, KnownNames::Keys, caller).await?;
    }
    Ok(())
}

fn row(record: &Value) -> [Cell; 7] {
    let text = |key: &str| record[key].as_str().unwrap_or("-");
    let duration = match record["duration_ms"].as_f64() {
        Some(ms) => format!("{ms:.1}"),
        None => "-".to_owned(),
    };
    let error = record["error"].as_str().unwrap_or_default();
    [
        Cell::whole(format_time(text("started_at"))),
        Cell::from(text("outcome")).tone(Tone::of_state(text("outcome"))),
        text("name").into(),
        Cell::number(duration),
        text("caller").into(),
        text("rule").into(),
        error.lines().next().unwrap_or_default().into(),
    ]
}
