//! `toolgate servers sandbox`: shows how the processes of servers are isolated.

use std::process::ExitCode;

use clap::Subcommand;

use super::print_line;
use super::target::TargetFlags;
use crate::http::admin::sandbox::SandboxView;

#[derive(Debug, clap::Args)]
pub(super) struct ServersCommand {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
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
        let Self {
            target,
            action: Action::Sandbox { name, json },
        } = self;
        target
            .run_with(async |target| {
                let sandbox = target.sandbox(&name).await?;
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
            })
            .await
    }
}

fn print_sandbox(sandbox: &SandboxView) -> anyhow::Result<()> {
    print_line(&format!("profile: {}", sandbox.profile))?;
    for measure in &sandbox.measures {
        let state = match (&measure.mechanism, &measure.reason) {
            (Some(mechanism), _) => format!("in force ({mechanism})"),
            (None, reason) => format!("NOT in force: {}", reason.as_deref().unwrap_or("unknown")),
        };
        print_line(&format!("{:<22} {state}", measure.measure))?;
    }
    Ok(())
}
