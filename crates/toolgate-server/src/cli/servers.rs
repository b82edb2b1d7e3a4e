//! `toolgate servers`: shows the servers, what their processes use, and how these are isolated; adds,
//! removes and restarts them.

use std::process::ExitCode;

use clap::Subcommand;

use super::output::{Cell, Table, Tone, print_line};
use super::server_changes::{AddCommand, remove, restart, show_logs};
use super::target::{CommandTarget, TargetFlags};
use crate::http::admin::sandbox::SandboxView;
use crate::remote::ServerSummary;

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
    /// Add a server to a running gateway, which keeps it across restarts
    Add(AddCommand),
    /// Remove a server from a running gateway
    Remove {
        /// Name of the server
        name: String,
    },
    /// Restart a server of a running gateway, or connect to it again; waits until it is up
    Restart {
        /// Name of the server
        name: String,
    },
    /// Print the last output of a server's process on standard error
    Logs {
        /// Name of the server
        name: String,
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
                Action::Add(add) => add.run(target.remote()?).await,
                Action::Remove { name } => remove(target.remote()?, &name).await,
                Action::Restart { name } => restart(target.remote()?, &name).await,
                Action::Logs { name } => show_logs(target.remote()?, &name).await,
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
    let mut table = Table::new([
        "NAME",
        "STATE",
        "TOOLS",
        "CPU",
        "MEMORY",
        "PROCESSES",
        "FILES",
        "RESTARTS",
        "REASON",
    ]);
    for server in &servers {
        table.push(row(server));
    }
    table.print("no servers; add one with `toolgate servers add`")?;
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

/// What is not known, or has no processes, is shown as `-`.
fn row(server: &ServerSummary) -> [Cell; 9] {
    let usage = server.process_usage.as_ref();
    let running = usage.filter(|usage| usage.processes != Some(0));
    let number = |value: Option<String>| Cell::number(value.unwrap_or_else(|| "-".to_owned()));
    let memory = running.and_then(|usage| usage.memory_bytes);
    let memory = memory.map(|bytes| format!("{} MiB", bytes.div_ceil(1024 * 1024)));
    let percent = running.and_then(|usage| usage.cpu_percent);
    let processes = running.and_then(|usage| usage.processes);
    let files = running.and_then(|usage| usage.open_files);
    [
        server.name.as_str().into(),
        Cell::from(server.state.as_str()).tone(Tone::of_state(&server.state)),
        Cell::number(server.tools),
        number(percent.map(|percent| format!("{percent:.1}%"))),
        number(memory),
        number(processes.map(|processes| processes.to_string())),
        number(files.map(|files| files.to_string())),
        number(usage.map(|usage| usage.restarts.to_string())),
        server.reason.as_deref().unwrap_or_default().into(),
    ]
}
