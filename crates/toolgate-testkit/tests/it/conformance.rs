//! The official conformance suite against the zoo itself, as the baseline for running it through
//! the gateway.

use toolgate_testkit::HttpZoo;
use toolgate_testkit::conformance::run_conformance;

/// Checks that all required scenarios of a revision pass.
async fn assert_conformant(revision: &str, required: usize) {
    let zoo = HttpZoo::start(&["--fixtures", "--era", "dual"]);
    let report = run_conformance(&zoo.url(), revision).await;
    let all_passed = report.failed.is_empty() && report.passed.len() == required;
    assert!(all_passed, "{}", report.summary);
}

#[tokio::test]
async fn zoo_passes_2025_11_25_conformance() {
    assert_conformant("2025-11-25", 30).await;
}

#[tokio::test]
async fn zoo_passes_2026_07_28_conformance() {
    assert_conformant("2026-07-28", 37).await;
}
