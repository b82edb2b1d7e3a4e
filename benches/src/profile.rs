//! Profiles one case: puts load on the gateway and samples it meanwhile.
//!
//! `perf` samples by the CPU clock, which also works in virtual machines. Without it, or with
//! `--tool callgrind`, valgrind counts instructions, which excludes time spent in the kernel.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::callgrind::{self, CallgrindGateway, InstructionCount};
use crate::case::{self, Case};
use crate::flags::Flags;
use crate::gateway::{self, Gateway};
use crate::load::client;
use crate::measure::{Load, LoadMode, MockProcess, measure};
use crate::process::ProcessTree;
use crate::run::gateway_target;
use crate::{print_progress, print_result};

/// Maximum number of report lines to print.
const MAX_REPORT_LINES: usize = 60;

pub(crate) async fn main(flags: &Flags) -> anyhow::Result<()> {
    let binary = gateway::find_binary(flags.get("binary"))?;
    let case = find_case(flags.get("case").unwrap_or("chat"))?;
    let folder = PathBuf::from(flags.get("out").unwrap_or("target/bench"));
    std::fs::create_dir_all(&folder)?;
    let tool = match (flags.get("tool"), is_installed("perf").await) {
        (Some(tool), _) => tool,
        (None, true) => "perf",
        (None, false) => {
            print_progress("`perf` is not installed (Debian: linux-perf); using callgrind");
            "callgrind"
        }
    };
    match tool {
        "perf" => profile_with_perf(&binary, &case, &folder, flags).await,
        "callgrind" => profile_with_callgrind(&binary, &case, &folder).await,
        other => bail!("unknown tool `{other}`; expected `perf` or `callgrind`"),
    }
}

async fn profile_with_callgrind(binary: &Path, case: &Case, folder: &Path) -> anyhow::Result<()> {
    let mut gateway =
        CallgrindGateway::start(binary, case.variant, folder, callgrind::REQUESTS_PER_CASE).await?;
    let InstructionCount { per_request, file } = gateway.count(case).await?;
    print_result(&format!(
        "`{}`: {per_request} instructions per request\n",
        case.name
    ));
    let output = Command::new("callgrind_annotate")
        .arg(&file)
        .output()
        .await?;
    print_result(&trim_report(&output.stdout));
    print_result(&format!(
        "callers: callgrind_annotate --tree=caller {}",
        file.display()
    ));
    Ok(())
}

async fn profile_with_perf(
    binary: &Path,
    case: &Case,
    folder: &Path,
    flags: &Flags,
) -> anyhow::Result<()> {
    let mock = MockProcess::start(0).await?;
    let gateway = Gateway::start(binary, &case::setup(case.variant), &mock.address).await?;
    gateway.wait_connected(case::servers().len()).await?;
    client::send_once(&gateway.address, &case.gate).await?;
    let target = gateway_target(&gateway);
    let seconds: f64 = flags.number("seconds", 5.0)?;
    let mode = LoadMode::Connections(flags.number("connections", 64)?);
    print_progress(&format!("warming up `{}`", case.name));
    let warm_up = Load { mode, seconds: 1.0 };
    measure(&target, &[], &case.gate, warm_up).await?;
    let data = folder.join("perf.data");
    let recording = record_perf(gateway.pid(), &data, seconds)?;
    let measured = measure(&target, &[], &case.gate, Load { mode, seconds }).await;
    recording.wait_with_output().await?;
    let measured = measured?;
    let memory = target.tree.map_or(0.0, ProcessTree::memory);
    print_result(&format!(
        "`{}`: {:.0} requests per second, {:.0} µs of CPU each, {} errors, {memory:.1} MiB\n",
        case.name,
        measured.rate(),
        measured.cpu.unwrap_or(f64::NAN),
        measured.seen.errors
    ));
    for (title, sort) in [("by function", "symbol"), ("by binary", "dso")] {
        print_result(&format!("{title}:\n{}", perf_report(&data, sort).await?));
    }
    print_result(&format!(
        "callers: perf report -i {} --no-children -g caller",
        data.display()
    ));
    Ok(())
}

/// Finds a case by exact name, otherwise the first whose name starts with it.
fn find_case(name: &str) -> anyhow::Result<Case> {
    let all = case::all_cases();
    let found = all.iter().find(|case| case.name == name);
    let found = found.or_else(|| all.iter().find(|case| case.name.starts_with(name)));
    match found {
        Some(case) => Ok(case.clone()),
        None => {
            let names: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
            bail!(
                "unknown case `{name}`; available cases:\n  {}",
                names.join("\n  ")
            )
        }
    }
}

async fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

fn record_perf(id: u32, data: &Path, seconds: f64) -> anyhow::Result<tokio::process::Child> {
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
    let duration = Duration::from_secs_f64(seconds)
        .as_secs()
        .max(1)
        .to_string();
    Command::new("perf")
        .args(flags)
        .args(["--", "sleep", &duration])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start `perf`")
}

async fn perf_report(data: &Path, sort: &str) -> anyhow::Result<String> {
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
    Ok(trim_report(&output.stdout))
}

fn trim_report(report: &[u8]) -> String {
    let text = String::from_utf8_lossy(report);
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.take(MAX_REPORT_LINES).collect::<Vec<_>>().join("\n") + "\n"
}
