//! The official conformance suite through the gateway, in front of a server of the same era, of
//! the other one, and of both.

use toolgate_testkit::HttpZoo;
use toolgate_testkit::suite::{Report, conformance};

use crate::gate::TestGate;

/// Runs the scenarios of a revision through `/mcp/{server}`.
async fn through_the_gateway(era: &str, revision: &str) -> Report {
    let zoo = HttpZoo::start(&["--fixtures", "--era", era]);
    let toml = format!("[mcp_servers.fixtures]\nurl = {:?}\n", zoo.url());
    let gate = TestGate::start(&toml);
    gate.reaches("fixtures", "healthy").await;
    conformance(&format!("{}/mcp/fixtures", gate.url), revision).await
}

#[tokio::test]
async fn all_that_2025_11_25_requires() {
    for era in ["dual", "legacy"] {
        let report = through_the_gateway(era, "2025-11-25").await;
        let all = report.failed.is_empty() && report.passed.len() == 30;
        assert!(all, "{era}: {}", report.summary);
    }
}

#[tokio::test]
async fn all_that_2026_07_28_requires() {
    for era in ["dual", "modern"] {
        let report = through_the_gateway(era, "2026-07-28").await;
        let all = report.failed.is_empty() && report.passed.len() == 37;
        assert!(all, "{era}: {}", report.summary);
    }
}

#[tokio::test]
async fn an_old_client_reaches_a_modern_server() {
    let report = through_the_gateway("modern", "2025-11-25").await;
    let all = report.failed.is_empty() && report.passed.len() == 30;
    assert!(all, "{}", report.summary);
}

/// An old server asks while a call is open, which a modern client cannot hear.
#[tokio::test]
async fn a_modern_client_reaches_an_old_server() {
    let report = through_the_gateway("legacy", "2026-07-28").await;
    let other: Vec<&String> = report
        .failed
        .iter()
        .filter(|name| !name.starts_with("input-required-result-"))
        .collect();
    // It rejects a call that would need to ask.
    assert_eq!(other, ["server-stateless"], "{}", report.summary);
    assert!(report.passed.len() >= 26, "{}", report.summary);
}
