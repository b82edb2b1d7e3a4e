//! `toolgate servers`: shows the servers, what their processes use, and how these are isolated.

use std::process::ExitCode;

use clap::Subcommand;
use toolgate_core::plural::count;

use super::print_line;
use super::target::{CommandTarget, TargetFlags};
use crate::http::admin::process_usage::ProcessUsageView;
use crate::http::admin::sandbox::SandboxView;
use crate::remote::{ServerSummary, format_state};

#[derive(Debug, clap::Args)]
pub(super) struct ServersCommand {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the servers with their states and what their processes use
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which measures isolate the process of a stdio server on this machine, and which do not
    ///
    /// Exits with 1 if a measure of its sandbox is not in force.
    Sandbox {
        /// Name of the server
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl ServersCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { target, action } = self;
        target
            .run_with(async |target| match action {
                Action::List { json } => list(target, json).await,
                Action::Sandbox { name, json } => show_sandbox(target, &name, json).await,
            })
            .await
    }
}

async fn list(target: &CommandTarget, json: bool) -> anyhow::Result<ExitCode> {
    target.wait_until_ready(None).await;
    let servers = target.list_servers().await?;
    if json {
        print_line(&serde_json::to_string_pretty(&servers)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = servers.iter().map(|server| server.name.len()).max();
    let width = width.unwrap_or(0).min(40);
    for server in &servers {
        print_line(&format!(
            "{:width$}  {}",
            server.name,
            describe_server(server)
        ))?;
    }
    if servers.is_empty() {
        print_line("no servers")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn show_sandbox(target: &CommandTarget, name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let sandbox = target.sandbox(name).await?;
    let is_complete = sandbox.measures.iter().all(|measure| measure.in_force);
    if json {
        print_line(&serde_json::to_string_pretty(&sandbox)?)?;
    } else {
        print_sandbox(&sandbox)?;
    }
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print_sandbox(sandbox: &SandboxView) -> anyhow::Result<()> {
    print_line(&format!("profile: {}", sandbox.profile))?;
    for measure in &sandbox.measures {
        let state = match (&measure.mechanism, &measure.reason) {
            (Some(mechanism), _) => match &measure.note {
                Some(note) => format!("in force ({mechanism}); {note}"),
                None => format!("in force ({mechanism})"),
            },
            (None, reason) => format!("NOT in force: {}", reason.as_deref().unwrap_or("unknown")),
        };
        print_line(&format!("{:<22} {state}", measure.measure))?;
    }
    Ok(())
}

fn describe_server(server: &ServerSummary) -> String {
    let state = format_state(&server.state, server.reason.as_deref());
    let tools = count(server.tools as u64, "tool", "tools");
    let usage = server.process_usage.as_ref().map(describe_usage);
    let parts = [state, tools].into_iter().chain(usage.unwrap_or_default());
    parts.collect::<Vec<_>>().join(", ")
}

/// Describes what is known, and neither processes nor restarts that do not exist.
fn describe_usage(usage: &ProcessUsageView) -> Vec<String> {
    let is_running = usage.processes != Some(0);
    let percent = usage.cpu_percent.filter(|_| is_running);
    let memory = usage.memory_bytes.filter(|_| is_running);
    let processes = usage.processes.filter(|_| is_running);
    let files = usage.open_files.filter(|_| is_running);
    let restarts = Some(usage.restarts).filter(|restarts| *restarts > 0);
    [
        percent.map(|percent| format!("{percent:.1} % CPU")),
        memory.map(|bytes| format!("{} MiB of memory", bytes.div_ceil(1024 * 1024))),
        processes.map(|processes| count(processes, "process", "processes")),
        files.map(|files| count(files, "open file", "open files")),
        restarts.map(|restarts| count(restarts, "restart", "restarts")),
    ]
    .into_iter()
    .flatten()
    .collect()
}
