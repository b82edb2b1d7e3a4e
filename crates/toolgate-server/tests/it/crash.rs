//! The gateway is killed with SIGKILL at random points, again and again on the same data, while clients make
//! calls, runs and changes. After each restart, everything acknowledged is there, exactly once.
//!
//! `SEED` repeats a run; `TOOLGATE_SOAK_KILLS` sets the number of kills (`make soak`).

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolgate_testkit::model::ScriptedModel;

use crate::crash_clients::{Acknowledged, Clients, Round, start_model};
use crate::gate::TestGate;
use crate::oracle::{CallAnswer, CallLedger, ExecutionFile, export_records, verify_trail};
use crate::small_disk::{DiskFault, DiskGate};

const PRICE: f64 = 0.001;
/// Acknowledgements before a kill, at most.
const MAX_ANSWERS: u64 = 120;
/// Delay of a kill after the last of them, at most: about as long as a batch of records takes.
const MAX_DELAY_MICROS: u64 = 60_000;
/// Time until a kill during the start, at most: about as long as a start takes.
const MAX_START_MICROS: u64 = 400_000;
/// Time for which the disk is full, at most.
const MAX_FULL_MICROS: u64 = 150_000;
/// Time for which it is not, at most; recovery takes up to half a second of it.
const MAX_FREE_MICROS: u64 = 900_000;

/// A generator of reproducible random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn from_env() -> Self {
        let seed = number_in_env("SEED").unwrap_or_else(|| u64::from(std::process::id()));
        // Not `eprintln`, whose output is captured for passing tests.
        let mut terminal = std::io::stderr();
        writeln!(terminal, "crash test: SEED={seed}").unwrap();
        Self(seed)
    }

    /// Waits for a random time. Not a wait for anything: the test does something at a random point.
    async fn sleep(&mut self, max_micros: u64) {
        tokio::time::sleep(Duration::from_micros(self.below(max_micros))).await;
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What goes wrong, apart from the kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskFaults {
    None,
    /// The disk is full at times.
    Full,
}

/// A gateway that is killed again and again.
struct CrashTest {
    disk: DiskGate,
    /// Key of the caller.
    key: String,
    executions: ExecutionFile,
    faults: DiskFaults,
    random: Random,
    calls: CallLedger,
    _model: ScriptedModel,
    _folder: TempDir,
}

impl CrashTest {
    async fn start(faults: DiskFaults) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let executions = ExecutionFile::in_folder(folder.path());
        let model = start_model();
        let toml = executions.server()
            + "tools_to_auto_execute = [\"append\"]\n"
            + &format!("[mcp_servers.zoo.tools.append]\nprice = {PRICE}\n")
            + "[[permissions.rules]]\ntool = \"zoo_nothing\"\naction = \"deny\"\n\
               [[permissions.rules]]\ntool = \"zoo_say\"\naction = \"ask\"\n\
               [providers.openai]\napi_key = \"k\"\n"
            + &format!("base_url = \"{}/v1\"\n", model.url());
        let disk = match faults {
            DiskFaults::Full => DiskGate::start(&toml, DiskFault::Full),
            // It could fail, but does not.
            DiskFaults::None => DiskGate::start(&toml, DiskFault::WriteError),
        };
        let worker = json!({"name": "worker", "budget": {"calls": 1_000_000}});
        let worker = disk.gate.caller().post("/api/keys", &worker).await;
        let worker = worker.expect_status(201);
        let mut calls = CallLedger::default();
        if faults == DiskFaults::Full {
            calls.accept_interrupted();
        }
        Self {
            key: worker["key"].as_str().unwrap().to_owned(),
            disk,
            executions,
            faults,
            random: Random::from_env(),
            calls,
            _model: model,
            _folder: folder,
        }
    }

    async fn run(mut self, kills: u64) {
        for number in 0..kills {
            self.disk.gate.wait_for_state("zoo", "healthy").await;
            let since = SystemTime::now() - Duration::from_secs(1);
            let acknowledged = self.run_until_killed(number).await;
            if self.random.below(4) == 0 {
                let mut child = self.disk.spawn_without_waiting();
                self.random.sleep(MAX_START_MICROS).await;
                child.kill().unwrap();
                child.wait().unwrap();
            }
            self.disk.relaunch();
            self.check_round(number, since, acknowledged).await;
        }
        assert!(self.calls.count(CallAnswer::Acknowledged) > 0);
        let records = export_records(&self.disk.gate, "tool=append").await;
        self.calls.check(&self.executions.read(), &records);
        self.disk.gate.wait_for_state("zoo", "healthy").await;
        check_budget(&self.disk.gate, &self.key).await;
        self.disk.stop().await;
        verify_trail(&self.disk.data()).await;
    }

    /// Runs all clients until the gateway is killed.
    async fn run_until_killed(&mut self, number: u64) -> Acknowledged {
        let round = Round::new(number);
        let clients = Clients::start(&self.disk.gate, &self.key, &round).await;
        let target = self.random.below(MAX_ANSWERS) + 1;
        let mut is_full = false;
        if self.faults == DiskFaults::None {
            round.wait_for_answers(target).await;
            self.random.sleep(MAX_DELAY_MICROS).await;
        } else {
            let answers = round.wait_for_answers(target);
            let mut answers = std::pin::pin!(answers);
            loop {
                let max_micros = if is_full {
                    MAX_FULL_MICROS
                } else {
                    MAX_FREE_MICROS
                };
                tokio::select! {
                    () = &mut answers => break,
                    () = self.random.sleep(max_micros) => {}
                }
                is_full = !is_full;
                if is_full {
                    self.disk.fill();
                } else {
                    self.disk.free();
                }
            }
            self.random.sleep(MAX_DELAY_MICROS).await;
        }
        self.disk.gate.child.kill().unwrap();
        self.disk.gate.child.wait().unwrap();
        round.end();
        if is_full {
            self.disk.free();
        }
        clients.join().await
    }

    /// Compares what a round acknowledged by itself, so that a failure shows the round that caused it.
    async fn check_round(&mut self, number: u64, since: SystemTime, acknowledged: Acknowledged) {
        let gate = &self.disk.gate;
        let Acknowledged { mut calls, admin } = acknowledged;
        admin.check(gate).await;
        deny_pending_approvals(gate).await;
        let since = humantime::format_rfc3339_millis(since);
        let records = export_records(gate, &format!("tool=append&since={since}")).await;
        let prefix = format!("r{number}-");
        let mut executed = self.executions.read();
        executed.retain(|id| id.starts_with(&prefix));
        if self.faults == DiskFaults::Full {
            calls.accept_interrupted();
        }
        calls.check(&executed, &records);
        check_costs(&records);
        check_runs(gate).await;
        self.calls.merge(calls);
    }
}

