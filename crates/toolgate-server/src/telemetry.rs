//! Logs: for people on a terminal, as JSON otherwise; always on standard error.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// `human` on a terminal, else `json`.
    #[default]
    Auto,
    Human,
    Json,
}

pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| {
        format!("`{filter}` is no log filter; try `info` or `toolgate_mcp=debug,info`")
    })?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Auto if !terminal => builder.json().flatten_event(true).try_init(),
        LogFormat::Auto | LogFormat::Human => {
            builder.with_ansi(terminal).with_target(false).try_init()
        }
    };
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}
