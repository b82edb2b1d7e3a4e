//! Client programs that use the gateway and report their results as JSON on standard output.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

/// Upper bound for a client run; each of its steps has a much shorter timeout.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// Runs a client and returns its results, or all of its output if it did not report any.
pub(crate) async fn run_client(client: &mut Command) -> Result<Value, String> {
    let client = client.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(CLIENT_TIMEOUT, client).await;
    let output = output.expect("the client timed out").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    serde_json::from_str(&out).map_err(|_| format!("{out}\n{error}"))
}
