//! The command line. Every flag of a running gateway has a `TOOLGATE_*` variable.

mod approvals;
mod audit;
mod chat;
mod check;
mod code;
mod connect;
mod import;
mod keys;
mod mcp;
mod serve;
mod signals;
mod target;
mod tools;

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};

use toolgate::Environment;
use toolgate_core::config::Document;

use crate::files;
use crate::telemetry::{LogFormat, Logs};

/// MCP gateway: many servers, one door.
#[derive(Debug, Parser)]
#[command(name = "toolgate", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// What to log: `error`, `warn`, `info`, `debug`, or a filter such as `toolgate_mcp=debug,info`
    #[arg(long, global = true, env = "TOOLGATE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// How to log
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
    /// Run the gateway
    Serve(serve::Serve),
    /// Check the configuration and print every mistake with its place
    Check(check::Check),
    /// List, describe, explain and call tools, of a running gateway or straight from a configuration
    Tools(tools::Tools),
    Mcp(mcp::Mcp),
    Connect(connect::Connect),
    Chat(chat::Chat),
    Code(code::Code),
    /// Make and manage callers' keys of a running gateway
    Keys(keys::Keys),
    /// List and decide what waits for an approval in a running gateway
    Approvals(approvals::Approvals),
    /// Show what was called, by whom, and what came of it
    Audit(audit::Audit),
    Import(import::Import),
    /// Print the JSON Schema of the configuration, or the OpenAPI document of the API
    Schema {
        #[arg(value_enum)]
        of: Schema,
    },
    /// Print a completion script for a shell
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Schema {
    Config,
    Openapi,
}

/// Where a gateway listens unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The file to read instead of the user's and the project's.
#[derive(Debug, clap::Args)]
struct ConfigFlag {
    /// Configuration file, the only one read [default: ~/.config/toolgate/toolgate.toml, then ./toolgate.toml or ./config.json]
    #[arg(long, env = "TOOLGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which of the configuration's `environments` is in force, such as `production`
    #[arg(long, env = "TOOLGATE_ENVIRONMENT", value_name = "NAME")]
    environment: Option<String>,
}

impl ConfigFlag {
    fn documents(&self, environment: &Environment) -> anyhow::Result<Vec<Document>> {
        files::documents(
            self.config.as_deref(),
            self.environment.as_deref(),
            environment,
        )
    }
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let quiet = !matches!(cli.command, Command::Serve(_) | Command::Check(_));
    let filter = cli
        .log
        .as_deref()
        .unwrap_or(if quiet { "error" } else { "info" });
    let logs = Logs {
        filter,
        format: cli.log_format,
    };
    // It traces too, for which it needs its runtime.
    if !matches!(cli.command, Command::Serve(_)) {
        logs.start()?;
    }
    match cli.command {
        Command::Serve(serve) => block_on(serve.run(&logs)),
        Command::Check(check) => check.run(),
        Command::Tools(tools) => block_on(tools.run()),
        Command::Code(code) => block_on(code.run()),
        Command::Connect(connect) => connect.run(),
        Command::Mcp(mcp) => block_on(mcp.run()),
        Command::Chat(chat) => block_on(chat.run()),
        Command::Keys(keys) => block_on(keys.run()),
        Command::Approvals(approvals) => block_on(approvals.run()),
        Command::Audit(audit) => block_on(audit.run()),
        Command::Import(import) => block_on(import.run()),
        Command::Schema { of } => {
            let schema = match of {
                Schema::Config => toolgate_core::config::schema(),
                Schema::Openapi => serde_json::to_value(crate::http::router::openapi())?,
            };
            say(&format!("{schema:#}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut script);
            say(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes a line to standard output.
fn say(text: &str) -> anyhow::Result<()> {
    let text = printable(text, std::io::stdout().is_terminal());
    match writeln!(std::io::stdout(), "{text}") {
        // Whoever read us has had enough, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes an error and its causes to standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    let text = format!("error: {error:#}");
    let _ = writeln!(
        std::io::stderr(),
        "{}",
        printable(&text, std::io::stderr().is_terminal())
    );
}

/// What servers and tools say must not steer the terminal; a pipe gets it as it is.
fn printable(text: &str, terminal: bool) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    match terminal && text.contains(steers) {
        true => Cow::Owned(text.replace(steers, "\u{fffd}")),
        false => Cow::Borrowed(text),
    }
}

fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(work);
    // Whatever else runs has been waited for; a read of standard input may never return.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
