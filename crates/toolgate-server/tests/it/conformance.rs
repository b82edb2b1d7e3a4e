//! The official conformance suite through the gateway, with servers of the same era, the other
//! era and both.

use toolgate_testkit::HttpZoo;
use toolgate_testkit::conformance::{ConformanceReport, run_conformance};

use crate::gate::TestGate;

/// The scenarios of the tasks extension. `tasks-status-notifications` checks nothing in this version of the
/// suite; `tasks.rs` tests notifications.
const TASK_SCENARIOS: [&str; 9] = [
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
];

/// Runs the scenarios of a revision through `/mcp/{server}`.
async fn run_through_gateway(era: &str, revision: &str) -> ConformanceReport {
    run_with(&["--fixtures", "--era", era], revision).await
}

async fn run_with(flags: &[&str], revision: &str) -> ConformanceReport {
    let zoo = HttpZoo::start(flags);
    let toml = format!("[mcp_servers.fixtures]\nurl = {:?}\n", zoo.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("fixtures", "healthy").await;
    run_conformance(&format!("{}/mcp/fixtures", gate.url), revision).await
}

#[tokio::test]
async fn gateway_passes_2025_11_25_conformance() {
    for era in ["dual", "legacy"] {
        let report = run_through_gateway(era, "2025-11-25").await;
        let all_passed = report.failed.is_empty() && report.passed.len() == 30;
        assert!(all_passed, "{era}: {}", report.summary);
    }
}

#[tokio::test]
async fn gateway_passes_2026_07_28_conformance() {
    for era in ["dual", "modern"] {
        let report = run_with(&["--fixtures", "--tasks", "--era", era], "2026-07-28").await;
        let all_passed = report.failed.is_empty() && report.passed.len() == 37;
        assert!(all_passed, "{era}: {}", report.summary);
        for scenario in TASK_SCENARIOS {
            assert!(
                report.unscored.contains(scenario),
                "{era}: {scenario}: {}",
                report.summary
            );
        }
    }
}

#[tokio::test]
async fn legacy_client_works_with_modern_server() {
    let report = run_through_gateway("modern", "2025-11-25").await;
    let all_passed = report.failed.is_empty() && report.passed.len() == 30;
    assert!(all_passed, "{}", report.summary);
}

/// The requests that a legacy server sends during a call become input requests. Two scenarios expect what
/// no legacy server can do:
/// - `input-required-result-basic-elicitation` expects the name that the server gave its input request;
///   a legacy request has none.
/// - `server-stateless` expects a call to be refused that needs a capability which the client lacks;
///   that a legacy call needs one shows only when it runs, and then it has a result.
#[tokio::test]
async fn modern_client_works_with_legacy_server() {
    let report = run_through_gateway("legacy", "2026-07-28").await;
    let expected = [
        "input-required-result-basic-elicitation",
        "server-stateless",
    ];
    let failed: Vec<&String> = report.failed.iter().collect();
    assert_eq!(failed, expected, "{}", report.summary);
    assert_eq!(report.passed.len(), 35, "{}", report.summary);
}
