//! Servers die and come back under load, again and again. Seeded, so that a failure can be run
//! again.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use toolgate::{Gateway, State};
use toolgate_testkit::{HttpZoo, eventually};

use crate::support::{SOON, at, call, reaches, settled, stop, text, zoo};

const SEED: u64 = 20_260_728;
const ROUNDS: usize = 12;
const WORKERS: usize = 4;
/// Tools of each server that are called at most once.
const TOOLS: usize = 1000;

/// A small generator that needs no crate.
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

/// Calls one server until told to stop; every answer must be the one that was asked for. Says how
/// many calls were good.
async fn load(gateway: &Gateway, server: &str, worker: usize, over: &AtomicBool) -> usize {
    // Tools that say nothing of being harmless, each called once: it must never run twice.
    let mut once = (1..=TOOLS).filter(|number| number % WORKERS == worker);
    let mut good = 0;
    for n in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let arguments = format!(r#"{{"value":"{server}-{worker}-{n}"}}"#);
        let number = if n % 2 == 0 { once.next() } else { None };
        let tool = number.map_or("echo".to_owned(), |number| format!("tool_{number:04}"));
        match call(gateway, &format!("{server}_{tool}"), &arguments).await {
            Ok(outcome) => {
                assert_eq!(outcome.result.text(), arguments, "another caller's answer");
                good += 1;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    good
}

fn kill(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).unwrap_or_default();
    // It may be dead already.
    let _ = Command::new("kill").args(["-9", pid.trim()]).status();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_die_under_load_come_back_and_nothing_runs_twice() {
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
        toml += &zoo(&format!("pipe{n}"), &flags);
        toml += &at(&format!("web{n}"), &web[n].url());
    }
    let gateway = settled(&(toml + "[mcp]\nhealth_interval = \"500ms\"\n")).await;
    let names = ["pipe0", "pipe1", "web0", "web1"];
    let over = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = names
        .iter()
        .flat_map(|server| (0..WORKERS).map(move |worker| (*server, worker)))
        .map(|(server, worker)| {
            let (gateway, over) = (gateway.clone(), Arc::clone(&over));
            async move { load(&gateway, server, worker, &over).await }
        })
        .collect();
    let havoc = async {
        let mut dice = Dice(SEED);
        for round in 0..ROUNDS {
            tokio::time::sleep(Duration::from_millis(200 + dice.roll(400))).await;
            match dice.roll(4) {
                n @ 0..2 => kill(&path(&format!("pid{n}"))),
                n => web[usize::try_from(n - 2).unwrap()].restart(),
            }
            for name in names {
                eventually(
                    &format!("{name} heals in round {round} (seed {SEED})"),
                    SOON,
                    async || call(&gateway, &format!("{name}_echo"), "{}").await.ok(),
                )
                .await;
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    let (counts, ()) = tokio::join!(join_all(workers), havoc);
    let good: usize = counts.iter().sum();
    assert!(good > 100, "{good} good calls");
    no_call_fails(&gateway, &names).await;
    stop(gateway).await;
    for name in names {
        let ran = ran_in(&path(name));
        assert!(ran.len() > 10, "{name} ran {} of them", ran.len());
        let twice: Vec<_> = ran.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{name} ran {twice:?} (seed {SEED})");
    }
}

async fn no_call_fails(gateway: &Gateway, names: &[&str]) {
    for name in names {
        reaches(gateway, name, State::Healthy).await;
        for n in 0..50 {
            let arguments = format!(r#"{{"n":{n}}}"#);
            assert_eq!(
                text(gateway, &format!("{name}_echo"), &arguments).await,
                arguments,
                "no call after healing fails"
            );
        }
    }
}

/// How often each tool that is called at most once ran.
fn ran_in(ledger: &Path) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(ledger).unwrap();
    let mut ran = HashMap::new();
    for tool in text
        .lines()
        .filter_map(|line| line.strip_prefix("tools/call tool_"))
    {
        *ran.entry(tool.to_owned()).or_default() += 1;
    }
    ran
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_starts_and_stops_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pid");
    let mut started = Vec::new();
    let mut after_ten = 0;
    for round in 0..100 {
        let gateway = settled(&zoo("zoo", &["--pid", pids.to_str().unwrap()])).await;
        assert_eq!(text(&gateway, "zoo_add", r#"{"a":1,"b":1}"#).await, "2");
        started.push(
            std::fs::read_to_string(&pids)
                .unwrap()
                .trim()
                .parse::<u32>()
                .unwrap(),
        );
        stop(gateway).await;
        if round == 9 {
            after_ten = resident();
        }
    }
    assert!(
        started.iter().all(|&pid| !toolgate_testkit::alive(pid)),
        "a server outlived its gateway"
    );
    let kib = resident();
    // Other tests run in this process too, so the bound is wide; a leak of a connection's buffers
    // in each round would be wider.
    assert!(
        kib < after_ten + 150 * 1024,
        "memory grew from {after_ten} to {kib} KiB"
    );
}
