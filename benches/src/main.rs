//! Load harness. `run` measures, and starts the other commands as separate processes.

mod abuse;
mod callgrind;
mod case;
mod flags;
mod gateway;
mod guard;
mod load;
mod measure;
mod mock;
mod process;
mod profile;
mod report;
mod request;
mod run;

use std::future::Future;

use anyhow::{Context as _, bail};
use flags::Flags;
use mock::mcp::Era;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

const RUN_FLAGS: [&str; 12] = [
    "quick",
    "only",
    "binary",
    "out",
    "mock",
    "target",
    "target-key",
    "target-model",
    "target-foreign-model",
    "target-piecewise-model",
    "target-mcp",
    "target-pid",
];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = args.split_first().context(
        "missing command; expected `run`, `abuse`, `profile`, `guard`, `mock`, `pipe` or `load`",
    )?;
    match command.as_str() {
        "run" => until_stopped(Box::pin(run::main(&Flags::parse(rest, &RUN_FLAGS)?))),
        "profile" => {
            let known = ["case", "binary", "seconds", "connections", "out", "tool"];
            until_stopped(Box::pin(profile::main(&Flags::parse(rest, &known)?)))
        }
        "guard" => {
            let known = ["binary", "file", "build", "times", "record", "if-possible"];
            until_stopped(Box::pin(guard::main(&Flags::parse(rest, &known)?)))
        }
        "abuse" => {
            let known = ["binary", "seconds"];
            until_stopped(Box::pin(abuse::main(&Flags::parse(rest, &known)?)))
        }
        "mock" => {
            let flags = Flags::parse(rest, &["port", "stay"])?;
            let runtime = Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(mock::serve(flags.number("port", 0)?, flags.has("stay")))
        }
        "pipe" => {
            let flags = Flags::parse(rest, &["era", "tools"])?;
            let era = flags
                .get("era")
                .and_then(Era::parse)
                .context("`--era` must be 25 or 26")?;
            mock::serve_stdio(era, flags.number("tools", 1)?)
        }
        "load" => load::main(),
        other => bail!("unknown command `{other}`"),
    }
}

/// Runs until completion or a signal; either way, child processes are killed on drop.
fn until_stopped(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminated.recv() => bail!("interrupted"),
        }
    })
}

/// Prints a result to standard output.
#[allow(clippy::print_stdout, reason = "results go to standard output")]
fn print_result(text: &str) {
    println!("{text}");
}

/// Prints progress to standard error.
#[allow(clippy::print_stderr, reason = "progress is not a result")]
fn print_progress(text: &str) {
    eprintln!("{text}");
}