/// Returns the number of kills: a few, or as many as the environment says.
pub(crate) fn kill_count(default: u64) -> u64 {
    number_in_env("TOOLGATE_SOAK_KILLS").unwrap_or(default)
}

pub(crate) fn number_in_env(name: &str) -> Option<u64> {
    let value = std::env::var_os(name)?;
    Some(value.to_str().unwrap().parse().unwrap())
}

#[tokio::test]
async fn killed_gateway_loses_and_doubles_nothing() {
    let test = CrashTest::start(DiskFaults::None).await;
    test.run(kill_count(8)).await;
}

#[tokio::test]
async fn gateway_killed_on_a_disk_that_is_full_at_times_loses_and_doubles_nothing() {
    let test = CrashTest::start(DiskFaults::Full).await;
    test.run(kill_count(4)).await;
}

/// Denies the approvals that nobody decided before the kill, whose number is limited.
async fn deny_pending_approvals(gate: &TestGate) {
    let page = gate.json("/api/approvals?state=pending").await;
    for approval in page["approvals"].as_array().unwrap() {
        let path = format!("/api/approvals/{}", approval["id"].as_str().unwrap());
        let denied = gate
            .caller()
            .post(&path, &json!({"decision": "deny"}))
            .await;
        denied.expect_status(200);
    }
}

/// Checks that no run seems to go on: the process that made it is gone.
async fn check_runs(gate: &TestGate) {
    let page = gate.json("/api/runs?limit=1000").await;
    for run in page["runs"].as_array().unwrap() {
        assert_ne!(run["state"], "running", "{run}");
    }
}

/// Checks that each call is charged once if it may have run, and else not at all.
fn check_costs(records: &[Value]) {
    for record in records {
        let cost = record["cost_usd"].as_f64().unwrap();
        let is_charged = (cost - PRICE).abs() < 1e-9;
        let may_have_run = ["ok", "interrupted"].contains(&record["outcome"].as_str().unwrap());
        assert!(is_charged || !may_have_run, "not charged: {record}");
        assert!(is_charged || cost == 0.0, "{record}");
    }
}

/// Checks that the budget counts exactly the calls that the records charge.
async fn check_budget(gate: &TestGate, key: &str) {
    let records = export_records(gate, "caller=worker").await;
    let charged = records.iter().filter(|record| {
        let outcome = record["outcome"].as_str().unwrap();
        ["ok", "interrupted"].contains(&outcome)
    });
    let mut outcomes: HashMap<&str, usize> = HashMap::new();
    for record in &records {
        *outcomes
            .entry(record["outcome"].as_str().unwrap())
            .or_default() += 1;
    }
    let budget = json!({"budget": {"calls": charged.count() + 2}});
    let changed = gate.caller().put("/api/keys/worker", &budget).await;
    changed.expect_status(200);
    let caller = gate.with_key(key);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(caller.call_status().await);
    }
    assert_eq!(statuses, [200, 200, 429, 429], "{outcomes:?}");
}
