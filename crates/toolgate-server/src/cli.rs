//! The command line. Every flag of `toolgate serve` has a `TOOLGATE_*` environment variable.

mod approvals;
mod audit;
mod audit_verify;
mod backup;
mod chat;
mod check;
mod code;
mod connect;
mod definitions;
mod import;
mod init;
mod keys;
mod listings;
mod mcp;
mod names;
mod output;
mod runs;
mod serve;
mod server_changes;
mod servers;
mod signals;
mod status;
mod target;
mod tools;
mod trust;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::FalseyValueParser;
use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

use toolgate::Environment;
use toolgate_core::config::Document;

pub(crate) use output::print_error;
use output::print_line;

use crate::files::{self, ConfigSelection};
use crate::telemetry::{LogFormat, LogSettings};

/// MCP gateway: many servers behind a single endpoint
#[derive(Debug, Parser)]
#[command(name = "toolgate", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log level (`error`, `warn`, `info`, `debug`) or filter, such as `toolgate_mcp=debug,info`
    #[arg(long, global = true, env = "TOOLGATE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Log format
    #[arg(
        long,
        global = true,
        env = "TOOLGATE_LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitCommand),
    /// Run the gateway
    Serve(serve::ServeCommand),
    /// Check the configuration and print every error with its location
    Check(check::CheckCommand),
    /// List, describe, explain and call tools, through a running gateway or directly from a configuration
    Tools(tools::ToolsCommand),
    Status(status::StatusCommand),
    /// List, add, remove and restart servers, and show what their processes use, log and are isolated by
    Servers(servers::ServersCommand),
    Mcp(mcp::McpCommand),
    Connect(connect::ConnectCommand),
    Chat(chat::ChatCommand),
    Code(code::CodeCommand),
    /// List, show and cancel agent runs of a running gateway
    Runs(runs::RunsCommand),
    Stats(status::StatsCommand),
    Models(listings::ModelsCommand),
    Roles(listings::RolesCommand),
    Rules(listings::RulesCommand),
    Results(listings::ResultsCommand),
    /// Create and manage the caller keys of a running gateway
    Keys(keys::KeysCommand),
    /// List definitions of tools that changed or look suspicious, and trust them, in a running gateway
    Definitions(definitions::DefinitionsCommand),
    /// List and decide pending approvals of a running gateway
    Approvals(approvals::ApprovalsCommand),
    /// Show the audit trail: which tools were called, by whom, and with what outcome; verify and export it
    Audit(audit::AuditCommand),
    Backup(backup::BackupCommand),
    Restore(backup::RestoreCommand),
    Trust(trust::TrustCommand),
    Import(import::ImportCommand),
    /// Print the JSON Schema of the configuration, or the OpenAPI document of the API
    Schema {
        /// Document to print
        #[arg(value_enum)]
        of: SchemaKind,
    },
    /// Print a shell completion script
    Completions {
        /// Shell to generate the script for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaKind {
    Config,
    Openapi,
}

/// URL of a gateway with default listen settings.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Flags that select the configuration.
#[derive(Debug, clap::Args)]
struct ConfigFlags {
    /// Configuration file to read instead of the default ones [default: ~/.config/toolgate/toolgate.toml, then ./toolgate.toml or ./config.json, which must be trusted]
    #[arg(long, env = "TOOLGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the configuration's `environments` entry to use, such as `production`
    #[arg(long, env = "TOOLGATE_ENVIRONMENT", value_name = "NAME")]
    environment: Option<String>,
    /// Ignore the configuration file in the working folder
    #[arg(long, env = "TOOLGATE_NO_PROJECT", value_parser = FalseyValueParser::new())]
    no_project: bool,
}

impl ConfigFlags {
    fn selection(&self) -> ConfigSelection {
        ConfigSelection {
            path: self.config.clone(),
            no_project: self.no_project,
            environment_name: self.environment.clone(),
        }
    }

    /// Loads the configuration files. A file in the working folder must be trusted.
    fn load_documents(&self, environment: &Environment) -> anyhow::Result<Vec<Document>> {
        files::load(&self.selection(), environment)?.into_trusted()
    }
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let quiet = !matches!(cli.command, Command::Serve(_) | Command::Check(_));
    let filter = cli
        .log
        .as_deref()
        .unwrap_or(if quiet { "error" } else { "info" });
    let logs = LogSettings {
        filter,
        format: cli.log_format,
    };
    // `serve` sets up logging itself, because exporting traces needs the runtime.
    if !matches!(cli.command, Command::Serve(_)) {
        logs.start()?;
    }
    match cli.command {
        Command::Init(init) => init.run(),
        Command::Serve(serve) => block_on(serve.run(&logs)),
        Command::Check(check) => block_on(check.run()),
        Command::Tools(tools) => block_on(tools.run()),
        Command::Servers(servers) => block_on(servers.run()),
        Command::Status(status) => block_on(status.run()),
        Command::Runs(runs) => block_on(runs.run()),
        Command::Stats(stats) => block_on(stats.run()),
        Command::Models(models) => block_on(models.run()),
        Command::Roles(roles) => block_on(roles.run()),
        Command::Rules(rules) => block_on(rules.run()),
        Command::Results(results) => block_on(results.run()),
        Command::Code(code) => block_on(code.run()),
        Command::Connect(connect) => connect.run(),
        Command::Mcp(mcp) => block_on(mcp.run()),
        Command::Chat(chat) => block_on(chat.run()),
        Command::Keys(keys) => block_on(keys.run()),
        Command::Definitions(definitions) => block_on(definitions.run()),
        Command::Approvals(approvals) => block_on(approvals.run()),
        Command::Audit(audit) => block_on(audit.run()),
        Command::Backup(backup) => block_on(backup.run()),
        Command::Restore(restore) => block_on(restore.run()),
        Command::Trust(trust) => trust.run(),
        Command::Import(import) => block_on(import.run()),
        Command::Schema { of } => {
            let schema = match of {
                SchemaKind::Config => toolgate_core::config::schema(),
                SchemaKind::Openapi => serde_json::to_value(crate::http::router::openapi())?,
            };
            print_line(&format!("{schema:#}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut script);
            print_line(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(work);
    // Do not wait for blocking tasks: a pending read of standard input may never return.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
