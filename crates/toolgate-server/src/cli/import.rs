//! `toolgate import`: imports servers from the settings of other MCP clients.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};
use toolgate_core::config::{ConfigFormat, Document, import};

use super::print_line;
use super::target::RemoteFlags;
use crate::http::admin::changes::ImportOutcome;

/// Import the servers of Claude Desktop, Claude Code, Cursor or VS Code
#[derive(Debug, clap::Args)]
pub(super) struct ImportCommand {
    /// Settings file, such as claude_desktop_config.json, .mcp.json, ~/.cursor/mcp.json or .vscode/mcp.json
    file: PathBuf,
    /// Print a `toolgate.toml` instead of adding the servers to a running gateway
    #[arg(long)]
    print: bool,
    #[command(flatten)]
    remote: RemoteFlags,
}

impl ImportCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.file.display();
        let text =
            std::fs::read_to_string(&self.file).with_context(|| format!("cannot read `{path}`"))?;
        let document = Document::parse(&path.to_string(), ConfigFormat::Json, &text);
        let servers =
            import::read_servers(&document).with_context(|| format!("cannot import `{path}`"))?;
        if self.print {
            for server in &servers {
                for note in &server.notes {
                    print_line(&format!("# {}: {note}", server.name))?;
                }
            }
            let entries: Vec<Value> = servers.into_iter().map(|server| server.entry).collect();
            print_line(toml::to_string(&json!({"mcp": {"client_configs": entries}}))?.trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let result = self.remote.open()?.import(&text).await?;
        let mut failed = false;
        for line in result.servers {
            failed |= line.outcome == ImportOutcome::Invalid;
            let notes = if line.notes.is_empty() {
                String::new()
            } else {
                format!(" ({})", line.notes.join("; "))
            };
            print_line(&format!("{}: {}{notes}", line.name, line.outcome.as_str()))?;
        }
        Ok(ExitCode::from(u8::from(failed)))
    }
}
