//! `toolgate status` and `toolgate stats`: the running gateway at a glance, and what it has done.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::output::{Cell, Details, Table, Tone, print_error, print_line};
use super::target::RemoteFlags;
use crate::http::admin::status::StatusView;

/// Show the state of the running gateway: servers, sessions, runs, approvals and memory
///
/// Exits with 1 if a server is unavailable, or the load is not normal.
#[derive(Debug, clap::Args)]
pub(super) struct StatusCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show calls, errors, latencies, tokens and cost since the gateway started
#[derive(Debug, clap::Args)]
pub(super) struct StatsCommand {
    #[command(flatten)]
    remote: RemoteFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let remote = self.remote.open()?;
        let status: StatusView = remote.get("api/status", &[]).await?;
        let unavailable = remote.unavailable_servers().await?;
        let problems: Value = remote.get("api/problems", &[]).await?;
        let is_well = unavailable.is_empty() && status.load == "normal";
        let code = ExitCode::from(u8::from(!is_well));
        if self.json {
            print_line(&serde_json::to_string_pretty(&status)?)?;
            return Ok(code);
        }
        let states = status.servers.iter();
        let states: Vec<String> = states
            .map(|(state, number)| format!("{number} {state}"))
            .collect();
        let servers = if states.is_empty() {
            Cell::from("none")
        } else {
            let tone = if unavailable.is_empty() {
                Tone::Good
            } else {
                Tone::Bad
            };
            Cell::from(states.join(", ")).tone(tone)
        };
        let memory = status.memory_bytes;
        let memory = memory.map(|bytes| format!("{} MiB", bytes.div_ceil(1024 * 1024)));
        let uptime = Duration::from_secs(status.uptime_seconds);
        let load = match &status.load_reason {
            Some(reason) => format!("{}: {reason}", status.load),
            None => status.load.clone(),
        };
        Details::default()
            .with("gateway", remote.address())
            .with("version", status.version)
            .with("up for", humantime::format_duration(uptime).to_string())
            .with_some("memory", memory)
            .with("load", Cell::from(load).tone(Tone::of_state(&status.load)))
            .with("servers", servers)
            .with("tools", status.tools.to_string())
            .with("sessions", status.sessions.to_string())
            .with("runs", status.runs.to_string())
            .with("approvals waiting", status.approvals_waiting.to_string())
            .print()?;
        for (name, state) in unavailable {
            print_error(&anyhow::anyhow!("server `{name}` is {state}"));
        }
        for problem in problems["problems"].as_array().into_iter().flatten() {
            let message = problem["message"].as_str().unwrap_or_default();
            print_error(&anyhow::anyhow!("{message}"));
        }
        Ok(code)
    }
}

impl StatsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let stats: Value = self.remote.open()?.get("api/stats", &[]).await?;
        if self.json {
            print_line(&format!("{stats:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let items = |member: &str| stats[member].as_array().into_iter().flatten();
        let mut tools = Table::new(["TOOL", "CALLS", "ERRORS", "P50 MS", "P90 MS", "P99 MS"]);
        for entry in items("tools") {
            let figures = &entry["figures"];
            let ms =
                |key: &str| Cell::number(format!("{:.1}", figures[key].as_f64().unwrap_or(0.0)));
            tools.push([
                format!("{}.{}", text(entry, "server"), text(entry, "tool")).into(),
                Cell::number(&figures["calls"]),
                error_cell(&figures["errors"]),
                ms("p50_ms"),
                ms("p90_ms"),
                ms("p99_ms"),
            ]);
        }
        tools.print("no tool calls since the gateway started")?;
        let mut models = Table::new(["MODEL", "REQUESTS", "ERRORS", "INPUT", "OUTPUT", "COST"]);
        for entry in items("models") {
            let name = format!("{}/{}", text(entry, "provider"), text(entry, "model"));
            models.push(usage_row(name, entry));
        }
        print_line("")?;
        models.print("no model requests since the gateway started")?;
        let mut callers = Table::new(["KEY", "REQUESTS", "ERRORS", "INPUT", "OUTPUT", "COST"]);
        for entry in items("callers") {
            callers.push(usage_row(text(entry, "key").to_owned(), entry));
        }
        if items("callers").next().is_some() {
            print_line("")?;
            callers.print("")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn usage_row(name: String, entry: &Value) -> [Cell; 6] {
    let cost = entry["cost_usd"].as_f64().unwrap_or(0.0);
    [
        name.into(),
        Cell::number(&entry["requests"]),
        error_cell(&entry["errors"]),
        Cell::number(&entry["tokens"]["input"]),
        Cell::number(&entry["tokens"]["output"]),
        Cell::number(format!("${cost:.4}")),
    ]
}

fn error_cell(errors: &Value) -> Cell {
    let tone = if errors.as_u64() == Some(0) {
        Tone::Plain
    } else {
        Tone::Bad
    };
    Cell::number(errors).tone(tone)
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_default()
}
