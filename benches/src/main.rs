//! The load harness: `run` measures, and starts the others as processes of their own.

mod callgrind;
mod case;
mod flags;
mod gateway;
mod guard;
mod load;
mod measure;
mod mock;
mod order;
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

const RUN: [&str; 12] = [
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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (word, rest) = words
        .split_first()
        .context("say `run`, `profile`, `guard`, `order`, `mock`, `pipe` or `load`")?;
    match word.as_str() {
        "run" => until_stopped(Box::pin(run::main(&Flags::parse(rest, &RUN)?))),
        "profile" => {
            let known = ["case", "binary", "seconds", "connections", "out", "tool"];
            until_stopped(Box::pin(profile::main(&Flags::parse(rest, &known)?)))
        }
        "guard" => {
            let known = ["binary", "file", "build", "times", "record", "if-possible"];
            until_stopped(Box::pin(guard::main(&Flags::parse(rest, &known)?)))
        }
        "order" => {
            let known = ["binary", "file"];
            until_stopped(Box::pin(order::main(&Flags::parse(rest, &known)?)))
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
                .context("--era is 25 or 26")?;
            mock::pipe(era, flags.number("tools", 1)?)
        }
        "load" => load::main(),
        other => bail!("there is no `{other}`"),
    }
}

/// Runs to the end or to a signal; either way what was started is ended.
fn until_stopped(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => bail!("stopped"),
            _ = terminated.recv() => bail!("stopped"),
        }
    })
}

/// Says something that is asked for.
#[allow(clippy::print_stdout, reason = "it is what the program is for")]
fn say(text: &str) {
    println!("{text}");
}

/// Tells how far it has come.
#[allow(clippy::print_stderr, reason = "it is no result")]
fn tell(text: &str) {
    eprintln!("{text}");
}
