//! The command line of the zoo, as typed. What the flags do is told here and done elsewhere.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A configurable MCP server to test against.
#[derive(Debug, Parser)]
#[command(name = "toolgate-zoo")]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) transport: Transport,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Transport {
    /// Newline-delimited JSON-RPC on stdin and stdout
    Stdio {
        #[command(flatten)]
        common: Common,
    },
    /// Streamable HTTP at /mcp on 127.0.0.1
    Http {
        /// The port to listen on; 0 takes any free one
        #[arg(long)]
        port: u16,
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        http: HttpFlags,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) offer: Offer,
    #[command(flatten)]
    pub(crate) faults: Faults,
    #[command(flatten)]
    pub(crate) traces: Traces,
}

/// What the server offers when all goes well.
#[derive(Debug, Clone, Args)]
pub(crate) struct Offer {
    /// Which revisions it speaks
    #[arg(long, value_enum, default_value = "legacy")]
    pub(crate) era: Eras,
    /// The tools, resources and prompts of the conformance suite instead of the zoo's own;
    /// over HTTP also sessions, and 403 for foreign hosts and origins
    #[arg(long)]
    pub(crate) fixtures: bool,
    /// So many extra tools, named tool_0001 and so on
    #[arg(long, default_value_t = 0)]
    pub(crate) tools: usize,
    /// The page size of all lists; without it everything is on one page
    #[arg(long)]
    pub(crate) page: Option<usize>,
    /// Malformed entries and hostile names in tools/list too
    #[arg(long)]
    pub(crate) malformed: bool,
    /// The instructions of the server
    #[arg(long)]
    pub(crate) instructions: Option<String>,
    /// So many notifications/tools/list_changed, quickly, after being initialized
    #[arg(long, default_value_t = 0)]
    pub(crate) list_changed_storm: usize,
}

/// What goes wrong.
#[derive(Debug, Clone, Args)]
pub(crate) struct Faults {
    /// Wait so many milliseconds before reading anything
    #[arg(long)]
    pub(crate) slow_start: Option<u64>,
    /// Exit with code 3 when this method arrives
    #[arg(long)]
    pub(crate) exit_on: Vec<String>,
    /// Never answer this method
    #[arg(long)]
    pub(crate) silent_on: Vec<String>,
    /// Answer nothing
    #[arg(long)]
    pub(crate) silent: bool,
    /// stdio: lines that are no message, before and between answers
    #[arg(long)]
    pub(crate) garbage: bool,
    /// stdio: hold answers for 50 ms and send them newest first
    #[arg(long)]
    pub(crate) reorder: bool,
    /// A log and a progress notification before every answer
    #[arg(long)]
    pub(crate) notify_first: bool,
    /// Survive SIGTERM, and on stdio the end of stdin
    #[arg(long)]
    pub(crate) ignore_sigterm: bool,
}

/// What the process leaves behind for the test to look at, or to suffer from.
#[derive(Debug, Clone, Args)]
pub(crate) struct Traces {
    /// Append one line `METHOD NAME` per request to this file
    #[arg(long)]
    pub(crate) count: Option<PathBuf>,
    /// Write the process id to this file
    #[arg(long)]
    pub(crate) pid: Option<PathBuf>,
    /// Start `sleep 600` as a child and write its process id to this file
    #[arg(long)]
    pub(crate) grandchild: Option<PathBuf>,
    /// Print this text to stderr at the start
    #[arg(long)]
    pub(crate) stderr: Option<String>,
    /// Print about 5 MiB to stderr at the start
    #[arg(long)]
    pub(crate) stderr_flood: bool,
}

/// What only an HTTP server can do.
#[derive(Debug, Clone, Args)]
pub(crate) struct HttpFlags {
    /// Answer with application/json instead of an event stream
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sessions: Sessions,
    #[command(flatten)]
    pub(crate) gate: Gate,
    /// Cut the event stream of tools/call after the headers, before the response
    #[arg(long)]
    pub(crate) half_close: bool,
    /// With --half-close: send an event id first, and the response to a GET with Last-Event-ID
    #[arg(long)]
    pub(crate) resumable: bool,
    /// Speak the HTTP+SSE transport of 2024-11-05 at /sse; /mcp answers 405
    #[arg(long)]
    pub(crate) sse_legacy: bool,
}

/// The sessions of the legacy era.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sessions {
    /// Hand out a session id to legacy clients and insist on it
    #[arg(long)]
    pub(crate) sessions: bool,
    /// Forget a session after so many requests; turns sessions on
    #[arg(long)]
    pub(crate) expire_after: Option<u64>,
}

/// What is decided before anybody looks at the body.
#[derive(Debug, Clone, Args)]
pub(crate) struct Gate {
    /// Answer every request with this status
    #[arg(long)]
    pub(crate) status: Option<u16>,
    /// Answer every request with 307 to this address
    #[arg(long)]
    pub(crate) redirect: Option<String>,
    /// Answer 401 to requests without this header, as NAME:VALUE
    #[arg(long, value_parser = header)]
    pub(crate) require_header: Vec<(String, String)>,
}

/// Which revisions the server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Eras {
    /// `initialize`, up to 2025-11-25
    Legacy,
    /// `server/discover` and `_meta` on every request: 2026-07-28
    Modern,
    /// Both
    Dual,
}

impl Transport {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Stdio { common } | Self::Http { common, .. } => common,
        }
    }
}

fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once(':').ok_or("expected NAME:VALUE")?;
    Ok((name.to_owned(), value.trim_start().to_owned()))
}
