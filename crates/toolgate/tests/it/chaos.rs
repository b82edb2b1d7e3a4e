//! Servers that are killed and restarted repeatedly under load. Seeded, so that failures can be
//! reproduced.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use toolgate::{Gateway, ServerState};
use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{
    WAIT_TIMEOUT, call, call_text, http_server, start_settled, stdio_zoo, stop, wait_for_state,
};

const SEED: u64 = 20_260_728;
const ROUNDS: usize = 12;
const WORKERS: usize = 4;
/// Number of tools per server that are called at most once.
const TOOLS: usize = 1000;

/// Progress of all load workers together.
#[derive(Default)]
struct LoadProgress {
    succeeded: AtomicUsize,
    stopped: AtomicBool,
}

/// A minimal linear congruential generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Calls one server until the load is stopped and checks that every call gets its own answer.
async fn load(gateway: &Gateway, server: &str, worker: usize, progress: &LoadProgress) {
    // Tools without a read-only or idempotent hint, each called once: they must never run twice.
    let mut once = (1..=TOOLS).filter(|number| number % WORKERS == worker);
    // Paced, so that a server that is away does not make this a busy loop.
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    for n in 0.. {
        if progress.stopped.load(Ordering::Relaxed) {
            break;
        }
        pace.tick().await;
        let arguments = format!(r#"{{"value":"{server}-{worker}-{n}"}}"#);
        let number = if n % 2 == 0 { once.next() } else { None };
        let tool = number.map_or("echo".to_owned(), |number| format!("tool_{number:04}"));
        if let Ok(outcome) = call(gateway, &format!("{server}_{tool}"), &arguments).await {
            assert_eq!(outcome.result.text(), arguments, "another caller's answer");
            progress.succeeded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn kill(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
    // The process may already be dead.
    let _ = Command::new("kill").args(["-9", pid.trim()]).status();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_recover_from_crashes_under_load_without_running_calls_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let tools = TOOLS.to_string();
    let mut web = [
        HttpZoo::start(&[
            "--sessions",
            "--tools",
            &tools,
            "--count",
            path("web0").to_str().unwrap(),
        ]),
        HttpZoo::start(&[
            "--era",
            "modern",
            "--tools",
            &tools,
            "--count",
            path("web1").to_str().unwrap(),
        ]),
    ];
    let mut toml = String::new();
    for n in 0..2 {
        let (pid, count) = (path(&format!("pid{n}")), path(&format!("pipe{n}")));
        let era = ["legacy", "modern"][n];
        let flags = [
            "--era",
            era,
            "--tools",
            &tools,
            "--pid",
            pid.to_str().unwrap(),
            "--count",
            count.to_str().unwrap(),
        ];
        toml += &stdio_zoo(&format!("pipe{n}"), &flags);
        toml += &http_server(&format!("web{n}"), &web[n].url());
    }
    let gateway = start_settled(&(toml + "[mcp]\nhealth_interval = \"500ms\"\n")).await;
    let names = ["pipe0", "pipe1", "web0", "web1"];
    let progress = Arc::new(LoadProgress::default());
    let workers: Vec<_> = names
        .iter()
        .flat_map(|server| (0..WORKERS).map(move |worker| (*server, worker)))
        .map(|(server, worker)| {
            let (gateway, progress) = (gateway.clone(), Arc::clone(&progress));
            async move { load(&gateway, server, worker, &progress).await }
        })
        .collect();
    let crashes = async {
        let mut dice = Dice(SEED);
        for round in 0..ROUNDS {
            wait_for_successes(&progress, 20 + dice.roll(200)).await;
            match dice.roll(4) {
                n @ 0..2 => kill(&path(&format!("pid{n}"))),
                n => web[usize::try_from(n - 2).unwrap()].restart(),
            }
            for name in names {
                eventually(
                    &format!("{name} recovers in round {round} (seed {SEED})"),
                    WAIT_TIMEOUT,
                    async || call(&gateway, &format!("{name}_echo"), "{}").await.ok(),
                )
                .await;
            }
        }
        progress.stopped.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all(workers), crashes);
    assert_no_call_fails(&gateway, &names).await;
    stop(gateway).await;
    for name in names {
        let runs = runs_per_tool(&path(name));
        assert!(runs.len() > 10, "{name} ran {} tools", runs.len());
        let repeated: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(
            repeated.is_empty(),
            "{name} repeated {repeated:?} (seed {SEED})"
        );
    }
}

/// Waits for further calls to succeed, so that each crash hits a different amount of work in flight.
async fn wait_for_successes(progress: &LoadProgress, more: u64) {
    let succeeded = || progress.succeeded.load(Ordering::Relaxed);
    let enough = succeeded() + usize::try_from(more).unwrap();
    eventually("calls succeed", WAIT_TIMEOUT, async || {
        (succeeded() >= enough).then_some(())
    })
    .await;
}

async fn assert_no_call_fails(gateway: &Gateway, names: &[&str]) {
    for name in names {
        wait_for_state(gateway, name, ServerState::Healthy).await;
        for n in 0..50 {
            let arguments = format!(r#"{{"n":{n}}}"#);
            assert_eq!(
                call_text(gateway, &format!("{name}_echo"), &arguments).await,
                arguments,
                "no call fails after recovery"
            );
        }
    }
}

/// Counts the runs of each tool that is called at most once.
fn runs_per_tool(request_log: &Path) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(request_log).unwrap();
    let mut runs = HashMap::new();
    for tool in text
        .lines()
        .filter_map(|line| line.strip_prefix("tools/call tool_"))
    {
        *runs.entry(tool.to_owned()).or_default() += 1;
    }
    runs
}

/// Returns the resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_starts_and_stops_leak_no_processes_or_memory() {
    // Needs a process of its own, because the memory of other tests would count too.
    if !std::env::args().any(|argument| argument == "--exact") {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("chaos::repeated_starts_and_stops_leak_no_processes_or_memory")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{output:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pid");
    let mut started = Vec::new();
    let mut after_ten = 0;
    for round in 0..100 {
        let gateway = start_settled(&stdio_zoo("zoo", &["--pid", pids.to_str().unwrap()])).await;
        assert_eq!(
            call_text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await,
            "2"
        );
        started.push(
            std::fs::read_to_string(&pids)
                .unwrap()
                .trim()
                .parse::<u32>()
                .unwrap(),
        );
        stop(gateway).await;
        if round == 9 {
            after_ten = resident_kib();
        }
    }
    assert!(
        started.iter().all(|&pid| !toolgate_testkit::is_alive(pid)),
        "a server outlived its gateway"
    );
    let kib = resident_kib();
    // Allocators keep some freed memory, so the bound is generous; leaking a connection's buffers in
    // every round would still exceed it.
    assert!(
        kib < after_ten + 32 * 1024,
        "memory grew from {after_ten} to {kib} KiB"
    );
}
