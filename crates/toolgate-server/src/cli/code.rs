//! `toolgate code run|stubs`

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use serde_json::json;
use toolgate::Arguments;

use super::target::{Target, TargetFlags};
use super::tools::show;

/// Run scripts over servers in code mode, as models do, and read what they can call
#[derive(Debug, clap::Args)]
pub(super) struct Code {
    #[command(flatten)]
    target: TargetFlags,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a script
    #[command(after_help = "A script is Starlark, a subset of Python:

  files = fs.list_directory(path=\".\")
  result = [line for line in files.splitlines() if line.endswith(\".md\")]

`toolgate code stubs` shows what it can call.")]
    Run {
        /// A file with the script; `-` reads it from standard input
        file: String,
        /// Print the whole answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what scripts can call: the files, or one of them
    Stubs {
        /// A server, or a tool as `server/tool`
        file: Option<String>,
        /// Everything that is known of the tool
        #[arg(long, requires = "file")]
        docs: bool,
    },
}

impl Code {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { target, action } = self;
        target.during(async |target| action.run(target).await).await
    }
}

impl Action {
    async fn run(self, target: &Target) -> anyhow::Result<ExitCode> {
        target.ready(None).await;
        let (tool, arguments, json) = match self {
            Self::Run { file, json } => ("executeToolCode", json!({"code": read(&file)?}), json),
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
        show(&message, json)?;
        if message.is_error && message.says(&format!("unknown tool `{tool}`")) {
            anyhow::bail!("no server is in code mode; set `is_code_mode_client = true` for one");
        }
        Ok(ExitCode::from(u8::from(message.is_error)))
    }
}

fn read(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read `{file}`"))
}
