//! `toolgate code run|stubs`: runs scripts in code mode and shows the stubs of what they can call.

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;
use toolgate::Arguments;

use super::target::{CommandTarget, TargetFlags};
use super::tools::print_tool_message;

/// Run scripts in code mode as models do, and show what they can call
#[derive(Debug, clap::Args)]
pub(super) struct CodeCommand {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a script
    #[command(after_help = "Scripts are written in Starlark, a subset of Python:

  files = fs.list_directory(path=\".\")
  result = [line for line in files.splitlines() if line.endswith(\".md\")]

`toolgate code stubs` shows what scripts can call.")]
    Run {
        /// Script file; `-` reads standard input
        file: String,
        /// Print the full result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what scripts can call: list the stub files, or show one of them
    Stubs {
        /// Server, or tool as `server/tool`
        file: Option<String>,
        /// Show the full documentation of the tool
        #[arg(long, requires = "file")]
        docs: bool,
    },
}

impl CodeCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { target, action } = self;
        target
            .run_with(async |target| action.run(target).await)
            .await
    }
}

impl Action {
    async fn run(self, target: &CommandTarget) -> anyhow::Result<ExitCode> {
        target.wait_until_ready(None).await;
        let (tool, arguments, json) = match self {
            Self::Run { file, json } => (
                "executeToolCode",
                json!({"code": read_script(&file)?}),
                json,
            ),
            Self::Stubs { file: None, .. } => ("listToolFiles", json!({}), false),
            Self::Stubs {
                file: Some(file),
                docs: false,
            } => ("readToolFile", json!({"fileName": file}), false),
            Self::Stubs {
                file: Some(file),
                docs: true,
            } => {
                let parts = file.split_once(['/', '.']);
                let (server, tool) = parts.context("write the tool as `server/tool`")?;
                (
                    "getToolDocs",
                    json!({"server": server, "tool": tool}),
                    false,
                )
            }
        };
        let arguments = Arguments::parse(&arguments.to_string())?;
        let message = target.call(tool, arguments).await?;
        print_tool_message(&message, json)?;
        if message.is_error && message.text_starts_with(&format!("unknown tool `{tool}`")) {
            anyhow::bail!(
                "no server is in code mode; set `is_code_mode_client = true` for at least one server"
            );
        }
        Ok(ExitCode::from(u8::from(message.is_error)))
    }
}

fn read_script(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read `{file}`"))
}
