//! `toolgate import`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};
use toolgate_core::config::{Document, Format, import};

use super::say;
use super::target::RemoteFlags;

/// Take over the servers of Claude Desktop, Claude Code, Cursor or VS Code
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// Their settings file, such as claude_desktop_config.json, .mcp.json, ~/.cursor/mcp.json or .vscode/mcp.json
    file: PathBuf,
    /// Print a `toolgate.toml` instead of adding the servers to the running gateway
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    remote: RemoteFlags,
}

impl Import {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let shown = self.file.display();
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read `{shown}`"))?;
        let document = Document::parse(&shown.to_string(), Format::Json, &text);
        let found = import::read(&document).with_context(|| format!("cannot import `{shown}`"))?;
        if self.print {
            for server in &found {
                for note in &server.notes {
                    say(&format!("# {}: {note}", server.name))?;
                }
            }
            let entries: Vec<Value> = found.into_iter().map(|server| server.entry).collect();
            say(toml::to_string(&json!({"mcp": {"client_configs": entries}}))?.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let result = self.remote.open()?.import(&text).await?;
        let mut failed = false;
        for line in result.servers {
            failed |= line.outcome == "invalid";
            let notes = if line.notes.is_empty() {
                String::new()
            } else {
                format!(" ({})", line.notes.join("; "))
            };
            say(&format!("{}: {}{notes}", line.name, line.outcome))?;
        }
        Ok(ExitCode::from(u8::from(failed)))
    }
}
