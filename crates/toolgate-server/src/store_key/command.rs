//! Runs the command that prints the key of the store.
//!
//! Its output is never logged or shown; what it writes to standard error is, if it fails.

use std::io::ErrorKind;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use toolgate::Environment;
use toolgate_core::config::KeyCommand;

use super::MAX_KEY_BYTES;

/// Maximum size of the part of standard error that is shown.
const MAX_STDERR_BYTES: usize = 2048;

/// A running command; dropping it kills the command and its descendants.
struct RunningCommand {
    child: Child,
    group: Option<Pid>,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // An error means that the group is empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs the command and returns what it printed.
pub(super) async fn run(
    command: &KeyCommand,
    environment: &Environment,
) -> anyhow::Result<Vec<u8>> {
    let timeout = command.timeout;
    let mut running = start(command, environment)?;
    match tokio::time::timeout(timeout, finish(&mut running.child)).await {
        Ok(output) => output,
        Err(_) => bail!(
            "it did not finish within {}; `store.key_command_timeout` sets this",
            humantime::format_duration(timeout)
        ),
    }
}

fn start(command: &KeyCommand, environment: &Environment) -> anyhow::Result<RunningCommand> {
    let mut env: Vec<(String, String)> = environment.inherited().collect();
    for (name, value) in &command.env {
        env.push((name.clone(), value.resolve(&|name| environment.get(name))?));
    }
    let started = Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .envs(env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let child = started.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("the program does not exist; use its full path"),
        _ => error.into(),
    })?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    Ok(RunningCommand { child, group })
}

async fn finish(child: &mut Child) -> anyhow::Result<Vec<u8>> {
    let stdout = child.stdout.take().context("it has no output")?;
    let stderr = child.stderr.take().context("it has no output")?;
    let mut output = Vec::new();
    let mut limited = stdout.take(MAX_KEY_BYTES + 1);
    let read_output = async {
        limited.read_to_end(&mut output).await?;
        if output.len() as u64 > MAX_KEY_BYTES {
            bail!("it printed more than {MAX_KEY_BYTES} bytes, which cannot be a key");
        }
        Ok(())
    };
    let ((), stderr) = tokio::try_join!(read_output, read_start(stderr))?;
    let status = child.wait().await?;
    if !status.success() {
        bail!("it failed ({status}){}", describe_stderr(&stderr));
    }
    if output.iter().all(u8::is_ascii_whitespace) {
        bail!("it printed nothing{}", describe_stderr(&stderr));
    }
    Ok(output)
}

/// Reads everything and returns its start, so that the command never waits for a reader.
async fn read_start(mut source: impl AsyncRead + Unpin) -> anyhow::Result<Vec<u8>> {
    let mut start = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let size = source.read(&mut buffer).await?;
        if size == 0 {
            return Ok(start);
        }
        let rest = MAX_STDERR_BYTES - start.len();
        start.extend(&buffer[..size.min(rest)]);
    }
}

/// Formats what the command wrote to standard error on one line, without control characters.
fn describe_stderr(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() {
        return String::new();
    }
    format!(": {}", words.join(" "))
}
