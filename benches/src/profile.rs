//! Where the time of one case goes: the gateway is loaded and sampled meanwhile.
//!
//! `perf` samples by the clock, which works in virtual machines too. Without it, or with
//! `--tool callgrind`, valgrind counts instructions, which says nothing of the system's share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::callgrind::{self, Count, Counted};
use crate::case::{self, Case};
use crate::flags::Flags;
use crate::gateway::{self, Gateway};
use crate::load::client;
use crate::measure::{Drive, Mock, measure};
use crate::process::Tree;
use crate::run::subject;
use crate::{say, tell};

/// Lines of the report that are shown.
const SHOWN: usize = 60;

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let binary = gateway::binary(flags.get("binary"))?;
    let case = named(flags.get("case").unwrap_or("chat"))?;
    let folder = PathBuf::from(flags.get("out").unwrap_or("target/bench"));
    std::fs::create_dir_all(&folder)?;
    let tool = match (flags.get("tool"), is_there("perf").await) {
        (Some(tool), _) => tool,
        (None, true) => "perf",
        (None, false) => {
            tell("`perf` is not installed (Debian: linux-perf), so callgrind has to do");
            "callgrind"
        }
    };
    match tool {
        "perf" => sampled(&binary, &case, &folder, flags).await,
        "callgrind" => counted(&binary, &case, &folder).await,
        other => bail!("there is no tool `{other}`; there are `perf` and `callgrind`"),
    }
}

async fn counted(binary: &Path, case: &Case, folder: &Path) -> anyhow::Result<()> {
    let mut counted = Counted::start(binary, case.at, folder, callgrind::TIMES).await?;
    let Count { a_request, file } = counted.count(case).await?;
    say(&format!(
        "`{}`: {a_request} instructions a request\n",
        case.name
    ));
    let output = Command::new("callgrind_annotate")
        .arg(&file)
        .output()
        .await?;
    say(&shown(&output.stdout));
    say(&format!(
        "callers: callgrind_annotate --tree=caller {}",
        file.display()
    ));
    Ok(())
}

async fn sampled(binary: &Path, case: &Case, folder: &Path, flags: &Flags) -> anyhow::Result<()> {
    let mock = Mock::start(0).await?;
    let gateway = Gateway::start(binary, &case::setup(case.at), &mock.address).await?;
    gateway.connected(case::servers().len()).await?;
    client::once(&gateway.address, &case.gate).await?;
    let subject = subject(&gateway);
    let seconds: f64 = flags.number("seconds", 5.0)?;
    let drive = Drive::Connections(flags.number("connections", 64)?);
    tell(&format!("warming up `{}`", case.name));
    measure(&subject, &[], &case.gate, (drive, 1.0)).await?;
    let data = folder.join("perf.data");
    let recording = record(gateway.id(), &data, seconds)?;
    let measured = measure(&subject, &[], &case.gate, (drive, seconds)).await;
    recording.wait_with_output().await?;
    let measured = measured?;
    let memory = subject.tree.map_or(0.0, Tree::memory);
    say(&format!(
        "`{}`: {:.0} requests a second, {:.0} µs of CPU each, {} errors, {memory:.1} MiB\n",
        case.name,
        measured.rate(),
        measured.cpu.unwrap_or_default(),
        measured.seen.errors
    ));
    for (title, sort) in [("by function", "symbol"), ("by part", "dso")] {
        say(&format!("{title}:\n{}", report(&data, sort).await?));
    }
    say(&format!(
        "callers: perf report -i {} --no-children -g caller",
        data.display()
    ));
    Ok(())
}

/// The case of that name, or the first whose name begins so.
fn named(name: &str) -> anyhow::Result<Case> {
    let all = case::all();
    let found = all.iter().find(|case| case.name == name);
    let found = found.or_else(|| all.iter().find(|case| case.name.starts_with(name)));
    match found {
        Some(case) => Ok(case.clone()),
        None => {
            let names: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
            bail!(
                "there is no case `{name}`; there are\n  {}",
                names.join("\n  ")
            )
        }
    }
}

async fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

fn record(id: u32, data: &Path, seconds: f64) -> anyhow::Result<tokio::process::Child> {
    let id = id.to_string();
    let flags = [
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        "2999",
        "-g",
        "--call-graph",
        "fp",
        "-p",
        &id,
        "-o",
    ];
    let flags = flags
        .iter()
        .map(OsString::from)
        .chain([data.as_os_str().to_owned()]);
    let lasts = Duration::from_secs_f64(seconds)
        .as_secs()
        .max(1)
        .to_string();
    Command::new("perf")
        .args(flags)
        .args(["--", "sleep", &lasts])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("perf")
}

async fn report(data: &Path, sort: &str) -> anyhow::Result<String> {
    let output = Command::new("perf")
        .args([
            "report",
            "--stdio",
            "--no-children",
            "-g",
            "none",
            "--percent-limit",
            "0.4",
            "--sort",
            sort,
            "-i",
        ])
        .arg(data)
        .stderr(Stdio::null())
        .output()
        .await?;
    Ok(shown(&output.stdout))
}

fn shown(report: &[u8]) -> String {
    let text = String::from_utf8_lossy(report);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.take(SHOWN).collect::<Vec<_>>().join("\n") + "\n"
}
