//! The official conformance suite against the zoo itself: what stands in front of it later can
//! only lose what is there.

use toolgate_testkit::HttpZoo;
use toolgate_testkit::suite::conformance;

/// Runs the scenarios of a revision; so many are required, and those have to pass.
async fn passes(revision: &str, required: usize) {
    let zoo = HttpZoo::start(&["--fixtures", "--era", "dual"]);
    let report = conformance(&zoo.url(), revision).await;
    let all = report.failed.is_empty() && report.passed.len() == required;
    assert!(all, "{}", report.summary);
}

#[tokio::test]
async fn all_that_2025_11_25_requires() {
    passes("2025-11-25", 30).await;
}

#[tokio::test]
async fn all_that_2026_07_28_requires() {
    passes("2026-07-28", 37).await;
}
