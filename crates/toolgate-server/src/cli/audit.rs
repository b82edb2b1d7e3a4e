//! `toolgate audit`: shows the audit trail of a running gateway. `audit_verify` checks it.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use super::audit_verify::{ExportCommand, VerifyCommand};
use super::print_line;
use super::target::RemoteFlags;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct AuditCommand {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    remote: RemoteFlags,
    /// Kind of record: tool, resource, prompt, completion, approval, auth, admin or all
    #[arg(long, default_value = "tool")]
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
    /// Only calls with this outcome: ok, tool_error, denied, ask, unknown, timeout, interrupted, …
    #[arg(long)]
    outcome: Option<String>,
    /// Only calls since this time, such as `2026-01-31T12:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
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
        let limit = self.limit.to_string();
        let filters = [
            ("kind", Some(self.kind.as_str())),
            ("server", self.server.as_deref()),
            ("tool", self.tool.as_deref()),
            ("caller", self.caller.as_deref()),
            ("outcome", self.outcome.as_deref()),
            ("since", self.since.as_deref()),
            ("limit", Some(limit.as_str())),
        ];
        let filters = filters
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let query: Vec<(&str, &str)> = filters.collect();
        let page: Value = self.remote.open()?.get("api/audit", &query).await?;
        if self.json {
            print_line(&format!("{:#}", page["records"]))?;
            return Ok(ExitCode::SUCCESS);
        }
        for record in page["records"].as_array().into_iter().flatten() {
            print_line(&format_record(record))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn format_record(record: &Value) -> String {
    let text = |key: &str| record[key].as_str().unwrap_or("-");
    let duration = match record["duration_ms"].as_f64() {
        Some(ms) => format!("{ms:.1} ms"),
        None => "-".to_owned(),
    };
    let error = match record["error"].as_str() {
        Some(error) => format!("  {}", error.lines().next().unwrap_or_default()),
        None => String::new(),
    };
    format!(
        "{}  {:12}  {:30}  {:>10}  {}  {}{error}",
        text("started_at"),
        text("outcome"),
        text("name"),
        duration,
        text("caller"),
        text("rule"),
    )
}
