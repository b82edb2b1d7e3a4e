//! Command-line flags of `toolgate-zoo`. Their effects are implemented elsewhere.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A configurable MCP server to test against.
#[derive(Debug, Parser)]
#[command(name = "toolgate-zoo")]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) transport: TransportCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TransportCommand {
    /// Newline-delimited JSON-RPC on stdin and stdout
    Stdio {
        #[command(flatten)]
        common: CommonFlags,
    },
    /// Streamable HTTP at /mcp on 127.0.0.1
    Http {
        /// Port to listen on; 0 selects a free one
        #[arg(long)]
        port: u16,
        #[command(flatten)]
        common: CommonFlags,
        #[command(flatten)]
        http: HttpFlags,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CommonFlags {
    #[command(flatten)]
    pub(crate) features: FeatureFlags,
    #[command(flatten)]
    pub(crate) faults: FaultFlags,
    #[command(flatten)]
    pub(crate) diagnostics: DiagnosticFlags,
}

/// Features of a well-behaved server.
#[derive(Debug, Clone, Args)]
pub(crate) struct FeatureFlags {
    /// Supported protocol revisions
    #[arg(long, value_enum, default_value = "legacy")]
    pub(crate) era: SupportedEras,
    /// Serve the tools, resources and prompts of the conformance suite instead of the zoo's own;
    /// over HTTP also enables sessions and 403 for foreign hosts and origins
    #[arg(long)]
    pub(crate) fixtures: bool,
    /// Run some tools as tasks
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Number of extra tools, named tool_0001 and so on
    #[arg(long, default_value_t = 0)]
    pub(crate) tools: usize,
    /// Page size of all lists; without it, everything is on one page
    #[arg(long)]
    pub(crate) page: Option<usize>,
    /// Include malformed entries and hostile names in tools/list
    #[arg(long)]
    pub(crate) malformed: bool,
    /// Add the tool `append`, which appends its argument `line` to this file and flushes the file to the disk
    #[arg(long)]
    pub(crate) append_to: Option<PathBuf>,
    /// Define the tool `say` with other arguments while this file exists
    #[arg(long)]
    pub(crate) redefine_while: Option<PathBuf>,
    /// Serve the tools in this file instead: `{"tools": [DEFINITION, …], "results": {"NAME": RESULT}}`, and its
    /// `resources`, `resourceTemplates` and `prompts` if it has them. A tool without a result echoes its arguments. The
    /// file is read anew for every request
    #[arg(long)]
    pub(crate) tools_from: Option<PathBuf>,
    /// Server instructions
    #[arg(long)]
    pub(crate) instructions: Option<String>,
    /// Number of notifications/tools/list_changed to send in a burst after initialization
    #[arg(long, default_value_t = 0)]
    pub(crate) list_changed_storm: usize,
}

/// Faults to inject.
#[derive(Debug, Clone, Args)]
pub(crate) struct FaultFlags {
    /// Wait this many milliseconds before reading anything
    #[arg(long)]
    pub(crate) slow_start: Option<u64>,
    /// Exit with code 3 when this method arrives
    #[arg(long)]
    pub(crate) exit_on: Vec<String>,
    /// Never answer this method
    #[arg(long)]
    pub(crate) silent_on: Vec<String>,
    /// Never answer anything
    #[arg(long)]
    pub(crate) silent: bool,
    /// stdio: write lines that are not messages before and between answers
    #[arg(long)]
    pub(crate) garbage: bool,
    /// stdio: hold answers back for 50 ms and send them newest first
    #[arg(long)]
    pub(crate) reorder: bool,
    /// Send a log and a progress notification before every answer
    #[arg(long)]
    pub(crate) notify_first: bool,
    /// Ignore SIGTERM and, on stdio, the end of stdin
    #[arg(long)]
    pub(crate) ignore_sigterm: bool,
}

/// Output for tests to inspect: files, child processes and stderr.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiagnosticFlags {
    /// Append one line `METHOD NAME` per request to this file
    #[arg(long)]
    pub(crate) count: Option<PathBuf>,
    /// Write the process id to this file
    #[arg(long)]
    pub(crate) pid: Option<PathBuf>,
    /// Start `sleep 600` as a child and write its process id to this file
    #[arg(long)]
    pub(crate) grandchild: Option<PathBuf>,
    /// Print this text to stderr at start-up
    #[arg(long)]
    pub(crate) stderr: Option<String>,
    /// Print about 5 MiB to stderr at start-up
    #[arg(long)]
    pub(crate) stderr_flood: bool,
}

/// Flags of the HTTP transport only.
#[derive(Debug, Clone, Args)]
pub(crate) struct HttpFlags {
    /// Answer with application/json instead of an event stream
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sessions: SessionFlags,
    #[command(flatten)]
    pub(crate) gate: GateFlags,
    /// Close the event stream of tools/call after the headers, before the response
    #[arg(long)]
    pub(crate) half_close: bool,
    /// With --half-close: send an event id first, and the response on a GET with Last-Event-ID
    #[arg(long)]
    pub(crate) resumable: bool,
    /// Serve the HTTP+SSE transport of 2024-11-05 at /sse; /mcp answers 405
    #[arg(long)]
    pub(crate) sse_legacy: bool,
}

/// Sessions of legacy clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionFlags {
    /// Assign a session id to legacy clients and require it
    #[arg(long)]
    pub(crate) sessions: bool,
    /// Expire a session after this many requests; enables sessions
    #[arg(long)]
    pub(crate) expire_after: Option<u64>,
}

/// Responses decided before the body is read.
#[derive(Debug, Clone, Args)]
pub(crate) struct GateFlags {
    /// Answer every request with this status
    #[arg(long)]
    pub(crate) status: Option<u16>,
    /// Answer every request with a 307 redirect to this URL
    #[arg(long)]
    pub(crate) redirect: Option<String>,
    /// Answer 401 to requests without this header, as NAME:VALUE
    #[arg(long, value_parser = parse_header)]
    pub(crate) require_header: Vec<(String, String)>,
}

/// Supported protocol revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SupportedEras {
    /// `initialize`, up to 2025-11-25
    Legacy,
    /// `server/discover` and `_meta` on every request: 2026-07-28
    Modern,
    /// Both
    Dual,
}

impl TransportCommand {
    pub(crate) fn common(&self) -> &CommonFlags {
        match self {
            Self::Stdio { common } | Self::Http { common, .. } => common,
        }
    }
}

fn parse_header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("expected NAME:VALUE")?;
    Ok((name.to_owned(), value.trim_start().to_owned()))
}
