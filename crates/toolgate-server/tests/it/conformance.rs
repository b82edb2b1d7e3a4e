//! The official conformance suite, directly and through the gateway, with servers of the same era, the other
//! era and both.
//!
//! What passes directly has to pass through the gateway, unless [`EXCEPTIONS`] names it. The tables in
//! `docs/mcp.md` are what these tests see; they fail when the tables are stale.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use toolgate_testkit::HttpZoo;
use toolgate_testkit::conformance::{
    ConformanceReport, Scenario, ScenarioOutcome, run_conformance,
};

use crate::doc_section::{check_section, format_table};
use crate::gate::TestGate;

/// Features of the test server that the suite uses.
const FIXTURES: &[&str] = &["--fixtures", "--tasks"];

/// Eras of the servers behind the gateway, and the revisions that they speak.
const SERVERS: [(&str, &str); 3] = [
    ("dual", "both revisions"),
    ("legacy", "2025-11-25"),
    ("modern", "2026-07-28"),
];

/// A scenario that fails through the gateway although it passes directly.
struct Exception {
    revision: &'static str,
    era: &'static str,
    scenario: &'static str,
}

/// Scenarios that expect what no legacy server can do:
/// - `input-required-result-basic-elicitation` expects the name that the server gave its input request;
///   a legacy request has none.
/// - `server-stateless` expects a call to be refused that needs a capability which the client lacks;
///   that a legacy call needs one shows only when it runs, and then it has a result.
/// - `tasks-mrtr-input` expects several input requests at once; a legacy server asks one after the other.
/// - `tasks-mrtr-composition` expects a task to begin after the questions; a legacy call is one from its start.
/// - `tasks-required-task-error` expects a call without tasks to be refused; the gateway runs it to its end.
const EXCEPTIONS: [Exception; 5] = [
    Exception::with_legacy_server("input-required-result-basic-elicitation"),
    Exception::with_legacy_server("server-stateless"),
    Exception::with_legacy_server("tasks-mrtr-composition"),
    Exception::with_legacy_server("tasks-mrtr-input"),
    Exception::with_legacy_server("tasks-required-task-error"),
];

impl Exception {
    const fn with_legacy_server(scenario: &'static str) -> Self {
        Self {
            revision: "2026-07-28",
            era: "legacy",
            scenario,
        }
    }
}

/// Expects a server that ends the stream of a call early and answers on another one. The gateway has no reason
/// to do that, so what the suite checks there depends on the time that the call takes.
const NOT_APPLICABLE: &str = "server-sse-polling";

/// Runs the scenarios of a revision against the fixtures.
async fn run_directly(revision: &str) -> ConformanceReport {
    let zoo = HttpZoo::start(&[FIXTURES, &["--era", "dual"]].concat());
    run_conformance(&zoo.url(), revision).await
}

/// Runs the scenarios of a revision through `/mcp/{server}`.
async fn run_through_gateway(era: &str, revision: &str) -> ConformanceReport {
    let zoo = HttpZoo::start(&[FIXTURES, &["--era", era]].concat());
    let toml = format!("[mcp_servers.fixtures]\nurl = {:?}\n", zoo.url());
    let gate = TestGate::start(&toml);
    gate.wait_for_state("fixtures", "healthy").await;
    run_conformance(&format!("{}/mcp/fixtures", gate.url), revision).await
}

/// Checks all scenarios of a revision, of which this many are required.
async fn check_revision(revision: &str, required: usize) {
    let through = SERVERS.map(|(era, _)| run_through_gateway(era, revision));
    let (direct, through) = tokio::join!(run_directly(revision), join_all(through));
    let all_passed = direct.failed.is_empty() && direct.passed.len() == required;
    assert!(all_passed, "directly: {}", direct.summary);

    for ((era, _), report) in SERVERS.iter().zip(&through) {
        let passed_directly = direct
            .scenarios
            .iter()
            .filter(|scenario| scenario.outcome == ScenarioOutcome::Passed)
            .filter(|scenario| scenario.name != NOT_APPLICABLE);
        let failed: BTreeSet<&str> = passed_directly
            .filter(|scenario| outcome(report, scenario) != Some(ScenarioOutcome::Passed))
            .map(|scenario| scenario.name.as_str())
            .collect();
        let exceptions = EXCEPTIONS
            .iter()
            .filter(|exception| exception.revision == revision && exception.era == *era);
        let expected: BTreeSet<&str> = exceptions.map(|exception| exception.scenario).collect();
        assert_eq!(failed, expected, "{era}: {}", report.summary);
    }
    let table = table(&direct, &through);
    check_section(&format!("conformance {revision}"), &table);
}

fn outcome(report: &ConformanceReport, wanted: &Scenario) -> Option<ScenarioOutcome> {
    let mut scenarios = report.scenarios.iter();
    let scenario = scenarios.find(|scenario| scenario.name == wanted.name);
    scenario.map(|scenario| scenario.outcome)
}

/// Returns a row for each scenario, with a column for each run.
fn table(direct: &ConformanceReport, through: &[ConformanceReport]) -> String {
    let titles = SERVERS.map(|(_, revisions)| format!("gateway, server: {revisions}"));
    let head = ["scenario", "scored", "directly"].map(str::to_owned);
    let head = [&head[..], &titles].concat();
    let rows = direct.scenarios.iter().map(|scenario| {
        let is_scored = if scenario.is_required { "yes" } else { "no" };
        let through = through.iter().map(|report| outcome(report, scenario));
        let through = through.map(|outcome| outcome.filter(|_| scenario.name != NOT_APPLICABLE));
        let outcomes = [Some(scenario.outcome)].into_iter().chain(through);
        let cells = outcomes.map(|outcome| match outcome {
            Some(ScenarioOutcome::Passed) => "✓",
            Some(ScenarioOutcome::Failed) => "✗",
            Some(ScenarioOutcome::Unchecked) | None => "–",
        });
        let name = format!("`{}`", scenario.name);
        let cells = [name.as_str(), is_scored].into_iter().chain(cells);
        cells.map(str::to_owned).collect()
    });
    format_table(&head, &rows.collect::<Vec<_>>())
}

#[tokio::test]
async fn gateway_passes_2025_11_25_conformance() {
    check_revision("2025-11-25", 30).await;
}

#[tokio::test]
async fn gateway_passes_2026_07_28_conformance() {
    check_revision("2026-07-28", 37).await;
}
